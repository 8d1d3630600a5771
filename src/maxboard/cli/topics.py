"""``changes`` and ``dead-letters``: what the applier wrote to Kafka."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click
import msgspec

from maxboard.changes import DEAD_LETTER_HEADERS, RankChange, decode_change
from maxboard.cli import render
from maxboard.cli.render import Column
from maxboard.config import load
from maxboard.log import topic_reader
from maxboard.log.topic_reader import TopicRecord
from maxboard.words import count

Decoded = tuple[TopicRecord, RankChange]
CHANGES = (Column("applied at"), Column("board"), Column("player"), Column("cause"), Column("rank", right=True))
CHANGES_WIDTHS = (23, 20, 16, 6, 18)
CAUSES = {"ban": "red", "reject": "red", "erase": "red", "unban": "green", "accept": "green"}
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")


class DeadLetterLine(msgspec.Struct):
    """A record that could not be applied; the first seven of the record's headers."""

    topic: str
    partition: int
    offset: int
    reason: str
    error: str
    at: str
    boards: list[str]


@click.command()
@click.argument("board", required=False)
@json_option
@click.option("--limit", type=click.IntRange(1, 100_000), metavar="N", help="Only the newest N.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes, until interrupted.")
@click.pass_obj
def changes(config: Path, board: str | None, as_json: bool, limit: int | None, follow: bool) -> None:
    """Rank changes of BOARD, or of all boards, each player of a board in the order of the topic.

    The newest of a player and board is the one with the greatest (moderation, composite), not the last.
    With --json the records as they are. A record that is no rank change is named on stderr and skipped; that
    alone is no failure, as all rank changes are listed.
    """
    if follow and limit:
        raise click.UsageError("--follow and --limit exclude each other: the newest are not known before the end")
    settings = load(config)
    ref = settings.build().parse(board, time.time_ns() // 1_000_000).reference if board else None
    records = topic_reader.read(settings.kafka, settings.kafka.topics.rank_changes, follow)
    found = _changes(records, ref, _skipped(settings.kafka.topics.rank_changes))
    if limit:
        found = iter(_newest(found, limit))
    if as_json:
        for record, _ in found:
            click.echo(_one_line(record.value or b""))
        return
    shown = _print_changes(found)
    if not shown:
        click.echo("no rank changes yet" if ref is None else f"no rank changes of {ref} yet")


def _changes(
    records: Iterable[TopicRecord], ref: str | None, skipped: Callable[[TopicRecord, str], None]
) -> Iterator[Decoded]:
    for record in records:
        try:
            change = decode_change(record.value or b"")
        except ValueError as error:  # msgspec's errors, and bytes that are no UTF-8
            skipped(record, f"no rank change ({error})")
            continue
        if ref is None or change.board == ref:
            yield record, change


def _newest(found: Iterable[Decoded], limit: int) -> list[Decoded]:
    """The newest by broker time, in the order they came: ties and clocks that step back keep topic order."""
    kept = heapq.nlargest(limit, enumerate(found), key=lambda numbered: (numbered[1][0].time, numbered[0]))
    return [decoded for _, decoded in sorted(kept, key=lambda numbered: numbered[0])]


def _one_line(value: bytes) -> bytes:
    return value if b"\n" not in value else msgspec.json.format(value, indent=-1)


def _print_changes(found: Iterable[Decoded]) -> bool:
    """Line by line, as the topic may be long and ``--follow`` has no end."""
    shown = False
    for _, change in found:
        if not shown:
            head = (*(column.title for column in CHANGES), "score")
            click.secho(render.aligned((*CHANGES, Column("")), head, (*CHANGES_WIDTHS, 0)), bold=True)
            shown = True
        at = change.applied_at.replace("T", " ").removesuffix("Z")
        cells = (at, change.board, change.player_id, change.cause, rank_move(change))
        line = render.aligned(CHANGES, [render.safe(cell) for cell in cells], CHANGES_WIDTHS)
        click.secho(f"{line}  {score_move(change)}".rstrip(), fg=CAUSES.get(change.cause))
    return shown


def rank_move(change: RankChange) -> str:
    """``12 → 3``, ``new → 3``, ``3`` when it stayed or the rank before is not known, ``off`` and ``-`` (replaying)."""
    if change.rank is None:
        return "off" if change.composite == "0" else "-"
    if change.previous_rank is None:
        return f"new → {change.rank:,}" if change.previous_score is None else f"{change.rank:,}"
    return f"{change.rank:,}" if change.previous_rank == change.rank else f"{change.previous_rank:,} → {change.rank:,}"


def score_move(change: RankChange) -> str:
    """``900 → 1,000``, or the one that there is."""
    scores = [score for score in (change.previous_score, change.score) if score is not None]
    return " → ".join(map(render.number, scores if len(set(scores)) > 1 else scores[:1]))


def _skipped(topic: str) -> Callable[[TopicRecord, str], None]:
    def report(record: TopicRecord, why: str) -> None:
        click.echo(f"maxboard: {topic} {record.partition}:{record.offset}: skipped, {render.safe(why)}", err=True)

    return report


@click.command()
@json_option
@click.pass_obj
def dead_letters(config: Path, as_json: bool) -> None:
    """Records that could not be applied, each once, with the reason.

    A record may be refused by some boards only: these are named, the others have it. Records without the
    headers of a dead letter are named on stderr and skipped.
    """
    settings = load(config)
    topic = settings.kafka.topics.dead_letters
    letters = once(topic_reader.read(settings.kafka, topic), _skipped(topic))
    if as_json:
        for letter in letters:
            render.print_json(letter)
        return
    rows = [
        render.Row(
            [
                render.safe(cell)
                for cell in (
                    _when(x.at),
                    f"{x.topic} {x.partition}:{x.offset}",
                    x.reason,
                    ", ".join(x.boards) or "all",
                    x.error,
                )
            ]
        )
        for x in letters
    ]
    columns = [Column("at (UTC)"), Column("record"), Column("reason"), Column("boards"), Column("error")]
    render.print_table(count(len(rows), "dead letter") if rows else topic, columns, rows, empty="no dead letters")


def _when(at: str) -> str:
    return at.replace("T", " ").removesuffix("Z")


def once(records: Iterable[TopicRecord], skipped: Callable[[TopicRecord, str], None]) -> Iterator[DeadLetterLine]:
    """Dead letters by their headers; the first of those for one topic, partition and offset."""
    seen = set()
    for record in records:
        values = {name: (value or b"").decode("utf-8", "replace") for name, value in record.headers}
        missing = [name for name in DEAD_LETTER_HEADERS if name not in values]
        if missing or not (values["partition"].isdecimal() and values["offset"].isdecimal()):
            skipped(record, f"no dead letter ({', '.join(missing) or 'partition or offset'} missing in its headers)")
            continue
        where = (values["topic"], int(values["partition"]), int(values["offset"]))
        if where not in seen:
            seen.add(where)
            boards = [name for name in values["boards"].split(",") if name]
            yield DeadLetterLine(*where, values["reason"], values["error"], values["at"], boards)
