"""Hypothesis profiles: the same examples on every local run and fast; more, and new ones, in CI."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_SLOW = [HealthCheck.too_slow]  # of a shared machine, not of a strategy
settings.register_profile("local", max_examples=150, derandomize=True, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("ci", max_examples=1_000, print_blob=True, deadline=None, suppress_health_check=_SLOW)
settings.load_profile("ci" if os.environ.get("CI", "").lower() in ("1", "true") else "local")
