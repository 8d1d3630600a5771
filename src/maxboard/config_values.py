"""Values of the configuration: what is written in the file or the environment, to what the core uses.

Each raises ``ValueError`` with a text for people; none shows a password.
"""

from __future__ import annotations

import re
from datetime import date, datetime, time
from decimal import Decimal
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator

from maxboard import wire
from maxboard.times import instant
from maxboard.windows import duration_ms


def show(value: object) -> str:
    """A value for people, as the file would have it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal | date | time):
        return str(value)
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def duration(value: object) -> int:
    if not isinstance(value, str):
        raise ValueError(f'{show(value)} is no duration: write text such as "1h"')
    return duration_ms(value)


def moment(value: object) -> int:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{value} has no offset: write it as 2026-10-29T00:00:00Z")
        value = value.isoformat()
    if not isinstance(value, str):
        raise ValueError(f"{show(value)} is no RFC 3339 time: write it as 2026-10-29T00:00:00Z")
    return instant(value)


def number(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError(f"{show(value)} is no number")
    try:
        number = Decimal(str(value))
    except (ArithmeticError, ValueError):
        raise ValueError(f"{show(value)} is no number") from None
    if not number.is_finite() or abs(number) > wire.MAX_SCORE:
        raise ValueError(f"{show(value)} is out of range")
    if int(number.as_tuple().exponent) < -wire.MAX_EXPONENT:
        raise ValueError(f"{show(value)[:80]} has more decimals than any score")
    return number


def toml_float(text: str) -> Decimal:
    """A number of the file, exact. Raises ValueError for an exponent beyond all computers."""
    try:
        return Decimal(text)
    except ArithmeticError:
        raise ValueError(f"{text[:80]} is no number that can be used") from None


def whole(value: object) -> object:
    """Stricter than pydantic, which takes true for 1 and 2.0 for 2. The environment has texts only."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value, re.ASCII):
        value = int(value)
    if type(value) is not int:
        raise ValueError(f"{show(value)} is no whole number")
    return value


def client(value: object) -> object:
    if isinstance(value, dict):
        for name, setting in value.items():
            if not isinstance(setting, str | int | float | Decimal):
                raise ValueError(f"{name!r} needs text, a number, true or false")  # never its value: it may be secret
    return value


Duration = Annotated[int, BeforeValidator(duration)]
Moment = Annotated[int, BeforeValidator(moment)]
Number = Annotated[Decimal, BeforeValidator(number)]
Whole = Annotated[int, BeforeValidator(whole)]
Client = Annotated[dict[str, str | int | float | bool], BeforeValidator(client)]


def servers(url: str) -> set[tuple[str, ...]]:
    """What tells one server from another, whatever database, user or spelling of defaults. Raises ValueError."""
    where = urlsplit(url)
    if where.scheme == "unix" and where.path:
        return {("unix", where.path)}
    sentinel, service = where.scheme == "sentinel", where.path.strip("/").partition("/")[0]
    if where.scheme not in ("redis", "rediss", "sentinel") or (sentinel and not service):
        raise ValueError
    servers: set[tuple[str, ...]] = set()
    for address in where.netloc.rpartition("@")[2].split(","):
        one = urlsplit(f"//{address}")
        if not one.hostname:
            raise ValueError
        port = one.port if one.port is not None else 26379 if sentinel else 6379
        host = "127.0.0.1" if one.hostname == "localhost" else one.hostname
        servers.add((host, str(port), service if sentinel else ""))
    if len(servers) > 1 and not sentinel:
        raise ValueError
    return servers


def public(url: str) -> str:
    """An address without user, password and options."""
    return re.sub(r"//.*@", "//…@", url.partition("?")[0])
