"""Server settings that would fork in the middle of a load: off while it runs, back afterwards, whatever happens.

What they were is kept on the server itself until then, so a job that was killed is cleaned up after by the next. It is
kept with the server's run id: a replica that was promoted meanwhile has the note too, but its settings are its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import redis

from maxboard.board.build_scripts import settings_key
from maxboard.board.client import answering, explain
from maxboard.board.registry import text
from maxboard.errors import MaxboardError
from maxboard.rebuild.progress import Bars
from maxboard.rebuild.target import Target

# A fork while members come in copies the memory of every page they touch: up to the board a second time.
OFF = {"save": "", "auto-aof-rewrite-percentage": "0"}
RUN_ID, ADDRESS = "run_id", "address"  # beside the settings: of which server they are


def _key(target: Target) -> str:
    return settings_key(target.keys)


@contextmanager
def quiet(target: Target) -> Iterator[None]:
    """No snapshots and rewrites inside. Where the server does not allow CONFIG, nothing changes."""
    restore(target)
    try:
        _turn_off(target)
        yield
    finally:
        restore(target)


def _turn_off(target: Target) -> None:
    client = target.client
    with answering(target.server):
        try:
            were = cast("dict[str, str]", client.config_get(*OFF))
        except redis.exceptions.ResponseError:
            return
        changed = {name: value for name, value in were.items() if name in OFF and value != OFF[name]}
        if not changed:
            return
        note: dict[Any, Any] = changed | _which(target)
        client.hset(_key(target), mapping=note)
        done: list[str] = []
        try:
            for name in changed:
                client.config_set(name, OFF[name])
                done.append(name)
        except redis.exceptions.ResponseError:  # CONFIG GET may be allowed alone
            for name in done:
                client.config_set(name, changed[name])
            client.delete(_key(target))


def _which(target: Target) -> dict[str, str]:
    """The server that answers, by its run id and its address."""
    with answering(target.server):
        connection = target.client.connection_pool.get_connection()
        place = getattr(connection, "path", "") or f"{connection.host}:{connection.port}"
        target.client.connection_pool.release(connection)
    return {RUN_ID: str(target.info("server")["run_id"]), ADDRESS: place}


def restore(target: Target) -> None:
    """Put back what a load changed, also one that was killed. What cannot be is said, and ends nothing."""
    client = target.client
    try:
        with answering(target.server):
            found = cast("dict[bytes, bytes]", client.hgetall(_key(target)))
        if not found:
            return
        kept = {text(name): text(value) for name, value in found.items()}
        were = {name: value for name, value in kept.items() if name in OFF}
        here = _which(target)
        if kept.get(RUN_ID, here[RUN_ID]) != here[RUN_ID]:
            _say(kept.get(ADDRESS, "the old primary"), were, "it has restarted since, or is no primary any more")
        else:
            _put_back(target, were)
        with answering(target.server):
            client.delete(_key(target))
    except MaxboardError as error:  # the next rebuild tries again
        Bars().say(f"settings that were off for a load are not put back yet: {error}")


def _put_back(target: Target, were: Mapping[str, str]) -> None:
    with answering(target.server):
        try:
            for name, value in were.items():
                target.client.config_set(name, value)
        except redis.exceptions.ResponseError as error:
            _say(target.server, were, str(explain(error, "it")))


def _say(server: str, were: Mapping[str, str], why: str) -> None:
    """What somebody has to look at, as nobody else can."""
    commands = "; ".join(f"CONFIG SET {name} '{value}'" for name, value in were.items())
    Bars().say(f"settings of {server} were off for a load and cannot be put back ({why}): look there: {commands}")
