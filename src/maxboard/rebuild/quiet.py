"""Server settings that would fork in the middle of a load: off while it runs, back afterwards, whatever happens.

What they were is kept on the server itself until then, so a job that was killed is cleaned up after by the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import redis

from maxboard.board.client import answering
from maxboard.board.registry import text
from maxboard.rebuild.target import Target

# A fork while members come in copies the memory of every page they touch: up to the board a second time.
OFF = {"save": "", "auto-aof-rewrite-percentage": "0"}


def _key(target: Target) -> str:
    return f"{target.keys.prefix}:build:settings"


@contextmanager
def quiet(target: Target) -> Iterator[None]:
    """No snapshots and rewrites inside. Where the server does not allow CONFIG, nothing changes."""
    restore(target)
    client = target.client
    with answering(target.server):
        try:
            were = cast("dict[str, str]", client.config_get(*OFF))
            changed = {name: value for name, value in were.items() if value != OFF[name]}
            if changed:
                for name, value in changed.items():
                    client.hset(_key(target), name, value)
                for name in changed:
                    client.config_set(name, OFF[name])
        except redis.exceptions.ResponseError:
            changed = {}
    try:
        yield
    finally:
        if changed:
            restore(target)


def restore(target: Target) -> None:
    """Put back what a load changed, also one that was killed."""
    client = target.client
    with answering(target.server):
        were = cast("dict[bytes, bytes]", client.hgetall(_key(target)))
        for name, value in were.items():
            if text(name) in OFF:
                client.config_set(text(name), text(value))
        if were:
            client.delete(_key(target))
