"""The end of ``rebuild --route live``: a build that is whole, and that replicas have, becomes the board in one step."""

from __future__ import annotations

import time

from maxboard.board import build_scripts
from maxboard.board.build_scripts import GONE, OTHER_DEFINITIONS
from maxboard.boards import BoardRef
from maxboard.errors import NotYet, Refused, ServerNotReady
from maxboard.rebuild import replicas
from maxboard.rebuild.load_live import AWAY_S, Load
from maxboard.rebuild.progress import Bars
from maxboard.rebuild.target import AGAIN_S, Target

CONFIRM_S = 10.0  # for replicas to follow the switch itself, which is a few commands


def switch(on: Target, ref: BoardRef, build: str, load: Load) -> build_scripts.SwitchReply:
    """Load until nothing is missing, let replicas have it, switch. A primary that is away is waited for, as in a load.

    Raises what ``Load.run`` does, and ``NotYet`` when a replica does not follow.
    """
    away_since: float | None = None
    while True:
        chunks = load.run()
        try:
            load.check()
            if not replicas.have_it(on, replicas.PATIENCE_S):
                raise NotYet(f"a replica of primary {on.name!r} does not follow: look at its link, then run this again")
            command = build_scripts.switch_build(on.keys, on.digest, ref, build, chunks, load.judged.due())
            reply = build_scripts.parse_switch(on.call(command))
        except ServerNotReady:
            away_since = away_since or time.monotonic()
            if time.monotonic() - away_since > AWAY_S:
                raise
            time.sleep(AGAIN_S)
            continue
        if reply.status == build_scripts.DONE:
            return reply
        if reply.status == OTHER_DEFINITIONS:
            raise Refused(f"the definitions on primary {on.name!r} changed meanwhile: run this again")
        if reply.status == GONE:
            asked = " (unless it was switched, and the answer got lost)" if away_since else ""
            raise NotYet(f"the build of {ref.reference} is not there any more{asked}: run this again")
        load.loaded, away_since = reply.loaded, None


def confirm(on: Target, bars: Bars) -> None:
    """Say so when a replica does not have the new board yet."""
    try:
        if replicas.have_it(on, CONFIRM_S):
            return
        why = f"a replica of primary {on.name!r} does not follow"
    except ServerNotReady as error:
        why = str(error)
    bars.say(f"switched, but replicas did not confirm it: {why}; a fail-over now could bring the old board back")
