"""``maxboard serve``: the HTTP API and the live page."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from maxboard.config import load
from maxboard.errors import WrongUse

if TYPE_CHECKING:
    from maxboard.serve.guard import Guard

CONFIG, KEYLESS, PROCESSES = "_MAXBOARD_SERVE_CONFIG", "_MAXBOARD_SERVE_KEYLESS", "_MAXBOARD_SERVE_PROCESSES"
GRACE_S = 10  # requests under way get so long to be answered
BACKLOG = 2_048
IDLE_S = 75  # longer than what load balancers keep a connection: they close first, so none is reset under a request


@click.command()
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; beyond this machine only with keys."
)
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="Port; 0: any free one.")
@click.option(
    "--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes that share the port."
)
@click.option(
    "--insecure-no-keys",
    is_flag=True,
    help="Answer without keys although serve.keys names a file; only on a loopback address.",
)
@click.pass_obj
def serve(path: Path, host: str, port: int, workers: int, insecure_no_keys: bool) -> None:
    """Submits with ranks, reads and the live page over HTTP. Ends on SIGTERM or Ctrl-C with everything answered.

    Without serve.keys it answers this machine alone. Make keys with `maxboard keys add`.
    """
    import uvicorn

    from maxboard.serve.guard import may_listen

    settings = load(path)
    keyed = bool(settings.serve.keys) and not insecure_no_keys
    if not may_listen(host, keyed):
        raise WrongUse(
            f"--host {host}: beyond this machine only with keys: make one (maxboard keys add), and name the file "
            "in serve.keys"
        )
    os.environ |= {CONFIG: str(path.absolute()), KEYLESS: "" if keyed else "1", PROCESSES: str(workers)}
    application()  # a wrong configuration is said here, once, and not by every process
    config = uvicorn.Config(
        "maxboard.cli.serve:application",
        factory=True,
        host=host,
        port=port,
        workers=workers,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=GRACE_S,
    )
    _run(config, workers)


def _run(config: object, workers: int) -> None:
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    assert isinstance(config, uvicorn.Config)
    server = uvicorn.Server(config)
    listening = _listen(config.host, config.port)
    where, port = listening.getsockname()[:2]
    shown = f"[{where}]" if ":" in where else where
    click.echo(f"serving http://{shown}:{port}", err=True)
    if workers > 1:
        Multiprocess(config, sockets=[listening]).run()
        return
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises what ended it again, to those who listened before
        signal.signal(number, _ended)
    server.run(sockets=[listening])
    if not server.started:
        sys.exit(1)


def _ended(number: int, frame: FrameType | None) -> None:
    """Everything is answered and closed by now: exit 0."""


def _listen(host: str, port: int) -> socket.socket:
    """A socket that processes can share. Raises ``WrongUse`` where it cannot be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(BACKLOG)  # from now on who comes waits, and is answered once the processes are up
    except OSError as error:
        listening.close()
        raise WrongUse(f"--host {host} --port {port}: {error.strerror or error}: choose another") from None
    listening.set_inheritable(True)
    return listening


def application() -> Guard:
    """The application of one process, as the command has left word in the environment."""
    from maxboard.serve.api import application as build
    from maxboard.serve.keys import Keyring
    from maxboard.serve.runtime import now

    settings = load(Path(os.environ[CONFIG]))
    keyring = None if os.environ[KEYLESS] else Keyring(Path(settings.serve.keys), now)
    return build(settings, settings.serve, keyring, int(os.environ[PROCESSES]))
