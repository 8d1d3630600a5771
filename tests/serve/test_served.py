"""The real server on real servers: what a backend and a player see."""

from __future__ import annotations

import contextlib
import doctest
import http.client
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from tests.brokers import maxboard
from tests.serve.running import Served, configure, eventually, run, serving

from maxboard import client as maxboard_client
from maxboard.board.client import connect
from maxboard.client import Client
from maxboard.devstack import Stack
from maxboard.errors import Refused, ServerNotReady, WrongUse
from maxboard.submitter import Submitter

EVERYWHERE = "0.0.0.0"  # noqa: S104 - what must be refused
pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def served(own_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server and one applier for the tests of this file; each uses players of its own."""
    with serving(configure(own_stack, tmp_path_factory.mktemp("served"))) as found:
        yield found


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with Client(served.url) as found:
        yield found


def raw(served: Served, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
    with contextlib.closing(connection):
        connection.request(method, path, body, {"content-type": "application/json"} | headers)
        answer = connection.getresponse()
        text = answer.read()
    return answer.status, json.loads(text) if text else None


def of(boards: list[Any], name: str) -> Any:
    return next(board for board in boards if board.board.partition(":")[0] == name)


def test_a_submit_answers_the_ranks_that_it_made_and_a_read_after_it_has_them(client: Client) -> None:
    first = client.submit(run(1, "s-1", 500))
    again = client.submit(run(2, "s-1", 400))
    higher = client.submit(run(3, "s-1", 600))
    assert [of(r.boards, "weekly").changed for r in (first, again, higher)] == [True, False, True]
    assert [of(r.boards, "alltime").best for r in (first, again, higher)] == [500, 500, 600]
    place = client.player("weekly", "s-1", after=higher.position)
    assert (place.rank, place.score) == (of(higher.boards, "weekly").rank, 600)
    assert place.position
    assert place.age_ms is not None


def test_the_same_submit_again_is_harmless_and_gets_the_same_best(client: Client) -> None:
    """ietf-wg-httpapi/idempotency#22: a run again is the same run; with another score it is another, and the greater
    counts, as in a rebuild."""
    given = run(10, "s-10", 100)
    results = [client.submit(given) for _ in range(3)]
    assert {of(result.boards, "weekly").best for result in results} == {100}
    assert all(of(result.boards, "weekly").changed for result in results)
    assert len({result.position for result in results}) == 3
    other = client.submit(given | {"score": 200})
    assert of(other.boards, "weekly").best == 200


def test_scores_are_json_numbers_and_ids_are_text(served: Served) -> None:
    """redis/redis-py#155, hotsapi/hotsapi#73: clients turn scores into floats, and big ids into other ids."""
    body = json.dumps(run(20, 9007199254740993, 1284500)).encode()
    status, answer = raw(served, "POST", "/v1/runs", body)
    assert status == 200
    assert answer["player_id"] == "9007199254740993"
    text = json.dumps([answer, raw(served, "GET", "/v1/boards/weekly/players/9007199254740993")[1]])
    assert "1284500.0" not in text
    assert '"score": 1284500' in text
    eventually(lambda: raw(served, "GET", "/v1/boards/weekly/players/9007199254740993")[1]["score"] == 1284500, "read")


def test_every_field_is_there_when_there_is_nothing_to_say(served: Served) -> None:
    """redis/redis#5965: a nil cuts the rest of a reply off."""
    status, answer = raw(served, "GET", "/v1/boards/weekly/players/nobody-of-that-name")
    assert status == 200
    for name in ("rank", "score", "achieved_at", "percentile"):
        assert answer[name] is None
    assert raw(served, "GET", "/v1/boards/weekly/around/nobody-of-that-name")[1]["entries"] == []
    assert raw(served, "GET", "/v1/boards/weekly/ranks?ids=nobody,nothing")[1]["not_found"] == ["nobody", "nothing"]


def test_bad_runs_are_named_and_the_others_go_through(served: Served) -> None:
    """freedomofpress/securedrop-client#1693: {"score":10,"score":999999}."""
    good = json.dumps(run(30, "s-30", 5)).encode()
    twice = good.replace(b'"score": 5', b'"score": 10, "score": 999999')
    nul = json.dumps(run(31, "a\x00b", 5)).encode()
    status, answer = raw(served, "POST", "/v1/runs", b"[" + b",".join((twice, good, nul)) + b"]")
    assert status == 200
    assert (answer["accepted"], answer["refused"]) == (1, 2)
    assert [one["accepted"] for one in answer["runs"]] == [False, True, False]
    assert raw(served, "POST", "/v1/runs", twice)[0] == 422
    assert raw(served, "POST", "/v1/runs", b"[" + twice + b"]")[0] == 422


@pytest.mark.parametrize(
    ("method", "path", "body", "kind", "status"),
    [
        ("POST", "/v1/runs", b"{}", "text/plain", 415),
        ("POST", "/v1/runs", b"not json", "application/json", 400),
        ("POST", "/v1/runs", b"[" + b",".join([b"1"] * 1001) + b"]", "application/json", 413),
        ("POST", "/v1/runs", b"[" + b" " * 2_000_001 + b"]", "application/json", 413),
        ("PUT", "/v1/runs", b"{}", "application/json", 405),
        ("GET", "/v1/boards/nope/top", None, "", 404),
        ("GET", "/v1/boards/weekly:2026-W99/top", None, "", 404),
        ("GET", "/v1/boards/weekly/top?limit=0", None, "", 400),
        ("GET", "/v1/boards/weekly/top?cursor=abc", None, "", 400),
        ("GET", "/v1/boards/weekly/top?after=abc", None, "", 400),
        ("GET", "/v1/boards/weekly/players/a%20b", None, "", 400),
        ("GET", "/v1/boards/weekly/ranks", None, "", 400),
        ("GET", "/assets/../../cli/serve.py", None, "", 404),
        ("GET", "/nothing", None, "", 404),
    ],
)
def test_what_cannot_be_understood_is_refused_in_one_line(
    served: Served, method: str, path: str, body: bytes | None, kind: str, status: int
) -> None:
    found, answer = raw(served, method, path, body, **({"content-type": kind} if kind else {}))
    assert found == status
    assert set(answer) >= {"error", "message"}
    assert "\n" not in answer["message"]


def test_pages_have_each_of_a_thousand_members_once_in_both_directions(client: Client) -> None:
    """NationalSecurityAgency/skills-service#681, heroiclabs/nakama#2353: duplicates and another order between pages."""
    for part in range(2):
        client.submit_many(
            [run(f"40-{i}", f"page-{i:04d}", 1000 + i // 7) for i in range(part * 500, part * 500 + 500)]
        )
    members = client.count("alltime").members
    eventually(lambda: client.count("alltime").members >= 1000 and client.count("alltime").members >= members, "all in")
    entries, cursor, pages = [], None, []
    while True:
        page = client.top("alltime", limit=77, cursor=cursor)
        entries += page.entries
        pages.append(page)
        if (cursor := page.next) is None:
            break
    assert [entry.rank for entry in entries] == list(range(1, len(entries) + 1))
    assert len({entry.player_id for entry in entries}) == len(entries) == pages[0].members
    back, cursor = list(pages[-1].entries), pages[-1].previous
    while cursor is not None:
        page = client.top("alltime", limit=77, cursor=cursor)
        back = [*page.entries, *back]
        cursor = page.previous
    assert back == entries


def test_equal_scores_share_a_competition_rank(client: Client) -> None:
    client.submit_many([run(f"50-{i}", f"tie-{i}", 1_999_990 + i // 2, ago_ms=i * 2000) for i in range(4)])
    top = client.top("alltime", limit=4, ranks="competition", max_age_ms=10_000)
    eventually(lambda: client.top("alltime", limit=1).entries[0].score == 1_999_991, "in")
    top = client.top("alltime", limit=4, ranks="competition")
    assert [(entry.rank, entry.score) for entry in top.entries] == [
        (1, 1_999_991), (1, 1_999_991), (3, 1_999_990), (3, 1_999_990),
    ]  # fmt: skip
    found = client.ranks("alltime", ["tie-0", "tie-3"], ranks="competition")
    assert [(place.player_id, place.rank) for place in found.players] == [("tie-3", 1), ("tie-0", 3)]


def test_a_lower_run_changes_neither_rank_nor_count(client: Client) -> None:
    """heroiclabs/nakama#1124: a lower score corrupts cached ranks."""
    first = client.submit(run(60, "s-60", 700))
    before = client.player("weekly", "s-60", after=first.position)
    lower = client.submit(run(61, "s-60", 10))
    after = client.player("weekly", "s-60", after=lower.position)
    assert (after.rank, after.score, after.members) == (before.rank, before.score, before.members)


def test_a_cursor_of_another_life_of_the_board_is_gone(served: Served, client: Client) -> None:
    """heroiclabs/nakama#480: a board that was deleted and made again keeps old ranks."""
    client.submit_many([run(f"70-{i}", f"gone-{i}", 100 + i) for i in range(5)])
    eventually(lambda: client.top("weekly", limit=2).next is not None, "there are pages")
    page = client.top("weekly", limit=2)
    assert page.next is not None
    key = f"{served.settings.prefix}:boards"
    with connect(served.settings.primaries["weekly"].url) as primary:
        entry = cast("bytes", primary.hget(key, page.board)).decode()
        epoch, rest = entry.split(" ", 1)
        primary.hset(key, page.board, f"{int(epoch) + 1} {rest}")
        try:
            eventually(lambda: client.top("weekly", limit=1).epoch == int(epoch) + 1, "the replica knows")
            with pytest.raises(Refused, match="was replaced"):
                client.top("weekly", limit=2, cursor=page.next)
        finally:
            primary.hset(key, page.board, entry)
    with pytest.raises(Refused, match="begin at the top"):
        client.top("alltime", limit=2, cursor=page.next)


def test_an_old_answer_is_an_error_and_never_silent(client: Client) -> None:
    eventually(lambda: client.count("weekly").state == "live", "live")
    with (
        Client(client._url, retries=0) as impatient,
        pytest.raises(ServerNotReady, match="more than max_age_ms allows"),
    ):
        impatient.count("weekly", max_age_ms=0)


def test_a_position_of_another_log_is_refused(client: Client) -> None:
    with pytest.raises(Refused, match="another log"):
        client.count("weekly", after="1~AAAAAAAAAAAAAAAAAAAAAA~0-1")
    with pytest.raises(WrongUse):
        client.count("nope")


def test_a_score_out_of_one_boards_range_is_refused_there_and_taken_elsewhere(client: Client) -> None:
    result = client.submit(run(80, "s-80", 3_000_000))
    assert of(result.boards, "alltime").state == "refused"
    assert of(result.boards, "alltime").reason.startswith("score-range: ")
    assert (of(result.boards, "weekly").state, of(result.boards, "weekly").best) == ("live", 3_000_000)
    nowhere = client.submit(run(81, "s-81", 90_000_000))
    assert {board.state for board in nowhere.boards} == {"refused"}


def test_a_run_of_the_future_is_refused_by_its_record_time(served: Served) -> None:
    status, answer = raw(served, "POST", "/v1/runs", json.dumps(run(90, "s-90", 5, ago_ms=-600_000)).encode())
    assert status == 422
    assert answer["error"]["error"] == "future"


def test_a_player_whose_id_holds_a_slash_is_found(client: Client) -> None:
    result = client.submit(run(100, "team/a?b#c%d", 5))
    assert client.player("weekly", "team/a?b#c%d", after=result.position).score == 5


def test_rank_changes_of_a_player_are_told_newest_first(client: Client) -> None:
    for number, score in enumerate((10, 20, 30)):
        client.submit(run(f"110-{number}", "s-110", score))
    eventually(lambda: len(client.changes("weekly", "s-110").changes) >= 3, "the changes are in the topic")
    assert [change.score for change in client.changes("weekly", "s-110").changes] == [30, 20, 10]


def test_the_submitter_in_process_gives_the_same_answers(served: Served, client: Client) -> None:
    with Submitter(served.settings) as submitter:
        one = submitter.submit(run(120, "s-120", 50))
        many = submitter.submit_many([run(121, "s-120", 60), run(122, "s-121", 70)])
    assert of(one.boards, "weekly").best == 50
    assert (many.accepted, many.refused) == (2, 0)
    assert of(many.runs[0].boards, "weekly").changed
    assert client.player("weekly", "s-120", after=many.position).score == 60
    with pytest.raises(WrongUse, match="closed"):
        submitter.submit(run(123, "s-120", 50))


def test_a_frozen_replica_is_left_for_the_primary(own_stack: Stack, client: Client) -> None:
    """brendanlong/lion-reader#1377: a replica answers from before the write."""
    own_stack.server("weekly-replica").kill(signal.SIGSTOP)
    try:
        result = client.submit(run(130, "s-130", 50))
        begun = time.monotonic()
        place = client.player("weekly", "s-130", after=result.position)
        assert (place.score, place.source) == (50, "primary")
        assert time.monotonic() - begun < 3
    finally:
        own_stack.server("weekly-replica").kill(signal.SIGCONT)


def test_a_killed_server_has_lost_nothing_that_it_acknowledged(own_stack: Stack, tmp_path: Path) -> None:
    config = configure(own_stack, tmp_path)
    acknowledged: dict[str, int] = {}
    with serving(config) as served, Client(served.url, retries=0) as client:
        for number in range(200):
            if number == 120:
                served.process.process.kill()
            try:
                result = client.submit(run(number, f"k-{number}", number))
            except ServerNotReady:
                break
            if result.accepted:
                acknowledged[f"k-{number}"] = number
    assert len(acknowledged) >= 120
    done = maxboard(config, "apply", "--until-caught-up")
    assert done.returncode == 0, done.stderr
    lines = maxboard(config, "export", "weekly", "--json").stdout.splitlines()
    found = {line["player_id"]: line["score"] for line in map(json.loads, lines)}
    assert acknowledged.items() <= found.items()


def test_without_kafka_a_submit_is_an_error_in_time_and_reads_go_on(own_stack: Stack, tmp_path: Path) -> None:
    """confluent-kafka-python#1137: a broker that is down must be said, and never be taken for success."""
    config = configure(own_stack, tmp_path, "[serve]\nack_timeout = '1s'\nmax_age = '1h'\n")
    with serving(config) as served, Client(served.url, retries=0) as client:
        client.submit(run(1, "n-1", 5))
        own_stack.server("kafka").kill(signal.SIGSTOP)
        try:
            begun = time.monotonic()
            result = client.submit(run(2, "n-1", 6))
            assert time.monotonic() - begun < 5
            assert not result.accepted
            assert result.error is not None
            assert result.error.error == "kafka"
            assert client.top("weekly", limit=1).entries[0].score == 5
        finally:
            own_stack.server("kafka").kill(signal.SIGCONT)
        eventually(lambda: client.submit(run(2, "n-1", 6)).accepted, "Kafka is back")


def test_each_of_a_thousand_fast_submits_is_in_the_topic_or_got_an_explicit_error(
    own_stack: Stack, tmp_path: Path
) -> None:
    """confluent-kafka-python#16: with a full local queue records were lost."""
    config = configure(own_stack, tmp_path, "[serve]\nqueue = 10\n")
    with serving(config) as served, Client(served.url, retries=0) as client:
        results = [client.submit_many([run(f"{i}-{j}", f"q-{i}-{j}", 5) for j in range(9)]) for i in range(20)]
        accepted = {result.player_id for batch in results for result in batch.runs if result.accepted}
        with pytest.raises(ServerNotReady, match="wait already"):
            client.submit_many([run(f"x-{j}", f"x-{j}", 5) for j in range(11)])
        eventually(lambda: client.count("weekly").members == len(accepted), "the accepted ones are on the board")
        assert {entry.player_id for entry in client.pages("weekly")} == accepted


def test_the_examples_of_the_library_are_true(own_stack: Stack, tmp_path: Path) -> None:
    config = configure(own_stack, tmp_path)
    with serving(config) as served:
        for text in (str(maxboard_client.__doc__), str(Submitter.__doc__)):
            own = text.replace("http://127.0.0.1:8080", served.url).replace(".maxboard/maxboard.toml", str(config))
            example = doctest.DocTestParser().get_doctest(own, {}, "example", None, 0)
            assert example.examples
            assert doctest.DocTestRunner().run(example).failed == 0


def test_a_ban_is_told_and_a_shadow_ban_is_not(own_stack: Stack, tmp_path: Path) -> None:
    """osuAkatsuki/bancho.py#240: a restricted player returns with the next score."""
    config = configure(own_stack, tmp_path)
    with serving(config) as served, Client(served.url) as client:
        for number, player in enumerate(("a", "b", "c", "d")):
            client.submit(run(number, player, 100 * (number + 1)))
        for words in (("ban", "d"), ("ban", "--shadow", "c")):
            done = maxboard(config, *words, "--reason", "test", "--actor", "me")
            assert done.returncode == 0, done.stderr
        banned = client.submit(run(10, "d", 500))
        assert {(board.state, board.rank, board.best) for board in banned.boards} == {("banned", None, None)}
        shadow = client.submit(run(11, "c", 350))
        assert {(board.state, board.rank, board.best) for board in shadow.boards} == {("live", 1, 350)}
        assert of(shadow.boards, "weekly").previous_rank in (1, None)  # an applier may have brought it first
        seen = client.top("weekly", after=shadow.position)
        own = client.top("weekly", viewer="c", after=shadow.position)
        assert [entry.player_id for entry in seen.entries] == ["b", "a"]
        assert [entry.player_id for entry in own.entries] == ["c", "b", "a"]
        assert (seen.members, own.members) == (2, 3)
        assert client.player("weekly", "c").rank is None
        assert client.player("weekly", "c", viewer="c").rank == 1
        assert client.ranks("weekly", ["c", "d", "a"]).not_found == ["c", "d"]


def test_a_moderator_bans_with_a_key_of_their_own_and_is_the_actor(own_stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    config = configure(own_stack, tmp_path, f'[serve]\nkeys = "{file}"\n')
    texts = {}
    for name, scope in (("game", "submit"), ("view", "read"), ("ann", "moderate")):
        done = maxboard(config, "keys", "add", name, "--scope", scope)
        assert done.returncode == 0, done.stderr
        texts[scope] = done.stdout.decode().strip()
    with serving(config, "--workers", "2") as served:
        with Client(served.url, texts["read"]) as reader:
            eventually(lambda: bool(reader.boards().boards[0].as_of), "live")

        def moderate(path: str, key: str, body: Any = None) -> tuple[int, Any]:
            text = None if body is None else json.dumps(body).encode()
            return raw(served, "POST" if body else "GET", f"/v1/moderation/{path}", text, authorization=f"Bearer {key}")

        asked = {"players": ["a"], "reason": "speed", "kind": "shadow", "until": "7d"}
        assert moderate("bans", texts["submit"], asked)[0] == 403
        status, answer = moderate("bans", texts["moderate"], asked)
        assert (status, answer["recorded"], answer["in_force"]) == (200, ["a"], True)
        (ban,) = moderate("bans", texts["moderate"])[1]["bans"]
        assert (ban["player_id"], ban["actor"], ban["kind"], ban["reason"]) == ("a", "ann", "shadow", "speed")
        with Client(served.url, texts["submit"]) as game, Client(served.url, texts["read"]) as reader:
            assert of(game.submit(run(1, "a", 5)).boards, "weekly").rank == 1
            assert reader.player("weekly", "a").rank is None
            status, answer = moderate("unbans", texts["moderate"], {"players": ["a", "b"]})
            assert (answer["recorded"], answer["nothing"]) == (["a"], ["b"])
            eventually(lambda: reader.player("weekly", "a").rank == 1, "the player is back")
        refused: list[dict[str, Any]] = [
            {"players": []}, {"players": ["a b"], "reason": "x"}, {"players": ["a"]}, {"what": 1},
        ]  # fmt: skip
        for wrong in refused:
            assert moderate("bans", texts["moderate"], wrong)[0] == 400
    assert served.process.process.returncode == 0


def test_a_server_ends_on_sigterm_with_everything_answered_and_says_when_its_port_is_taken(
    served: Served, own_stack: Stack, tmp_path: Path
) -> None:
    taken = maxboard(served.config, "serve", "--port", str(served.port))
    assert taken.returncode == 2
    assert b"choose another" in taken.stderr
    with serving(configure(own_stack, tmp_path)) as ending, Client(ending.url) as client:
        client.submit(run(1, "a", 5))
        ending.process.process.terminate()
        assert ending.process.process.wait(15) == 0
        assert ending.process.said().count("\n") == 1, ending.process.said()


def test_a_board_that_is_not_live_gives_its_state_and_no_ranks(own_stack: Stack, tmp_path: Path) -> None:
    config = configure(own_stack, tmp_path)
    with serving(config) as served, Client(served.url, retries=0) as client:
        client.submit(run(1, "a", 5))
        with connect(served.settings.primaries["weekly"].url) as primary:
            board = of(client.submit(run(2, "a", 6)).boards, "weekly").board
            primary.delete(f"{served.settings.prefix}:{board}")
        eventually(lambda: raw(served, "GET", "/v1/boards/weekly/top")[0] == 503, "the loss is noticed")
        _, answer = raw(served, "GET", "/v1/boards/weekly/top")
        assert (answer["error"], answer["state"]) == ("board-not-live", "needs-rebuild")
        result = client.submit(run(3, "a", 7))
        assert (of(result.boards, "weekly").state, of(result.boards, "weekly").rank) == ("needs-rebuild", None)
        assert of(result.boards, "alltime").state == "live"


def test_a_server_beyond_this_machine_needs_keys_and_a_wrong_configuration_ends_the_start(
    own_stack: Stack, tmp_path: Path
) -> None:
    config = configure(own_stack, tmp_path)
    done = maxboard(config, "serve", "--host", EVERYWHERE, "--port", "0")
    assert done.returncode == 2
    assert b"only with keys" in done.stderr
    config.write_text(config.read_text() + '\n[serve]\nkeys = "none.json"\n')
    done = maxboard(config, "serve", "--port", "0")
    assert done.returncode == 2
    assert b"maxboard keys add" in done.stderr
    assert b"Traceback" not in done.stderr


def test_health_says_that_all_is_well(served: Served) -> None:
    assert raw(served, "GET", "/healthz") == (200, {"healthy": True, "troubles": []})
