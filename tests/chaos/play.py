"""Play one seed on a stack: runs flow, faults happen, readers look; at the end everything is compared with the log."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.chaos import watch
from tests.chaos.crew import Crew
from tests.chaos.faults import Faults
from tests.chaos.history import History
from tests.chaos.load import Load
from tests.chaos.pair import Pair
from tests.chaos.schedule import PRIMARIES, SESSION_S, Schedule
from tests.failure.harness import Game

from maxboard.board.client import connect
from maxboard.board.reader import Reader
from maxboard.devstack import Stack
from maxboard.errors import MaxboardError
from maxboard.keys import Keys

STEP_S = 0.05
CAUGHT_UP_S = 90.0
SAID = 3  # players that differ are named


class ChaosGame(Game):
    """A configuration whose primaries are behind proxies; two boards share one of them."""

    definitions: ClassVar[dict[str, dict[str, Any]]] = {
        "weekly": {
            "primary": "weekly", "window": "iso-week", "score_max": 8_000_000, "tick": "1ms", "grace": "5w",
            "keep": "8w",
        },
        "career": {"primary": "weekly", "window": "all-time", "score_max": 2_000_000, "tick": "1s"},
        "alltime": {"primary": "alltime", "window": "all-time", "score_max": 2_000_000, "tick": "1s"},
    }  # fmt: skip

    def __init__(self, stack: Stack, folder: Path, pairs: dict[str, Pair]) -> None:
        self._pairs = pairs
        super().__init__(stack, folder, 4, **{"session.timeout.ms": int(SESSION_S * 1000)})

    def address(self, primary: str, usual: str) -> str:
        return f"redis://127.0.0.1:{self._pairs[primary].proxy.port}/0"


@dataclass
class Outcome:
    """What a seed came to. ``found``: what does not hold; ``folder`` has the logs while there is something."""

    schedule: Schedule
    runs: int = 0
    events: int = 0
    gaps: int = 0
    reads: int = 0
    live: int = 0
    found: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    folder: Path = Path()

    def __str__(self) -> str:
        s = self.schedule
        verdict = "holds" if not self.found else f"VIOLATED: {self.found[0]}"
        return (
            f"seed {s.seed}: {s.count} faults, {self.runs:,} runs, {self.events} events, {self.gaps} gaps, "
            f"{self.live} of {self.reads} reads live: {verdict}"
        )

    def details(self) -> str:
        """The schedule, what happened when, and everything that does not hold."""
        notes = "\n".join(f"  {note}" for note in self.notes)
        found = "\n".join(f"  {text}" for text in self.found)
        return f"{self.schedule}\nwhat happened:\n{notes}\nwhat does not hold:\n{found}\nlogs: {self.folder}"


@contextmanager
def pairs_of(stack: Stack) -> Iterator[dict[str, Pair]]:
    """The stack's primaries behind proxies; at the end in their usual roles."""
    pairs = {name: Pair(stack, name) for name in PRIMARIES}
    with ExitStack() as ending:
        for pair in pairs.values():
            ending.enter_context(pair.proxy)
        yield pairs


def play(stack: Stack, pairs: dict[str, Pair], schedule: Schedule, folder: Path) -> Outcome:
    """Play it; never raises for what the product does. The folder is removed when everything holds."""
    outcome = Outcome(schedule, folder=folder)
    folder.mkdir(parents=True)
    try:
        _play(stack, pairs, outcome)
    except (AssertionError, MaxboardError, KafkaException, RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        outcome.found.append(f"error: {error!r}")
    finally:
        for pair in pairs.values():
            pair.heal()
            with connect(f"redis://{pair.node.address}/0") as client:
                client.flushall()
    if outcome.found:
        (folder / "outcome.txt").write_text(outcome.details() + "\n")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


def _play(stack: Stack, pairs: dict[str, Pair], outcome: Outcome) -> None:
    schedule, folder = outcome.schedule, outcome.folder
    game = ChaosGame(stack, folder, pairs)
    history = History(game.settings.kafka.bootstrap, game.settings.kafka.topics, game.definitions)
    crew = Crew(game, folder)
    faults = Faults(game, pairs, crew, history, folder)
    outcome.notes = faults.notes
    boards, now = game.settings.build(), time.time_ns() // 1_000_000
    weeks = [boards.by_name["weekly"].window_of(now - n * 7 * 86_400_000) for n in range(3)]
    names = ["career", "alltime", *(f"weekly:{week.part}" for week in weeks if week)]
    refs = [boards.parse(name, now) for name in names]
    try:
        with watch.Watcher(game, pairs.values(), refs) as watcher:
            with Load(game.settings, schedule) as load:
                _let_happen(schedule, crew, faults)
            faults.heal()
            crew.end()
            done = game.run("apply", "--until-caught-up", timeout=CAUGHT_UP_S)
            (folder / "catch-up.log").write_text(done.stdout + done.stderr)
        outcome.runs, outcome.events, outcome.gaps = load.sent, load.events, crew.gaps()
        outcome.reads, outcome.live = len(watcher.seen), sum(one.state == "live" for one in watcher.seen)
        outcome.found += crew.faults
        if done.returncode:
            outcome.found.append(f"apply --until-caught-up: exit {done.returncode}: {done.stderr.strip()[-300:]}")
        history.read_on()
        outcome.found += _at_rest(game, pairs, history, faults.excused)
        outcome.found += watch.judge(watcher.seen, history)
    finally:
        crew.end()
        history.close()
        _remove_topics(game)


def _let_happen(schedule: Schedule, crew: Crew, faults: Faults) -> None:
    left, began = deque(schedule.faults), time.monotonic()
    while (now := time.monotonic() - began) < schedule.seconds:
        crew.tick()
        if left and left[0].at <= now:
            faults.do(left.popleft())
        else:
            time.sleep(STEP_S)


def _at_rest(game: ChaosGame, pairs: dict[str, Pair], history: History, excused: set[str]) -> list[str]:
    """Boards, rank changes, dead letters and offsets, once everything is applied."""
    found: list[str] = []
    states = _states(game, pairs)
    held, newest = game.boards(), _newest(game)
    for board in history.boards():
        state = states.get(board, "unknown")
        if state == "needs-rebuild" and board in excused:
            continue
        if state != "live":
            found.append(f"{board} is {state}" + ("" if board in excused else ", and lost nothing"))
            continue
        want = history.board(board, history.ends())
        found += _differences(f"I6: {board}", want, held.get(board, {}))
        found += _differences(f"I3: rank changes of {board}", want, newest.get(board, {}))
    if (bad := _dead_letters(game)) != history.bad:
        found.append(f"I10: dead letters {sorted(bad ^ history.bad)[:SAID]} are missing or too many")
    if lag := game.lag():
        found.append(f"I3: {lag} records are not committed")
    return found


def _states(game: ChaosGame, pairs: dict[str, Pair]) -> dict[str, str]:
    boards, now = game.settings.build(), time.time_ns() // 1_000_000
    states: dict[str, str] = {}
    for name, pair in pairs.items():
        with connect(f"redis://{pair.node.address}/0") as client:
            for one in Reader(client, Keys(game.settings.prefix), name).primary(boards, name, now):
                states[one.ref.reference] = one.state
    return states


def _newest(game: ChaosGame) -> dict[str, dict[str, tuple[int, int]]]:
    """The newest rank change of each board and player: greatest moderation, then greatest composite."""
    stamps: dict[str, dict[str, tuple[int, int]]] = {}
    for change in game.changes():
        players, stamp = stamps.setdefault(change.board, {}), (change.moderation, int(change.composite))
        players[change.player_id] = max(stamp, players.get(change.player_id, stamp))
    boards, now = game.settings.build(), time.time_ns() // 1_000_000
    newest: dict[str, dict[str, tuple[int, int]]] = {}
    for board, players in stamps.items():
        ref = boards.parse(board, now)
        newest[board] = {p: (int(ref.score(c)), ref.achieved_at(c)) for p, (_, c) in players.items() if c}
    return newest


def _dead_letters(game: ChaosGame) -> set[tuple[int, int]]:
    """(partition, offset) of each record that has a dead letter."""
    letters = map(json.loads, game.must("dead-letters", "--json").splitlines())
    return {(letter["partition"], letter["offset"]) for letter in letters}


def _differences(what: str, want: dict[str, tuple[int, int]], held: dict[str, tuple[int, int]]) -> list[str]:
    differ = sorted(player for player in {*want, *held} if want.get(player) != held.get(player))
    if not differ:
        return []
    some = "; ".join(f"{player} {held.get(player)} instead of {want.get(player)}" for player in differ[:SAID])
    return [f"{what}: {len(differ)} of {len(want)} players differ: {some}"]


def _remove_topics(game: ChaosGame) -> None:
    admin = AdminClient({"bootstrap.servers": game.settings.kafka.bootstrap, "log_level": 0})
    names = game.settings.kafka.topics.model_dump().values()
    with suppress(KafkaException):
        for future in admin.delete_topics([name for name in names if name.startswith(game.name)]).values():
            with suppress(KafkaException):
                future.result(10)
