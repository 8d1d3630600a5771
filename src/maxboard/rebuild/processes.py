"""Scans of several partitions in processes of their own, which end with the one that began them."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized
from typing import Any

from maxboard.errors import MaxboardError, Refused
from maxboard.rebuild.log_scan import Piece, ScanTask, scan

LOOK_S = 0.2
WATCH_S = 0.1  # for how long a process goes on at the most after the one that began it has ended, or wants no more

_progress: Any = None


def _begin(progress: Any, ended: Any, parent: int) -> None:
    """In a new process: know where to report to, and end with the process that began this."""
    global _progress  # noqa: PLW0603  # the pool gives an initializer no other way
    _progress = progress

    def watch() -> None:
        while os.getppid() == parent and not ended.value:
            time.sleep(WATCH_S)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run(number: int, task: ScanTask) -> list[Piece] | MaxboardError:
    def report(count: int) -> None:
        _progress[number] = count

    try:
        return scan(task, report)
    except MaxboardError as error:  # its classes take more than one argument, which pickling would lose
        return error


def in_processes(tasks: Sequence[ScanTask], jobs: int, report: Any) -> list[Piece]:
    """Run all scans, ``jobs`` at a time; ``report`` hears how many records are behind.

    Raises what a scan raises, and ``Refused`` when a process was killed.
    """
    context = multiprocessing.get_context("spawn")
    progress: Any = context.Array("q", len(tasks))
    pieces: list[Piece] = []
    with _pool(jobs, context, progress) as pool:
        waiting = {pool.submit(_run, number, task) for number, task in enumerate(tasks)}
        while waiting:
            done, waiting = wait(waiting, LOOK_S, FIRST_COMPLETED)
            report(sum(progress))
            for future in done:
                try:
                    found = future.result()
                except BrokenProcessPool:
                    raise Refused(
                        f"a process that reads the log was killed, probably for lack of memory: run this again with "
                        f"fewer --jobs (there were {jobs}), or with more memory"
                    ) from None
                if isinstance(found, MaxboardError):
                    raise found
                pieces += found
    return pieces


@contextmanager
def _pool(jobs: int, context: Any, progress: Synchronized[int]) -> Iterator[ProcessPoolExecutor]:
    ended = context.RawValue("b", 0)
    pool = ProcessPoolExecutor(jobs, context, _begin, (progress, ended, os.getpid()))
    try:
        yield pool
    except BaseException:
        ended.value = 1  # else the scans that run would be waited for
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
