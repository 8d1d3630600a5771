"""What a primary's refusal means, and the way back: read the log again from where the primary is (I4).

A refusal brings the stored positions; the reason is derived from them. Nothing is remembered about a primary
between two calls, so a promoted replica or a restored backup needs no special case.
"""

from __future__ import annotations

from collections.abc import Callable

from maxboard.board import scripts
from maxboard.board.registry import MODERATION
from maxboard.board.scripts import ApplyReply, ModerateReply
from maxboard.boards import Boards
from maxboard.errors import Stop
from maxboard.pipeline.apply import Call, PrimaryQueue
from maxboard.pipeline.calls import Calls
from maxboard.pipeline.commit import Lane
from maxboard.pipeline.ports import Clock, LogPort
from maxboard.pipeline.reach import earliest_needed
from maxboard.words import count

Reply = ApplyReply | ModerateReply


class Recovery:
    """Answers refusals. ``notice`` tells an operator; ``rewound`` hears how many records are read again."""

    def __init__(
        self,
        boards: Boards,
        max_future: int,
        calls: Calls,
        log: LogPort,
        clock: Clock,
        notice: Callable[[str], None],
        rewound: Callable[[Lane, int], None],
    ) -> None:
        self._boards, self._max_future, self._calls = boards, max_future, calls
        self._log, self._clock, self._notice, self._rewound = log, clock, notice, rewound
        self._defining: set[str] = set()

    def refused(self, name: str, queue: PrimaryQueue, call: Call, reply: Reply) -> None:
        """Status 1, 2 or 3 of a script. Raises ``Stop`` when going on would be wrong."""
        if reply.status == scripts.OTHER_TOPIC:
            raise Stop(_other_topic(name, reply))
        if reply.status == scripts.OTHER_DEFINITIONS:
            self._other_definitions(name, queue, call, reply.detail)
            return
        flight = call.flight
        assert flight is not None
        waits, stale = (reply.moderation or 0) < call.judged, call.judged < reply.verdicts
        behind = (reply.position or 0) < call.start
        if behind and call.first and (waits or stale):
            behind = False  # it takes what is first there; what it lacks is moderation
        if behind:
            if queue.follows_a_failure(call):  # one that waits for moderation: behind it, not behind the log
                queue.again(call, f"primary {name!r} waits for moderation")
            elif not flight.void:
                self._gap(name, queue, flight.lane, reply.position)
        elif waits:
            queue.again(call, f"primary {name!r} waits for moderation")
        elif not flight.void:
            self._rejudge(queue, flight.lane, call.start)

    def _rejudge(self, queue: PrimaryQueue, lane: Lane, start: int) -> None:
        """A verdict came after the runs of a call were judged: read them again, and judge by it."""
        lane.refold(start)
        queue.drop_void()
        self._log.place(lane.field, start)

    def _gap(self, name: str, queue: PrimaryQueue, lane: Lane, position: int | None) -> None:
        """The primary is behind what was sent: read on from where it is, and let the commit fall back with it."""
        low, low_time, start = self._earliest(name, lane, position)
        if start < low or (position is None and start == low > 0):
            self._out_of_reach(name, queue, lane, position, low, low_time)
            start = max(start, low)
        elif position is None:
            lane.first[name] = (start, 1)
        else:
            lacks = count(lane.next - position, "record")
            self._notice(f"primary {name!r} is at {position} of {lane.field}, {lacks} back")
        # Not past `done`: what lies between was applied here, but another primary may lack it, or its rank changes are
        # not in Kafka yet; a commit there would lose them with this worker.
        start = max(min(start, lane.done), low)
        back = max(lane.next - start, 0)
        queue.drop(lane.field)
        lane.rewind(start)
        self._log.place(lane.field, start)
        self._rewound(lane, back)

    def _earliest(self, name: str, lane: Lane, position: int | None) -> tuple[int, int, int]:
        """First offset that the log holds, its record time, and where the primary must go on."""
        if lane.field == MODERATION:
            return 0, 0, position or 0
        needed = earliest_needed(self._boards.by_primary.get(name, []), self._clock.now())
        low, low_time, start = self._log.earliest(lane.field, None if position is not None else needed)
        return low, low_time, start if position is None else position

    def _out_of_reach(
        self, name: str, queue: PrimaryQueue, lane: Lane, position: int | None, low: int, low_time: int
    ) -> None:
        """The log no longer holds what the primary lacks: say so, and mark what is not whole any more."""
        gone = count(low - (position or 0), "record is", "records are")
        self._notice(
            f"primary {name!r} needs {lane.field} from {position or 0} on, but the log begins at {low}: "
            f"{gone} gone; boards that need them are marked needs-rebuild. "
            f"To take what the log has for the whole of it: maxboard apply --accept-trimmed-log"
        )
        reach = low_time or self._clock.now()  # 0: the log is empty
        queue.offer(self._calls.short(name, reach))
        lane.first[name] = (low, reach + self._max_future)

    # ------------------------------------------------------------------ definitions
    def define(self, name: str, queue: PrimaryQueue) -> None:
        """At the start: say what this configuration has; a primary that knows none takes it."""
        self._defining.add(name)
        queue.offer(self._calls.define(name))

    def defined(self, name: str, in_force: bool, known: str) -> None:
        """The answer to ``define``."""
        self._defining.discard(name)
        if not in_force and known:  # without a digest: emptied since; the next call brings that to light
            self._differ(name)

    def _other_definitions(self, name: str, queue: PrimaryQueue, call: Call, known: str) -> None:
        if known:
            self._differ(name)
        why = f"primary {name!r} was emptied"
        if name not in self._defining:
            self._defining.add(name)
            queue.again(self._calls.define(name), why)
        queue.again(call, why)

    def _differ(self, name: str) -> None:
        raise Stop(
            f"primary {name!r} knows other board definitions than this configuration: "
            f"run `maxboard init` to put this one in force, then start the appliers again"
        )


def _other_topic(name: str, reply: Reply) -> str:
    held = f"primary {name!r} holds boards of another topic with this name (id {reply.detail}): it was created anew"
    if isinstance(reply, ApplyReply):
        return f"{held}; bring the old one back, or go on with this one: maxboard apply --accept-new-topic"
    return f"{held}; bring the old one back, or use a new prefix and group"
