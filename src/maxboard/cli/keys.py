"""``maxboard keys``: make, list and revoke the API keys of ``maxboard serve``."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import click

from maxboard.cli import render
from maxboard.cli.render import Column, Row
from maxboard.config import load
from maxboard.errors import ConfigError, Refused, WrongUse
from maxboard.serve import keys as api_keys
from maxboard.serve.keys import SCOPES, ApiKey
from maxboard.times import rfc3339
from maxboard.windows import duration_ms
from maxboard.words import count

COLUMNS = (
    Column("id"), Column("name"), Column("scopes"), Column("created (UTC)"), Column("expires (UTC)"),
    Column("rate/s", right=True), Column("signed"),
)  # fmt: skip
file_option = click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    help="The key file. Default: serve.keys of the configuration.",
)


@click.group()
def keys() -> None:
    """API keys of `maxboard serve`. The file holds hashes: a key is shown once, when it is made."""


@keys.command()
@click.argument("name")
@click.option(
    "--scope", "scopes", type=click.Choice(SCOPES), multiple=True, default=("submit", "read"), show_default=True,
    help="What the key may do; repeatable.",
)  # fmt: skip
@click.option("--expires", metavar="DURATION", help='When it ends, such as "90d". Default: never.')
@click.option("--rate", type=click.IntRange(0), default=0, help="Requests a second; 0: serve.rate decides.")
@click.option("--signed", is_flag=True, help="Every submit with it must be signed.")
@file_option
@click.pass_obj
def add(
    config: Path,
    name: str,
    scopes: tuple[api_keys.Scope, ...],
    expires: str | None,
    rate: int,
    signed: bool,
    path: Path | None,
) -> None:
    """Make a key for NAME and print it, once. To rotate: make a second one, change over, revoke the first."""
    path, now = _path(config, path), time.time_ns() // 1_000_000
    known = api_keys.read(path) if path.exists() else []
    key, text = api_keys.make(name, scopes, now, _end(expires, now), rate, signed)
    api_keys.write(path, [*known, key])
    click.echo(text)
    click.echo(f"maxboard: key {key.id} of {name} is in {path}; what is printed above is shown this once", err=True)


def _end(expires: str | None, now: int) -> int:
    if expires is None:
        return 0
    try:
        return now + duration_ms(expires)
    except ValueError as error:
        raise WrongUse(f"--expires: {error}") from None


@keys.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="JSON: one object a line.")
@file_option
@click.pass_obj
def list_(config: Path, as_json: bool, path: Path | None) -> None:
    """Every key, without what it is known by."""
    path, now = _path(config, path), time.time_ns() // 1_000_000
    found = api_keys.read(path)
    if as_json:
        render.print_json_lines([_json(key, now) for key in found])
        return
    rows = [_row(key, now) for key in found]
    render.print_table(count(len(found), "key"), COLUMNS, rows, "no keys: maxboard keys add NAME")


def _json(key: ApiKey, now: int) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "scopes": key.scopes,
        "created": rfc3339(key.created),
        "expires": rfc3339(key.expires) if key.expires else None,
        "valid": not key.expires or key.expires > now,
        "rate": key.rate or None,
        "signed": bool(key.signing),
    }


def _row(key: ApiKey, now: int) -> Row:
    expires = render.moment(key.expires)[:16] if key.expires else "never"
    style = "dim" if key.expires and key.expires <= now else ""
    cells = (key.id, key.name, ", ".join(key.scopes), render.moment(key.created)[:16], expires)
    return Row((*cells, f"{key.rate:,}" if key.rate else "-", "yes" if key.signing else "-"), style)


@keys.command()
@click.argument("key")
@file_option
@click.pass_obj
def revoke(config: Path, key: str, path: Path | None) -> None:
    """Take KEY, by its id, out of the file; servers know within a second. Exit 1: there is no such key."""
    path = _path(config, path)
    known = api_keys.read(path)
    left = [one for one in known if one.id != key]
    if len(left) == len(known):
        raise Refused(f"{path}: no key {render.safe(key[:40])!r}: `maxboard keys list` shows their ids")
    api_keys.write(path, left)
    click.echo(f"revoked key {key}")


def _path(config: Path, given: Path | None) -> Path:
    if given is not None:
        return given
    named = os.environ.get("MAXBOARD_SERVE__KEYS") or (load(config).serve.keys if config.exists() else "")
    if not named:
        raise ConfigError('no key file: name it in the configuration ([serve] keys = "keys.json"), or with --file')
    return Path(named)
