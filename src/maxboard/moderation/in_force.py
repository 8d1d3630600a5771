"""An event is in force once the moderation position of every primary, and replica that answers, is past it.

Then no reader, wherever it reads from, sees what was before.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from maxboard.board.client import address, answering, connect
from maxboard.board.registry import MODERATION, parse_log, text
from maxboard.config import Settings
from maxboard.errors import MaxboardError, NotYet, ServerNotReady
from maxboard.keys import Keys
from maxboard.log.offsets import Offsets

LOOK_AGAIN_S = 0.05  # an applier has an event in force some 20 ms after it was acknowledged


@dataclass(frozen=True)
class Server:
    """A primary or a replica that must have an event; ``name`` is what messages call it."""

    name: str
    url: str
    replica: bool


def servers(settings: Settings) -> list[Server]:
    """Every primary that has boards, and its configured replicas."""
    found = []
    for name in settings.build().by_primary:
        primary = settings.primaries[name]
        found.append(Server(f"primary {name!r} at {address(primary.url)}", primary.url, False))
        found += [Server(f"replica {address(url)} of {name!r}", url, True) for url in primary.replicas]
    return found


def wait(settings: Settings, position: int, timeout: float) -> list[str]:
    """Wait at most ``timeout`` s until every server is at ``position``; gives what is missing, for people; []: nothing.

    A replica that does not answer is not waited for: nobody reads from it either.
    """
    asked, deadline = servers(settings), time.monotonic() + timeout
    if not asked:
        return []
    topic = settings.kafka.topics.moderation
    topic_id = str(Offsets(settings.kafka).describe([topic])[topic].topic_id)
    look = partial(_behind, keys=Keys(settings.prefix), topic_id=topic_id, position=position, deadline=deadline)
    with ThreadPoolExecutor(len(asked)) as pool:
        missing = list(pool.map(look, asked))
    behind = [(server, text) for server, text in zip(asked, missing, strict=True) if text]
    of_primaries = [text for server, text in behind if not server.replica]
    return of_primaries or [text for _, text in behind]  # a replica cannot be ahead of its primary


def _behind(server: Server, keys: Keys, topic_id: str, position: int, deadline: float) -> str:
    """What is missing there when the time is up; "": nothing."""
    try:
        client = connect(server.url)
    except MaxboardError as error:
        return str(error)
    with client:
        while True:
            try:
                with answering(server.name):
                    entry, known = client.hmget(keys.log, [MODERATION, "moderation-topic"])
                stored = parse_log([MODERATION, entry or "- 0 0 0"]).entry(MODERATION).position or 0
                if known and text(known) != topic_id:  # its positions are of other events
                    return f"{server.name} is at another topic of this name: see maxboard check"
                if stored >= position:
                    return ""
                missing = f"{server.name} is at moderation event {stored} of {position}"
            except ServerNotReady as error:
                if server.replica:
                    return ""
                missing = str(error)
            except MaxboardError as error:
                return str(error)
            except ValueError:
                return f"{server.name} holds a log that maxboard did not write"
            if time.monotonic() > deadline:
                return missing
            time.sleep(LOOK_AGAIN_S)


def not_yet(missing: Sequence[str]) -> NotYet:
    """Recorded, and not yet on every server."""
    return NotYet(
        f"recorded, not in force yet: {'; '.join(missing)}; "
        "an applier (maxboard apply) puts it in force, and nothing has to be repeated"
    )
