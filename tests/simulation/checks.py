"""The invariants, as the world sees them after every step and at rest. Pure: they look, and raise ``Violation``."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import NoneType

from tests.simulation.commands import type_of
from tests.simulation.oracle import Best, Prefixes, decoded
from tests.simulation.scene import KEYS, OF, REFS, board_key
from tests.simulation.state import SortedSet, State

from maxboard.board.registry import MODERATION, BoardEntry, LogState, parse_entry, parse_log, state_of

LOG, REGISTRY, HIDDEN, DUE = (key.encode() for key in (KEYS.log, KEYS.boards, KEYS.hidden, KEYS.due))
NOTHING: Best = (-1, 0)
SIDES = (b":shadow", b":pending")


class Violation(Exception):
    """An invariant does not hold; the text begins with its id."""


@dataclass
class Watch:
    """What is remembered of one primary besides its state."""

    reached: dict[str, int] = field(default_factory=dict)  # greatest position ever, by partition
    floor: dict[str, int] = field(default_factory=dict)  # what was committed when it was emptied
    alarms: set[str] = field(default_factory=set)  # boards that may need a rebuild: their key was lost, the log trimmed
    before: State = field(default_factory=State)  # of the same history
    early: list[tuple[str, int, str]] = field(default_factory=list)  # partition, offset, player of runs put past them


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


def side_of(state: State, reference: str, suffix: str = "") -> dict[str, Best]:
    """Member to (score, minus achieved_at) of one key of a board, decoded as a read decodes it (I9)."""
    value = state.keys.get(board_key(reference) + suffix.encode())
    if type(value) is not SortedSet:
        return {}
    return {member.decode(): decoded(reference, int(score)) for member, score in value.items()}


def due_of(state: State) -> set[str]:
    """The players who are due."""
    return {player.decode() for player in state.hash(DUE)}


def check_primary(
    name: str, state: State, watch: Watch, prefixes: Prefixes, bounds: tuple[dict[str, int], dict[str, int]], now: int
) -> None:
    """After every change of a primary: I1, I2, I4, I5, I6, I8, I9. ``bounds``: beginnings and ends of the log."""
    log, (low, ends) = log_of(state), bounds
    positions = log.position()
    for partition, position in positions.items():
        watch.reached[partition] = max(watch.reached.get(partition, 0), position)
    if any(positions.get(partition, 0) < first for partition, first in low.items()):
        watch.alarms |= set(OF[name])
    moderation = positions.get(MODERATION, 0)
    _check_hidden(name, state, prefixes.hidden(moderation))
    if log.verdicts != prefixes.verdicts(moderation):
        raise Violation(f"I4: {name} at {moderation} says verdicts {log.verdicts}")
    want, most = prefixes.at(positions), prefixes.at({**ends, MODERATION: moderation})
    # What a submit, an accept or a put-back brought may be ahead of the positions.
    early = watch.early + [(f, o, p) for event, f, o, p in prefixes.accepted if event < moderation]
    ahead = {player for field, offset, player in early if positions.get(field, 0) <= offset}
    for reference in OF[name]:
        stands = standing(state, log, reference, now)
        if stands == "needs-rebuild":
            if reference not in watch.alarms:
                raise Violation(f"I8: {reference} needs a rebuild although nothing was lost")
            continue
        if any(type(state.keys.get(board_key(reference) + side)) not in (SortedSet, NoneType) for side in SIDES):
            continue  # nobody has noticed yet
        for suffix in ("", ":shadow", ":pending"):
            have, sides = (
                side_of(state, reference, suffix),
                (want.side(suffix, reference), most.side(suffix, reference)),
            )
            _check_side(f"{reference}{suffix} at {positions}", have, sides, due_of(state), ahead)
        if stands == "live" and any(positions.get(f, 0) < offset for f, offset in watch.floor.items()):
            raise Violation(f"I8: {reference} is live at {positions}, but {watch.floor} was committed before the loss")
    _check_rising(name, watch.before, state, log_of(watch.before), log)
    watch.before = state  # a snapshot


def _check_hidden(name: str, state: State, hidden: dict[str, str]) -> None:
    """I5: who is hidden is what the log says, and none of them is on a public board, whatever state that is in."""
    have = {player.decode(): words.decode() for player, words in state.hash(HIDDEN).items()}
    if have != hidden:
        raise Violation(f"I5: {name} hides {have}, the log up to its position {hidden}")
    for reference in OF[name]:
        if shown := hidden.keys() & side_of(state, reference).keys():
            raise Violation(f"I5: {shown} are hidden and on {reference}")


def _check_side(
    where: str, have: dict[str, Best], sides: tuple[dict[str, Best], dict[str, Best]], due: set[str], ahead: set[str]
) -> None:
    """I2, I4, I6: every key is exactly f of the log up to the positions.

    But a due player may have less, and one whose submit is not read yet what the log has further on.
    """
    want, most = sides
    for member in have.keys() | want.keys():
        here, there, top = have.get(member, NOTHING), want.get(member, NOTHING), most.get(member, NOTHING)
        player = member.partition("|")[0]
        if here > top or (here < there and player not in due) or (here > there and not ahead & {player}):
            raise Violation(f"I6: {member!r} is {here} on {where}; the log up to there gives {there}, all of it {top}")


def check_sender(before: State, after: State, name: str, judged: int, prefixes: Prefixes) -> None:
    """I5: a run of a player whom its sender knows as banned is not made public where the ban is not known yet."""
    if log_of(after).position().get(MODERATION, 0) < judged:
        for player in prefixes.hidden(judged):
            for reference in OF[name]:
                then, now = (
                    side_of(before, reference).get(player, NOTHING),
                    side_of(after, reference).get(player, NOTHING),
                )
                if now > then:
                    raise Violation(f"I5: a run of {player}, whom its sender knows as banned, is on {reference}")


def _check_rising(name: str, old: State, new: State, before: LogState, after: LogState) -> None:
    """I1: within one history no position falls, and no public best but by an event."""
    for partition, position in before.position().items():
        if after.position().get(partition, -1) < position:
            raise Violation(f"I4: {name} went back in {partition} from {position}")
    if before.position().get(MODERATION) != after.position().get(MODERATION):
        return
    for reference in OF[name]:
        now = new.keys.get(board_key(reference))
        then = old.keys.get(board_key(reference))
        if type(then) is SortedSet and type(now) is SortedSet:
            for player, score in then.items():
                if now.get(player, -1.0) < score:
                    raise Violation(f"I1: {player!r} fell on {reference}")


def check_rest(name: str, state: State, ends: dict[str, int], now: int, whole: bool) -> None:
    """At rest: I4 the positions are the log's ends, nobody is due where the log is ``whole``; I8 what is whole is live
    and what was lost says so."""
    log = log_of(state)
    if whole and due_of(state):
        raise Violation(f"I6: at rest {due_of(state)} are due on {name}")
    if log.position() != ends:
        raise Violation(f"I4: at rest {name} is at {log.position()} of {ends}")
    for reference in OF[name]:
        stands = standing(state, log, reference, now)
        if stands == "replaying":
            raise Violation(f"I8: at rest {reference} is replaying")
        entry = entry_of(state, reference)
        if stands == "needs-rebuild" and entry is not None and entry.status != stands:
            raise Violation(f"I8: at rest nobody noticed that {reference} is lost")
