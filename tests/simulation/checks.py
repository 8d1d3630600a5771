"""The invariants, as the world sees them after every step and at rest. Pure: they look, and raise ``Violation``."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.commands import type_of
from tests.simulation.oracle import Best, Bests, Prefixes, decoded
from tests.simulation.scene import KEYS, OF, REFS, board_key
from tests.simulation.state import SortedSet, State

from maxboard.board.registry import BoardEntry, LogState, parse_entry, parse_log, state_of

LOG, REGISTRY = KEYS.log.encode(), KEYS.boards.encode()


class Violation(Exception):
    """An invariant does not hold; the text begins with its id."""


@dataclass
class Watch:
    """What is remembered of one primary besides its state."""

    reached: dict[str, int] = field(default_factory=dict)  # greatest position ever, by partition
    floor: dict[str, int] = field(default_factory=dict)  # what was committed when it was emptied
    alarms: set[str] = field(default_factory=set)  # boards that may need a rebuild: their key was lost, the log trimmed
    before: State = field(default_factory=State)  # of the same history


def log_of(state: State) -> LogState:
    """The log hash of a snapshot."""
    if state.log is None:
        state.log = parse_log([word for item in state.hash(LOG).items() for word in item])
    return state.log


def entry_of(state: State, reference: str) -> BoardEntry | None:
    """A registry entry."""
    return parse_entry(state.hash(REGISTRY).get(reference.encode(), b""))


def standing(state: State, log: LogState, reference: str, now: int) -> str:
    """The state that a read of a board would give."""
    name = b"@" + reference.split(":", maxsplit=1)[0].encode()
    definition = state.hash(REGISTRY).get(name, b"")
    kind = type_of(state, board_key(reference)).decode()
    return state_of(log, entry_of(state, reference), definition, kind, REFS[reference], now)


def board_of(state: State, reference: str) -> dict[str, Best]:
    """Player to (score, minus achieved_at), decoded as a read decodes it (I9)."""
    value = state.keys.get(board_key(reference))
    if type(value) is not SortedSet:
        return {}
    return {player.decode(): decoded(reference, int(score)) for player, score in value.items()}


def check_primary(name: str, state: State, watch: Watch, prefixes: Prefixes, low: dict[str, int], now: int) -> None:
    """After every change of a primary: I1, I2, I4, I6, I8, I9."""
    log = log_of(state)
    positions = log.position()
    for partition, position in positions.items():
        watch.reached[partition] = max(watch.reached.get(partition, 0), position)
    if any(positions.get(partition, 0) < first for partition, first in low.items()):
        watch.alarms |= set(OF[name])
    want = prefixes.at(positions)
    for reference in OF[name]:
        stands = standing(state, log, reference, now)
        if stands == "needs-rebuild":
            if reference not in watch.alarms:
                raise Violation(f"I8: {reference} needs a rebuild although nothing was lost")
            continue
        _check_board(reference, board_of(state, reference), want, positions)
        if stands == "live" and any(positions.get(f, 0) < offset for f, offset in watch.floor.items()):
            raise Violation(f"I8: {reference} is live at {positions}, but {watch.floor} was committed before the loss")
    _check_rising(name, watch.before, state, log_of(watch.before), log)
    watch.before = state  # a snapshot


def _check_board(reference: str, have: dict[str, Best], want: Bests, positions: dict[str, int]) -> None:
    """I2, I4, I6: every state of a primary is exactly f of the log up to its positions."""
    expected = {player: best for (board, player), best in want.items() if board == reference}
    if have != expected:
        odd = {p: (have.get(p), expected.get(p)) for p in have.keys() | expected if have.get(p) != expected.get(p)}
        raise Violation(f"I4: {reference} at {positions} (here, in the log up to there): {odd}")


def _check_rising(name: str, old: State, new: State, before: LogState, after: LogState) -> None:
    """I1: within one history no public best falls, and no position."""
    for partition, position in before.position().items():
        if after.position().get(partition, -1) < position:
            raise Violation(f"I4: {name} went back in {partition} from {position}")
    for reference in OF[name]:
        now = new.keys.get(board_key(reference))
        then = old.keys.get(board_key(reference))
        if type(then) is SortedSet and type(now) is SortedSet:
            for player, score in then.items():
                if now.get(player, -1.0) < score:
                    raise Violation(f"I1: {player!r} fell on {reference}")


def check_rest(name: str, state: State, watch: Watch, ends: dict[str, int], now: int) -> None:
    """At rest: I4 the positions are the log's ends, I8 what is whole is live and what was lost says so."""
    log = log_of(state)
    if log.position() != ends:
        raise Violation(f"I4: at rest {name} is at {log.position()} of {ends}")
    for reference in OF[name]:
        stands = standing(state, log, reference, now)
        if stands == "replaying":
            raise Violation(f"I8: at rest {reference} is replaying")
        entry = entry_of(state, reference)
        if stands == "needs-rebuild" and entry is not None and entry.status != stands:
            raise Violation(f"I8: at rest nobody noticed that {reference} is lost")
