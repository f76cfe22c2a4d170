"""`forewarn watch`: this machine's events as they come, for people, programs and scripts.

A client and nothing else, so it works on forewarn and on Azure alike. What it looks like is
`watch_text.py`, on a terminal `watch_live.py`; who is run for each change is `watch_exec.py`.
"""

from __future__ import annotations

import select
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from forewarn.cli.output import fail, say

if TYPE_CHECKING:
    from forewarn.cli.commands.watch_state import WatchState
    from forewarn.cli.commands.watch_text import ChangeLine
    from forewarn.client import Client

LOOK_EVERY = 0.5  # seconds between two looks whether there is trouble


def watch(
    endpoint: Annotated[
        str | None,
        typer.Option(envvar="FOREWARN_METADATA", help="URL of the endpoint. Default: discovered."),
    ] = None,
    all_: Annotated[
        bool,
        typer.Option("--all/--mine", help="Show all events of the group, or only this machine's."),
    ] = True,
    json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON per change.")
    ] = False,
    exec_: Annotated[
        str | None, typer.Option("--exec", help="Command to run for each change.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print the current events and exit.")
    ] = False,
) -> None:
    """Print the events of this machine and its group as they change, until Ctrl-C.

    Approves nothing. Exits with 0, also after Ctrl-C; with 1 if --once found no endpoint."""
    with _until_told_to_stop(), _client(endpoint) as client, ExitStack() as stack:
        command = _command(exec_)
        run: Callable[[ChangeLine], None] = _nobody
        if command is not None:
            from forewarn.cli.commands.watch_exec import CommandQueue

            run = stack.enter_context(CommandQueue(command, finish=once)).run
        from forewarn.cli.commands.watch_state import WatchState

        watching = WatchState(client, mine_only=not all_)
        if once:
            _once(watching, json, run)
        elif command is None and not json and sys.stdout.isatty():
            from forewarn.cli.commands.watch_live import live

            live(watching)
        else:
            _lines(watching, json, run)


def _client(endpoint: str | None) -> Client:
    from forewarn.client import BadEndpoint, Client

    try:
        return Client(endpoint)
    except BadEndpoint as error:
        raise typer.BadParameter(str(error), param_hint="--endpoint") from error


def _lines(watching: WatchState, json: bool, run: Callable[[ChangeLine], None]) -> None:
    with _troubles(watching.client):
        for _, told in watching.snapshots():
            for one in told:
                _tell(one, json)
                run(one)


def _once(watching: WatchState, json: bool, run: Callable[[ChangeLine], None]) -> None:
    from forewarn.cli.commands.watch_text import table_of
    from forewarn.client import ClientError

    try:
        watching.client.events()  # with which it is known whether there is anything to watch
        look, told = next(watching.snapshots())
    except ClientError as error:
        fail(str(error))
    if not json:
        shown = [e for e in look.document.events if watching.is_wanted(e.resources)]
        table_of(shown, watching.is_mine, look.at)
    for one in told:
        if json:
            _tell(one, json)
        run(one)


def _tell(one: ChangeLine, json: bool) -> None:
    if json:
        from forewarn.support.text import escaped

        typer.echo(escaped(one.as_json()))
    else:
        say(str(one))


def _nobody(_: ChangeLine) -> None:
    """Is run for a change."""


def _command(said: str | None) -> list[str] | None:
    if said is None:
        return None
    try:
        argv = shlex.split(said)
    except ValueError as error:
        raise typer.BadParameter(f"'{said}': {error}", param_hint="--exec") from error
    if not argv or shutil.which(argv[0]) is None:
        raise typer.BadParameter(
            f"there is no program '{argv[0] if argv else ''}'; write a command as for a shell,"
            " but no pipe or redirection: sh -c '…' has these",
            param_hint="--exec",
        )
    return argv


def _nobody_reads() -> bool:
    """Has the program gone that our lines went to? Else `| head -1` would end with the next."""
    try:
        pipe = select.poll()
        pipe.register(sys.stdout.fileno(), 0)
        return any(what & select.POLLERR for _, what in pipe.poll(0))
    except (AttributeError, OSError, ValueError):  # no such thing here, or nothing like a pipe
        return False


@contextmanager
def _troubles(client: Client) -> Iterator[None]:
    """Said once when trouble begins, and once when it ends."""
    over = threading.Event()

    def look() -> None:
        troubled = False
        while not over.wait(LOOK_EVERY):
            if _nobody_reads():
                client.close()
                return
            standing = client.status
            now = bool(standing.problem) and standing.failures > 0
            if now and not troubled:
                where = f"{standing.endpoint}: " if standing.endpoint else ""
                say(f"trouble: {where}{standing.problem}; retrying", err=True)
            elif troubled and not now:
                say(f"recovered: {standing.endpoint} answers again", err=True)
            troubled = now

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()


@contextmanager
def _until_told_to_stop() -> Iterator[None]:
    """By Ctrl-C or SIGTERM; both are how this is meant to end."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
