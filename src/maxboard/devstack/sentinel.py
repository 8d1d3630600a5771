"""Sentinels: they watch the primaries, promote a replica when one is gone, and say who is primary now."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from maxboard.devstack.lock import Lock
from maxboard.devstack.places import Places, render
from maxboard.devstack.ports import HOST
from maxboard.devstack.valkey import Process, quoted

NAMES = ("sentinel-1", "sentinel-2", "sentinel-3")
QUORUM = 2  # of three
# For development: a fail-over is over some 4 s after a kill. A ping goes out every second: with 1,000 a busy laptop
# missed one right after a fail-over and had a second. In production two busy seconds are no reason for one.
DOWN_AFTER_MS = 2_000
FAILOVER_TIMEOUT_MS = 3_000  # a fail-over that hangs is tried again after twice this


@dataclass(frozen=True, slots=True)
class Opinion:
    """Where one sentinel has the primary of a service, since which epoch, and how many others it knows."""

    epoch: int
    port: int
    replicas: int = 0
    sentinels: int = 0
    down: bool = False


class Sentinel(Process):
    """One sentinel for all primaries. ``leader`` names the server that is a service's primary now."""

    role = "sentinel"

    def __init__(
        self, name: str, places: Places, lock: Lock, services: Sequence[str], leader: Callable[[str], str]
    ) -> None:
        super().__init__(name, places, lock)
        self._services = services
        self._leader = leader

    def conf(self, ports: dict[str, int]) -> str:
        """What it wrote down last, unless a server is elsewhere by now: then it starts anew, without epochs."""
        saved = self._saved()
        data = {str(port) for name, port in ports.items() if name not in NAMES}
        known = re.findall(r"^sentinel (?:monitor|known-replica|known-slave) \S+ \S+ (\d+)", saved, re.MULTILINE)
        if known and data.issuperset(known):
            return re.sub(r"^port \d+$", f"port {ports[self.name]}", saved, count=1, flags=re.MULTILINE)
        text = render("sentinel.conf", port=ports[self.name], data=quoted(self.places.data(self.name)))
        for service in self._services:
            text += (
                f"sentinel monitor {service} {HOST} {ports[self._leader(service)]} {QUORUM}\n"
                f"sentinel down-after-milliseconds {service} {DOWN_AFTER_MS}\n"
                f"sentinel failover-timeout {service} {FAILOVER_TIMEOUT_MS}\n"
                f"sentinel parallel-syncs {service} 2\n"  # reads are served by the primary meanwhile
            )
        return text

    def arguments(self) -> list[str]:
        return [*super().arguments(), "--sentinel"]

    def opinion(self, service: str) -> Opinion | None:
        """What it says when it runs, else what it wrote down last; None: nothing is known."""
        running = self.process() is not None
        told = self.ask("SENTINEL", "MASTER", service) if running else None
        # A promoted replica is named here at once, there at the end of the fail-over.
        now = self.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", service) if running else None
        if told and now:
            words = [word.decode() for word in told]
            fields = dict(zip(words[::2], words[1::2], strict=True))
            return Opinion(
                int(fields["config-epoch"]),
                int(now[1]),
                int(fields["num-slaves"]),
                int(fields["num-other-sentinels"]),
                "down" in fields["flags"],
            )
        saved = self._saved()
        at = re.search(rf"^sentinel monitor {re.escape(service)} \S+ (\d+)", saved, re.MULTILINE)
        epoch = re.search(rf"^sentinel config-epoch {re.escape(service)} (\d+)", saved, re.MULTILINE)
        return Opinion(int(epoch[1]) if epoch else 0, int(at[1])) if at else None

    def has_settled(self, replicas: int) -> bool:
        """Whether it sees every primary up with that many replicas, and the other sentinels."""
        opinions = [self.opinion(service) for service in self._services]
        return all(
            one is not None and not one.down and one.replicas >= replicas and one.sentinels >= len(NAMES) - 1
            for one in opinions
        )

    def role_now(self) -> str:
        found = [self.opinion(service) for service in self._services]
        ports = self._state().ports
        names = [name for one in found if one for name, port in ports.items() if port == one.port]
        return f"sentinel of {', '.join(names)}" if names else self.role

    def _saved(self) -> str:
        with suppress(OSError):
            return self.places.conf(self.name).read_text(encoding="utf-8")
        return ""


def newest(sentinels: Sequence[Sentinel], service: str) -> int | None:
    """Port of a service's primary by the sentinels that know best; None: nobody knows one."""
    opinions = [one for sentinel in sentinels if (one := sentinel.opinion(service)) is not None]
    return max(opinions, key=lambda one: one.epoch).port if opinions else None
