"""``maxboard checkpoint`` and ``checkpoints``: save boards as Parquet, list what was saved."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from maxboard.cli import render
from maxboard.cli.rebuild import base_option, in_order, jobs_option, place_of, trimmed_option, work_option
from maxboard.cli.render import Column, Row
from maxboard.config import load
from maxboard.words import count

if TYPE_CHECKING:
    from maxboard.rebuild.checkpoint import Checkpoint

COLUMNS = (
    Column("board"), Column("created"), Column("members", right=True), Column("held", right=True),
    Column("size", right=True), Column("where"),
)  # fmt: skip


@click.command()
@click.argument("board")
@click.option(
    "--to",
    "url",
    default=None,
    metavar="URL",
    help="A folder, or any fsspec URL such as s3://bucket/boards. Default: `checkpoints` of the configuration.",
)
@click.option(
    "--from-checkpoint",
    default=None,
    metavar="URL",
    help="Begin with the newest of the board there; none: the log. Default: the newest in --to that fits, "
    "else in `checkpoints` of the configuration.",
)
@click.option("--keep", type=click.IntRange(1), default=None, metavar="N", help="Remove all but the newest N of BOARD.")
@click.option("--json", "as_json", is_flag=True, help="JSON: one object.")
@work_option
@jobs_option
@trimmed_option
@click.pass_obj
@in_order
def checkpoint(config: Path, /, board: str, url: str | None, keep: int | None, as_json: bool, **given: Any) -> None:
    """Save BOARD as of the log's end: Parquet files and a manifest, in a new folder.

    Needs Kafka, not the primary. It is visible once it is complete.
    """
    from maxboard.errors import WrongUse
    from maxboard.rebuild.checkpoint import Place, prune
    from maxboard.rebuild.progress import Bars
    from maxboard.rebuild.save import Options, save

    settings, now = load(config), time.time_ns() // 1_000_000
    ref = settings.build().parse(board, now)
    if url == "":
        raise WrongUse("--to is empty: name a folder or a URL, or leave it out")
    usual, base = place_of(config, settings), given["from_checkpoint"]
    url = url or usual
    options = Options(
        given["work"] or Path(tempfile.gettempdir()),
        None if base is None else base_option(config, settings, base),
        Place(usual, named=False),
        given["jobs"],
        given["accept_trimmed_log"],
    )
    made = save(settings, ref, url, options, Bars(quiet=as_json), now)
    gone = prune(made.store, ref.reference, keep) if keep else []
    if as_json:
        render.print_json(_json(made) | {"removed": gone})
        return
    members, held = count(made.manifest.members, "member"), count(made.manifest.held, "held run")
    click.echo(f"{made.where}: {members}, {held}")
    for folder in gone:
        click.echo(f"removed {folder}")


@click.command()
@click.option("--in", "url", default=None, metavar="URL", help="Where they were saved (--to); the same default.")
@click.option("--board", default=None, help="Only those of this board.")
@click.option("--keep", type=click.IntRange(1), default=None, metavar="N", help="Remove all but the newest N a board.")
@click.option(
    "--verify", "check", is_flag=True, help="Read every file and compare its checksum. Exit 1: one is damaged."
)
@click.option("--json", "as_json", is_flag=True, help="JSON: one object a line.")
@click.pass_obj
def checkpoints(
    config: Path, /, url: str | None, board: str | None, keep: int | None, check: bool, as_json: bool
) -> None:
    """List checkpoints, oldest first for each board; with --keep remove old ones."""
    from maxboard.errors import Refused
    from maxboard.rebuild.checkpoint import listed, prune
    from maxboard.rebuild.store import Store

    url = url or place_of(config, load(config))
    store = Store(url)
    if not store.is_there():
        raise Refused(f"there is nothing at {url}: name the place of the checkpoints with --in")
    found = listed(store, board)
    if keep:
        for name in sorted({one.manifest.board for one in found}):
            prune(store, name, keep)
        found = listed(store, board)
    if as_json:
        render.print_json_lines([_json(one) for one in found])
    else:
        render.print_table(url, COLUMNS, [_row(one) for one in found], empty="no checkpoint")
    damaged = 0
    for one in found if check else ():
        try:
            one.verify()
        except Refused as error:
            damaged += 1
            click.echo(f"maxboard: {error}", err=True)
    sys.exit(1 if damaged else 0)


def _json(one: Checkpoint) -> dict[str, Any]:
    manifest = one.manifest
    size = sum(file.size for file in manifest.files)
    values = asdict(manifest)
    names = ("board", "created", "members", "held", "epoch", "definition", "positions", "moderation", "checksum")
    return {"where": one.where, **{name: values[name] for name in names}, "bytes": size, "files": len(manifest.files)}


def _row(one: Checkpoint) -> Row:
    from maxboard.board.checks import size

    manifest = one.manifest
    total = size(sum(file.size for file in manifest.files))
    created = manifest.created.replace("T", " ").removesuffix("Z")
    cells = (manifest.board, created, f"{manifest.members:,}", f"{manifest.held:,}", total, one.where)
    return Row(cells)
