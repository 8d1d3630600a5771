"""Script calls of the applier: a folded range, or an idle look, as one call to each primary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from maxboard.board import scripts
from maxboard.board.scripts import BoardRuns, Operation, Range
from maxboard.boards import Boards, set_digest
from maxboard.keys import Keys
from maxboard.pipeline.apply import Call, Sent
from maxboard.pipeline.commit import Flight, Lane
from maxboard.pipeline.fold import Fold
from maxboard.pipeline.owner import Part
from maxboard.pipeline.ports import TopicInfo


class Calls:
    """Makes calls; knows what every call of a primary carries. ``max_future`` in ms, times in epoch ms."""

    def __init__(self, boards: Boards, keys: Keys, max_future: int, primaries: Iterable[str], info: TopicInfo) -> None:
        self.info = info
        self._keys, self._max_future = keys, max_future
        self._definitions = {name: boards.definitions(name) for name in primaries}
        self._digests = {name: set_digest(definitions) for name, definitions in self._definitions.items()}

    @property
    def digests(self) -> Mapping[str, str]:
        """Digest of all definitions, by primary."""
        return self._digests

    def runs(self, name: str, lane: Lane, fold: Fold, flight: Flight, now: int) -> Call:
        """A range of ``runs`` for all boards of a primary."""
        sent = []
        some = fold.bests.keys() | fold.held.keys() | fold.taken.keys() if fold.held or fold.taken else fold.bests
        for slot in some:
            if slot.primary != name:
                continue
            players = fold.bests.get(slot, {})
            held = list(fold.held[slot].items()) if slot in fold.held else []
            runs = BoardRuns(slot.ref, [(player, best[0]) for player, best in players.items()], held)
            ids, counts = [best[1] for best in players.values()], [best[2] for best in players.values()]
            sent.append(Sent(runs, ids, counts, fold.taken.get(slot, ())))
        earliest, first = lane.first.get(name, (-1, 0))
        first = first if fold.start <= earliest else 0
        range_ = Range(
            lane.field,
            self.info.runs_id,
            self.info.partitions,
            fold.start,
            fold.to,
            lane.end,
            first,
            fold.time,
            lane.caught_up if fold.to >= lane.end else 0,
        )
        judged, boards = fold.judged[name], [board.runs for board in sent]
        command = scripts.apply_runs(self._keys, self._digests[name], range_, judged, now, boards)
        return Call(command, scripts.parse_apply, flight, sent, fold.start, judged, first)

    def moderation(
        self, name: str, lane: Lane, flight: Flight, now: int, part: Part, operations: Sequence[Operation]
    ) -> Call:
        """A stretch of ``moderation``; without events, a look at every board."""
        caught_up = lane.caught_up if flight.to >= lane.end else 0
        id_, start, to = self.info.moderation_id, flight.start, flight.to
        range_ = Range(lane.field, id_, 1, start, to, lane.end, 0, part.time, caught_up)
        command = scripts.moderate(self._keys, self._digests[name], range_, now, operations)
        return Call(command, scripts.parse_moderate, flight, (), start, events=part.events)

    def define(self, name: str) -> Call:
        """Board definitions, for a primary that knows none."""
        command = scripts.define_boards(self._keys, "new", self._definitions[name], self._max_future)
        return Call(command, scripts.parse_define)

    def short(self, name: str, reach: int) -> Call:
        """Limit a primary's boards to what the log holds since ``reach``: those that need more are marked."""
        from_ = reach + self._max_future
        command = scripts.accept_log(self._keys, "short", self._digests[name], from_, "", "", ())
        return Call(command, scripts.parse_accept)
