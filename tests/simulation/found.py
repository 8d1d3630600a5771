"""Schedules that once broke an invariant, shrunk. Each stays as a test."""

from __future__ import annotations

from tests.simulation.schedule import Schedule, Step


def _steps(text: str) -> tuple[Step, ...]:
    return tuple(parsed(line) for line in text.strip().splitlines())


def parsed(line: str) -> Step:
    """A printed step."""
    name, *words = line.split()
    values = {"True": True, "False": False}
    return Step(name, tuple(values[w] if w in values else int(w) if w.lstrip("-").isdigit() else w for w in words))


FOUND = {
    "a way back commits only what every primary holds and Kafka has the changes of": Schedule(1, 2, 2, _steps("""
        run runs:1 p9 5 395 1
        flow 1 one+two False
        run runs:1 a 40 1322 1
        flow 1 one+two False
        promote two 1 False
        run runs:1 B 1 1 1
        step 1 600 4
        call 1 two 9
        reply 1 two 9
        step 1 1 0
        commit 1 True
        crash 1 0
    """)),
    "offsets without a record at the end of moderation move its own position": Schedule(8, 2, 2, _steps("""
        flow 1 one True
        marker moderation
        crash 0 0
    """)),
    "the first worker's missing definitions and vanished scripts come to rest": Schedule(3424, 2, 2, _steps("""
        run runs:0 p10 59 1008 2
        flow 1 one+two False
        crash 0 0
        run runs:0 p10 5 262 2
        step 0 700 1
        call 0 two 9
        step 1 1 2
    """)),
    "a ban that comes to an emptied primary before the board is said with the run": Schedule(894, 2, 2, _steps("""
        run runs:0 p10 0 2744 1
        flow 2 one True 1 20
        empty one
        event ban p10 shadow 0
    """)),
    "a cut log that begins in the millisecond of an erasure may lack what counts": Schedule(19844, 2, 3, _steps("""
        event erase a - 0 0
        run runs:0 a 61 1768 1
        run runs:2 ~x 5 491 2
        run runs:0 a 80 1875 2
        run runs:0 p9 5 1165 1
        step 0 500 4 0
        trim runs:0 3
    """)),
    "a reject that comes to a promoted primary before the board is said with the run": Schedule(642, 3, 2, _steps("""
        run runs:1 B 40 2576 1
        verdict reject 0
        run runs:0 p9 1 1812 1
        flow 3 one False 5 20
        crash 2 0
        promote one 30 True
    """)),
}  # fmt: skip
