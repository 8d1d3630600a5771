"""Worker processes of one command: started, watched, told to stop together."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from threading import Thread
from typing import IO

RESTART_S = 1.0  # a worker that was killed starts again after this
LOOK_S = 0.1


def supervise(
    command: Callable[[int], list[str]],
    count: int,
    stopped: Callable[[], bool],
    report: Callable[[Counter[str]], None],
    grace: float,
    unheard: int = 0,
) -> tuple[int, Counter[str]]:
    """Run ``count`` workers until all have ended; returns an exit code and their sums.

    The code is 0, that of the first worker that failed, 1 when one had to be killed after ``grace`` s, or ``unheard``
    when the stop came while one was starting, or was yet to start again: it cannot say what it has left.
    A worker that a signal killed is started again; one that ends with an exit code above 0 ends all. Each worker
    writes a JSON object of numbers a line to its standard output; ``report`` gets their sums (0 where there is none).
    """
    totals = [Counter[str]() for _ in range(count)]
    listeners: list[Thread] = []
    workers = {number: _start(command(number), totals[number], listeners) for number in range(count)}
    restart: dict[int, float] = {}
    code, told = 0, 0.0
    while workers or restart:
        time.sleep(LOOK_S)
        now = time.monotonic()
        if (stopped() or code) and not told:
            told = now
            code = code or (unheard if restart else 0)
            restart.clear()
            for worker in workers.values():
                worker.terminate()
        if told and now - told > grace:
            for worker in workers.values():
                worker.kill()
        for number, worker in list(workers.items()):
            ended = worker.poll()
            if ended is None:
                continue
            del workers[number]
            if ended < 0 and not told:
                restart[number] = now + RESTART_S
            elif ended == -signal.SIGTERM:  # ours, before it listened
                code = code or unheard
            elif ended and not code:
                code = max(ended, 1)
        for number in [n for n, at in restart.items() if at <= now]:
            del restart[number]
            workers[number] = _start(command(number), totals[number], listeners)
        report(sum(totals, Counter()))
    for listener in listeners:  # their last numbers
        listener.join(1.0)
    return code, sum(totals, Counter())


def _start(words: list[str], totals: Counter[str], listeners: list[Thread]) -> subprocess.Popen[bytes]:
    worker = subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert worker.stdout is not None
    listeners.append(Thread(target=_listen, args=(worker.stdout, totals, Counter(totals)), daemon=True))
    listeners[-1].start()
    return worker


def _listen(lines: IO[bytes], totals: Counter[str], before: Counter[str]) -> None:
    """Keep the newest numbers of a worker, on top of what the one before it had done."""
    with lines:
        for line in lines:
            try:
                numbers = json.loads(line)
            except ValueError:
                continue
            for name, value in numbers.items():
                totals[name] = value + (0 if name == "lag" else before[name])
