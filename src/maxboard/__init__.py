"""Leaderboards that lose nothing: runs go to Kafka first, boards on Redis or Valkey are a maximum of the log.

``from maxboard import RunProducer`` needs the extra ``producer``, ``Client`` and ``AsyncClient`` need ``client``,
``Submitter`` needs ``serve``; each is imported when it is asked for, so that ``import maxboard`` needs nothing beyond
the core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from maxboard.client import AsyncClient, Client
    from maxboard.producer import RunProducer
    from maxboard.submitter import Submitter

__all__ = ["AsyncClient", "Client", "RunProducer", "Submitter"]
_MODULES = {"AsyncClient": "client", "Client": "client", "RunProducer": "producer", "Submitter": "submitter"}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"maxboard.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
