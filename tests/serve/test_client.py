"""The clients against a server that is scripted: what they send, try again, and raise."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

import maxboard
from maxboard.client import AsyncClient, Client
from maxboard.errors import DeadLetter, MaxboardError, Refused, ServerNotReady, WrongUse
from maxboard.serve import keys
from maxboard.serve.answers import RunResult

RUN = {"run_id": "r", "player_id": "p", "score": 5, "finished_at": "2026-11-30T12:00:00Z"}
ACCEPTED = RunResult(True, "r", "p", "1~t~0-1", "2026-11-30T12:00:00.000Z", [])
COUNT = {"board": "weekly:2026-W49", "members": 3, "epoch": 0, "state": "live", "position": {}, "as_of": None}
COUNT |= {"age_ms": None, "source": "primary"}
Answer = Callable[[httpx.Request], httpx.Response]


class Server:
    """Answers with each of ``answers`` in turn, the last again and again."""

    def __init__(self, *answers: tuple[int, Any] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        status, body = answer
        return httpx.Response(status, json=body, headers={"retry-after": "0"})


def client(server: Server, key: str | None = None, **options: Any) -> Client:
    return Client("http://game/", key, transport=httpx.MockTransport(server), **options)


def result(**changed: Any) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = msgspec.to_builtins(ACCEPTED)
    return found | changed


def test_what_can_be_tried_again_is_and_the_answer_is_typed() -> None:
    problem = {"error": "kafka", "message": "away"}
    server = Server((503, result(accepted=False, error=problem)), httpx.ConnectError("refused"), (200, result()))
    with client(server) as found:
        assert found.submit(RUN) == ACCEPTED
    assert len(server.asked) == 3
    assert all(json.loads(asked.content) == RUN for asked in server.asked)


def test_a_submit_that_is_never_accepted_is_an_answer_with_its_reason() -> None:
    problem = {"error": "kafka", "message": "away"}
    with client(Server((503, result(accepted=False, error=problem))), retries=1) as found:
        answer = found.submit(RUN)
    assert not answer.accepted
    assert answer.error is not None
    assert answer.error.error == "kafka"


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, WrongUse), (404, WrongUse), (401, Refused), (403, Refused), (410, Refused), (429, ServerNotReady),
     (503, ServerNotReady), (502, ServerNotReady), (500, Refused)],
)  # fmt: skip
def test_a_refusal_is_an_error_of_the_product(status: int, kind: type[MaxboardError]) -> None:
    with (
        client(Server((status, {"error": "x", "message": "why"})), retries=0) as found,
        pytest.raises(kind, match="why"),
    ):
        found.count("weekly")


def test_a_server_that_is_away_is_named() -> None:
    found = client(Server(httpx.ConnectError("refused")), retries=0)
    with pytest.raises(ServerNotReady, match="http://game does not answer: refused"):
        found.boards()


def test_a_run_that_no_consumer_would_take_is_not_sent() -> None:
    server = Server((200, result()))
    with client(server) as found, pytest.raises(DeadLetter):
        found.submit(RUN | {"score": "12"})
    assert server.asked == []


def test_names_are_escaped_and_wishes_are_passed_on() -> None:
    server = Server((200, COUNT))
    with client(server, "mb_key") as found:
        found.count("weekly:2026-W49", after="1~t~0-1", max_age_ms=5)
    (asked,) = server.asked
    assert asked.url.raw_path.decode() == "/v1/boards/weekly%3A2026-W49/count?after=1~t~0-1&max_age_ms=5"
    assert asked.headers["authorization"] == "Bearer mb_key"
    assert keys.SIGNATURE not in asked.headers


def test_a_signed_submit_has_a_signature_that_the_server_accepts() -> None:
    _, key = keys.make("game", ["submit"], 0)
    server = Server((200, result()))
    with client(server, key, signed=True) as found:
        found.submit(RUN)
    (asked,) = server.asked
    at = asked.headers[keys.TIMESTAMP]
    given = (keys.signing_of(key), at, asked.headers[keys.SIGNATURE], "/v1/runs", asked.content)
    assert keys.signature_problem(*given, now=int(at) * 1000, most_age=0) is None


def test_both_clients_have_the_same_calls_and_give_the_same_answers() -> None:
    def calls(kind: type) -> dict[str, list[str]]:
        return {
            name.replace("aclose", "close"): list(inspect.signature(member).parameters)
            for name, member in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert calls(Client) == calls(AsyncClient)

    async def scene() -> int:
        transport = httpx.MockTransport(Server((429, {}), (200, COUNT)))
        async with AsyncClient("http://game", transport=transport) as found:
            return (await found.count("weekly")).members

    assert asyncio.run(scene()) == 3


def test_the_library_is_imported_when_it_is_asked_for() -> None:
    assert maxboard.Client is Client
    assert set(maxboard.__all__) >= {"AsyncClient", "Client", "RunProducer", "Submitter"}
