"""The primary in memory is a Valkey as far as the scripts can tell: same replies, same keys."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
import redis
from tests.simulation.commands import COMMANDS
from tests.simulation.scene import BOARDS, CONFIG, KEYS, MAX_FUTURE_MS, PLAYERS, REFS, START_MS, WINDOWS
from tests.simulation.server import Interpreter, interpreter
from tests.simulation.state import Hash, ServerError, SortedSet, State

from maxboard.board import scripts
from maxboard.board.client import call
from maxboard.board.scripts import BoardRuns, Command, Range
from maxboard.boards import set_digest

DEFINITIONS = {name: BOARDS.by_name[name].digest for name in CONFIG}
DIGEST = set_digest(DEFINITIONS)
TOP = 8_999_999_999_999_999
pytestmark = pytest.mark.servers


def plain(reply: Any) -> Any:
    """A reply without exponents, which only older servers write."""
    if isinstance(reply, list):
        return [plain(item) for item in reply]
    is_score = isinstance(reply, bytes) and re.fullmatch(rb"[\d.]+e\+\d+", reply)
    return str(int(float(reply))).encode() if is_score else reply


def answer(command: Command, reply: Any) -> Any:
    """Also without the order of the log's fields: ``accept_log`` loops over a table, which has none."""
    reply = plain(reply)
    if command.script.startswith("read_"):
        reply[0] = sorted(zip(reply[0][::2], reply[0][1::2], strict=True))
    return reply


def contents(valkey: redis.Redis) -> dict[bytes, Any]:
    """All keys of a server."""
    client: Any = valkey
    read = {
        b"hash": client.hgetall,
        b"zset": lambda key: dict(client.zrange(key, 0, -1, withscores=True)),
        b"string": client.get,
    }
    return {key: read[client.type(key)](key) for key in client.keys("*")}


def expiries(valkey: redis.Redis) -> dict[bytes, int]:
    """Keys that expire, and when."""
    client: Any = valkey
    found = {key: client.pexpiretime(key) for key in client.keys("*")}
    return {key: at for key, at in found.items() if at > 0}


def assert_same(valkey: redis.Redis, state: State) -> None:
    """Keys, values, expiry; what submits leave expires by the server's own clock."""
    assert contents(valkey) == dict(state.keys)
    own, announce = expiries(valkey), KEYS.announce.encode()
    assert own.keys() == state.expires.keys()
    assert {**own, announce: 0} == {**state.expires, announce: 0}


# ---------------------------------------------------------------- commands
def words(rng: random.Random) -> list[bytes]:
    """A command with random arguments, often on a key of another type."""
    key = rng.choice((b"h", b"z", b"s", b"other"))
    member = [rng.choice((b"a", b"B", b"10", b"9", b"~")) for _ in range(3)]
    score = [str(rng.choice((0, 5, 7, 100, 10**8, 1234 * 10**9, 8 * 10**15, TOP))).encode() for _ in range(2)]
    index = str(rng.randrange(-4, 4)).encode()
    choices: list[list[bytes]] = [
        [b"HGET", key, member[0]],
        [b"HSET", key, member[0], score[0], member[1], b"x"],
        [b"HGETALL", key],
        [b"HMGET", key, *member],
        [b"HDEL", key, *member],
        [b"HLEN", key],
        [b"EXISTS", key],
        [b"TYPE", key],
        [b"ZADD", key, b"GT", score[0], member[0], score[1], member[1]],
        [b"ZADD", key, b"GT", score[0], member[2]],
        [b"ZMSCORE", key, *member],
        [b"ZREVRANK", key, member[0]],
        [b"ZCARD", key],
        [b"ZREVRANGE", key, index, b"-1", b"WITHSCORES"],
        [b"ZREVRANGE", key, b"0", index],
        [b"ZCOUNT", key, rng.choice((b"", b"(")) + score[0], b"+inf"],
        [b"ZCOUNT", key, score[0], score[1]],
        [b"PEXPIREAT", key, str(START_MS * 2).encode()],
        [b"ZADD", key, b"GT", b"CH", score[0], member[0], score[1], member[1]],
        [b"HEXISTS", key, member[0]],
        [b"ZREM", key, *member[:2]],
        [b"ZSCORE", key, member[0]],
        [b"HSCAN", key, b"0", b"COUNT", b"100"],
        [b"ZSCAN", key, b"0", b"MATCH", member[0] + b"*", b"COUNT", b"1000"],
    ]
    return rng.choice(choices)


def in_memory(state: State, command: list[bytes]) -> Any:
    """A reply as a client of RESP2 gets it."""
    try:
        reply = COMMANDS[command[0]](state, *command[1:])
    except ServerError:
        return "WRONGTYPE"
    if command[0] in (b"HSCAN", b"ZSCAN"):
        return [reply[0], list(reply[1:])]
    if isinstance(reply, tuple):
        return [None if item is False else item for item in reply]
    return None if reply is False else reply


def on_server(valkey: redis.Redis, command: list[bytes]) -> Any:
    """The same of a server, without redis-py's own reading of it."""
    connection = valkey.connection_pool.get_connection()
    try:
        connection.send_command(*command)
        return connection.read_response()
    except redis.exceptions.ResponseError as error:
        return str(error).split(" ", maxsplit=1)[0]
    finally:
        valkey.connection_pool.release(connection)


@pytest.mark.parametrize("seed", range(20))
def test_commands_answer_as_a_server_does(valkey: redis.Redis, seed: int) -> None:
    """Also on a key of another type, also scores that an older server writes with an exponent."""
    rng, state = random.Random(seed), State()
    state.keys[b"s"] = b"text"
    valkey.set("s", "text")
    for _ in range(150):
        command = words(rng)
        assert in_memory(state, command) == plain(on_server(valkey, command)), command
    assert_same(valkey, state)


# ---------------------------------------------------------------- scripts
def script_call(rng: random.Random) -> Command:
    """A call as an applier or a reader makes it, or nearly."""
    kind = rng.choices(("apply", "moderate", "due", "define", "board", "page", "primary"), (10, 6, 3, 2, 2, 2, 1))[0]
    start = rng.randrange(6)
    now = START_MS + rng.choice((0, 0, 0, 400 * 86_400_000))
    range_ = Range(
        rng.choice(("runs:0", "runs:1", "moderation")), "t", 2, start, start + rng.randrange(4), rng.randrange(9),
        rng.choice((0, 0, 1, START_MS)), START_MS + start, rng.choice((0, START_MS)),
    )  # fmt: skip
    digest = DIGEST if rng.random() < 0.95 else "other"
    ref = REFS[rng.choice(WINDOWS)]
    if kind == "apply":
        source = scripts.SUBMIT if rng.random() < 0.1 else range_
        judged = rng.choice((0, 0, 0, 1))
        return scripts.apply_runs(KEYS, digest, source, judged, now, [board_runs(rng) for _ in range(rng.randrange(3))])
    if kind == "moderate":
        return scripts.moderate(KEYS, digest, range_, now, operations(rng, start))
    if kind == "due":
        best = rng.choice((None, 5, 8 * 10**15, TOP))
        boards = [scripts.DueBoard(ref, best, [("a|r", TOP)] * rng.randrange(2))] * rng.randrange(2)
        folded = {"runs:0": rng.choice((0, 9)), "runs:1": 9, "runs:2": 9}
        args = rng.choice(PLAYERS), rng.choice((0, 1, 9)), rng.choice((None, 0, 1, 9))
        return scripts.put_due(KEYS, digest, *args, now, folded, boards)
    if kind == "define":
        mode = rng.choice(("new", "new", "change", "short"))
        if mode == "short":
            return scripts.accept_log(KEYS, mode, DIGEST, START_MS - 1000 + MAX_FUTURE_MS, "", "", ())
        return scripts.define_boards(KEYS, mode, DEFINITIONS, MAX_FUTURE_MS)
    if kind == "board":
        return scripts.read_board(KEYS, ref, rng.choice(("", *PLAYERS)), rng.randrange(1, 3), rng.randrange(4))
    if kind == "page":
        after = None if rng.random() < 0.3 else (rng.choice(PLAYERS), rng.choice((5, 8 * 10**15, TOP)))
        return scripts.read_page(KEYS, ref, after, rng.randrange(1, 4))
    return scripts.read_primary(KEYS)


def operations(rng: random.Random, start: int) -> list[scripts.Operation]:
    """Events, one a player."""
    made = []
    for offset, player in enumerate(rng.sample(PLAYERS, rng.randrange(4)), start):
        ref, composite = REFS[rng.choice(WINDOWS)], rng.choice((5, 8 * 10**15, TOP))
        name, words = rng.choice((
            ("ban", (f"ban {offset}",)), ("unban", ()), ("none", ()), ("erase", ()),
            ("accept", ("r", rng.randrange(2), ref.reference, ref.window.start, ref.expires, composite)),
            ("reject", ("r", ref.reference, composite)),
        ))  # fmt: skip
        made.append(scripts.Operation(offset, name, player, words))
    return made


def board_runs(rng: random.Random) -> BoardRuns:
    players = rng.sample(PLAYERS, rng.randrange(4))
    composites = (0, 5, 7, 10**8, 8 * 10**15, TOP)
    held = [(f"{player}|r", rng.choice(composites)) for player in players[:1] if rng.random() < 0.2]
    return BoardRuns(REFS[rng.choice(WINDOWS)], [(player, rng.choice(composites)) for player in players], held)


def disturb(rng: random.Random, valkey: redis.Redis, state: State) -> None:
    """What others do to the keys."""
    key = KEYS.board(rng.choice(WINDOWS)) + rng.choice(("", "", ":shadow"))
    if rng.random() < 0.5:
        valkey.delete(key)
        state.drop(key.encode())
    elif rng.random() < 0.5:
        valkey.set(key, "?")
        state.drop(key.encode())
        state.keys[key.encode()] = b"?"
    else:
        valkey.hset(KEYS.hidden, "a", "ban 0")
        state.keys[KEYS.hidden.encode()] = Hash({**state.hash(KEYS.hidden.encode()), b"a": b"ban 0"})


@pytest.mark.parametrize("seed", range(20))
def test_scripts_answer_as_on_a_server(valkey: redis.Redis, seed: int) -> None:
    """All of them, in any order, with keys that vanish or change their type between two calls."""
    rng, state, lua = random.Random(seed), State(), interpreter()
    if seed % 4:
        define = scripts.define_boards(KEYS, "new", DEFINITIONS, MAX_FUTURE_MS)
        assert lua.run(state, define) == call(valkey, define)
    for _ in range(60):
        if rng.random() < 0.04:
            disturb(rng, valkey, state)
        command = script_call(rng)
        assert answer(command, lua.run(state, command)) == answer(command, call(valkey, command)), command
    assert_same(valkey, state)


def test_a_snapshot_is_not_reached_by_later_writes() -> None:
    """What a replica or a backup is made of."""
    state, lua = State(), Interpreter()
    lua.run(state, scripts.define_boards(KEYS, "new", DEFINITIONS, MAX_FUTURE_MS))
    state.keys[b"z"] = SortedSet({b"a": 1.0})
    before = state.copy()
    state.zset(b"z")[b"a"] = 2.0
    lua.run(state, scripts.apply_runs(KEYS, DIGEST, Range("runs:0", "t", 1, 0, 1, 1, 0, 0, 0), 0, START_MS, []))
    assert before.keys[b"z"] == {b"a": 1.0}
    assert KEYS.log.encode() not in before.keys
