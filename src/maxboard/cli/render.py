"""How answers look: JSON lines for programs, Rich tables on a terminal, aligned text in a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import click
import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from maxboard.model import Score
from maxboard.times import rfc3339
from maxboard.windows import UNITS_MS

_json = msgspec.json.Encoder(decimal_format="number")  # scores are numbers: an int without a point, a decimal exact
STATE_STYLES = {"live": "green", "replaying": "yellow", "needs-rebuild": "bold red", "unreachable": "bold red"}
PODIUM = {1: "bold yellow", 2: "bold", 3: "bold dark_orange3"}  # white would vanish on a light terminal
DOT = " · "


class Column(NamedTuple):
    """A column of a table. ``right``: numbers."""

    title: str
    right: bool = False


class Row(NamedTuple):
    """Cells of a table, ready as text; ``style`` is Rich's, "" for none."""

    cells: Sequence[str]
    style: str = ""


def print_json(value: Any) -> None:
    """One JSON value on one line."""
    click.echo(_json.encode(value))


def print_json_lines(values: Sequence[Any]) -> None:
    """Many JSON values, one a line, in one write."""
    click.echo(_json.encode_lines(values), nl=False)


def print_table(title: str, columns: Sequence[Column], rows: Sequence[Row], empty: str = "nobody yet") -> None:
    """A table with its title; plain and aligned when stdout is no terminal. ``empty`` stands for no rows."""
    console = Console(highlight=False)
    if not console.is_terminal:
        for line in plain_table(title, columns, rows, empty):
            click.echo(line)
        return
    # Text, never markup: an id such as "[red]" is an id.
    console.print(heading(title))
    console.print()
    if not rows:
        console.print(Text(f"  {empty}\n"))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(Text(column.title), justify="right" if column.right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=STATE_STYLES.get(cell, "")) for cell in row.cells), style=row.style)
    console.print(table)
    console.print()


def heading(title: str) -> Text:
    """A title of parts joined by a middle dot: the first stands out, states have their colour."""
    first, *rest = title.split(DOT)
    styled = [(DOT + part, STATE_STYLES.get(part, "dim")) for part in rest]
    return Text.assemble((first, "bold"), *styled)


def plain_table(title: str, columns: Sequence[Column], rows: Sequence[Row], empty: str) -> Iterable[str]:
    """The same as lines of text: title, column titles, rows; two spaces between columns, none at the end."""
    yield title
    if not rows:
        yield empty
        return
    lines = [[column.title for column in columns], *(row.cells for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        yield aligned(columns, line, widths)


def aligned(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int]) -> str:
    """One line of text with cells at least that wide; what is longer pushes the rest to the right."""
    padded = (
        cell.rjust(width) if column.right else cell.ljust(width)
        for column, cell, width in zip(columns, cells, widths, strict=True)
    )
    return "  ".join(padded).rstrip()


def number(value: Score | None) -> str:
    """With thousands separators, all decimals, and a dash for none."""
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,f}"


def score(value: Score, scale: int) -> str:
    """With as many decimals as the board has, so that a column of scores aligns at the point."""
    return f"{value:,.{scale}f}" if isinstance(value, Decimal) else f"{value:,}" + (f".{'0' * scale}" if scale else "")


def moment(ms: int | None) -> str:
    """``2026-10-29 18:04:05.123`` in UTC, a dash for none; to the second when that is exact."""
    if ms is None:
        return "-"
    return rfc3339(ms).replace("T", " ").removesuffix("Z").removesuffix(".000")


def span(ms: int) -> str:
    """A stretch of time in its two greatest units, as people say it: ``3 d 4 h``, ``12 s``, ``0.4 s``."""
    if ms < 10_000:
        return f"{max(ms, 0) / 1000:.1f} s"
    seconds = ms // 1000 * 1000
    units = ("d", "h", "m", "s")
    first = next(i for i, unit in enumerate(units) if seconds >= UNITS_MS[unit])
    parts = [f"{seconds // UNITS_MS[units[first]]} {units[first]}"]
    rest = seconds % UNITS_MS[units[first]]
    if units[first] != "s" and (count := rest // UNITS_MS[units[first + 1]]):
        parts.append(f"{count} {units[first + 1]}")
    return " ".join(parts)


def age(ms: int | None) -> str:
    """How old an answer is."""
    return "never applied" if ms is None else f"{span(ms)} old"


def safe(text: str) -> str:
    """Text from outside that may go to a terminal: what is not printable becomes ``?``."""
    return "".join(char if char.isprintable() else "?" for char in text)
