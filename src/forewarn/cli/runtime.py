"""Running a node until somebody says stop, and telling on standard error what happens."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TextIO, cast

import msgspec
import structlog
import typer

from forewarn.cli.output import visible
from forewarn.control.schema import time_of
from forewarn.core import Event, Group, Status
from forewarn.core.changes import Disabled, Enabled, EventMoved
from forewarn.core.lifecycle import SHOWN, Move
from forewarn.node import Config, Node
from forewarn.store import Commit

COLLECT = (50_000, 20, 100)  # what ten thousand connections bring along is no garbage yet
FILES_OF_A_PROGRAM = 4  # its input, its output, itself
SPARE_FILES = 256  # for the state, the control API and whatever is opened for a moment


async def run(
    config: Config,
    welcome: Callable[[Node], None],
    note: Callable[[str, str], AbstractContextManager[None]],
) -> None:
    _logging()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with Node(_within_the_open_files(config)) as node:
        gc.collect()
        gc.freeze()  # the fleet is here to stay: not to be looked through again and again
        gc.set_threshold(*COLLECT)
        node.store.attach(_tell)
        with note(node.metadata_url, node.control_url):
            welcome(node)
            urls = {"metadata": node.metadata_url, "control": node.control_url}
            typer.echo(f"ready {msgspec.json.encode(urls).decode()}")
            sys.stdout.flush()
            await stop.wait()


class _Told:
    """Standard error as somewhere to tell things, whether or not anybody is there to read them.

    A log that cannot be written (a closed pipe, a full disk) must not stop the service.
    """

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


def _say(line: str) -> None:
    told = _Told()
    told.write(visible(line) + "\n")
    told.flush()


def _tell(commit: Commit, changed: Mapping[str, Group]) -> None:
    """One line per visible change."""
    at = time_of(commit.at).strftime("%H:%M:%S")
    for entry in commit.entries:
        group = changed[entry.group]
        moved: dict[str, Event] = {}  # as each event stands after the whole commit
        waiting: dict[str, Event] = {}  # approved
        for item in entry.items:
            match item:
                case EventMoved(what=what, event=event) if what in SHOWN:
                    moved[event.id] = event
                case EventMoved(what=Move.APPROVE, event=event):
                    waiting[event.id] = event
                case Enabled():
                    _say(f"{at}  {group.name}: listening, document 1")
                case Disabled(why=why):
                    _say(f"{at}  {group.name}: no longer listening ({why})")
        for event in [e for id, e in waiting.items() if id not in moved]:
            by = event.approved.by if event.approved else "nobody"
            names = ", ".join(event.resources)
            _say(
                f"{at}  {group.name}: {event.type.value} of {names} is approved by {by}, but has to"
                f" wait: forewarn event explain {event.id}"
            )
        for event in moved.values():
            _say(f"{at}  {_line(group, event)}")


def _line(group: Group, event: Event) -> str:
    document = f"document {group.incarnation}" if group.enabled else "not listening"
    names = ", ".join(event.resources)
    match event.status:
        case Status.SCHEDULED:
            what = f"not before {time_of(event.not_before).strftime('%H:%M:%S')}"
        case Status.STARTED:
            what = f"approved by {event.approved.by}" if event.approved else "NotBefore has passed"
            what = "a failure" if event.failure else what
        case _:
            what = event.ending
    status = event.status.value
    return f"{group.name}: {status} {event.type.value} of {names} ({what}; {document}) {event.id}"


def _within_the_open_files(config: Config) -> Config:
    """Ask the system for as many files as we may need; no more connections than it grants."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = SPARE_FILES
    if config.program is not None:
        spare += FILES_OF_A_PROGRAM * config.program.max_at_once
    wanted = config.limits.max_connections + spare
    if resource.RLIM_INFINITY != allowed < wanted:
        granted = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (granted, most))
            allowed = granted
    if allowed == resource.RLIM_INFINITY or allowed >= wanted:
        return config
    room = max(allowed // 2, allowed - spare)
    typer.echo(
        f"note: the system allows {allowed} open files, so there is room for {room} connections,"
        f" not {config.limits.max_connections}; raise it with ulimit -n or LimitNOFILE=",
        err=True,
    )
    limits = msgspec.structs.replace(config.limits, max_connections=room)
    return msgspec.structs.replace(config, limits=limits)


def _logging() -> None:
    """Our own words on standard error; the libraries' only when something is wrong."""
    told = cast(TextIO, _Told())
    logging.basicConfig(stream=told, level=logging.WARNING, format="%(message)s")
    for name in ("uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.ERROR)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper("iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"]),
        ],
        logger_factory=structlog.PrintLoggerFactory(told),
    )
