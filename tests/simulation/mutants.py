"""Deliberately broken builds: a simulation that does not find them proves nothing about the product."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.patches import Change, Line, LuaLine

from maxboard.moderation.history import History
from maxboard.pipeline import applier, apply
from maxboard.pipeline.applier import Applier
from maxboard.pipeline.apply import Call, PrimaryQueue
from maxboard.pipeline.commit import Flight, Lane
from maxboard.pipeline.due import DuePlayers
from maxboard.pipeline.expiry import Expiry
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.moderating import Moderation
from maxboard.pipeline.owner import Words
from maxboard.pipeline.recovery import Recovery


def halves(call: Call) -> list[Call]:
    """A call onto several boards as two: the first board with the position, then all of them."""
    command, boards = call.command, call.boards
    if command.script != "apply_runs" or len(boards) < 2:
        return [call]
    words = 13 + 4 + 2 * (len(boards[0].runs.runs) + len(boards[0].runs.held))
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
        Line(PrimaryQueue, "collect", "again = (*self._failed,", "again = (*reversed(self._failed),"),
    ),
    "a call behind a failed one counts as a gap": (
        Line(PrimaryQueue, "follows_a_failure", "        flight = call", "        return False\n        flight = call"),
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
        LuaLine("moderate", "if (broken or missing) and", "if false and"),
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
        LuaLine("apply_runs", "if new >= best or", "if new > best or"),
    ),
    # ------------------------------------------------------------ moderation
    "no moderation gap": (
        LuaLine("apply_runs", "if (moderation or 0) < judged or judged < verdicts", "if judged < verdicts"),
    ),
    "no rejudge": (
        LuaLine("apply_runs", "< judged or judged < verdicts then", "< judged then"),
    ),
    "hidden players are not looked for in the script": (
        LuaLine("apply_runs", "local some_hidden = redis.call('EXISTS', hidden_key) == 1", "local some_hidden = false"),
    ),
    "events below the position are done again": (
        LuaLine("moderate", "if event.offset >= (position or 0) then", "if true then"),
    ),
    "moderation has no target": (
        LuaLine("moderate", "if not position then target = math.max(target, log_end, from) end\n", ""),
        LuaLine("moderate", "  target = math.max(target, from)\n", ""),
    ),
    "a ban does not reach a board that needs a rebuild": (
        LuaLine("moderate", "if board.open or board.kind == 'zset' then", "if board.open then"),
    ),
    "a ban drops the best": (
        LuaLine("moderate", "  if set.sides then raise(set, set.shadow, composite, event.player) end\n", ""),
    ),
    "an unban leaves the best in the shadow": (
        LuaLine("moderate", "  move_all(group, 'shadow', show)\n", ""),
    ),
    "an erasure leaves what waits": (
        LuaLine("moderate", "redis.call('ZREM', set.pending, member) end\n", "end\n"),
    ),
    "an accept puts a hidden player's run on the board": (
        LuaLine("moderate", "local key = is_hidden(event.player) and set.shadow or set.key", "local key = set.key"),
    ),
    "an accept of a run that a rule rejected puts nothing": (
        LuaLine("moderate", "ipairs(composites) do raise(set, key, composite, event.player) end", "ipairs({}) do end"),
    ),
    "an accept brings no board up": (
        LuaLine("moderate", "if event.counts then needed(", "if false then needed("),
    ),
    "a reject leaves the best": (
        LuaLine("moderate", "if stored and tonumber(stored) == tonumber(composite) then", "if false then"),
    ),
    "verdicts are not counted": (
        LuaLine("moderate", "verdicts = math.max(verdicts, event.offset + 1)", ""),
    ),
    "reject and erase make nobody due": (
        LuaLine("moderate", "      if event.falls then", "      if false then"),
    ),
    "a put-back does not say how far it folded": (
        LuaLine("put_due", "if tonumber(position) > (folded[source] or 0) then", "if false then"),
    ),
    "a put-back at an old view": (
        LuaLine("put_due", "if (moderation or 0) < judged or judged < verdicts then", "if false then"),
    ),
    "a put-back clears what is not as announced": (
        LuaLine("put_due", "local cleared = announced >= 0 and announced == moderation and not put_any",
                "local cleared = announced >= 0"),
    ),
    "a put-back to the public board of a hidden player": (
        LuaLine("put_due", "raise(is_hidden and key .. ':shadow' or key,", "raise(key,"),
    ),
    "due: clear first, then emit": (
        Line(DuePlayers, "step", "job.announced is not None and not job.outstanding", "job.announced is not None"),
    ),
    "due: a log that does not reach back is folded": (
        Line(DuePlayers, "_reaches", "if not begins or begins < max(needed, erased) or", "if True or"),
    ),
    "due: the fold forgets what waits": (
        Line(DuePlayers, "_fold", "if slot.primary == job.primary and own", "if False"),
    ),
    "stamps by the primary's moderation position": (
        Line(applier, "rank_changes", "history.last_event(player, moderation) if player in moderated else 0",
             "moderation"),
        Line(Moderation, "changes", "self._history.last_event(cause.event.player_id, at)", "at"),
        Line(DuePlayers, "answered", "history.last_event(job.player, at)", "at"),
    ),
    "stamps by all that is known": (
        Line(applier, "rank_changes", "history.last_event(player, moderation)", "history.last_event(player, 1 << 53)"),
    ),
    "replies are understood before the history is read": (
        Line(Moderation, "shows", "return moderation <= self._history.position", "return True"),
        Line(Moderation, "judged", "min(shown, self._history.position)", "shown"),
        Line(Applier, "_poll", "full = full or self._moderation.behind", "full = full"),
    ),
    "events are sent before the history has them": (
        Line(Moderation, "take", "if records and self._history.position <= records[-1].offset", "if False"),
        Line(Moderation, "take", "if records and records[0].offset <= self._history.position", "if False"),
    ),
    "moderation is not read while the queues are full": (
        Line(Applier, "_owes_moderation", "return lane is not None and", "return False and lane is not None and"),
    ),
    "moderation waits behind the runs that wait for it": (
        Line(apply.PrimaryQueue, "collect", "deque(sorted(again, key=_behind_moderation))", "deque(again)"),
    ),
    "a refused range is not read again after a verdict": (
        Line(Recovery, "refused", "elif not flight.void:\n            self._re", "elif False:\n            self._re"),
    ),
    "a late unban lifts a newer ban": (
        Line(Words, "_lifts", "event.ends is None or", "True or"),
    ),
    "an accept counts after a reject": (
        Line(Words, "_counts", 'run.time, judged) == "accept"', 'run.time, judged) != "x"'),
    ),
    "other deliveries of a run id are not rejected": (
        Line(Words, "_operation", "self._targets(primary, event.runs)", "self._targets(primary, event.runs[:1])"),
    ),
    "a ban's end is not written": (
        Line(Expiry, "due", "while self._ends and", "while False and"),
    ),
    "an erasure does not judge": (
        Line(History, "verdict", 'if event.type == "erase" and time < entry.time', "if False"),
    ),
    "a hidden player's run does not say that he is on no board": (
        LuaLine("apply_runs", "if is_best or source == '' then", "if source == '' then"),
    ),
    "a run that an event took does not say that it is gone": (
        Line(Applier, "_absences", ".union(sent.taken)", ""),
    ),
    "verdicts reach back to before they were known": (
        Line(Judge, "verdict", "run.run_id, time, judged)", "run.run_id, time, 1 << 53)"),
    ),
}  # fmt: skip
