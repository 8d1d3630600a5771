"""``boards``, ``top``, ``rank``, ``around``, ``export``: what the boards say, and how fresh it is."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import click

from maxboard import wire
from maxboard.board.client import address, connect
from maxboard.board.reader import Answer, BoardNotLive, BoardState, Entry, Reader, current_refs
from maxboard.board.registry import MODERATION, runs_field
from maxboard.boards import BoardRef, Boards
from maxboard.cli import render
from maxboard.cli.render import Column, Row
from maxboard.config import Kafka, Settings, load
from maxboard.errors import MaxboardError, NotYet, Refused, Retry, WrongUse
from maxboard.keys import Keys
from maxboard.times import instant, rfc3339
from maxboard.windows import NEVER_MS
from maxboard.words import count

MOST_AROUND = 1_000  # entries on either side: one script call
AROUND = click.IntRange(0, MOST_AROUND)
LAG_TIMEOUT_S = 2.0  # the log's end is an extra of `boards`, not worth a longer wait
PLACES = (Column("rank", right=True), Column("player"), Column("score", right=True), Column("achieved (UTC)"))
EXPORT_WIDTHS = (10, 24, 16, 23)
json_option = click.option("--json", "as_json", is_flag=True, help="JSON: one object, or one a line.")
Ends = dict[str, tuple[int, int]]


def _now() -> int:
    return time.time_ns() // 1_000_000


def _reader(settings: Settings, primary: str) -> Reader:
    url = settings.primaries[primary].url
    client = click.get_current_context().with_resource(connect(url))
    return Reader(client, Keys(settings.prefix), f"primary {primary!r} at {address(url)}")


def _open(config: Path, board: str, now: int) -> tuple[Reader, BoardRef]:
    settings = load(config)
    ref = settings.build().parse(board, now)
    return _reader(settings, ref.board.primary), ref


def _player(text: str) -> str:
    if not wire.valid_id(text):
        raise WrongUse(f"{render.safe(text[:80])!r} is no player id: {wire.ID_WORDS} are needed")
    return text


@click.command()
@click.argument("board")
@click.option("--limit", type=click.IntRange(1, 100_000), default=10, show_default=True, metavar="N", help="How many.")
@json_option
@click.pass_obj
def top(config: Path, board: str, limit: int, as_json: bool) -> None:
    """The first entries of BOARD, such as weekly (the current window) or weekly:2026-W44."""
    now = _now()
    reader, ref = _open(config, board, now)
    try:
        answer = reader.top(ref, limit, now)
    except BoardNotLive as error:
        _not_live(error, stretch_json(error.answer), as_json)
    _print_stretch(answer, as_json, now)


@click.command()
@click.argument("board")
@click.argument("player")
@click.option("--above", type=AROUND, default=5, show_default=True, metavar="N", help="How many better ones.")
@click.option("--below", type=AROUND, default=5, show_default=True, metavar="N", help="How many worse ones.")
@json_option
@click.pass_obj
def around(config: Path, board: str, player: str, above: int, below: int, as_json: bool) -> None:
    """PLAYER on BOARD and the entries above and below."""
    now = _now()
    reader, ref = _open(config, board, now)
    try:
        answer = reader.around(ref, _player(player), above, below, now)
    except BoardNotLive as error:
        _not_live(error, stretch_json(error.answer), as_json)
    _print_stretch(answer, as_json, now, player)


@click.command()
@click.argument("board")
@click.argument("player")
@json_option
@click.pass_obj
def rank(config: Path, board: str, player: str, as_json: bool) -> None:
    """The place of PLAYER on BOARD; rank null when not on it."""
    now = _now()
    reader, ref = _open(config, board, now)
    try:
        answer = reader.rank(ref, _player(player), now)
    except BoardNotLive as error:
        _not_live(error, rank_json(error.answer, player), as_json)
    if as_json:
        render.print_json(rank_json(answer, player))
        return
    empty = f"{player} is not on this board"
    render.print_table(title(answer, now), PLACES, [_row(ref, entry) for entry in answer.entries], empty)


@click.command()
@click.argument("board")
@json_option
@click.pass_obj
def export(config: Path, board: str, as_json: bool) -> None:
    """Every entry of BOARD in rank order, one a line, while others write.

    Ranks are those of the moment at which each stretch of 1,000 was read; who stays in place comes exactly once.
    """
    reader, ref = _open(config, board, _now())
    for page in reader.pages(ref, _now):
        if as_json:
            render.print_json_lines([entry_json(entry) for entry in page.entries])
        elif page.entries:
            rows = (_row(ref, entry).cells for entry in page.entries)
            click.echo("\n".join(render.aligned(PLACES, cells, EXPORT_WIDTHS) for cells in rows))


@click.command()
@json_option
@click.pass_obj
def boards(config: Path, as_json: bool) -> None:
    """Every board: the current windows, and all that the primaries still hold."""
    settings, now = load(config), _now()
    configured = settings.build()
    ends = _log_ends(settings.kafka)
    rows: list[dict[str, Any]] = []
    failed: list[MaxboardError] = []
    for name in settings.primaries:
        try:
            found = _reader(settings, name).primary(configured, name, now)
            rows += [_board_json(state, _lag(ends, state.position)) for state in found]
        except MaxboardError as error:
            failed.append(error)
            rows += [_unreachable_json(ref) for ref in _current(configured, name, now)]
    if as_json:
        render.print_json_lines(rows)
    else:
        _print_boards(rows, now)
    for earlier in failed[:-1]:
        click.echo(f"maxboard: {earlier}", err=True)
    if failed:
        raise NotYet(str(failed[-1]))


# ------------------------------------------------------------------------------------------ answers
def entry_json(entry: Entry) -> dict[str, Any]:
    """A line of an export, and an entry of a stretch."""
    return {
        "rank": entry.rank,
        "player_id": entry.player_id,
        "score": entry.score,
        "achieved_at": rfc3339(entry.achieved_at),
    }


def _freshness(answer: Answer) -> dict[str, Any]:
    return {
        "members": answer.members,
        "state": answer.state,
        "as_of": _time(answer.as_of),
        "age_ms": answer.age_ms,
    }


def _time(ms: int | None) -> str | None:
    return None if ms is None else rfc3339(ms)


def stretch_json(answer: Answer) -> dict[str, Any]:
    """The answer of ``top`` and ``around``."""
    return {"board": answer.ref.reference, "entries": [entry_json(e) for e in answer.entries], **_freshness(answer)}


def rank_json(answer: Answer, player: str) -> dict[str, Any]:
    """The answer of ``rank``."""
    place = entry_json(answer.entries[0]) if answer.entries else {"rank": None, "score": None, "achieved_at": None}
    place.pop("player_id", None)
    return {"board": answer.ref.reference, "player_id": player, **place, **_freshness(answer)}


def _not_live(error: BoardNotLive, answer: dict[str, Any], as_json: bool) -> NoReturn:
    if as_json:
        render.print_json(answer)
    raise error


# ------------------------------------------------------------------------------------------- tables
def title(answer: Answer, now: int) -> str:
    """What a table is about: board, members, state, age, and when its window ends."""
    members, age = count(answer.members, "player"), render.age(answer.age_ms)
    parts = [answer.ref.reference, members, answer.state, age, window_words(answer.ref, now)]
    return render.DOT.join(part for part in parts if part)


def window_words(ref: BoardRef, now: int) -> str:
    """When the window starts, resets or has ended; nothing for one that never ends."""
    window, season = ref.window, ref.board.window == "season"
    if ref.board.window == "all-time" or window.end >= NEVER_MS:
        return ""
    if now < window.start:
        return f"starts in {render.span(window.start - now)}"
    if now < window.end:
        return f"{'ends' if season else 'resets'} in {render.span(window.end - now)}"
    return f"ended {render.moment(window.end)[:16]} UTC"


def _row(ref: BoardRef, entry: Entry, style: str | None = None) -> Row:
    score = render.score(entry.score, ref.board.composer.scale)
    cells = (f"{entry.rank:,}", entry.player_id, score, render.moment(entry.achieved_at))
    return Row(cells, render.PODIUM.get(entry.rank, "") if style is None else style)


def _print_stretch(answer: Answer, as_json: bool, now: int, player: str | None = None) -> None:
    if as_json:
        render.print_json(stretch_json(answer))
        return
    rows = [_row(answer.ref, entry, "reverse" if entry.player_id == player else None) for entry in answer.entries]
    empty = "nobody yet" if player is None else f"{player} is not on this board"
    render.print_table(title(answer, now), PLACES, rows, empty)


BOARDS = (
    Column("board"), Column("primary"), Column("members", right=True), Column("state"), Column("epoch", right=True),
    Column("lag", right=True), Column("age", right=True), Column("due", right=True),
)  # fmt: skip


def _print_boards(rows: list[dict[str, Any]], now: int) -> None:
    lines = []
    for row in rows:
        age = "-" if row["as_of"] is None else render.span(now - instant(row["as_of"]))
        cells = (render.number(row["members"]), row["state"], render.number(row["epoch"]), render.number(row["lag"]))
        lines.append(Row((row["board"], row["primary"], *cells, age, render.number(row["due"]))))
    empty = "no board has a window yet: apply some runs (maxboard apply)"
    render.print_table(count(len(rows), "board"), BOARDS, lines, empty)


def _board_json(state: BoardState, lag: int | None) -> dict[str, Any]:
    return {
        "board": state.ref.reference,
        "primary": state.ref.board.primary,
        "members": state.members,
        "state": state.state,
        "epoch": state.epoch,
        "lag": lag,
        "as_of": _time(state.as_of),
        "due": state.due,
    }


def _unreachable_json(ref: BoardRef) -> dict[str, Any]:
    nothing = dict.fromkeys(("members", "epoch", "lag", "as_of", "due"))
    row = {"board": ref.reference, "primary": ref.board.primary, **nothing, "state": "unreachable"}
    return {name: row[name] for name in ("board", "primary", "members", "state", "epoch", "lag", "as_of", "due")}


def _current(configured: Boards, primary: str, now: int) -> Iterator[BoardRef]:
    for board in configured.by_primary.get(primary, []):
        yield from current_refs(board, now)


def _log_ends(kafka: Kafka) -> Ends | None:
    """First and next offset of each partition that boards are made of; None when Kafka cannot say it now."""
    try:
        from maxboard.log import topic_reader
    except ModuleNotFoundError:  # installed to read only
        return None
    with contextlib.suppress(Retry, NotYet, Refused):
        runs = topic_reader.bounds(kafka, kafka.topics.runs, LAG_TIMEOUT_S)
        moderation = topic_reader.bounds(kafka, kafka.topics.moderation, LAG_TIMEOUT_S)
        return {**{runs_field(p): at for p, at in runs.items()}, MODERATION: moderation[0]}
    return None


def _lag(ends: Ends | None, position: dict[str, int]) -> int | None:
    if ends is None:
        return None
    return sum(max(end - max(position.get(field, first), first), 0) for field, (first, end) in ends.items())
