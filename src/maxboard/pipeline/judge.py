"""Step 2: may this run count at all? Pure in the run and its record time, so a replay decides the same."""

from __future__ import annotations

from maxboard.model import Refusal, Run
from maxboard.windows import duration_text
from maxboard.wire import rfc3339


def judge(run: Run, time: int, max_future: int) -> Refusal | None:
    """A refusal for a run finished more than ``max_future`` ms after its record time; None lets it pass.

    Rules and verdicts of moderation join here.
    """
    if run.finished_at > time + max_future:
        return Refusal(
            "future",
            f"finished_at {rfc3339(run.finished_at)} is more than {duration_text(max_future)} "
            f"after the record time {rfc3339(time)}",
        )
    return None
