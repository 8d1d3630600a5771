"""Schedules for broken builds that drawn ones find too seldom: each holds for the product, and fails for the mutant."""

from __future__ import annotations

from tests.simulation.found import parsed
from tests.simulation.schedule import Schedule


def _of(members: int, partitions: int, text: str, narrow: bool = False) -> Schedule:
    return Schedule(1, members, partitions, tuple(parsed(line) for line in text.strip().splitlines()), narrow)


# A promotion that loses an event and no run: one call of every partition waits for it, more than a queue holds.
WAITING = _of(1, 6, """
    run runs:0 p9 40 500 1
    flow 3 one+two True 5 20
    event ban ~x ban 0 0
    flow 2 one+two True 5 20
    promote one 14 False
    step 0 500 9 20
    step 0 1 9 20
""", narrow=True)  # fmt: skip

DIRECTED = {
    "moderation is not read while the queues are full": WAITING,
    "moderation waits behind the runs that wait for it": WAITING,
    # A new worker reads the runs of an emptied primary faster than its events.
    "moderation has no target": _of(1, 2, """
        run runs:0 p9 40 500 1
        event ban ~x ban 0 0
        event ban B ban 0 0
        flow 4 one+two True 5 20
        crash 0 0
        empty one
        flow 3 one+two True 1 1
    """),
    "lost keys are not looked for": _of(2, 2, """
        run runs:0 p9 40 500 1
        flow 3 one+two True 5 20
        lose one 0 False -
    """),
    "due: clear first, then emit": _of(2, 2, """
        run runs:0 p9 5 395 1
        run runs:0 p9 40 500 1
        flow 3 one+two True 5 20
        verdict reject 0
        flow 1 one+two True 5 20
        flow 3 one+two False 5 20
        crash 0 0
    """),
    # Put and announced, then lost by a promotion; a ban and its end say "not on the board" with a newer stamp.
    "a put-back clears what is not as announced": _of(2, 2, """
        run runs:0 p9 5 395 1
        run runs:0 p9 40 500 1
        flow 3 one+two True 5 20
        verdict reject 0
        flow 2 one+two True 5 20
        flow 1 one+two False 5 20
        promote one 2 False
        event ban p9 ban 0 0
        event unban p9 - 0 0
        kafka 0 20
        step 0 1 9 20
    """),
    # A dead worker's call to clear arrives after a promotion, when the player is due for a run that it never saw.
    "a put-back does not say how far it folded": _of(2, 2, """
        run runs:0 p9 40 500 1
        flow 3 one+two True 5 20
        verdict reject 0
        flow 3 one+two True 5 20
        step 0 1 0 0
        crash 0 0
        run runs:0 p9 5 900 1
        promote one 10 True
        flow 3 one+two True 5 20
        ghost_call 0 one 9
    """),
}  # fmt: skip
