"""The other stacks of this machine: while one runs it keeps its ports, those of its servers that are down too."""

from __future__ import annotations

import json
from pathlib import Path

from maxboard.devstack.lock import Lock
from maxboard.devstack.places import Places, cache, replace
from maxboard.devstack.state import load


def choosing() -> Lock:
    """Held from the choice of ports until all are bound: one stack at a time on this machine."""
    return Lock(cache() / "ports.lock")


def ports_kept(own: Places) -> set[int]:
    """Ports of the stacks that run, but for those of ``own``, which joins them. To be called while ``choosing``."""
    register = cache() / "stacks.json"
    running = {root: load(Places(root)) for root in _roots(register) if root != own.root}
    running = {root: state for root, state in running.items() if any(p.alive() for p in state.processes.values())}
    replace(register, json.dumps([*map(str, running), str(own.root)], indent=2) + "\n")
    return {port for state in running.values() for port in state.ports.values()}


def _roots(register: Path) -> list[Path]:
    """An unreadable register is an empty one: what it kept from others is found taken, where it is bound."""
    try:
        return [Path(root) for root in json.loads(register.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        return []
