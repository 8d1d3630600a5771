"""Every metric of the product in one list, and the port that serves them with ``/healthz``.

``FIELDS`` names, kinds and meanings are what dashboards and alerts rely on; ``docs/metrics.md`` is made from it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Literal

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

Kind = Literal["counter", "gauge"]
FIELDS: dict[str, tuple[Kind, str, tuple[str, ...]]] = {
    "maxboard_records": ("counter", "Records of the runs topic that were read.", ()),
    "maxboard_fates": (
        "counter",
        (
            "What became of records. Once a board: applied, hidden, late, expired, waiting. Once a record: tombstone, "
            "no-board. dead-letter: once a board that refused it, or once a record that no board could take."
        ),
        ("fate",),
    ),
    "maxboard_changed": ("counter", "New bests, once a board.", ()),
    "maxboard_emitted": ("counter", "Rank changes and dead letters given to Kafka.", ()),
    "maxboard_calls": ("counter", "Script calls answered by primaries.", ()),
    "maxboard_gaps": ("counter", "Times a primary was behind what was sent to it.", ()),
    "maxboard_rewound": ("counter", "Records read again because a primary was behind.", ()),
    "maxboard_rebalances": ("counter", "Times partitions were assigned to this worker.", ()),
    "maxboard_lag": ("gauge", "Records of this worker's partitions not yet applied and emitted.", ()),
    "maxboard_partitions": ("gauge", "Partitions that this worker has.", ()),
    "maxboard_queued_calls": ("gauge", "Script calls of a primary not answered yet.", ("primary",)),
    "maxboard_primary_up": ("gauge", "1 while a primary takes calls.", ("primary",)),
    "maxboard_healthy": ("gauge", "1 while nothing keeps runs from being applied.", ()),
}


@dataclass
class Snapshot:
    """What one look at a worker finds: values by metric and label value ("": none), and what is wrong."""

    values: dict[str, dict[str, float]]
    troubles: list[str] = field(default_factory=list)
    status: dict[str, object] = field(default_factory=dict)


class _Source(Collector):
    def __init__(self, look: Callable[[], Snapshot]) -> None:
        self._look = look

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        snapshot = self._look()
        for name, (kind, text, labels) in FIELDS.items():
            family = (CounterMetricFamily if kind == "counter" else GaugeMetricFamily)(name, text, labels=labels)
            for label, value in snapshot.values.get(name, {}).items():
                family.add_metric([label] if labels else [], value)
            yield family


def serve(port: int, look: Callable[[], Snapshot], host: str = "127.0.0.1") -> ThreadingHTTPServer:
    """Serve ``/metrics`` and ``/healthz`` (200, or 503 with the reasons) in the background. Raises OSError."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Source(look))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, "text/plain; version=0.0.4; charset=utf-8", generate_latest(registry))
            elif self.path == "/healthz":
                snapshot = look()
                body = {"healthy": not snapshot.troubles, "troubles": snapshot.troubles, **snapshot.status}
                self._answer(503 if snapshot.troubles else 200, "application/json", json.dumps(body).encode())
            else:
                self._answer(404, "text/plain", b"/metrics or /healthz\n")

        def _answer(self, code: int, content: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", content)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
            """Scrapes are no news."""

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
