"""The JSON Schemas of the topics, made from the models: ``python -m maxboard.schemas`` writes them anew.

A schema says what a producer in another language has to know; ``wire.decode`` stays the judge. What JSON
Schema cannot say (repeated keys, 7.0 as an id, calendar days) is in the bad examples beside the schemas.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from maxboard import resources
from maxboard.changes import RankChange
from maxboard.moderation.events import MAX_ACTOR, MAX_EVENT_BYTES, MAX_REASON, Event, RunFound
from maxboard.times import FIRST_MS, LAST_MS
from maxboard.wire import ID_PATTERN, ID_WORDS, MAX_SCORE, RunWire

Schema = dict[str, Any]

# Plain enough for every dialect of regular expressions: no lookahead, no classes by name.
TIME_PATTERN = (
    r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?"
    r"([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
)
WRITTEN_TIME = {
    "type": "string",
    "format": "date-time",
    "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$",
}
NULL: Schema = {"type": "null"}
ID: Schema = {"type": "string", "pattern": ID_PATTERN}
SCORE: Schema = {"type": "number", "minimum": -MAX_SCORE, "maximum": MAX_SCORE}

RUN_FIELDS: dict[str, Schema] = {
    "run_id": {
        "description": f"Identity of the run: {ID_WORDS}; an integer is taken as its decimal text. 7.0 is no id.",
        "anyOf": [ID, {"type": "integer"}],
    },
    "player_id": {
        "description": f"Key of the record too. {ID_WORDS}; an integer is taken as its decimal text. 7.0 is no id.",
        "anyOf": [ID, {"type": "integer"}],
    },
    "score": {
        "description": "Counts by its numeric value: 100.0 and 1e2 are 100. More decimals than a board's scale are "
        "refused for that board, never rounded.",
        **SCORE,
    },
    "finished_at": {
        "description": "RFC 3339 with offset (fractions are cut to milliseconds), or epoch milliseconds. The run's "
        "window is chosen by it, in UTC.",
        "anyOf": [
            {"type": "string", "format": "date-time", "pattern": TIME_PATTERN},
            {"type": "integer", "minimum": FIRST_MS, "maximum": LAST_MS},
        ],
    },
    "tags": {"description": "What boards match and group by."},
}
CHANGE_FIELDS: dict[str, Schema] = {
    "board": {"description": "Board reference, such as weekly:2026-W44.", "pattern": "^[A-Za-z0-9._:-]+$"},
    "epoch": {"description": "Identity of one life of the board: when it grows, read the board again.", "minimum": 0},
    "player_id": {"pattern": ID_PATTERN},
    "moderation": {
        "description": "Offset after the player's last moderation event in force; 0: none. The newest change of a "
        "player and board has the greatest (moderation, composite).",
        "minimum": 0,
    },
    "composite": {
        "description": 'Score and time in one integer below 2^53, as decimal text; "0": not on the board.',
        "pattern": "^(0|[1-9][0-9]{0,15})$",
    },
    "run_id": {"description": "The run that gave the best; null when no run did.", "anyOf": [ID, NULL]},
    "cause": {"description": "What changed the board."},
    "score": {"description": "The best; null when the board was left.", "anyOf": [SCORE, NULL]},
    "previous_score": {"description": "Null at a first appearance, and when it is not known.", "anyOf": [SCORE, NULL]},
    "rank": {
        "description": "From 1; null while the board replays, and when it was left.",
        "anyOf": [{"type": "integer", "minimum": 1}, NULL],
    },
    "previous_rank": {
        "description": "Null at a first appearance, and when it is not known.",
        "anyOf": [{"type": "integer", "minimum": 1}, NULL],
    },
    "achieved_at": {
        "description": "When the run finished, exact to the board's tick; null when the board was left.",
        "anyOf": [WRITTEN_TIME, NULL],
    },
    "applied_at": {"description": "When the applier had the primary's answer.", **WRITTEN_TIME},
    "event_id": {"description": "board|run_id, or board|moderation offset: for joins.", "pattern": r"^[^|]+\|[^|]+$"},
}
TIME: Schema = {"type": "string", "format": "date-time", "pattern": TIME_PATTERN}
FOUND_FIELDS: dict[str, Schema] = {
    "run_id": {"pattern": ID_PATTERN},
    "player_id": {"pattern": ID_PATTERN},
    "score": SCORE,
    "finished_at": TIME,
    "recorded_at": {"description": "Record time of the delivery: what decides whether it was late.", **TIME},
    "tags": {"description": "What boards match and group by."},
}
EVENT_FIELDS: dict[str, Schema] = {
    "event_id": {"description": "Identity of the event; `ends` names a ban by it.", "pattern": ID_PATTERN},
    "type": {"description": "What was decided."},
    "player_id": {"description": "Key of the record too.", "pattern": ID_PATTERN},
    "actor": {
        "description": "Who decided; `maxboard` for the end of a ban.", "minLength": 1, "maxLength": MAX_ACTOR,
        "pattern": "[^ ]",
    },
    "at": {"description": "The clock of who decided; what counts is the record time.", **TIME},
    "reason": {"description": "Why.", "maxLength": MAX_REASON},
    "kind": {
        "description": "Of a ban. shadow: the player goes on seeing a rank.",
        "anyOf": [{"enum": ["ban", "shadow"]}, NULL],
    },
    "until": {"description": "When a ban ends; null: not by itself.", "anyOf": [TIME, NULL]},
    "ends": {
        "description": "Of the unban of a ban that came to its end: the event_id of that ban; it lifts no other.",
        "anyOf": [{"type": "string"}, NULL],
    },
    "run_id": {"description": "Of accept and reject: with player_id, what the verdict is on.", "anyOf": [ID, NULL]},
    "run": {"description": "Of accept and reject: the run as it was found in the log."},
    "also": {"description": "Other deliveries of the same run_id with another content: two runs, one verdict."},
}  # fmt: skip
OF_A_BAN = {
    "if": {"properties": {"type": {"const": "ban"}}},
    "then": {"required": ["kind"], "properties": {"kind": {"type": "string"}}},
}
OF_A_VERDICT = {
    "if": {"properties": {"type": {"enum": ["accept", "reject"]}}},
    "then": {
        "required": ["run_id", "run"],
        "properties": {"run_id": {"type": "string"}, "run": {"type": "object"}},
    },
}
# A composite of "0" is the one way to say that the board was left; the other fields must not contradict it.
LEFT = {
    "if": {"properties": {"composite": {"const": "0"}}},
    "then": {"properties": {"score": NULL, "rank": NULL, "achieved_at": NULL}},
    "else": {"properties": {"score": {"type": "number"}, "achieved_at": {"type": "string"}}},
}
BY_RUN = {
    "if": {"properties": {"cause": {"const": "run"}}},
    "then": {"properties": {"run_id": {"type": "string"}}},
}


def _schema(name: str, model: type, description: str, fields: dict[str, Schema]) -> Schema:
    """A model's own schema with the stricter rules of each field; ``anyOf`` and ``type`` of a rule replace its own."""
    made = msgspec.json.schema(model)["$defs"][model.__name__]
    if fields.keys() != made["properties"].keys():
        raise AssertionError(f"{name}: {fields.keys() ^ made['properties'].keys()} in one of model and rules only")
    properties = {}
    for field, own in made["properties"].items():
        rule = fields[field]
        kept = {} if {"anyOf", "type"} & rule.keys() else own
        properties[field] = {**kept, **rule}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:maxboard:schema:{name}",
        "title": name,
        "description": description,
        "version": int(name.rpartition(".v")[2]),
        "$comment": "Made by python -m maxboard.schemas; a test holds it to the model.",
        "type": "object",
        "properties": properties,
        "required": made["required"],
        "additionalProperties": True,
    }


def run_v1() -> Schema:
    """A record of ``runs``."""
    text = (
        "A finished play, as a record of the topic runs, in UTF-8, at most 1,000,000 bytes. Fields that are not "
        "known are ignored; a key that is repeated in any object is refused."
    )
    return _schema("run.v1", RunWire, text, RUN_FIELDS)


def rank_change_v1() -> Schema:
    """A record of ``rank-changes``."""
    text = (
        "A player's best on a board, as a primary had it right after a change or a replay of it. At least once, by "
        "several writers: the newest of a player and board is the one with the greatest (moderation, composite), "
        "not the last in the topic. New fields may come: ignore those you do not know."
    )
    return {**_schema("rank-change.v1", RankChange, text, CHANGE_FIELDS), "allOf": [LEFT, BY_RUN]}


def moderation_v1() -> Schema:
    """A record of ``moderation``."""
    text = (
        "A decision on a player or a run, as a record of the topic moderation, in UTF-8, at most "
        f"{MAX_EVENT_BYTES:,} bytes. Kept for ever, in one partition, because these do not commute: a ban replaces the "
        "player's older one, a reject outranks any accept, an erasure is on what was recorded before it. Fields that "
        "are not known are ignored."
    )
    found = _schema("run-found.v1", RunFound, "A run as a verdict found it.", FOUND_FIELDS)
    one = {name: found[name] for name in ("description", "type", "properties", "required", "additionalProperties")}
    schema = _schema("moderation.v1", Event, text, EVENT_FIELDS)
    schema["properties"]["run"] = {"description": schema["properties"]["run"]["description"], "anyOf": [one, NULL]}
    schema["properties"]["also"] = {**EVENT_FIELDS["also"], "type": "array", "items": one}
    return {**schema, "allOf": [OF_A_BAN, OF_A_VERDICT]}


def files() -> dict[str, str]:
    """File name to content of every generated schema."""
    schemas = {
        "run.v1.json": run_v1(),
        "rank-change.v1.json": rank_change_v1(),
        "moderation.v1.json": moderation_v1(),
    }
    return {name: json.dumps(schema, indent=2) + "\n" for name, schema in schemas.items()}


def write(folder: Path) -> list[Path]:
    """Write every generated schema into ``folder``."""
    paths = []
    for name, content in files().items():
        paths.append(folder / name)
        paths[-1].write_text(content, encoding="utf-8")
    return paths


def main() -> None:
    """Write to the checkout; an installed package has none, and its copies are not to be changed."""
    folder = resources._CHECKOUT / "schemas"  # the one place that knows where the checkout is
    if not (folder.parent / "pyproject.toml").is_file():
        raise SystemExit("no checkout here: run this where the sources are")
    for path in write(folder):
        print(path.relative_to(folder.parent))


if __name__ == "__main__":
    main()
