"""Brokers that are killed: a worker waits for them, and nothing that was acknowledged is lost."""

from __future__ import annotations

import time

from tests.failure.harness import Game, eventually

AWAY_S = 6.0  # longer than the harness's session of a second: the broker comes back to a group that it must form anew


def test_a_broker_that_is_killed_is_waited_for(game: Game) -> None:
    """SIGKILL while runs flow: the worker stays, joins again, and goes on where it was."""
    broker = game.stack.server("kafka")
    with game.applier() as worker:
        with game.load(500):
            eventually(lambda: sum(game.committed().values()) > 0, "something is committed", 20)
            broker.kill()
            time.sleep(AWAY_S)
            assert worker.poll() is None
            broker.start()
            time.sleep(2)
        eventually(lambda: game.lag() == 0, "the runs after the kill are applied", 20)
        assert worker.poll() is None
    game.check()
