"""Step 2: may a run count, and where? Pure in run, record time, rules, and the moderation log up to a position.

So live, in a replay and in a rebuild it says the same. A verdict of moderation outranks every rule; a reject outranks
any accept.
"""

from __future__ import annotations

from collections.abc import Mapping

from maxboard.model import Refusal, Run
from maxboard.moderation.history import History
from maxboard.moderation.rules import Judged, Rules
from maxboard.times import rfc3339
from maxboard.windows import duration_text

BY_MODERATION = {"accept": Judged("accept", "moderation"), "reject": Judged("reject", "moderation")}


class Judge:
    """Judges runs. ``max_future`` in ms; ``history`` grows while it is used, ``judged`` says how much of it counts."""

    def __init__(self, max_future: int, rules: Rules | None = None, history: History | None = None) -> None:
        self.max_future = max_future
        self.rules = rules if rules is not None else Rules()
        self.history = history if history is not None else History()
        self._ruled, self._players = bool(self.rules), self.history.players

    def refusal(self, run: Run, time: int) -> Refusal | None:
        """Why a run finished more than ``max_future`` after its record time is refused; None lets it pass."""
        if run.finished_at > time + self.max_future:
            return Refusal(
                "future",
                f"finished_at {rfc3339(run.finished_at)} is more than {duration_text(self.max_future)} "
                f"after the record time {rfc3339(time)}",
            )
        return None

    def concerns(self, player: str) -> bool:
        """Whether ``verdict`` could say anything but accept; False for nearly every run, and cheap."""
        return self._ruled or player in self._players

    def verdict(
        self, run: Run, time: int, board: str, judged: int, answers: Mapping[str, Judged | None] | None = None
    ) -> Judged:
        """What becomes of a run that a board can hold. ``answers``: what callables say of it (``Rules.ask``)."""
        if run.player_id in self.history.players:
            word = self.history.verdict(run.player_id, run.run_id, time, judged)
            if word is not None:
                return BY_MODERATION[word]
        return self.rules.judge(run, time, board, answers)
