"""How the demo looks: steps with their commands, boards side by side where they fit, a live view or plain lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from maxboard.board.reader import Answer, Entry
from maxboard.cli import render
from maxboard.cli.read import PLACES, title
from maxboard.words import count

GAP = 4  # columns between two boards
STEP_WIDTH = 9
LINE_S = 5.0  # between plain lines of the live view
Progress = Callable[[str], None]  # replaces the text that moves


class View:
    """Writes to stdout. On a terminal with colours and progress, else plain lines."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self._step = 0
        self._lined = 0.0

    @property
    def terminal(self) -> bool:
        return self.console.is_terminal

    def head(self, text: str) -> None:
        """The first line."""
        self.console.print(Text(text, "bold"), soft_wrap=True)

    def step(self, name: str, text: str, command: str = "") -> None:
        """Begin a step; ``command`` is what does the same by hand."""
        self._step += 1
        head = Text.assemble(("\n"), (f"{self._step}  {name:{STEP_WIDTH}}", "bold cyan"), text)
        self.console.print(head, soft_wrap=True)
        if command:
            self.line(f"$ {command}", "dim")

    def line(self, text: str = "", style: str = "") -> None:
        """A line of a step."""
        self.console.print(Text(f"   {text}".rstrip(), style), soft_wrap=True)

    @contextmanager
    def progress(self, text: str) -> Iterator[Progress]:
        """Something moves until the block ends; nothing where there is no terminal."""
        if not self.terminal:
            yield lambda _: None
            return
        with self.console.status(f"   {text}", spinner="dots") as status:
            yield status.update

    def boards(self, answers: Sequence[Answer], now: int) -> None:
        """Boards as tables."""
        self.console.print()
        if not self.terminal:
            for answer in answers:
                for line in render.plain_table(title(answer, now), PLACES, _rows(answer), "nobody yet"):
                    click.echo(f"   {line}")
                click.echo()
            return
        self.console.print(self._beside([_board(answer, now) for answer in answers]))

    def _beside(self, parts: list[RenderableType]) -> RenderableType:
        grid = Table.grid(padding=(0, GAP))
        for _ in parts:
            grid.add_column()
        grid.add_row(*parts)
        # Measured as if there were room without end: a grid itself claims to fit anywhere.
        wide = self.console.measure(grid, options=self.console.options.update(width=1_000)).maximum
        return grid if wide <= self.console.width else Group(*parts)

    @contextmanager
    def live(self) -> Iterator[Live | None]:
        """A view that is drawn over; None where there is no terminal."""
        if not self.terminal:
            yield None
            return
        with Live(console=self.console, auto_refresh=False, transient=False) as live:
            yield live

    def refresh(self, live: Live | None, facts: str, answers: Sequence[Answer], now: int) -> None:
        """Show how things are now: all of it on a terminal, one line now and then elsewhere."""
        if live is not None:
            boards = self._beside([_board(answer, now) for answer in answers])
            foot = Text("Ctrl-C ends it", "dim")
            live.update(Group(Text(""), Text(facts, "bold"), Text(""), boards, foot), refresh=True)
            return
        moment = time.monotonic()
        if self._lined and moment - self._lined < LINE_S:
            return
        self._lined = moment
        parts = [facts]
        for answer in answers:
            if answer.entries:
                first = answer.entries[0]
                leads = f"{first.player_id} leads with {render.number(first.score)}"
                parts.append(f"{answer.ref.reference}: {count(answer.members, 'player')}, {leads}")
            else:
                parts.append(f"{answer.ref.reference}: {answer.state if answer.state != 'live' else 'nobody yet'}")
        click.echo("   ".join([render.moment(now)[11:19], *parts]))


def _rows(answer: Answer) -> list[render.Row]:
    return [render.Row(_cells(answer, entry), render.PODIUM.get(entry.rank, "")) for entry in answer.entries]


def _cells(answer: Answer, entry: Entry) -> tuple[str, ...]:
    score = render.score(entry.score, answer.ref.board.composer.scale)
    return f"{entry.rank:,}", entry.player_id, score, render.moment(entry.achieved_at)


def _board(answer: Answer, now: int) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in PLACES:
        table.add_column(Text(column.title), justify="right" if column.right else "left", no_wrap=True)
    for row in _rows(answer):
        table.add_row(*map(Text, row.cells), style=row.style)
    return Group(render.heading(title(answer, now)), Text(""), table, Text(""))
