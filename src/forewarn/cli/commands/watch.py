"""`forewarn watch`: print this machine's events as they change.

It is only a client, so it works on forewarn and on Azure alike. The text is in `watch_text.py`, the
live view in `watch_live.py`, and --exec in `watch_exec.py`.
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

from forewarn.cli.output import fail, parsed, say
from forewarn.support import child_signals
from forewarn.support.text import SECOND, parse_duration

if TYPE_CHECKING:
    from forewarn.cli.commands.watch_state import WatchState
    from forewarn.cli.commands.watch_text import ChangeLine
    from forewarn.client import Client

CHECK_EVERY = 0.5  # seconds between two checks of the connection to the endpoint


def watch(
    endpoint: Annotated[
        str | None,
        typer.Option(
            envvar="FOREWARN_METADATA", help="URL of the endpoint. Default: http://169.254.169.254."
        ),
    ] = None,
    all_: Annotated[
        bool,
        typer.Option("--all/--mine", help="Show all events of the group, not only this machine's."),
    ] = True,
    min_freeze: Annotated[
        str, typer.Option(help="Leave out a Freeze that is shorter than this, e.g. 10s.")
    ] = "0s",
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

    Approves nothing. Exits with 0, even after Ctrl-C, and with 1 if --once found no endpoint."""
    shortest = parsed(parse_duration, min_freeze, "--min-freeze") / SECOND
    with _until_stopped(), _client(endpoint) as client, ExitStack() as stack:
        command = _command(exec_)
        run: Callable[[ChangeLine], None] = _ignore
        if command is not None:
            from forewarn.cli.commands.watch_exec import CommandQueue

            run = stack.enter_context(CommandQueue(command, finish=once)).run
        from forewarn.cli.commands.watch_state import WatchState

        state = WatchState(client, mine_only=not all_, min_freeze=shortest)
        if once:
            _once(state, json, run)
        elif command is None and not json and sys.stdout.isatty():
            from forewarn.cli.commands.watch_live import live

            live(state)
        else:
            _lines(state, json, run)


def _client(endpoint: str | None) -> Client:
    from forewarn.client import Client, InvalidEndpointError

    try:
        return Client(endpoint)
    except InvalidEndpointError as error:
        raise typer.BadParameter(str(error), param_hint="--endpoint") from error


def _lines(state: WatchState, json: bool, run: Callable[[ChangeLine], None]) -> None:
    with _connection_reports(state.client):
        for _, changes in state.snapshots():
            for change in changes:
                _print_change(change, json)
                run(change)


def _once(state: WatchState, json: bool, run: Callable[[ChangeLine], None]) -> None:
    from forewarn.cli.commands.watch_text import print_events
    from forewarn.client import ClientError

    try:
        state.client.events()  # raises if there is no endpoint, which snapshots() would wait for
        snapshot, changes = next(state.snapshots())
    except ClientError as error:
        fail(str(error))
    if not json:
        events = [e for e in snapshot.document.events if state.is_wanted(e)]
        print_events(events, state.is_mine, snapshot.at)
    for change in changes:
        if json:
            _print_change(change, json)
        run(change)


def _print_change(change: ChangeLine, json: bool) -> None:
    if json:
        from forewarn.support.text import escaped

        typer.echo(escaped(change.as_json()))
    else:
        say(str(change))


def _ignore(_: ChangeLine) -> None:
    """Do nothing for a change, without --exec."""


def _command(text: str | None) -> list[str] | None:
    if text is None:
        return None
    try:
        argv = shlex.split(text)
    except ValueError as error:
        raise typer.BadParameter(f"'{text}': {error}", param_hint="--exec") from error
    if not argv or shutil.which(argv[0]) is None:
        raise typer.BadParameter(
            f"there is no program '{argv[0] if argv else ''}'; pass a program with its arguments."
            " For pipes and redirections, use sh -c '…'",
            param_hint="--exec",
        )
    return argv


def _output_is_closed() -> bool:
    """Return whether the program that reads our output has ended. Without this check, `| head -1`
    would only end with the next change."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (AttributeError, OSError, ValueError):  # no poll on this system, or not a pipe
        return False


@contextmanager
def _connection_reports(client: Client) -> Iterator[None]:
    """Print a line when the endpoint stops answering, and when it answers again."""
    over = threading.Event()

    def check() -> None:
        failing = False
        while not over.wait(CHECK_EVERY):
            if _output_is_closed():
                client.close()
                return
            status = client.status
            fails = bool(status.problem) and status.failures > 0
            if fails and not failing:
                where = f"{status.endpoint}: " if status.endpoint else ""
                say(f"trouble: {where}{status.problem}; retrying", err=True)
            elif failing and not fails:
                say(f"recovered: {status.endpoint} answers again", err=True)
            failing = fails

    thread = threading.Thread(target=check, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _until_stopped() -> Iterator[None]:
    """End the block quietly on Ctrl-C or SIGTERM, which are the usual ways to end it."""
    child_signals.catch_ignored()
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, previous)
