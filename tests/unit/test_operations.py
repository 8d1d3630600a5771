"""Alerts, dashboard and runbook name only what exists: metrics, commands, options, tests, findings."""

from __future__ import annotations

import json
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import click
import pytest
import redis
import yaml
from tests.servers import free_port

from maxboard import metrics
from maxboard.board.client import ADVICE, classify
from maxboard.checks import NAMES
from maxboard.cli import COMMANDS, cli
from maxboard.histogram import CALL_BUCKETS_S, LATENCY_BUCKETS_S, Histogram
from maxboard.metrics import FIELDS
from maxboard.pipeline.applier import FATES

ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((ROOT / "deploy/prometheus/maxboard.rules.yml").read_text(encoding="utf-8"))
DASHBOARD = json.loads((ROOT / "deploy/grafana/maxboard.json").read_text(encoding="utf-8"))
RUNBOOK = (ROOT / "docs/runbook.md").read_text(encoding="utf-8")
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
SECTIONS = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", RUNBOOK, re.MULTILINE | re.DOTALL))
FORBIDDEN_BY_PROMETHEUS = re.compile(r"\b(?:increase|rate)\((?!maxboard_\w+(?:_total|_bucket|_sum|_count)\b)")


def wire_names() -> set[str]:
    """Every series that a scrape can show."""
    names = set()
    for name, (kind, _, _) in FIELDS.items():
        endings = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}[kind]
        names |= {name + ending for ending in endings}
    return names


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    """Of alerts, panels and the runbook."""
    found = [rule["expr"] for rule in ALERTS]
    found += [target["expr"] for panel in panels() for target in panel["targets"]]
    return [*found, DASHBOARD["templating"]["list"][1]["definition"], *re.findall(r"`([^`]*maxboard_[^`]*)`", RUNBOOK)]


@pytest.mark.parametrize("expression", expressions())
def test_every_metric_that_is_named_exists_with_its_suffix(expression: str) -> None:
    named = set(re.findall(r"\bmaxboard_[a-z_]+", expression))
    assert named
    assert named <= wire_names()
    assert expression.count("(") == expression.count(")")
    assert not FORBIDDEN_BY_PROMETHEUS.search(expression), "rate and increase are for counters"


@pytest.mark.parametrize("expression", expressions())
def test_labels_that_are_asked_for_are_the_metrics_own(expression: str) -> None:
    """Prometheus adds instance and job; buckets have le."""
    own = {label for _, _, labels in FIELDS.values() for label in labels} | {"instance", "job", "le"}
    grouped = {
        label.strip() for group in re.findall(r"(?:by|on) \(([^)]*)\)", expression) for label in group.split(",")
    }
    chosen = set(re.findall(r"[{,]\s*(\w+)\s*[=!]", expression))
    assert grouped | chosen <= own


def test_every_metric_is_on_the_dashboard() -> None:
    shown = " ".join(target["expr"] for panel in panels() for target in panel["targets"])
    assert {name for name in FIELDS if not re.search(rf"\b{name}(_total|_bucket)?\b", shown)} == set()


def test_panels_have_places_that_do_not_overlap_and_a_unit_and_a_description() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert all(panel["description"] and panel["fieldConfig"]["defaults"]["unit"] for panel in panels())
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_every_alert_says_how_urgent_it_is_and_leads_to_its_section() -> None:
    names = [rule["alert"] for rule in ALERTS]
    assert len(set(names)) == len(names)
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"
        assert rule["alert"] in SECTIONS, "no section in the runbook"
    assert {name for name in SECTIONS if name.startswith("Maxboard")} == set(names)


def test_every_fate_that_is_counted_is_in_the_meaning_of_its_metric() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/maxboard/pipeline").glob("*.py"))
    counted = {*re.findall(r'fates\["([a-z-]+)"\]', code), *FATES.values(), "late"}
    assert {"held", "rejected", "tombstone"} < counted
    meaning = FIELDS["maxboard_fates"][1]
    assert {fate for fate in counted if not re.search(rf"\b{fate}\b", meaning)} == set()


def test_no_applier_at_all_is_an_alert_whatever_else_is_scraped() -> None:
    """A sum over nothing is nothing, not 0: only ``absent`` of what workers alone have tells."""
    (rule,) = [rule for rule in ALERTS if rule["alert"] == "MaxboardNoApplier"]
    ways = [way.strip() for way in rule["expr"].split(" or ")]
    assert "absent(maxboard_partitions)" in ways
    assert all(way.startswith("absent(") or way.endswith(") < 1") for way in ways)


@pytest.mark.parametrize("alert", [rule["alert"] for rule in ALERTS])
def test_a_section_says_what_it_means_endangers_takes_and_loses_and_what_to_run(alert: str) -> None:
    section = SECTIONS[alert]
    for part in ("**Means.**", "**Endangers.**", "**Run.**", "**Takes.**", "**Lost.**"):
        assert part in section, part
    assert re.search(r"`maxboard [a-z]", section)


def commands() -> Iterator[list[str]]:
    """Every command of the product in the runbook, as words."""
    for text in re.findall(r"`(maxboard [^`]+)`", RUNBOOK) + re.findall(r"^maxboard .*$", RUNBOOK, re.MULTILINE):
        yield text.split()[1:]


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_every_command_of_the_runbook_exists_with_its_options(words: list[str]) -> None:
    assert words[0] in COMMANDS
    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None
    if isinstance(command, click.Group) and len(words) > 1:
        command = command.commands[words[1]]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    assert {word for word in words if word.startswith("--")} <= known


def test_tests_that_prove_the_runbook_exist() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_[a-z0-9_]+)`", RUNBOOK))
    assert len(named) > 10
    assert not {name for name in named if f"def {name}(" not in sources}


def test_findings_and_kinds_of_failure_in_the_runbook_are_those_of_the_code() -> None:
    overridden = set(re.findall(r"--override ([a-z-]+)", RUNBOOK))
    assert overridden <= set(NAMES)
    kinds = set(re.findall(r'kind="([a-z-]+)"', RUNBOOK))
    assert kinds <= {*ADVICE, "noscript", "silent"}


@pytest.mark.parametrize("code", ["READONLY", "OOM", "MISCONF", "BUSY", "NOSCRIPT"])  # LOADING: refused at the socket
def test_a_sick_server_has_the_kind_that_its_error_is_counted_under(code: str) -> None:
    """Alerts go by the kind: the runbook must not send to another one."""
    (row,) = re.findall(rf"^\| {code}: .*$", RUNBOOK, re.MULTILINE)
    kind = classify(redis.exceptions.ResponseError(f"{code} of a server"))
    assert row.split("|")[3].strip() == kind.replace("no-script", "noscript")


def test_a_histogram_counts_each_duration_once_and_its_buckets_add_up() -> None:
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.1, 0.5, 2.0, 0.05):
        histogram.observe(seconds)
    assert list(histogram.buckets()) == [("0.1", 2), ("1.0", 3), ("+Inf", 4)]
    assert histogram.total == pytest.approx(2.65)


@pytest.mark.parametrize("bounds", [LATENCY_BUCKETS_S, CALL_BUCKETS_S])
def test_bucket_bounds_rise(bounds: tuple[float, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))


def test_a_scraper_that_gives_up_is_no_news(capfd: pytest.CaptureFixture[str]) -> None:
    """A probe with a short time-out must not fill the log with tracebacks."""
    slow = Event()

    def look() -> metrics.Snapshot:
        slow.wait(5)
        return metrics.Snapshot({"maxboard_records": {"": 1.0}}, ["x" * 5_000_000])

    server = metrics.serve(port := free_port(), look)
    try:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closes with a reset
        slow.set()
    finally:
        server.shutdown()
        server.server_close()
    assert capfd.readouterr().err == ""
