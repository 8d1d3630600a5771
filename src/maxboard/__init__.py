"""Leaderboards that lose nothing: runs go to Kafka first, boards on Redis or Valkey are a maximum of the log.

``from maxboard import RunProducer`` needs the extra ``producer``; it is imported when it is asked for, so that
``import maxboard`` needs nothing beyond the core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maxboard.producer import RunProducer

__all__ = ["RunProducer"]


def __getattr__(name: str) -> object:
    if name == "RunProducer":
        from maxboard.producer import RunProducer

        return RunProducer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
