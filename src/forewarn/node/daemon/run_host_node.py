"""Runs the node of a host in this process until it is stopped by a signal."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable

import msgspec

from forewarn.node.config import Config
from forewarn.node.daemon.reload import LIMITS, LOGGING, RESTART, Reloader
from forewarn.node.daemon.run import COLLECT, configure_log, fit
from forewarn.node.host_node import HostNode
from forewarn.node.settings import LoadedSettings
from forewarn.node.settings.host_node import LoadedNodeSettings, NodeSettings
from forewarn.support import guard
from forewarn.support.logs import logger
from forewarn.support.sd_notify import Notifier

TLS = ("certificate", "key", "authority")
LIVE = (*LIMITS, *LOGGING, *TLS)  # settings that are reloaded

log = logger("forewarn")


async def run_host_node(loaded: LoadedNodeSettings, load: Callable[[], LoadedNodeSettings]) -> None:
    """Run a node. SIGHUP loads its settings again. Raises NodeUnusable, or CannotListen."""
    notifier = Notifier.from_environment(os.environ, log.write)
    configure_log(loaded.endpoint.settings)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    config = msgspec.structs.replace(loaded.config, endpoint=fit(loaded.config.endpoint))
    tasks = guard.Tasks()
    async with HostNode(config) as node:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*COLLECT)
        reloader = NodeReloader(node, loaded, load)
        loop.add_signal_handler(signal.SIGHUP, lambda: _reload(reloader, notifier))
        notifier.ready(node.status_line())
        node.on_status = lambda: notifier.status(node.status_line())
        tasks.start(notifier.keep_notifying(node.status_line, lambda: ""), "notifier")
        tasks.start(_announce(node), "announcing readiness")
        stopped = tasks.start(stop.wait(), "waiting to be stopped")
        await asyncio.wait([node.following, stopped], return_when=asyncio.FIRST_COMPLETED)
        if node.following.done():
            await node.following  # raises why it has ended
        notifier.stopping()
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
        await tasks.end()


async def _announce(node: HostNode) -> None:
    """Print a line once guests are answered, for programs that start the node."""
    await node.serving.wait()
    urls = {
        "host": node.config.host,
        "metadata": node.metadata_urls[0],
        "metadata_urls": node.metadata_urls,
        "status": node.status_url,
    }
    sys.stdout.write(f"ready {msgspec.json.encode(urls).decode()}\n")
    sys.stdout.flush()


def _reload(reloader: NodeReloader, notifier: Notifier) -> None:
    notifier.reloading()
    try:
        reloader.reload()
    except Exception as error:  # the node continues with the settings it has
        log.error("the settings could not be reloaded", exc_info=error)
    notifier.ready(reloader.node.status_line())


class NodeReloader:
    """The settings of a running node, and their reload: its limits, its log and its certificate."""

    def __init__(
        self, node: HostNode, loaded: LoadedNodeSettings, load: Callable[[], LoadedNodeSettings]
    ) -> None:
        self.node = node
        self._started_with = loaded.settings
        self._load = load
        self._new = loaded
        self._endpoint = Reloader(loaded.endpoint, self._load_endpoint, configure_log, fit)

    def _load_endpoint(self) -> tuple[LoadedSettings, Config]:
        self._new = self._load()
        return self._new.endpoint, self._new.config.endpoint

    def reload(self) -> None:
        report = self._endpoint.reload_endpoint(self.node.endpoint)
        if report.refused:
            return
        config = self._new.config
        if self.node.certificates is not None and config.tls is not None:
            self.node.certificates.reload(config.tls, config.authority)
        old, new = self._started_with, self._new.settings
        keys = [
            field.name
            for field in msgspec.structs.fields(NodeSettings)
            if getattr(old, field.name) != getattr(new, field.name) and field.name not in LIVE
        ]
        if keys:
            log.warning(RESTART, keys=keys)
