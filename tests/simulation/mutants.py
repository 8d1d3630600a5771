"""Deliberately broken builds: a simulation that does not find them proves nothing about the product."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.patches import Change, Line, LuaLine

from maxboard.pipeline.applier import Applier
from maxboard.pipeline.apply import Call, PrimaryQueue
from maxboard.pipeline.commit import Flight, Lane
from maxboard.pipeline.recovery import Recovery


def halves(call: Call) -> list[Call]:
    """A call onto several boards as two: the first board with the position, then all of them."""
    command, boards = call.command, call.boards
    if command.script != "apply_runs" or len(boards) < 2:
        return [call]
    words = 13 + 4 + 2 * len(boards[0].runs.runs)
    args = [*command.args[:12], 1, *command.args[13:words]]
    first = replace(command, keys=command.keys[:5], args=args)
    return [replace(call, command=first, boards=boards[:1]), call]


MUTANTS: dict[str, tuple[Change, ...]] = {
    "no position compare": (
        LuaLine("apply_runs", "local gap = (position or 0) < from", "local gap = false"),
    ),
    "commit before emit": (
        Line(Flight, "complete", "not self.waiting and not self.outstanding", "not self.waiting"),
    ),
    "gap ignored": (
        Line(Recovery, "_gap", "        low, low_time, start =", "        return\n        low, low_time, start ="),
    ),
    "the position moves with the first of two boards": (
        Line(PrimaryQueue, "offer", "self._waiting.append(call)", "self._waiting.extend(halves(call))",
             {"halves": halves}),
    ),
    "an emptied primary without target": (
        LuaLine("apply_runs", "    target = math.max(target, log_end, from)\n", "    target = target\n"),
        LuaLine("moderate", "if not position then target = math.max(target, log_end, from) end\n", ""),
        LuaLine("apply_runs", "    target = math.max(target, from)\n", "    target = target\n"),
        LuaLine("moderate", "  target = math.max(target, from)\n", ""),
    ),
    "lost replies are taken for success": (
        Line(
            PrimaryQueue,
            "_lost",
            "        self._port.reset()\n",
            "        self._port.reset()\n"
            "        while self._flying:\n"
            "            call = self._flying.popleft()\n"
            "            call.flight and call.flight.applied(self.name)\n",
        ),
    ),
    "calls are sent again in another order": (
        Line(PrimaryQueue, "collect", "extendleft(reversed(self._failed))", "extendleft(self._failed)"),
    ),
    "a call behind a failed one counts as a gap": (
        Line(PrimaryQueue, "_behind_a_failure", "        if not", "        return False\n        if not"),
    ),
    "the commit does not fall back": (
        Line(Lane, "to_commit", "self.done != self.committed", "self.done > (self.committed or 0)"),
    ),
    "a rewind keeps what was done": (
        Line(Lane, "rewind", "self.done = self.next = offset", "self.next = offset"),
    ),
    "a way back begins past what is done": (
        Line(Recovery, "_gap", "start = max(min(start, lane.done), low)", "start = max(start, low)"),
    ),
    "the end of moderation is told as a range of runs": (
        Line(Applier, "_pass", "if lane.field == MODERATION", "if lane.field == 'none'"),
    ),
    "void ranges raise the commit": (
        Line(Lane, "rewind", "        self._void(-1)\n", ""),
    ),
    "what was fetched before a seek is taken": (
        Line(Applier, "_proven", "if not lane.placed and offset >= lane.next", "if offset >= lane.next"),
    ),
    "a lower score replaces a higher one": (
        LuaLine("apply_runs", "if new > best then", "if true then"),
        LuaLine("apply_runs", "redis.call('ZADD', key, 'GT', unpack", "redis.call('ZADD', key, unpack"),
    ),
    "lost keys are not looked for": (
        LuaLine("moderate", "status ~= 'needs-rebuild' and kind ~= 'zset' and (kind", "false and (kind"),
    ),
    "a key that was lost is made again": (
        LuaLine("apply_runs", "if not board.expired and (missing or kind", "if not board.expired and (kind"),
    ),
    "a trimmed log is not out of reach": (
        Line(
            Recovery,
            "_gap",
            "self._out_of_reach(name, queue, lane, position, low, low_time)",
            "lane.first[name] = (low, 1)",
        ),
    ),
    "dead letters are not waited for": (
        Line(Applier, "_send", "self._emit(flight, letters)\n", "self._outbox.put(letters, lambda: None)\n"),
    ),
    "a refused call is taken for applied": (
        Line(Applier, "_answered", "if reply.status == scripts.APPLIED", "if reply.status in (0, 1)"),
    ),
    "an applied run is not the best of a replay": (
        LuaLine("apply_runs", "if new >= best then", "if new > best then"),
    ),
}  # fmt: skip
