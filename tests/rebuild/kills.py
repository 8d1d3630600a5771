"""``python -m tests.rebuild.kills --members 1000000 --kills 50``: SIGKILL to a rebuild at random moments.

After each kill the whole board is read: it is the old one or the new one, complete. The old one lacks a thousand
members, so the two can be told apart; once the new one is there, they are removed again. In the end a rebuild runs
through, and no key of a build is left.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np
import redis
from tests import brokers
from tests.benchmarks.rebuild import PAGE, Board, Ints, Scene, say, server, watch

from maxboard.config import load

MISSING = 1_000
LEAST_S, MOST_S = 0.3, 6.0  # from the start of the job to its kill: imports, fold, load and switch lie in between


def checksum(client: redis.Redis, key: str) -> tuple[int, int]:
    """Number of members, and a checksum over all of them in order."""
    members, crc = int(client.zcard(key)), 0
    for start in range(0, members, PAGE):
        page = client.execute_command("ZRANGE", key, start, start + PAGE - 1, "REV", "WITHSCORES")
        crc = zlib.crc32(b" ".join(page), crc)
    return members, crc


def cut(client: redis.Redis, key: str, ids: Ints) -> tuple[int, int]:
    """Take the missing ones away; the old board."""
    client.zrem(key, *map(str, ids.tolist()))
    return checksum(client, key)


def main() -> None:
    """Kill, look, and say what was found; exit 1 when a board was neither."""
    parser = argparse.ArgumentParser(prog="python -m tests.rebuild.kills", description=__doc__)
    parser.add_argument("--members", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    rng, seen = random.Random(given.seed), {"old": 0, "new": 0}
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = Path(name)
        with brokers.embedded(folder / "stack") as stack, server(folder / "server") as url:
            scene = Scene(folder, Board(given.members, None), brokers.address(stack), given.members // 20)  # type: ignore[arg-type]
            settings = load(scene.config(url))
            scene.board.ref = settings.build().parse("weekly", time.time_ns() // 1_000_000)
            config, reference = folder / "maxboard.toml", scene.board.ref.reference
            watch(config, "init")
            scene.save(settings)
            scene.produce(settings)
            words = ["rebuild", reference, "--from-checkpoint", str(folder / "checkpoints"), "--yes", "--json"]
            words += ["--work", str(folder / "work")]
            watch(config, *words)
            client, key = redis.Redis.from_url(url, protocol=2, socket_timeout=60), f"lb:{reference}"
            new = checksum(client, key)
            missing = scene.board.ids(np.arange(0, given.members, given.members // MISSING, dtype=np.int64))
            old = cut(client, key, missing)
            for number in range(given.kills):
                command = [sys.executable, "-m", "maxboard", "--config", str(config), *words]
                with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
                    time.sleep(rng.uniform(LEAST_S, MOST_S))
                    ended = job.poll() is not None
                    job.send_signal(signal.SIGKILL)
                found = checksum(client, key)
                if found not in (old, new):
                    raise SystemExit(f"kill {number}: {found[0]} members, neither the old board nor the new one")
                seen["new" if found == new else "old"] += 1
                say(f"{number + 1}/{given.kills}: {'new' if found == new else 'old'}{', had ended' if ended else ''}")
                if found == new and cut(client, key, missing) != old:
                    raise SystemExit("the old board could not be put back")
            watch(config, *words)
            left = [str(name) for name in client.keys(f"{key}:build*")]
            if checksum(client, key) != new or left:
                raise SystemExit(f"after the last rebuild: {checksum(client, key)}, expected {new}; left: {left}")
    print(
        f"{given.kills} kills at {given.members:,} members: {seen['old']} left the old board, {seen['new']} the new one"
    )


if __name__ == "__main__":
    main()
