"""What one repetition of a case measured."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field


@dataclass
class Sample:
    """``runs`` in ``seconds``; ``extra`` by name, its unit in the name."""

    runs: int
    seconds: float
    extra: dict[str, float] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Runs a second."""
        return self.runs / self.seconds


@dataclass
class Case:
    """All repetitions of a case."""

    name: str
    samples: list[Sample] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Median runs a second."""
        return statistics.median(sample.rate for sample in self.samples)

    def median(self, name: str) -> float:
        """Median of an extra."""
        return statistics.median(sample.extra[name] for sample in self.samples)

    def greatest(self, name: str) -> float:
        """Greatest of an extra."""
        return max(sample.extra[name] for sample in self.samples)
