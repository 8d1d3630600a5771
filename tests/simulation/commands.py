"""The commands that ``lua/*.lua`` use: (state, words) to what ``redis.call`` gives; False is nil, a tuple a list."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tests.simulation.state import Hash, SortedSet, State, pairs, score_text, span


def hget(state: State, key: bytes, field: bytes) -> bytes | bool:
    return state.hash(key).get(field, False)


def hset(state: State, key: bytes, *words: bytes) -> int:
    fields = state.hash(key)
    new = len(fields)
    fields.update(pairs(words))
    state.keys[key] = fields
    return len(fields) - new


def hgetall(state: State, key: bytes) -> tuple[bytes, ...]:
    return tuple(word for item in state.hash(key).items() for word in item)


def hmget(state: State, key: bytes, *fields: bytes) -> tuple[bytes | bool, ...]:
    found = state.hash(key)
    return tuple([found.get(field, False) for field in fields])


def hdel(state: State, key: bytes, *fields: bytes) -> int:
    found = state.hash(key)
    gone = sum(found.pop(field, None) is not None for field in fields)
    if gone and not found:
        state.drop(key)
    return gone


def hlen(state: State, key: bytes) -> int:
    return len(state.hash(key))


def exists(state: State, *keys: bytes) -> int:
    return sum(key in state.keys for key in keys)


def type_of(state: State, key: bytes) -> bytes:
    value = state.keys.get(key)
    return b"none" if value is None else KINDS[type(value)]


def hexists(state: State, key: bytes, field: bytes) -> int:
    return int(field in state.hash(key))


def hscan(state: State, key: bytes, cursor: bytes, *_: bytes) -> tuple[bytes, ...]:
    return (b"0", *hgetall(state, key))


def zadd(state: State, key: bytes, *words: bytes) -> int:
    members = state.zset(key)
    flags = {word for word in words[:2] if word in (b"GT", b"CH")}
    added = changed = 0
    for score, member in pairs(words[len(flags) :]):
        old = members.get(member)
        if old is None or b"GT" not in flags or float(score) > old:
            members[member] = float(score)
            added += old is None
            changed += old != float(score)
    state.keys[key] = members
    return changed if b"CH" in flags else added


def zrem(state: State, key: bytes, *names: bytes) -> int:
    members = state.zset(key)
    gone = sum(members.pop(member, None) is not None for member in names)
    if gone and not members:
        state.drop(key)
    return gone


def zscore(state: State, key: bytes, member: bytes) -> bytes | bool:
    found = state.zset(key)
    return score_text(found[member]) if member in found else False


def zscan(state: State, key: bytes, cursor: bytes, match: bytes, pattern: bytes, *_: bytes) -> tuple[bytes, ...]:
    assert (match, pattern[-1:]) == (b"MATCH", b"*")  # as the scripts use it
    start = re.sub(rb"\\(.)", rb"\1", pattern[:-1])
    members = sorted(state.zset(key).items(), key=lambda item: (item[1], item[0]))
    return (b"0", *(w for name, score in members if name.startswith(start) for w in (name, score_text(score))))


def zmscore(state: State, key: bytes, *members: bytes) -> tuple[bytes | bool, ...]:
    found = state.zset(key)
    return tuple([score_text(found[member]) if member in found else False for member in members])


def zrevrank(state: State, key: bytes, member: bytes) -> int | bool:
    members = state.zset(key)
    if member not in members:
        return False
    mine = (members[member], member)
    return sum((score, other) > mine for other, score in members.items())


def zcard(state: State, key: bytes) -> int:
    return len(state.zset(key))


def zrevrange(state: State, key: bytes, first: bytes, last: bytes, *scores: bytes) -> tuple[bytes, ...]:
    members = state.zset(key).descending()
    found = members[span(len(members), int(first), int(last))]
    if not scores:
        return tuple(member for member, _ in found)
    return tuple(word for member, score in found for word in (member, score_text(score)))


def zcount(state: State, key: bytes, low: bytes, high: bytes) -> int:
    least, greatest = float(low.lstrip(b"(")), float(high.lstrip(b"("))
    above = low.startswith(b"(")
    below = high.startswith(b"(")
    return sum(
        (score > least if above else score >= least) and (score < greatest if below else score <= greatest)
        for score in state.zset(key).values()
    )


def pexpireat(state: State, key: bytes, at: bytes) -> int:
    if key not in state.keys:
        return 0
    state.expires[key] = int(at)
    return 1


def pexpire(state: State, key: bytes, ms: bytes) -> int:
    return pexpireat(state, key, str(state.now + int(ms)).encode())


KINDS: dict[type, bytes] = {Hash: b"hash", SortedSet: b"zset", bytes: b"string"}
COMMANDS: dict[bytes, Callable[..., Any]] = {
    b"HGET": hget, b"HSET": hset, b"HGETALL": hgetall, b"HMGET": hmget, b"HDEL": hdel, b"HLEN": hlen,
    b"EXISTS": exists, b"TYPE": type_of, b"ZADD": zadd, b"ZMSCORE": zmscore, b"ZREVRANK": zrevrank, b"ZCARD": zcard,
    b"ZREVRANGE": zrevrange, b"ZCOUNT": zcount, b"PEXPIREAT": pexpireat,
    b"HEXISTS": hexists, b"HSCAN": hscan, b"ZREM": zrem, b"ZSCORE": zscore, b"ZSCAN": zscan, b"PEXPIRE": pexpire,
}  # fmt: skip
