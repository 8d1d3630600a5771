"""Script calls of the applier: a folded range, or an idle look, as one call to each primary."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from maxboard.board import scripts
from maxboard.board.scripts import BoardRuns, Range
from maxboard.boards import Boards, set_digest
from maxboard.keys import Keys
from maxboard.pipeline.apply import Call, Sent
from maxboard.pipeline.commit import Flight, Lane
from maxboard.pipeline.fold import Fold
from maxboard.pipeline.ports import TopicInfo


class Calls:
    """Makes calls; knows what every call of a primary carries. ``max_future`` in ms, times in epoch ms."""

    def __init__(self, boards: Boards, keys: Keys, max_future: int, primaries: Iterable[str], info: TopicInfo) -> None:
        self.info = info
        self._keys, self._max_future = keys, max_future
        self._definitions = {name: boards.definitions(name) for name in primaries}
        self._digests = {name: set_digest(definitions) for name, definitions in self._definitions.items()}

    def runs(self, name: str, lane: Lane, fold: Fold, flight: Flight, now: int) -> Call:
        """A range of ``runs`` for all boards of a primary."""
        sent = []
        for slot, players in fold.bests.items():
            if slot.primary != name:
                continue
            runs = BoardRuns(slot.ref, [(player, best[0]) for player, best in players.items()])
            sent.append(Sent(runs, [best[1] for best in players.values()], [best[2] for best in players.values()]))
        earliest, first = lane.first.get(name, (-1, 0))
        range_ = Range(
            lane.field,
            self.info.runs_id,
            self.info.partitions,
            fold.start,
            fold.to,
            lane.end,
            first if fold.start <= earliest else 0,
            fold.time,
            lane.caught_up if fold.to >= lane.end else 0,
        )
        command = scripts.apply_runs(self._keys, self._digests[name], range_, 0, now, [board.runs for board in sent])
        return Call(command, scripts.parse_apply, flight, sent, fold.start)

    def moderation(self, name: str, lane: Lane, flight: Flight, time: int, now: int) -> Call:
        """A range of ``moderation``; without events, a look at every board."""
        caught_up = lane.caught_up if flight.to >= lane.end else 0
        range_ = Range(lane.field, self.info.moderation_id, 1, flight.start, flight.to, lane.end, 0, time, caught_up)
        command = scripts.moderate(self._keys, self._digests[name], range_, now)
        return Call(command, scripts.parse_moderate, flight, (), flight.start)

    def define(self, name: str, mode: Literal["new", "reach"], reach: int = 0) -> Call:
        """Board definitions of a primary that knows none, or their limit to what the log holds since ``reach``."""
        command = scripts.define_boards(self._keys, mode, self._definitions[name], self._max_future, reach)
        return Call(command, scripts.parse_define)
