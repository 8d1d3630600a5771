"""The stack's ``maxboard.toml``: written once, then only the ports of servers that moved are changed."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from maxboard.devstack.places import render, replace
from maxboard.devstack.ports import HOST
from maxboard.devstack.sentinel import NAMES as SENTINELS
from maxboard.devstack.state import State

# table, key -> the server whose address stands there
Addresses = tuple[tuple[str, str, str], ...]
ADDRESSES: Addresses = (
    ("kafka", "bootstrap", "kafka"),
    ("primaries.weekly", "url", "weekly"),
    ("primaries.weekly", "replicas", "weekly-replica"),
    ("primaries.alltime", "url", "alltime"),
    ("primaries.alltime", "replicas", "alltime-replica"),
)
SENTINEL_ADDRESSES: Addresses = (
    ("kafka", "bootstrap", "kafka"),
    *((f"primaries.{name}", "url", sentinel) for name in ("weekly", "alltime") for sentinel in SENTINELS),
)


def bring_up_to_date(path: Path, state: State) -> list[str]:
    """Make the file name the stack's addresses; returns what was done, a line each, empty when nothing was.

    What a user wrote stays, to the byte, but for ports that this stack's server once had and has no longer.
    """
    if not path.exists():
        replace(path, _new(state))
        return [f"wrote {path}"]
    text = path.read_bytes().decode(errors="surrogateescape")
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return [f"{path} was left alone, it is not valid TOML: {error}"]
    done: list[str] = []
    for table, key, server in SENTINEL_ADDRESSES if state.sentinel else ADDRESSES:
        port = state.ports[server]
        if f":{port}" in _ports_in(before, table, key):
            continue
        # Not another server's port of today: three sentinels stand in one line.
        old = [str(other) for other in state.used.get(server, []) if other not in state.ports.values()]
        changed = _with_port(text, table, key, old, port)
        if changed != text:
            done.append(f"{path}: {table}.{key} now names {HOST}:{port}")
            text = changed
        else:
            done.append(f"{path}: {table}.{key} was left as it is; the stack's {server} is at {HOST}:{port}")
    tomllib.loads(text)
    if text.encode(errors="surrogateescape") != path.read_bytes():
        replace(path, text)
    return done


def _new(state: State) -> str:
    ports = state.ports
    text = render("maxboard.toml", **{name.replace("-", "_"): port for name, port in ports.items()})
    if not state.sentinel:
        return text
    hosts = ",".join(f"{HOST}:{ports[sentinel]}" for sentinel in SENTINELS)
    text = text.replace(
        "# One server a primary; its replicas serve the reads.\n",
        "# One service of the sentinels a primary; they know which server it is, and its replicas.\n",
    )
    text = re.sub(r"^replicas = .*\n", "", text, flags=re.MULTILINE)
    return re.sub(
        r"^(\[primaries\.(\w+)\]\nurl = ).*$", rf'\g<1>"sentinel://{hosts}/\g<2>/0"', text, flags=re.MULTILINE
    )


def _ports_in(document: dict[str, Any], table: str, key: str) -> list[str]:
    value: Any = document
    for part in [*table.split("."), key]:
        value = value.get(part) if isinstance(value, dict) else None
    values = value if isinstance(value, list) else [value]
    return [found for item in values for found in re.findall(r"(?:127\.0\.0\.1|localhost)(:\d+)", str(item))]


def _with_port(text: str, table: str, key: str, old: list[str], port: int) -> str:
    """The text with ``old`` local ports replaced in one key of one table; unchanged when there are none."""
    if not old:
        return text
    header = re.search(rf"^[ \t]*\[[ \t]*{re.escape(table)}[ \t]*\].*$", text, re.MULTILINE)
    if header is None:
        return text
    following = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, header.end())
    end = following.start() if following else len(text)
    section = text[header.end() : end]
    entry = re.search(rf"^[ \t]*{key}[ \t]*=[ \t]*(\[[^\]]*\]|\S[^\n#]*)", section, re.MULTILINE)
    if entry is None:
        return text
    addresses = re.compile(rf"(127\.0\.0\.1|localhost):(?:{'|'.join(old)})(?!\d)")
    changed = section[: entry.start(1)] + addresses.sub(rf"\g<1>:{port}", entry[1]) + section[entry.end(1) :]
    return text[: header.end()] + changed + text[end:]
