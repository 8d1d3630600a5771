"""``maxboard run``: everything at once on the embedded stack, with a page to look at, until Ctrl-C."""

from __future__ import annotations

import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import click

from maxboard.cli.demo_stage import Child, Stage, alone, own_environment
from maxboard.cli.dev import directory_option
from maxboard.devstack import Stack
from maxboard.errors import NotYet, Refused
from maxboard.words import count

RATE, PLAYERS, PORT = 300, 20_000, 8080
START_S = 60.0
LOOK_S = 0.2


@click.command()
@directory_option
@click.option("--rate", type=click.IntRange(1), default=RATE, show_default=True, metavar="R", help="Runs a second.")
@click.option(
    "--players", type=click.IntRange(1, 10_000_000), default=PLAYERS, show_default=True, metavar="N", help="Who plays."
)
@click.option("--port", type=click.IntRange(1, 65535), default=PORT, show_default=True, help="Of the page and the API.")
def run(directory: Path, rate: int, players: int, port: int) -> None:
    """Bring it all up: servers, an applier, a generator of runs, the API, the live page. Until Ctrl-C.

    Topics, group and keys are its own, as those of `demo`; the servers stay up.
    """
    own_environment()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # also where a shell has them ignored
        signal.signal(number, signal.default_int_handler)
    with ExitStack() as ending:
        stack = Stack(directory, say=click.echo)
        stack.up()
        ending.enter_context(alone(stack))
        stage = Stage(stack, directory, ending)
        stage.start("init").wait()
        words = ("produce", "--runs", "0", "--rate", str(rate), "--players", str(players))
        children = (stage.start("apply"), stage.start("serve", "--port", str(port)), stage.start(*words))
        try:
            _wait_for(port, children)
            click.echo(f"\n  live page  http://127.0.0.1:{port}/\n  API        http://127.0.0.1:{port}/v1/boards")
            click.echo(f"  {count(rate, 'run')} a second of {count(players, 'player')}; Ctrl-C ends it\n")
            while True:
                _check(children)
                time.sleep(LOOK_S)
        except KeyboardInterrupt:
            click.echo("stopping: what is on its way is finished and committed")
        for child in reversed(children):
            child.stop()
            child.check()


def _wait_for(port: int, children: tuple[Child, ...]) -> None:
    """Until the server listens."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        _check(children)
        try:
            with socket.create_connection(("127.0.0.1", port), LOOK_S):
                return
        except OSError:
            time.sleep(LOOK_S)
    raise NotYet(f"nothing listens on port {port} after {START_S:.0f} s: look at the load of this machine")


def _check(children: tuple[Child, ...]) -> None:
    """Raises the error of a command that ended by itself."""
    for child in children:
        if child.ended:
            child.check()
            raise Refused(f"{child.what} ended by itself")
