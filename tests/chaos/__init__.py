"""Seeded random faults on real servers: ``python -m tests.chaos``."""
