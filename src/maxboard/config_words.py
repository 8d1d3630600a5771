"""Errors of the configuration in the words of the file and of the environment: one line each, without a secret."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from maxboard.config_models import BoardConfig, Judge, Kafka, Primary, RuleConfig, Topics
from maxboard.config_values import show
from maxboard.serve.settings import Serve

PREFIX = "MAXBOARD_"
OTHERS = ("MAXBOARD_CONFIG", "MAXBOARD_ACTOR")  # variables that are no value of the configuration
FOR_TESTS = "MAXBOARD_TEST_"
_TABLES: dict[str, type[BaseModel]] = {
    "kafka": Kafka,
    "kafka.topics": Topics,
    "primaries": Primary,
    "boards": BoardConfig,
    "judge": Judge,
    "judge.rules": RuleConfig,
    "serve": Serve,
}
_NAMED = ("primaries", "boards", "judge.rules")  # tables of tables with names of their own
_AS_JSON = {
    "kafka", "client", "topics", "primaries", "replicas", "boards", "match", "group_by", "groups", "judge", "rules",
    "serve", "origins",
}  # fmt: skip
_SECRET = re.compile(r"(kafka\.client|primaries)\b").match  # may hold a password


def line(text: str) -> str:
    """The text as one line, whatever a key or value holds."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def of_pydantic(error: ErrorDetails, source: str, top: list[str], environ: Mapping[str, str]) -> str:
    """One error of pydantic in the words of the file. ``top``: the names that the top of the file may have."""
    kind, given, context, path = error["type"], show(error["input"]), error.get("ctx", {}), error["loc"]
    where = ".".join(map(str, path))
    variable = "__".join(("MAXBOARD", *map(str, path))).replace("MAXBOARD__", PREFIX, 1).upper()
    if variable in map(str.upper, environ):
        source = "environment"
    got = "" if _SECRET(where) else f", got {given}"
    texts = {
        "missing": "is missing",
        "literal_error": f"{given} is not one of {context.get('expected')}",
        "greater_than_equal": f"{given} is below the least, {context.get('ge')}",
        "less_than_equal": f"{given} is above the greatest, {context.get('le')}",
        "string_type": f"text is needed{got}",
        "string_too_short": "empty",
        "list_type": f"a list is needed{got}",
        "dict_type": f"a table is needed{got}",
        "model_type": f"a table is needed{got}",
    }
    if kind == "extra_forbidden":
        texts[kind] = f"not known; known here: {', '.join(_known(path, top))}"
    text = texts.get(kind, error["msg"].removeprefix("Value error, "))
    return f"{source}: {where + ': ' if where else ''}{text}"


def _known(path: tuple[int | str, ...], top: list[str]) -> list[str]:
    """The names that the table has in which ``path`` names a value that is not known."""
    if len(path) == 1:
        return top
    table = ".".join(map(str, path[:-1]))
    table = next((named for named in _NAMED if table.startswith(f"{named}.")), table)
    return [name.replace("_", "-") if table == "kafka.topics" else name for name in _TABLES[table].model_fields]


def not_json(environ: Mapping[str, str]) -> str:
    """The variables that hold a list or table that is no JSON."""
    wrong = []
    for name, value in environ.items():
        path = name.lower().removeprefix(PREFIX.lower()).split("__")
        try:
            if name.upper().startswith(PREFIX) and path[-1] in _AS_JSON:
                json.loads(value)
        except ValueError:
            wrong.append(name)
    return ", ".join(wrong) or f"{PREFIX}…"


def unknown_variable(environ: Mapping[str, str], top: list[str]) -> str | None:
    """What is wrong with the first variable ``MAXBOARD_…`` that names nothing; None: all name something.

    Only the first step is looked at: what is not known below it, the models refuse themselves.
    """
    for name in environ:
        upper = name.upper()
        if not upper.startswith(PREFIX) or upper in OTHERS or upper.startswith(FOR_TESTS):
            continue
        first, *rest = upper.removeprefix(PREFIX).lower().split("__")
        if first in top and (first in _TABLES or not rest):
            continue
        table = next((table for table in top if table in _TABLES and first.startswith(f"{table}_")), None)
        if table:
            meant = f"{PREFIX}{table}__{first.removeprefix(f'{table}_')}".upper()
            return (
                f"{name} is not known: parts are joined by two underscores, as in {'__'.join((meant, *rest)).upper()}"
            )
        return f"{name} is not known; variables begin with {', '.join(f'{PREFIX}{name.upper()}' for name in top)}"
    return None
