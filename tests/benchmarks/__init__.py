"""Benchmarks on real servers: ``python -m tests.benchmarks`` measures, ``--quick`` only checks that it can."""
