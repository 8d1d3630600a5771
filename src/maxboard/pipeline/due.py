"""Due players: a reject or an erasure took their best, and what is left is found again from the log.

Put, announce, clear: the bests go back with a maximum; when Kafka has the rank changes, the same call is made once
more and clears the player, if moderation has not moved meanwhile and nothing had to be put. A crash or a promotion
in between leaves the player due, and it begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from maxboard.board import scripts
from maxboard.board.scripts import DueBoard, DueReply
from maxboard.boards import Boards
from maxboard.keys import Keys
from maxboard.model import Record
from maxboard.moderation.history import Entry, History
from maxboard.pipeline.apply import Call, PrimaryQueue
from maxboard.pipeline.decode import decode_many
from maxboard.pipeline.emit import change_letters, moved_changes
from maxboard.pipeline.fold import Fold, ask
from maxboard.pipeline.judge import Judge
from maxboard.pipeline.ports import Clock, FinderPort, Letter
from maxboard.pipeline.reach import earliest_needed
from maxboard.pipeline.route import Router, Slot

AGAIN_S = 5.0  # between two looks for the same player when one led to nothing
CUT_AGAIN_S = 600.0  # the same when the log no longer reaches back: a look reads all of it, and only a person can help
AT_ONCE = 500  # players in one look at the log: their runs are in memory then


@dataclass(eq=False)
class Job:
    """One player on one primary. ``run_ids`` by (board reference, composite), for the rank changes."""

    primary: str
    player: str
    call: Callable[[int | None], Call] | None = None
    run_ids: dict[tuple[str, int], str] = field(default_factory=dict)
    outstanding: int = 0
    announced: int | None = None  # moderation position of the reply whose rank changes are on their way


class DuePlayers:
    """The due players of a worker that owns the moderation partition. ``put`` sends letters to Kafka.

    ``accept_trimmed``: what the log has is taken for all there ever was.
    """

    def __init__(
        self,
        boards: Boards,
        keys: Keys,
        digests: Mapping[str, str],
        router: Router,
        judge: Judge,
        finder: FinderPort,
        clock: Clock,
        put: Callable[[list[Letter], Callable[[], None]], None],
    ) -> None:
        self._troubles: dict[str, str] = {}  # by primary
        self._boards, self._keys, self._digests = boards, keys, digests
        self._router, self._judge, self._finder, self._clock, self._put = router, judge, finder, clock, put
        self.accept_trimmed = False
        self._named: dict[str, int] = {}  # by primary: how many are due there, as far as its last answer says
        self._wanted: dict[tuple[str, str], Job] = {}
        self._looking: list[Job] = []
        self._jobs: dict[tuple[str, str], Job] = {}
        self._not_before: dict[tuple[str, str], float] = {}

    @property
    def trouble(self) -> str | None:
        """Why players stay due, for people."""
        return next(iter(self._troubles.values()), None)

    def __len__(self) -> int:
        """How many are worked on."""
        return len(self._wanted) + len(self._looking) + len(self._jobs)

    @property
    def count(self) -> int:
        """How many are due, also those whose turn is later; of very many perhaps less."""
        return max(sum(self._named.values()), len(self))

    def named(self, primary: str, players: Sequence[str]) -> None:
        """A primary says who is due there."""
        now = self._clock.monotonic()
        self._named[primary] = len(players)
        busy = {(job.primary, job.player) for job in self._looking}
        if not players and not any(name == primary for name, _ in (*self._wanted, *busy, *self._jobs)):
            self._troubles.pop(primary, None)
            self._not_before = {place: at for place, at in self._not_before.items() if place[0] != primary}
        for player in players:
            place = (primary, player)
            if place not in self._jobs and place not in busy and self._not_before.get(place, 0.0) <= now:
                self._wanted.setdefault(place, Job(primary, player))

    def forget(self) -> None:
        """The moderation partition is another worker's: so are its due players."""
        self._named.clear()
        self._wanted.clear()
        self._looking.clear()
        self._jobs.clear()
        self._finder.stop()
        self._troubles.clear()

    def step(self, queues: Mapping[str, PrimaryQueue], judged: Mapping[str, int]) -> None:
        """Look for those who wait; fold those who were found; send what may be sent."""
        if self._looking and (found := self._finder.found()) is not None:
            jobs, self._looking = self._looking, []
            for job in jobs:
                place = (job.primary, job.player)
                self._not_before[place] = self._clock.monotonic() + AGAIN_S
                if found.error:
                    self._troubles[job.primary] = f"due players wait: {found.error}"
                elif not self._reaches(job, found.begins, judged[job.primary]):
                    self._not_before[place] = self._clock.monotonic() + CUT_AGAIN_S
                else:
                    self._fold(job, found.records.get(job.player, []), found.folded, judged[job.primary])
                    self._jobs[place] = job
                    assert job.call is not None
                    queues[job.primary].offer(job.call(None))
        if self._wanted and not self._looking:
            places = list(self._wanted)[:AT_ONCE]
            self._looking = [self._wanted.pop(place) for place in places]
            self._finder.find(frozenset(job.player for job in self._looking))
        for job in list(self._jobs.values()):
            if job.announced is not None and not job.outstanding:
                assert job.call is not None
                queues[job.primary].offer(job.call(job.announced))
                job.announced = None

    def _reaches(self, job: Job, begins: int, judged: int) -> bool:
        """Whether the log still holds all that can count for the player; else they stay due, and loud.

        ``begins``: epoch ms, 0: it holds everything. Nothing from before an erasure counts, but what was recorded in
        the same millisecond does, and may be gone.
        """
        needed = earliest_needed(self._boards.by_primary.get(job.primary, []), self._clock.now()) or 0
        erased = self._judge.history.erased(job.player, judged)
        if not begins or begins < max(needed, erased) or self.accept_trimmed:
            return True
        self._troubles[job.primary] = (
            f"player {job.player} stays due on primary {job.primary!r}: the log no longer reaches back to what could "
            f"be their best. To take what it has: end the appliers, then maxboard apply --accept-trimmed-log"
        )
        return False

    def _fold(self, job: Job, records: Sequence[Record], folded: Mapping[str, int], judged: int) -> None:
        fold = Fold(0, dict.fromkeys(self._digests, judged))
        runs = decode_many(records)
        for record, run, answer in zip(records, runs, ask(self._judge, records, runs), strict=True):
            fold.add(record, run, self._router, self._judge, answer)
        boards: dict[Slot, DueBoard] = {}
        for slot, players in fold.bests.items():
            if slot.primary == job.primary and job.player in players:
                composite, run_id, _ = players[job.player]
                boards[slot] = DueBoard(slot.ref, composite)
                job.run_ids[slot.ref.reference, composite] = run_id
        for slot, members in fold.held.items():
            own = [entry for entry in members.items() if entry[0].startswith(f"{job.player}|")]
            if slot.primary == job.primary and own:
                boards.setdefault(slot, DueBoard(slot.ref, None)).held = own

        def call(announced: int | None) -> Call:
            command = scripts.put_due(
                self._keys, self._digests[job.primary], job.player, judged, announced, self._clock.now(), folded,
                list(boards.values()),
            )  # fmt: skip
            return Call(command, scripts.parse_due, due=job)

        job.call = call

    def answered(self, job: Job, reply: DueReply) -> None:
        """Put: say so to Kafka, then clear. Anything else ends the job; a player who is still due is named again."""
        place = (job.primary, job.player)
        if self._jobs.get(place) is not job:
            return
        if reply.status == scripts.CLEARED:
            self._not_before.pop(place, None)
        if reply.status != scripts.APPLIED:
            del self._jobs[place]
            return
        at, history = reply.moderation or 0, self._judge.history
        cause, stamp = _cause(history, job.player, at), history.last_event(job.player, at)
        letters: list[Letter] = []
        if cause is not None:  # else a repair made the player due, which announces nothing
            now = self._clock.now()
            letters = change_letters(
                moved_changes(reply.moved, self._boards, cause, stamp, reply.live, now, job.run_ids)
            )
        job.announced, job.outstanding = at, len(letters)

        def delivered() -> None:
            job.outstanding -= 1

        if letters:
            self._put(letters, delivered)


def _cause(history: History, player: str, upto: int) -> Entry | None:
    """The event that made a player due."""
    found = None
    for entry in history.entries(player, upto):
        if entry.event.type in ("reject", "erase"):
            found = entry
    return found
