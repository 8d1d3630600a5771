"""Servers for the tests of this folder."""

from tests.brokers import kafka, own_stack

__all__ = ["kafka", "own_stack"]
