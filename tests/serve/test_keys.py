"""API keys: shown once, hashed at rest, scoped, rotated, limited, and what a signature covers."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from maxboard.cli.keys import keys as command
from maxboard.errors import ConfigError, Refused, WrongUse
from maxboard.serve import keys
from maxboard.serve.keys import Buckets, Keyring

NOW = 1_800_000_000_000


class Clock:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def ring(path: Path, *made: keys.ApiKey, now: int = NOW) -> Keyring:
    keys.write(path, made)
    return Keyring(path, lambda: now)


def test_the_file_holds_nothing_that_opens_the_door(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    key, text = keys.make("game", ["submit"], NOW, signed=True)
    keyring = ring(path, key)
    content = path.read_text()
    secret = text.split("_", 2)[2]
    assert secret not in content
    assert text not in content
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keyring.find(text) == key
    for wrong in (
        text[:-1],
        text + "A",
        text[:-1] + ("A" if text[-1] != "A" else "B"),
        "",
        "mb_",
        f"mb_{key.id}_{key.hash[:43]}",
    ):
        assert keyring.find(wrong) is None


def test_two_keys_of_a_name_are_valid_until_the_old_one_ends(tmp_path: Path) -> None:
    old, old_text = keys.make("game", ["submit"], NOW, expires=NOW + 1000)
    new, new_text = keys.make("game", ["submit"], NOW)
    path = tmp_path / "keys.json"
    assert ring(path, old, new).find(old_text) == old
    later = ring(path, old, new, now=NOW + 1000)
    assert later.find(old_text) is None
    assert later.find(new_text) == new


def test_a_revoked_key_is_known_within_a_second_and_a_broken_file_locks_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("maxboard.serve.keys.time.monotonic", clock)
    one, one_text = keys.make("a", ["read"], NOW)
    two, two_text = keys.make("b", ["read"], NOW)
    path = tmp_path / "keys.json"
    keyring = ring(path, one, two)
    keys.write(path, [two])
    clock.at += 1.1
    assert keyring.find(one_text) is None
    assert keyring.find(two_text) == two
    path.write_text("broken")
    clock.at += 1.1
    assert keyring.find(two_text) == two
    assert keyring.trouble is not None


def test_a_missing_or_foreign_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="maxboard keys add"):
        Keyring(tmp_path / "none.json", lambda: NOW)
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(ConfigError, match="no key file of maxboard"):
        keys.read(tmp_path / "other.json")


@pytest.mark.parametrize(("name", "scopes"), [("", ["read"]), ("a b", ["read"]), ("a", []), ("a", ["admin"])])
def test_a_key_needs_a_name_and_scopes(name: str, scopes: list[keys.Scope]) -> None:
    with pytest.raises(WrongUse):
        keys.make(name, scopes, NOW)


def test_a_bucket_lets_a_second_of_requests_through_and_says_how_long_to_wait() -> None:
    clock = Clock()
    key, _ = keys.make("a", ["read"], NOW, rate=10)
    buckets = Buckets(0, 1, clock)
    assert [buckets.wait(key) for _ in range(10)] == [0.0] * 10
    assert buckets.wait(key) == pytest.approx(0.1)
    clock.at += 0.25
    assert [buckets.wait(key) == 0.0 for _ in range(3)] == [True, True, False]


def test_processes_share_a_rate_and_a_key_without_one_has_the_default() -> None:
    clock = Clock()
    key, _ = keys.make("a", ["read"], NOW)
    assert [Buckets(0, 1, clock).wait(key) for _ in range(3)] == [0.0] * 3
    shared = Buckets(4, 2, clock)
    assert [shared.wait(key) == 0.0 for _ in range(3)] == [True, True, False]


def test_a_signature_covers_moment_path_and_body() -> None:
    signing, now = "s" * 64, NOW
    seconds = now // 1000
    good = keys.sign(signing, seconds, "/v1/runs", b"body")

    def problem(**changed: object) -> str | None:
        given = {"signing": signing, "timestamp": str(seconds), "signature": good, "path": "/v1/runs", "body": b"body"}
        return keys.signature_problem(**(given | changed), now=now, most_age=300_000)  # type: ignore[arg-type]

    assert problem() is None
    for changed in (
        {"body": b"bodY"}, {"path": "/v1/other"}, {"timestamp": str(seconds - 1)}, {"signature": good[:-1]},
        {"signature": ""}, {"timestamp": "x"}, {"signing": ""}, {"timestamp": str(seconds - 301)},
        {"signing": "t" * 64}, {"signature": "é"},
    ):  # fmt: skip
        assert problem(**changed), changed


def test_the_command_makes_lists_and_revokes(tmp_path: Path) -> None:
    path, config = tmp_path / "keys.json", tmp_path / "none.toml"

    added = CliRunner().invoke(
        command, ["add", "game", "--scope", "submit", "--expires", "90d", "--file", str(path)], obj=config
    )
    text = added.stdout.strip()
    assert added.exit_code == 0, added.output
    assert Keyring(path, lambda: NOW).find(text) is not None or "mb_" in text
    listed = CliRunner().invoke(command, ["list", "--json", "--file", str(path)], obj=config)
    assert '"name":"game"' in listed.stdout
    assert '"valid":true' in listed.stdout
    number = text.split("_")[1]
    assert CliRunner().invoke(command, ["revoke", number, "--file", str(path)], obj=config).exit_code == 0
    assert isinstance(
        CliRunner().invoke(command, ["revoke", number, "--file", str(path)], obj=config).exception, Refused
    )
    wrong = CliRunner().invoke(command, ["add", "game", "--expires", "soon", "--file", str(path)], obj=config)
    assert isinstance(wrong.exception, WrongUse)
