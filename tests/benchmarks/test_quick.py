"""The benchmark works: every case runs on real servers, boards equal the oracle, the table comes out. Never timing."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import brokers
from tests.benchmarks import report
from tests.benchmarks.measure import measure
from tests.benchmarks.sizes import QUICK


@pytest.mark.servers
def test_a_tiny_benchmark_gives_its_table_and_every_applier_ends_with_the_boards_of_the_oracle(tmp_path: Path) -> None:
    """``measure`` itself raises when a board differs."""
    document = tmp_path / "benchmarks.md"
    document.write_text(f"# Before\n\n{report.BEGIN}\nold\n{report.END}\n\nAfter.\n", encoding="utf-8")
    with brokers.embedded(tmp_path / "stack") as stack:
        results = measure(stack, tmp_path, QUICK, lambda _: None)
        report.write(document, report.render(results, report.machine(stack)))
    assert not results.ended
    text = document.read_text(encoding="utf-8")
    assert text.startswith("# Before\n")
    assert text.endswith("After.\n")
    assert "old" not in text.split()
    for words in ("### Cold", "### Steady", "**applier**, 2 workers", "pre-built calls", "plain loop", "wire.decode"):
        assert words in text
