"""Connects a running node to its service manager: SIGHUP reloads the settings, and systemd (or
another manager that has its protocol) is notified of readiness, status and signs of life.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator

from forewarn.node import Node
from forewarn.node.daemon.reload import Reloader
from forewarn.support import guard
from forewarn.support.logs import logger
from forewarn.support.sd_notify import Notifier
from forewarn.support.text import counted, listing

log = logger("forewarn")


@contextlib.asynccontextmanager
async def managed(node: Node, notifier: Notifier, reloader: Reloader | None) -> AsyncIterator[None]:
    """Be managed while connections are accepted."""
    tasks = guard.Tasks(_log_failed_task)
    loop = asyncio.get_running_loop()
    requested = asyncio.Event()
    refusal = ""  # of the last reload

    async def reload_on_request(reloader: Reloader) -> None:
        nonlocal refusal
        while True:
            await requested.wait()
            requested.clear()
            notifier.reloading()
            try:
                refusal = (await reloader.reload_node(node)).refusal
            except Exception as error:  # the service continues with the settings it has
                log.error("the settings could not be reloaded", exc_info=error)
            notifier.ready(status_line(node, refusal))

    if reloader is not None:
        loop.add_signal_handler(signal.SIGHUP, requested.set)
        tasks.start(reload_on_request(reloader), "reloader")
    notifier.ready(status_line(node))
    if notifier.connected:
        tasks.start(
            notifier.keep_notifying(
                lambda: status_line(node, refusal), lambda: health_problem(node)
            ),
            "notifier",
        )
    try:
        yield
    finally:
        notifier.stopping()
        if reloader is not None:
            loop.remove_signal_handler(signal.SIGHUP)
            signal.signal(signal.SIGHUP, lambda *_: None)  # must not end a service that is stopping
        await tasks.end()


def status_line(node: Node, refusal: str = "") -> str:
    """Return a summary of the node for people, as in `systemctl status`. `refusal` is why the last
    reload changed nothing, if so."""
    if refusal:
        return f"the settings are wrong; the previous ones stay in force: {refusal}"
    machines, events = node.machine_index.count, len(node.active_events)
    guests = f"guests at {listing(node.metadata_urls)}"
    if node.config.has_nodes:
        line = node.config.local_node
        places = [str(node.nodes_address)] if node.nodes_address else []
        guests = f"nodes at {listing([*places, str(line.path)] if line else places)}"
    if not node.health.deciding:
        guests = _leader(node)
    arm = f", az and Azure's SDKs at {node.arm_url}" if node.arm_url else ""
    return (
        f"{counted(machines, 'machine')}, {counted(events, 'active event')};"
        f" {guests}, operators at {node.control_url}{arm}"
    )


def _leader(node: Node) -> str:
    """Return who decides, if it is another control node."""
    leader = node.store.leadership.leader() if node.store.leadership else None
    if leader is None or not leader.held:
        return "no control node decides"
    return f"control node '{leader.name}' decides"


def health_problem(node: Node) -> str:
    """Return a problem that a restart would solve, or ""."""
    checks = node.health.healthy().items()
    return "; ".join(f"{part}: {problem}" for part, problem in checks if problem)


def _log_failed_task(name: str, error: BaseException) -> None:
    log.error("a background task failed", task=name, exc_info=error)
