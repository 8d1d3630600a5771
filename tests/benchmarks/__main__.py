"""``python -m tests.benchmarks``: bring up a stack, measure, write the table into docs/benchmarks.md."""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests import brokers
from tests.benchmarks import report
from tests.benchmarks.measure import measure
from tests.benchmarks.sizes import FULL, QUICK

from maxboard.devstack import Stack

DOCUMENT = Path(__file__).parents[2] / "docs" / "benchmarks.md"


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)


def main(words: list[str] | None = None) -> None:
    """Parse the command line, measure, print the table and write it."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: whether it works, not how fast")
    parser.add_argument("--stack", type=Path, help="folder of a stack (dev up --dir); default: its own")
    parser.add_argument("--document", type=Path, help="default: docs/benchmarks.md; with --quick none")
    given = parser.parse_args(words)
    with ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        if given.stack:
            stack = Stack(given.stack)
            stack.up()
        else:
            stack = ending.enter_context(brokers.embedded(folder / "stack"))
        results = measure(stack, folder, QUICK if given.quick else FULL, say)
        text = report.render(results, report.machine(stack))
    print(text)
    document = given.document or (None if given.quick else DOCUMENT)
    if document is not None:
        report.write(document, text)


if __name__ == "__main__":
    main()
