"""Mends what ``verify`` found, in place, while the board is up.

Every operation is checked again by the script, on the primary: what a newer run has raised is not lowered, and a wrong
value is replaced only while it is still the one that was seen.
"""

from __future__ import annotations

from collections.abc import Iterator

from maxboard.board import build_scripts
from maxboard.board.build_scripts import DONE, MODERATION, OTHER_DEFINITIONS, Repair
from maxboard.errors import NotYet, Refused
from maxboard.rebuild.verify import Difference, Verified, Verifier

AT_ONCE = 250  # operations a call: 2 ms of the server's only thread
TRIES = 5  # when moderation moves on under the repair


def repair(verifier: Verifier, found: Verified, accept_log: bool) -> Verified:
    """Mend, look again at what was mended, and say what is left. ``accept_log``: also take away what the log lacks.

    Raises ``NotYet`` when the board needs a rebuild meanwhile, or moderation does not stand still.
    """
    operations = [(d, operation) for d in found.differences for operation in _operations(d, accept_log)]
    done = 0
    for at in range(0, len(operations), AT_ONCE):
        done += _send(verifier, operations[at : at + AT_ONCE])
    left = verifier.look_again(found.differences) if operations else found.differences
    skipped = len(verifier.skipped)
    return Verified(found.board, found.members, found.position, found.judged, left, done, skipped)


def _operations(difference: Difference, accept_log: bool) -> Iterator[Repair]:
    kind, side, member = difference.kind, difference.side, difference.member
    seen = difference.seen or ""
    least, most = (("" if value is None else str(value)) for value in (difference.least, difference.most))
    if kind in ("missing", "stale"):
        yield Repair("raise", side, member, seen, least)
    elif kind == "hidden_present":
        yield Repair("hide", side, member, seen, "")
    elif kind == "corrupt" or accept_log:
        yield Repair("replace", side, member, seen, most)


def _send(verifier: Verifier, operations: list[tuple[Difference, Repair]]) -> int:
    on, ref = verifier.on, verifier.ref
    for _ in range(TRIES):
        raw = verifier.live.raw
        repairs = [r._replace(member=raw(r.member)) for d, r in operations if _player(d) not in verifier.skipped]
        command = build_scripts.repair_board(on.keys, on.digest, ref, verifier.judged_now, repairs)
        reply = build_scripts.parse_repair(on.call(command))
        if reply.status == DONE:
            return reply.done
        if reply.status == OTHER_DEFINITIONS:
            raise Refused(f"primary {on.name!r} knows other board definitions: run `maxboard init` first")
        if reply.status != MODERATION:
            raise NotYet(f"board {ref.reference} needs a rebuild: maxboard rebuild {ref.reference}")
        verifier.moderation_moved(reply.moderation)
    raise NotYet(f"moderation of primary {on.name!r} moves faster than the repair: run this again")


def _player(difference: Difference) -> str:
    return difference.member.partition("|")[0]
