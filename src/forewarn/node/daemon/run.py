"""Runs a node in this process until it is stopped by a signal, with its log on standard error."""

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
from forewarn.node.daemon.reload import Reloader
from forewarn.node.daemon.service_manager import managed
from forewarn.node.open_files import fit_to_open_files
from forewarn.node.settings import LoadedSettings, Settings
from forewarn.service.engine import otel
from forewarn.service.engine.clock import VirtualClock
from forewarn.service.telemetry import log as service_log
from forewarn.service.telemetry.log import ServiceLog
from forewarn.store import OutcomeUnknown
from forewarn.store.port import CannotFollow, Deposed
from forewarn.support import child_signals
from forewarn.support.logs import logger
from forewarn.support.process_mark import end_marked
from forewarn.support.sd_notify import Notifier

# gc thresholds: ten thousand connections allocate, but are no garbage. The second one is small, so
# that no pause is long while very much comes that stays, such as a fleet.
COLLECT = (50_000, 4, 500)
OUTCOME_UNKNOWN = 74  # EX_IOERR of sysexits.h: exit status if the outcome of a commit is unknown
STOPPED_BY = ("SIGINT", "SIGTERM", "SIGBREAK")  # the last is Ctrl-Break, which only Windows has

log = logger("forewarn")


async def run(
    config: Config,
    on_start: Callable[[Node], None],
    note: Callable[[str, str], AbstractContextManager[None]],
    loaded: LoadedSettings | None = None,
    load: Callable[[], tuple[LoadedSettings, Config]] | None = None,
) -> None:
    """Run a node. `note` is entered, with the URLs for guests and operators, while it serves.

    With the settings and a function that loads them again, SIGHUP reloads them."""
    notifier = Notifier.from_environment(os.environ, log.write)
    settings = loaded.settings if loaded is not None else None
    configure_log(settings)
    child_signals.catch_ignored()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in STOPPED_BY:
        if hasattr(signal, name):
            _on_signal(loop, getattr(signal, name), stop.set)
    reloader = None
    if loaded is not None and load is not None:
        reloader = Reloader(loaded, load, configure_log, fit)
    with otel.sent_to(settings.traces if settings is not None else ""):
        await _serve(config, on_start, note, notifier, reloader, stop)


def _on_signal(
    loop: asyncio.AbstractEventLoop, number: signal.Signals, call: Callable[[], object]
) -> None:
    try:
        loop.add_signal_handler(number, call)
    except NotImplementedError:  # Windows: the handler wakes up the loop itself
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(call))


async def _serve(
    config: Config,
    on_start: Callable[[Node], None],
    note: Callable[[str, str], AbstractContextManager[None]],
    notifier: Notifier,
    reloader: Reloader | None,
    stop: asyncio.Event,
) -> None:
    node = Node(fit(config))
    clock = node.clock
    if isinstance(clock, VirtualClock):
        service_log.configure("console", dates=False, now=lambda: clock.at)
    node.store.on_unknown_outcome(_stop_at_once)
    async with node:
        gc.collect()
        gc.freeze()  # the fleet stays in memory: no need to traverse it again and again
        gc.set_threshold(*COLLECT)
        gc.enable()
        ServiceLog(node.store)
        with note(node.metadata_url, node.control_url):
            on_start(node)
            urls: dict[str, object] = {"metadata": node.metadata_url, "control": node.control_url}
            if len(node.metadata_urls) > 1:
                urls["metadata_urls"] = node.metadata_urls
            if node.nodes_address is not None:
                urls["nodes"] = str(node.nodes_address)
            if node.arm_url:
                urls["arm"] = node.arm_url
            sys.stdout.write(f"ready {msgspec.json.encode(urls).decode()}\n")
            sys.stdout.flush()
            async with managed(node, notifier, reloader):
                await stop.wait()


def _stop_at_once(error: OutcomeUnknown) -> None:
    """Exit at once, as after kill -9: connections are closed without an answer, so that nobody is
    told either outcome. systemd, or whatever manages the service, starts it again. Programs of a
    control node that was deposed are ended, since another one goes on with what they do."""
    if isinstance(error, Deposed):
        log.critical(
            "this control node may not decide any more, so it stops without answering; it has ended"
            " the programs of its driver",
            why=str(error),
            programs=end_marked(os.getpid()),
        )
    elif isinstance(error, CannotFollow):
        log.critical("this control node stops, to load the state anew", why=str(error))
    else:
        log.critical(
            "the outcome of a commit is unknown, so the service stops without answering; the next"
            " start keeps whatever it finds in the log of the state",
            why=str(error),
        )
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(OUTCOME_UNKNOWN)


def fit(config: Config) -> Config:
    """Return the configuration as the limit of open files permits, and print a note if that is
    less than was configured."""
    config, note = fit_to_open_files(config)
    if note:
        sys.stderr.write(f"{note}\n")
    return config


def configure_log(settings: Settings | None) -> None:
    """Configure the log by the settings; without settings (`forewarn dev`), for a terminal."""
    if settings is None:
        service_log.configure("console", dates=False)
    else:
        service_log.configure(settings.log, settings.log_level)
