"""A running node and whoever manages it: SIGHUP reads the settings anew, and systemd (or another
that speaks its protocol) is told when the service is ready, how it is, and that it lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator

from forewarn.node import Node
from forewarn.node.daemon.reload import Reloader, Report
from forewarn.support import guard
from forewarn.support.logs import logger
from forewarn.support.sd_notify import Notifier
from forewarn.support.text import listing

log = logger("forewarn")


@contextlib.asynccontextmanager
async def managed(
    node: Node, notifier: Notifier, reloading: Reloader | None
) -> AsyncIterator[None]:
    """Entered when connections are accepted, left when they are no longer to be."""
    tasks = guard.Tasks(_surprise)
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()

    async def reload_when_asked() -> None:
        while True:
            await asked.wait()
            asked.clear()
            notifier.reloading()
            try:
                if reloading is not None:
                    await reloading.node(node)
            except Exception as error:  # the service goes on as it was
                log.error("the settings could not be read anew", exc_info=error)
                if reloading is not None:
                    reloading.after(Report(problems=("a fault of ours",)))
            notifier.ready(status(node))

    if reloading is not None:
        loop.add_signal_handler(signal.SIGHUP, asked.set)
        tasks.start(reload_when_asked(), "reloader")
    notifier.ready(status(node))
    if notifier.connected:
        tasks.start(
            notifier.keep_notifying(lambda: status(node), lambda: health_problem(node)), "notifier"
        )
    try:
        yield
    finally:
        notifier.stopping()
        if reloading is not None:
            loop.remove_signal_handler(signal.SIGHUP)
            signal.signal(signal.SIGHUP, lambda *_: None)  # too late, and no reason to die of it
        await tasks.end()


def status(node: Node) -> str:
    """For people who look at the service manager."""
    machines, events = node.machine_index.count, len(node.active_events)
    return (
        f"{machines:,} machine{'' if machines == 1 else 's'}, {events:,} active events;"
        f" guests at {listing(node.metadata_urls)}, operators at {node.control_url}"
    )


def health_problem(node: Node) -> str:
    """Return what is wrong that a restart would mend, or "" if nothing is."""
    checks = node.health.healthy().items()
    return "; ".join(f"{part}: {problem}" for part, problem in checks if problem)


def _surprise(name: str, error: BaseException) -> None:
    log.error("a background task failed", task=name, exc_info=error)
