"""Which port each server gets."""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping

from maxboard.errors import Refused, WrongUse

HOST = "127.0.0.1"

# Below the range that kernels hand out to outgoing connections (32768 and up on Linux, 49152 and up on macOS),
# so that nobody is given one of these by chance between the choice and the start.
PREFERRED = {
    "kafka": 19092,
    "kafka-controller": 19093,
    "weekly": 17001,
    "alltime": 17002,
    "weekly-replica": 17011,
    "alltime-replica": 17012,
    "sentinel-1": 17003,
    "sentinel-2": 17004,
    "sentinel-3": 17005,
    "weekly-replica-2": 17013,
    "alltime-replica-2": 17014,
}
STEP = 20  # between tries: a second stack keeps the pattern of the first (17021, 17022, 17031, 17032)
TRIES = 400


def is_free(port: int) -> bool:
    """Whether a server could listen there now. Connections that are being closed do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def choose(
    names: Collection[str],
    last: Mapping[str, int],
    asked: Mapping[str, int],
    taken: Collection[int],
    kept: Collection[int] = (),
) -> dict[str, int]:
    """A free port for each name: the asked one, else the last one, else one near the preferred one.

    ``taken`` are ports of this stack's running servers, ``kept`` those of other stacks that run, also where the
    server is down at the moment. An asked port that is not free raises ``Refused``, one that is asked for twice
    ``WrongUse``.
    """
    chosen: dict[str, int] = {}
    for name in names:
        used = {*taken, *chosen.values()}
        if name in asked:
            if asked[name] in used:
                raise WrongUse(
                    f"port {asked[name]} for {name} is that of another server of this stack; ask for another"
                )
            if asked[name] in kept or not is_free(asked[name]):
                raise Refused(f"port {asked[name]} for {name} is taken by another process; ask for another port")
            chosen[name] = asked[name]
            continue
        reserved = used | set(asked.values()) | set(kept)
        first = PREFERRED[name]
        candidates = [last.get(name, first), *(first + STEP * step for step in range(TRIES))]
        found = next((port for port in candidates if port not in reserved and is_free(port)), None)
        if found is None:
            raise Refused(f"found no free port for {name} from {first} up; ask for one")
        chosen[name] = found
    return chosen
