"""Every metric of the product in one list, and the port that serves them with ``/healthz``.

``FIELDS`` names, kinds and meanings are what dashboards and alerts rely on; ``docs/metrics.md`` is made from it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Literal

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from maxboard.histogram import Histogram

Kind = Literal["counter", "gauge", "histogram"]
Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
FAMILIES: dict[Kind, type[Family]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
FIELDS: dict[str, tuple[Kind, str, tuple[str, ...]]] = {
    "maxboard_records": ("counter", "Records of the runs topic that were read.", ()),
    "maxboard_fates": (
        "counter",
        (
            "What became of records. Once a board: applied, hidden, held (waits for a verdict), rejected (by a "
            "verdict), late, expired, waiting. Once a record: tombstone, no-board. dead-letter: once a board that "
            "refused it, or once a record that no board could take. Records that are read again, after a primary fell "
            "back or a verdict came, count again: fates are of work done, not of distinct records."
        ),
        ("fate",),
    ),
    "maxboard_dead_letters": (
        "counter",
        (
            "Dead letters given to Kafka, once a record, by reason: malformed, invalid, future, score-range, "
            "bad-group, before-origin, rejected. One that is read again counts again."
        ),
        ("reason",),
    ),
    "maxboard_events": ("counter", "Moderation events read by the worker that owns their partition.", ()),
    "maxboard_changed": ("counter", "New bests, once a board.", ()),
    "maxboard_emitted": ("counter", "Rank changes and dead letters given to Kafka.", ()),
    "maxboard_calls": ("counter", "Script calls answered by primaries.", ()),
    "maxboard_failures": (
        "counter",
        (
            "Calls that failed and lost connections, each sent again: gone, timeout, silent (no answer for 10 s), "
            "loading, read-only, full, misconfigured, busy, noscript, too-few-replicas, crowded, denied, …"
        ),
        ("primary", "kind"),
    ),
    "maxboard_gaps": ("counter", "Times a primary was behind what was sent to it.", ()),
    "maxboard_rewound": ("counter", "Records read again because a primary was behind.", ()),
    "maxboard_rebalances": ("counter", "Times partitions were assigned to this worker.", ()),
    "maxboard_lag": ("gauge", "Records of this worker's partitions not yet applied and emitted.", ()),
    "maxboard_lag_seconds": ("gauge", "Age of the oldest record not yet applied and emitted; 0: there is none.", ()),
    "maxboard_age_seconds": (
        "gauge",
        (
            "How old the boards are at most, as far as this worker's partitions say; also when nothing is new. Not "
            "shown by a worker without partitions."
        ),
        (),
    ),
    "maxboard_partitions": ("gauge", "Partitions that this worker has.", ()),
    "maxboard_unacknowledged": ("gauge", "Rank changes and dead letters that Kafka has not acknowledged yet.", ()),
    "maxboard_queued_calls": ("gauge", "Script calls of a primary not answered yet.", ("primary",)),
    "maxboard_primary_up": ("gauge", "1 while a primary takes calls.", ("primary",)),
    "maxboard_replaying": (
        "gauge",
        "1 while a primary's last reply said that it lacks records: its boards give no ranks.",
        ("primary",),
    ),
    "maxboard_needs_rebuild": (
        "gauge",
        "Boards of a primary that runs were for since the start and that need a rebuild.",
        ("primary",),
    ),
    "maxboard_due": (
        "gauge",
        "Players whose best a verdict took and who are being found again from the log, at the worker that does it.",
        (),
    ),
    "maxboard_log_up": ("gauge", "1 while Kafka answers the consumer.", ()),
    "maxboard_outbox_up": ("gauge", "1 while Kafka takes rank changes and dead letters.", ()),
    "maxboard_healthy": ("gauge", "1 while nothing keeps runs from being applied.", ()),
    "maxboard_call_seconds": (
        "histogram",
        "From sending a script call to its reply; up to eight are on the wire, so waiting is part of it.",
        ("primary",),
    ),
    "maxboard_apply_seconds": (
        "histogram",
        (
            "From the append of a range's first record to the primary's reply, once a call. By the broker's clock and "
            "this machine's. A replay counts with the age of what it reads."
        ),
        ("primary",),
    ),
}


@dataclass
class Snapshot:
    """What one look at a worker finds: values by metric and label values, and what is wrong.

    Label values are one text: "" for none, joined by ``|`` for several.
    """

    values: Mapping[str, Mapping[str, float | Histogram]]
    troubles: list[str] = field(default_factory=list)
    status: dict[str, object] = field(default_factory=dict)


class _Source(Collector):
    def __init__(self, look: Callable[[], Snapshot]) -> None:
        self._look = look

    def collect(self) -> Iterator[Family]:
        snapshot = self._look()
        for name, (kind, text, labels) in FIELDS.items():
            family = FAMILIES[kind](name, text, labels=labels)
            for label, value in snapshot.values.get(name, {}).items():
                _add(family, label.split("|") if labels else [], value)
            yield family


def _add(family: Family, labels: list[str], value: float | Histogram) -> None:
    if isinstance(family, HistogramMetricFamily):
        if isinstance(value, Histogram):
            family.add_metric(labels, list(value.buckets()), value.total)
    elif not isinstance(value, Histogram):
        family.add_metric(labels, value)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Whoever asked has gone: no news either. Anything else is a fault of ours."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


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

    server = _Server((host, port), Handler)
    Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
