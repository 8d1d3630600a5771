"""Reference pages made from the code: ``python -m tests.docs_reference`` writes them, a test fails when they differ.

``docs/cli.md`` from the ``--help`` of every command, ``docs/metrics.md`` from ``maxboard.metrics.FIELDS``,
``docs/configuration.md`` from the models of ``maxboard.config``; only the meanings of keys are written here.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from maxboard.cli import COMMANDS, cli
from maxboard.config import BoardConfig, Judge, Kafka, Primary, RuleConfig, Settings, Topics
from maxboard.metrics import FIELDS
from maxboard.serve.settings import Serve
from maxboard.windows import duration_text

DOCS = Path(__file__).parents[1] / "docs"
WIDTH = 100
NOTE = "<!-- Made by `python -m tests.docs_reference`: do not edit. -->\n"
DURATIONS = {
    "tick", "grace", "keep", "max_future", "wait_timeout", "signature_age", "ack_timeout", "rank_timeout", "max_age",
    "after_timeout",
}  # fmt: skip

# table -> its model, what it is, and the meaning of each key. A test of this file's own: keys equal the model's.
TABLES: dict[str, tuple[type[BaseModel], str, dict[str, str]]] = {
    "": (
        Settings,
        "At the top of the file.",
        {
            "prefix": "Begins the name of every key on the primaries: boards of two prefixes do not meet.",
            "checkpoints": (
                "Where checkpoints are kept: a folder, from this file on, or any fsspec URL such as "
                "`s3://bucket/boards`. Empty: the folder `checkpoints` beside this file."
            ),
        },
    ),
    "[kafka]": (
        Kafka,
        "The log.",
        {
            "bootstrap": "Addresses of brokers, `host:port`, joined by commas.",
            "group": "Consumer group of the appliers.",
            "partitions": "Partitions of `runs` when `maxboard init` creates it.",
            "replication": "Copies of a topic that `init` creates; without it 3, or as many as there are brokers.",
            "client": (
                "A table that goes to librdkafka as it is: SASL, TLS, tuning. What would break a promise is refused."
            ),
        },
    ),
    "[kafka.topics]": (
        Topics,
        "Names of the topics. In the environment with `_` for `-`.",
        {
            "runs": "Finished runs; the truth.",
            "moderation": "Bans, verdicts and erasures, kept for ever.",
            "rank_changes": "What the applier announces.",
            "dead_letters": "Records that cannot be applied, with the reason in headers.",
            "scores": "For boards whose truth is a database; not used yet.",
        },
    ),
    "[primaries.NAME]": (
        Primary,
        "A server that holds boards. Two names for one server are refused.",
        {
            "url": "`redis://host:port/0`, `rediss://…`, `unix://…`. `sentinel://host:26379,host:26379/service-name`.",
            "replicas": "Addresses of its copies. `init` and `check` look at them.",
            "wait_replicas": (
                "Runs count as applied, and offsets are committed, once so many replicas hold them (WAIT); 0: once the "
                "primary does. With fewer, health is red and runs wait. The boards show them all the same."
            ),
            "wait_timeout": "How long one WAIT may take; then it is asked again. At most `5s`.",
        },
    ),
    "[boards.NAME]": (
        BoardConfig,
        "A ranking. Names are 1 to 32 letters, digits, `.`, `_`, `-`. Durations are text: `500ms 10s 5m 1h 2d 8w`.",
        {
            "primary": "Name of the primary that holds it.",
            "window": "`all-time`, `day`, `iso-week`, `month` or `season`, in UTC. `finished_at` chooses the window.",
            "order": "`highest`, or `lowest` for lap times.",
            "score_min": "Least score that the board takes.",
            "score_max": "Greatest score that the board takes. A run outside is a dead letter of this board.",
            "scale": "Decimal places of the score, 0 to 15.",
            "tick": "Resolution of the tie-break: of two equal scores the earlier ranks higher.",
            "grace": "How long after its end a window takes late runs, by record time.",
            "keep": "How long after its end a window can be read; then it expires. At least `grace`.",
            "start": "Start of a season, such as `2026-10-01T00:00:00Z`.",
            "end": "End of a season.",
            "origin": "Where an all-time board begins to count time, for 2^32 s; default 2010-01-01.",
            "match": 'Tags that a run must have, such as `{ mode = "kart" }`; empty: all runs.',
            "group_by": 'Tags that make a board of their own per value, such as `["track"]`.',
            "groups": "The values of `group_by` that are allowed; empty: all.",
            "semantics": "`max`: a best only rises.",
        },
    ),
    "[judge]": (
        Judge,
        "What a run must be to count.",
        {"max_future": "A run that finished later than this after its record time is a dead letter."},
    ),
    "[judge.rules.NAME]": (
        RuleConfig,
        (
            "A rule for runs that a board could hold; all that it says must fit, and the first rule of the file that "
            "fits decides. To change one without a rebuild, end it with `until` and add another with the same `since`, "
            "both later than any record applied."
        ),
        {
            "action": "`hold`: the run waits for a verdict. `reject`: it never counts, and is a dead letter.",
            "score_above": "Fits scores above this; the limit itself does not fit.",
            "score_below": "Fits scores below this.",
            "match": "Tags that the run must have.",
            "boards": "Names of the boards that it is for; empty: all.",
            "since": "Record time from which on it is in force.",
            "until": "Record time before which it is.",
            "callable": (
                "`package.module:function`, or an entry point of the group `maxboard.rules`: gets a list of runs, "
                "returns for each True, False, `accept`, `hold` or `reject`. If it fails, its runs are held."
            ),
        },
    ),
    "[serve]": (
        Serve,
        "`maxboard serve`.",
        {
            "keys": "File of API keys (`maxboard keys`). Without one it listens on this machine only.",
            "origins": "Other sites whose pages may call the API.",
            "public_reads": "Boards and the page can be read without a key.",
            "signatures": "Every submit must carry an HMAC signature of its key.",
            "signature_age": "How old a signature may be.",
            "rate": "Requests a second of a key that names no rate of its own; 0: as many as it likes.",
            "max_body": "Greatest request body, bytes.",
            "max_runs": "Most runs in one submit.",
            "queue": "Runs on their way at once; beyond, the answer is 429.",
            "ack_timeout": "How long Kafka may take to acknowledge a run; then the answer is 503.",
            "rank_timeout": "How long a board may take to answer; then the run is accepted and `queued`.",
            "max_age": "Age beyond which a read goes to the primary, and then is refused, if it names no `max_age_ms`.",
            "after_timeout": "How long a read waits for the position of its `after`.",
            "watchers": "Pages that may watch boards at once.",
        },
    ),
}


def configuration() -> str:
    """``docs/configuration.md``."""
    lines = [
        "# Configuration",
        "",
        NOTE,
        "One TOML file: `maxboard --config FILE`, else `$MAXBOARD_CONFIG`, else `.maxboard/maxboard.toml`, which",
        "`maxboard dev up` writes. Every value can also be given as `MAXBOARD_…`, with `__` between the parts, as in",
        "`MAXBOARD_KAFKA__GROUP=blue`; lists and tables are JSON there. The environment outranks the file.",
        "",
        "Score and time share 53 bits. A board that does not fit is refused, and the message says what would.",
    ]
    for table, (model, about, meanings) in TABLES.items():
        lines += ["", f"## {f'`{table}`' if table else 'Top'}", "", about, ""]
        lines += ["| key | default | meaning |", "|---|---|---|"]
        for name, text in meanings.items():
            key = name.replace("_", "-") if model is Topics else name
            lines.append(f"| `{key}` | {_default(name, model.model_fields[name])} | {text} |")
    return "\n".join(lines) + "\n"


def _default(name: str, info: FieldInfo) -> str:
    value = info.get_default(call_default_factory=True)
    if info.is_required():
        return "needed"
    if value is None:
        return "none"
    if name in DURATIONS:
        return f'`"{duration_text(value)}"`'
    if isinstance(value, str):
        return f'`"{value}"`'
    return f"`{value:f}`" if isinstance(value, Decimal) else f"`{value}`"


def metrics() -> str:
    """``docs/metrics.md``."""
    lines = [
        "# Metrics",
        "",
        NOTE,
        "`maxboard apply --metrics-port 9108` serves `/metrics` in Prometheus' format, and `/healthz`: 200 while runs",
        "are applied, 503 with the reasons while something keeps them from it. With `--workers N` worker `i` has port",
        "`9108 + i`. Counters end in `_total` on the wire.",
        "",
        "| metric | kind | labels | meaning |",
        "|---|---|---|---|",
    ]
    for name, (kind, text, labels) in FIELDS.items():
        shown = ", ".join(f"`{label}`" for label in labels) or "-"
        lines.append(f"| `{name}{'_total' if kind == 'counter' else ''}` | {kind} | {shown} | {text} |")
    return "\n".join(lines) + "\n"


def command_line() -> str:
    """``docs/cli.md``."""
    lines = [
        "# Command line",
        "",
        NOTE,
        "Exit codes: 0 it is so, 1 it is not, 2 wrong use, 3 not yet. An error is one line on stderr that says what to",
        "do. `--json` gives one object, or one a line for lists.",
    ]
    names = cli.context_settings["help_option_names"]
    root = click.Context(cli, info_name="maxboard", terminal_width=WIDTH, help_option_names=names)
    for path, context in [("maxboard", root), *_commands(root)]:
        lines += ["", f"## {path}", "", "```", context.command.get_help(context), "```"]
    return "\n".join(lines) + "\n"


def _commands(parent: click.Context) -> Iterator[tuple[str, click.Context]]:
    group = parent.command
    assert isinstance(group, click.Group)
    for name in COMMANDS if group is cli else group.list_commands(parent):
        command = group.get_command(parent, name)
        assert command is not None
        context = click.Context(command, parent, name, terminal_width=WIDTH)
        yield context.command_path, context
        if isinstance(command, click.Group):
            yield from _commands(context)


PAGES = {"cli.md": command_line, "metrics.md": metrics, "configuration.md": configuration}

if __name__ == "__main__":
    for page, make in PAGES.items():
        (DOCS / page).write_text(make(), encoding="utf-8")
