"""What the API says of itself. ``schemas/openapi.json`` is written from it, and a test holds the two together."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from maxboard import resources
from maxboard.serve import answers
from maxboard.serve.answers import BatchResult, Health, Problem, RunResult
from maxboard.serve.moderate import BanAsked, Bans, Moderated, UnbanAsked

REF = "#/components/schemas/{name}"
VALUES = (
    RunResult, BatchResult, answers.Stretch, answers.PlayerAnswer, answers.RanksAnswer, answers.CountAnswer,
    answers.BoardsAnswer, answers.ChangesAnswer, answers.Pulse, answers.Moves, Health, Problem,
    BanAsked, UnbanAsked, Moderated, Bans,
)  # fmt: skip
DESCRIPTION = (
    "Leaderboards that lose nothing. A submitted run is in Kafka before it is answered; the answer has the ranks that "
    "this very run has made. Every read says how far through the log it is. Errors are `{error, message}`."
)


def _schema(value: type) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": {"$ref": REF.format(name=value.__name__)}}}}


def _response(value: type, text: str) -> dict[str, Any]:
    return {"description": text, **_schema(value)}


ERRORS = {
    400: _response(Problem, "The request cannot be understood; `message` says what would be."),
    401: _response(Problem, "A key, or a signature, is needed."),
    403: _response(Problem, "The key has not the scope, or the request comes from elsewhere."),
    429: _response(Problem, "More requests a second than this key may send; see Retry-After."),
}
NO_BOARD = {404: _response(Problem, "No board of that name is configured.")}
NOT_NOW = _response(
    Problem,
    "Not now, and never an old answer instead: a server is away, the board is not live, or not as fresh as asked.",
)
GONE = {410: _response(Problem, "The cursor is of another window, or of an earlier life of the board.")}


def reading(value: type, name: str, summary: str, board: bool = True) -> dict[str, Any]:
    """The parameters of a reading path."""
    found: dict[int, dict[str, Any]] = {200: _response(value, "The answer."), **ERRORS, 503: NOT_NOW}
    if board:
        found |= NO_BOARD | {409: _response(Problem, "`after` is a position in another log.")}
    if name == "top":
        found |= GONE
    return {"summary": summary, "operation_id": name, "responses": _only(found), "tags": ["read"]}


def _only(found: dict[int, dict[str, Any]]) -> dict[int | str, dict[str, Any]]:
    return {int(code): response for code, response in sorted(found.items())}


_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "anyOf": [
                        {"$ref": REF.format(name="RunSubmitted")},
                        {"type": "array", "items": {"$ref": REF.format(name="RunSubmitted")}, "minItems": 1},
                        {
                            "type": "object",
                            "required": ["runs"],
                            "additionalProperties": False,
                            "properties": {
                                "runs": {
                                    "type": "array",
                                    "items": {"$ref": REF.format(name="RunSubmitted")},
                                    "minItems": 1,
                                }
                            },
                        },
                    ]
                }
            }
        },
    }
}
_EITHER = {
    "content": {
        "application/json": {
            "schema": {"anyOf": [{"$ref": REF.format(name="RunResult")}, {"$ref": REF.format(name="BatchResult")}]}
        }
    }
}
_RESULT_OR_PROBLEM = {
    "content": {
        "application/json": {
            "schema": {
                "anyOf": [{"$ref": REF.format(name=name)} for name in ("RunResult", "BatchResult", "Problem")],
            }
        }
    }
}
SUBMIT: dict[str, Any] = {
    "summary": "Submit runs, and get their ranks",
    "description": (
        "One run, an array of runs, or `{runs: [...]}`. Sending a run again is always safe. 200: `accepted` says it of "
        "each run. 422: no run could be accepted. 503: some run is not in the log; send the request again."
    ),
    "operation_id": "submit",
    "tags": ["submit"],
    "openapi_extra": _BODY,
    "responses": _only(
        {
            200: {"description": "At least one run is in the log, and what it did on each board.", **_EITHER},
            **ERRORS,
            413: {"description": "The body, a run, or their number is too large.", **_RESULT_OR_PROBLEM},
            415: _response(Problem, "The content type is not application/json."),
            422: {"description": "Every run is wrong; `error` of each says how.", **_EITHER},
            503: {"description": "Not in the log: send it again.", **_RESULT_OR_PROBLEM},
        }
    ),
}
CHANGES = reading(answers.ChangesAnswer, "changes", "A player's last rank changes, newest first")
STREAM: dict[str, Any] = {
    "summary": "A board as it moves: server-sent events",
    "description": (
        "`top`: the entries, at most ten times a second. `moves`: rank changes since. `pulse`: once a second, age, lag "
        "and rate. `gone`: the board is not live, with its state."
    ),
    "operation_id": "stream",
    "tags": ["read"],
    "responses": _only(
        {
            200: {"description": "Events.", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
            **ERRORS,
            **NO_BOARD,
            503: NOT_NOW,
        }
    ),
}


def _moderating(name: str, summary: str, asked: type) -> dict[str, Any]:
    body = {"requestBody": {"required": True, **_schema(asked)}}
    found = {200: _response(Moderated, "In force."), 202: _response(Moderated, "Recorded, not in force yet.")}
    more = {413: _response(Problem, "The body is too large."), 415: SUBMIT["responses"][415], 503: NOT_NOW}
    more[409] = _response(Problem, "The topic is not as it must be.")
    return {
        "summary": summary,
        "operation_id": name,
        "tags": ["moderate"],
        "openapi_extra": body,
        "responses": _only({**found, **ERRORS, **more}),
    }


BAN = _moderating("ban", "Hide players", BanAsked)
UNBAN = _moderating("unban", "Show players again", UnbanAsked)
BANS: dict[str, Any] = {
    "summary": "Every hidden player",
    "operation_id": "bans",
    "tags": ["moderate"],
    "responses": _only({200: _response(Bans, "The bans in force."), **ERRORS, 503: NOT_NOW}),
}
HEALTH: dict[str, Any] = {
    "summary": "Whether submits and reads work",
    "operation_id": "health",
    "tags": ["operate"],
    "responses": _only(
        {200: _response(Health, "All is well."), 403: ERRORS[403], 503: _response(Health, "Something is wrong.")}
    ),
}


def generator(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """A function that makes the document, once."""

    def document() -> dict[str, Any]:
        if not app.openapi_schema:
            app.openapi_schema = _complete(
                get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            )
        return app.openapi_schema

    return document


def _complete(document: dict[str, Any]) -> dict[str, Any]:
    """FastAPI knows the parameters; the values are msgspec's, the run that of ``schemas/run.v1.json``."""
    _, schemas = msgspec.json.schema_components(VALUES, ref_template=REF)
    components = document.setdefault("components", {})
    components["schemas"] = _numbers(schemas) | {"RunSubmitted": _run()}
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": "mb_…"}}
    document["security"] = [{"key": []}]
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None) if operation["operationId"] != "submit" else None
    return document


def _numbers(schemas: Any) -> Any:
    """msgspec describes a Decimal as text; scores are written as numbers."""
    if isinstance(schemas, dict):
        if schemas.get("format") == "decimal":
            return {"type": "number"}
        return {name: _numbers(value) for name, value in schemas.items()}
    return [_numbers(value) for value in schemas] if isinstance(schemas, list) else schemas


def _run() -> dict[str, Any]:
    run: dict[str, Any] = json.loads(resources.text("schemas", "run.v1.json"))
    for name in ("$schema", "$id"):
        run.pop(name, None)
    return run


def text(app: FastAPI) -> str:
    """``schemas/openapi.json``."""
    return json.dumps(app.openapi(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def main() -> None:
    """Print the document: ``python -m maxboard.serve.openapi > schemas/openapi.json``."""
    from maxboard.config import parse
    from maxboard.serve.api import framework
    from maxboard.serve.handlers import Api
    from maxboard.serve.settings import Serve

    nowhere = {
        "kafka": {"bootstrap": "127.0.0.1:1"},
        "primaries": {"main": {"url": "redis://127.0.0.1:1/0"}},
        "boards": {"alltime": {"primary": "main", "window": "all-time", "score_max": 1, "tick": "1s"}},
    }
    print(text(framework(Api(parse(nowhere), Serve()))), end="")


if __name__ == "__main__":
    main()
