"""Running a node until somebody says stop, and telling on standard error what happens."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec
import typer

from forewarn.control.server.connections import MAX_OPERATOR_CONNECTIONS
from forewarn.node import Config, Node
from forewarn.node.daemon.reload import Reloader, Report
from forewarn.node.daemon.service_manager import managed
from forewarn.node.notifying import Notifier
from forewarn.node.settings import LoadedSettings, Settings
from forewarn.service.engine import otel
from forewarn.service.telemetry import log as narrating
from forewarn.service.telemetry.log import ServiceLog
from forewarn.store import OutcomeUnknown
from forewarn.support.logs import logger

COLLECT = (50_000, 20, 100)  # what ten thousand connections bring along is no garbage yet
FILES_OF_A_PROGRAM = 4  # its input, its output, itself
SPARE_FILES = 256  # for the state, the control API and whatever is opened for a moment
FILES_OF_OPERATORS = 128  # of these for connections to the control API
LEAST_OPERATORS = 16  # such connections, however few files there are
OUTCOME_UNKNOWN = os.EX_IOERR  # exit status if the outcome of a commit is unknown

log = logger("forewarn")


async def run(
    config: Config,
    welcome: Callable[[Node], None],
    note: Callable[[str, str], AbstractContextManager[None]],
    said: LoadedSettings | None = None,
    load: Callable[[], tuple[LoadedSettings, Config]] | None = None,
    after: Callable[[LoadedSettings, Report], None] = lambda *_: None,
) -> None:
    """With what was said, and a way to ask again, settings can change while it runs; `after`
    hears which are in force then."""
    notifier = Notifier.taken_from(os.environ)
    settings = said.settings if said is not None else None
    logging_as(settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    with _traced(settings):
        await _serve(config, welcome, note, notifier, _reloading(said, load, after), stop)


async def _serve(
    config: Config,
    welcome: Callable[[Node], None],
    note: Callable[[str, str], AbstractContextManager[None]],
    notifier: Notifier,
    reloading: Reloader | None,
    stop: asyncio.Event,
) -> None:
    node = Node(_within_the_open_files(config))
    node.store.on_unknown_outcome(_stop_at_once)
    async with node:
        gc.collect()
        gc.freeze()  # the fleet is here to stay: not to be looked through again and again
        gc.set_threshold(*COLLECT)
        ServiceLog(node.store)
        with note(node.metadata_url, node.control_url):
            welcome(node)
            urls: dict[str, object] = {"metadata": node.metadata_url, "control": node.control_url}
            if len(node.metadata_urls) > 1:
                urls["metadata_urls"] = node.metadata_urls
            typer.echo(f"ready {msgspec.json.encode(urls).decode()}")
            sys.stdout.flush()
            async with managed(node, notifier, reloading):
                await stop.wait()


def _stop_at_once(error: OutcomeUnknown) -> None:
    """Exit at once, as after kill -9: connections are closed without an answer, so that nobody is
    told either outcome. systemd, or whatever manages the service, starts it again."""
    log.critical(
        "the outcome of a commit is unknown, so the service stops without answering; the next"
        " start keeps whatever it finds in the log of the state",
        why=str(error),
    )
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(OUTCOME_UNKNOWN)


def _reloading(
    said: LoadedSettings | None,
    load: Callable[[], tuple[LoadedSettings, Config]] | None,
    after: Callable[[LoadedSettings, Report], None],
) -> Reloader | None:
    if said is None or load is None:
        return None
    made = Reloader(said, load, relog=logging_as, fit=_within_the_open_files)
    made.after = lambda report: after(made.said, report)
    return made


def _within_the_open_files(config: Config) -> Config:
    """Ask the system for as many files as we may need; no more connections than it grants, and
    guests come first: operators have what they leave, and a part of what is spare."""
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = SPARE_FILES
    if config.program is not None:
        spare += FILES_OF_A_PROGRAM * config.program.max_at_once
    wanted = config.limits.max_connections + spare + MAX_OPERATOR_CONNECTIONS
    if resource.RLIM_INFINITY != allowed < wanted:
        granted = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (granted, most))
            allowed = granted
    if allowed == resource.RLIM_INFINITY or allowed >= wanted:
        return config
    most_guests = config.limits.max_connections
    room = max(allowed // 2, allowed - spare)
    if room < most_guests:
        typer.echo(
            f"note: the system allows {allowed} open files, so there is room for {room}"
            f" connections, not {most_guests}; raise it with ulimit -n or LimitNOFILE=",
            err=True,
        )
        most_guests = room
    limits = msgspec.structs.replace(config.limits, max_connections=most_guests)
    left = allowed - most_guests - spare + FILES_OF_OPERATORS
    operators = min(max(left, LEAST_OPERATORS), MAX_OPERATOR_CONNECTIONS)
    return msgspec.structs.replace(config, limits=limits, operator_connections=operators)


def logging_as(settings: Settings | None) -> None:
    """A developer reads it as it happens; else as the settings say."""
    if settings is None:
        narrating.configure("console", dates=False)
    else:
        narrating.configure(settings.log, settings.log_level)


def _traced(settings: Settings | None) -> AbstractContextManager[None]:
    """Traces are sent while this lasts, if somebody wants them."""
    return otel.sent_to(settings.traces if settings is not None else "")
