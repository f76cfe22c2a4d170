"""Running a node until somebody says stop, and telling on standard error what happens."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec

from forewarn.node import Config, Node
from forewarn.node.daemon.reload import Reloader, Report
from forewarn.node.daemon.service_manager import managed
from forewarn.node.open_files import fit_to_open_files
from forewarn.node.settings import LoadedSettings, Settings
from forewarn.service.engine import otel
from forewarn.service.telemetry import log as narrating
from forewarn.service.telemetry.log import ServiceLog
from forewarn.store import OutcomeUnknown
from forewarn.support.logs import logger
from forewarn.support.sd_notify import Notifier

COLLECT = (50_000, 20, 100)  # what ten thousand connections bring along is no garbage yet
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
    notifier = Notifier.from_environment(os.environ, log.write)
    settings = said.settings if said is not None else None
    configure_log(settings)
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
    node = Node(fit(config))
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
            sys.stdout.write(f"ready {msgspec.json.encode(urls).decode()}\n")
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
    made = Reloader(said, load, relog=configure_log, fit=fit)
    made.after = lambda report: after(made.said, report)
    return made


def fit(config: Config) -> Config:
    """Return the configuration as the limit of open files permits, and print a note if that is
    less than was configured."""
    config, note = fit_to_open_files(config)
    if note:
        sys.stderr.write(f"{note}\n")
    return config


def configure_log(settings: Settings | None) -> None:
    """A developer reads it as it happens; else as the settings say."""
    if settings is None:
        narrating.configure("console", dates=False)
    else:
        narrating.configure(settings.log, settings.log_level)


def _traced(settings: Settings | None) -> AbstractContextManager[None]:
    """Traces are sent while this lasts, if somebody wants them."""
    return otel.sent_to(settings.traces if settings is not None else "")
