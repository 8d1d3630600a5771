"""``maxboard dev``: the embedded stack from the command line."""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path

import click

from maxboard.devstack import Report, Stack, Status
from maxboard.errors import NotYet, WrongUse
from maxboard.words import count

DEFAULT_DIRECTORY = Path(".maxboard")

directory_option = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_DIRECTORY,
    show_default=True,
    help="Folder of the stack: data, logs, configuration.",
)
STATE_COLOURS = {"running": "green", "loading": "yellow"}
port = click.IntRange(1024, 65535)


@click.group()
def dev() -> None:
    """Real servers for development, without Docker: Kafka, and two Valkey primaries with a replica each."""


@dev.command()
@directory_option
@click.option("--sentinel", is_flag=True, help="In a new folder: three sentinels, and two replicas of each primary.")
@click.option("--kafka-port", type=port, help="Port of Kafka. [default: 19092, or a free one near]")
@click.option("--weekly-port", type=port, help="Port of the primary weekly. [default: 17001, or a free one near]")
@click.option("--alltime-port", type=port, help="Port of the primary alltime. [default: 17002, or a free one near]")
def up(
    directory: Path, sentinel: bool, kafka_port: int | None, weekly_port: int | None, alltime_port: int | None
) -> None:
    """Start what does not run, and write maxboard.toml. Repeatable; data is kept.

    With --sentinel a replica takes over when its primary is gone, and maxboard.toml names the sentinels. A folder
    stays what it was made as. Which server is primary is then up to the sentinels; `dev status` shows it.
    """
    asked = {"kafka": kafka_port, "weekly": weekly_port, "alltime": alltime_port}
    stack = Stack(directory, {name: number for name, number in asked.items() if number}, click.echo, sentinel)
    _tell(stack, directory, stack.up())


def _tell(stack: Stack, directory: Path, report: Report) -> None:
    for line in report.config:
        click.echo(line.replace(str(stack.config), str(directory / stack.config.name)))
    if not report.started:
        click.echo(f"already up: all {len(report.kept)} servers run; nothing was started")
    else:
        kept = f" ({len(report.kept)} ran already)" if report.kept else ""
        click.echo(f"up: {count(len(report.started), 'server')} started in {report.seconds:.1f} s{kept}")
    click.echo(f"next: {_command(directory, 'init')}")


def _command(directory: Path, words: str) -> str:
    """The command line that works on this stack."""
    if words.startswith("dev "):
        return f"maxboard {words}" + ("" if directory == DEFAULT_DIRECTORY else f" --dir {shlex.quote(str(directory))}")
    if directory == DEFAULT_DIRECTORY and "MAXBOARD_CONFIG" not in os.environ:
        return f"maxboard {words}"
    return f"maxboard --config {shlex.quote(str(directory / 'maxboard.toml'))} {words}"


@dev.command()
@directory_option
@click.option("--wipe", is_flag=True, help="Also remove all data of the stack: log and boards.")
@click.option("--yes", is_flag=True, help="Do not ask before --wipe.")
def down(directory: Path, wipe: bool, yes: bool) -> None:
    """End the servers that `up` started. Data is kept unless --wipe."""
    stack = Stack(directory, say=click.echo)
    if wipe and not yes:
        if not sys.stdin.isatty():
            raise WrongUse("--wipe removes all data and there is no terminal to ask on: add --yes")
        click.confirm(f"Remove all data in {stack.places.all_data}?", abort=True)
    ended = stack.down()
    click.echo(f"ended: {', '.join(ended)}" if ended else f"nothing runs in {directory}")
    if wipe:
        stack.wipe()
        click.echo(f"removed {directory / stack.places.all_data.name}")


@dev.command()
@directory_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each server.")
def status(directory: Path, as_json: bool) -> None:
    """Show every server. Exit 0 when all run, 3 when not."""
    found = Stack(directory).status()
    if as_json:
        for one in found:
            click.echo(json.dumps(asdict(one)))
    else:
        _show(found)
    wrong = [one for one in found if one.state != "running"]
    if wrong:
        named = ", ".join(f"{one.server} is {one.state}" for one in wrong)
        if len(wrong) == len(found) and all(one.pid is None for one in found):
            named = f"nothing runs in {directory}"
        raise NotYet(f"{named}; {_advice(wrong, directory)}")


def _advice(wrong: list[Status], directory: Path) -> str:
    if all(one.state == "loading" for one in wrong):
        return "it reads its data; wait"
    if any(one.state == "not answering" for one in wrong):
        return f"see its log, or run `{_command(directory, 'dev down')}` and `{_command(directory, 'dev up')}`"
    return f"run `{_command(directory, 'dev up')}`"


def _show(found: list[Status]) -> None:
    header = ("server", "role", "address", "pid", "state", "memory", "data", "log")
    rows = [_row(one) for one in found]
    if sys.stdout.isatty():
        _show_on_terminal(header, rows)
        return
    widths = _widths(header, rows)
    for row in (header, *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _show_on_terminal(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    fits = sum(_widths(header, rows)) + 2 * len(header) <= console.width
    shown = header if fits else header[:-2]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in shown:
        table.add_column(title, justify="right" if title in {"pid", "memory"} else "left", no_wrap=title != "role")
    for row in rows:
        colours = (
            "" if title != "state" else STATE_COLOURS.get(cell, "red") for title, cell in zip(header, row, strict=True)
        )
        table.add_row(*[Text(cell, colour) for cell, colour in zip(row, colours, strict=True)][: len(shown)])
    console.print(table)
    if not fits:  # the paths of all servers differ in the name alone
        data, log = ("SERVER".join(cell.rsplit(rows[0][0], 1)) for cell in rows[0][-2:])
        click.echo(f"data: {data}   log: {log}")


def _widths(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[int]:
    return [max(map(len, column)) for column in zip(header, *rows, strict=True)]


def _row(one: Status) -> tuple[str, ...]:
    memory = "-" if one.memory_bytes is None else f"{one.memory_bytes / (1 << 20):.0f} MiB"
    pid = "-" if one.pid is None else str(one.pid)
    data, log = (os.path.relpath(path) for path in (one.data, one.log))
    shown = (path if not path.startswith("../..") else full for path, full in ((data, one.data), (log, one.log)))
    return one.server, one.role, one.address or "-", pid, one.state, memory, *shown
