"""What a stack remembers: its ports and its processes, in ``stack.json``."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field

from maxboard.devstack.places import Places, replace
from maxboard.devstack.processes import Process


@dataclass
class State:
    """``used`` are all ports that a server ever had: the configuration may still name an older one.

    ``sentinel``: sentinels watch the primaries, and the configuration names them.
    """

    ports: dict[str, int] = field(default_factory=dict)
    used: dict[str, list[int]] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)
    sentinel: bool = False

    def remember_ports(self, chosen: dict[str, int]) -> None:
        """Take newly chosen ports; the earlier ones stay in ``used``."""
        self.ports.update(chosen)
        for name, port in chosen.items():
            if port not in self.used.setdefault(name, []):
                self.used[name].append(port)

    def save(self, places: Places) -> None:
        """Write the file; readers see the old state or this one."""
        document = {
            "directory": str(places.root),
            "sentinel": self.sentinel,
            "ports": self.ports,
            "used": self.used,
            "processes": {name: asdict(process) for name, process in self.processes.items()},
        }
        replace(places.state, json.dumps(document, indent=2) + "\n")


def load(places: Places) -> State:
    """The state on disk. An unreadable file is no state: running servers are then found by their command lines."""
    try:
        document = json.loads(places.state.read_text(encoding="utf-8"))
        state = State(
            {str(name): int(port) for name, port in document["ports"].items()},
            {str(name): [int(port) for port in ports] for name, ports in document["used"].items()},
            sentinel=document.get("sentinel") is True,
        )
        if document["directory"] == str(places.root):  # else a copy of another stack's folder: its servers are not ours
            state.processes = {
                str(name): Process(int(entry["pid"]), str(entry["started"]))
                for name, entry in document["processes"].items()
            }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return State()
    return state
