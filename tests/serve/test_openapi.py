"""What the API says of itself is what is published, and what it does: fuzzed by its own description."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.brokers import topics
from tests.serve.running import Served, configure, run, serving

from maxboard.client import Client
from maxboard.config import Kafka, Settings, parse
from maxboard.devstack import Stack
from maxboard.serve import openapi
from maxboard.serve.api import framework
from maxboard.serve.handlers import Api
from maxboard.serve.settings import Serve

PUBLISHED = Path(__file__).resolve().parents[2] / "schemas" / "openapi.json"


def settings() -> Settings:
    """A configuration whose servers need not be there."""
    kafka = Kafka(bootstrap="127.0.0.1:1", topics=topics())
    return parse(
        {
            "kafka": kafka.model_dump(),
            "primaries": {"main": {"url": "redis://127.0.0.1:1/0"}},
            "boards": {"weekly": {"primary": "main", "window": "iso-week", "score_max": 8_000_000}},
        }
    )


def document() -> dict[str, Any]:
    found: dict[str, Any] = framework(Api(settings(), Serve())).openapi()
    return found


def test_the_published_description_is_that_of_the_application() -> None:
    """Write it anew with ``python -m maxboard.serve.openapi > schemas/openapi.json``."""
    assert PUBLISHED.read_text(encoding="utf-8") == openapi.text(framework(Api(settings(), Serve())))


def test_every_reference_of_the_description_leads_somewhere() -> None:
    found = document()
    names = set(found["components"]["schemas"])

    def refs(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"].rpartition("/")[2]
            for inner in value.values():
                yield from refs(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from refs(inner)

    assert set(refs(found)) <= names


def test_every_path_says_its_answers_and_errors() -> None:
    for path, operations in document()["paths"].items():
        for operation in operations.values():
            assert operation["summary"], path
            assert "200" in operation["responses"], path
            assert "503" in operation["responses"], path
            assert "HTTPValidationError" not in json.dumps(operation), path


@pytest.fixture(scope="module")
def served(own_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(configure(own_stack, tmp_path_factory.mktemp("fuzzed"))) as found:
        with Client(found.url) as client:
            client.submit_many([run(number, f"p{number}", number) for number in range(50)])
        yield found


@pytest.mark.servers
def test_no_request_that_the_description_allows_or_forbids_breaks_the_server(served: Served) -> None:
    # Only documented codes: 503 is (a stale or missing board), 500 is nowhere. Not content types: a request line
    # beyond 64 KiB is refused by the parser, in plain text.
    command = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{served.url}/openapi.json"]
    command += [
        "--checks",
        "response_schema_conformance,status_code_conformance",
    ]
    command += [
        "--max-examples",
        "25",
        "--phases",
        "examples,coverage,fuzzing",
        "--seed",
        "1",
        "--exclude-path",
        "/v1/stream",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=served.config.parent, timeout=300)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert served.process.process.poll() is None
    with Client(served.url) as client:
        assert client.count("weekly").members >= 50
