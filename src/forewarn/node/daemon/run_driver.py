"""Runs a driver process until it is stopped by a signal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec

from forewarn.node.daemon.run import configure_log
from forewarn.node.driver_process import RunningDriver
from forewarn.node.settings.driver_process import LoadedDriverSettings
from forewarn.support import child_signals, guard
from forewarn.support.logs import logger
from forewarn.support.sd_notify import Notifier

log = logger("forewarn")


async def run_driver(loaded: LoadedDriverSettings) -> None:
    """Run a driver process. Raises DriverUnusable, or CertificateUnusable."""
    notifier = Notifier.from_environment(os.environ, log.write)
    configure_log(loaded.service.settings)
    child_signals.catch_ignored()  # as a service does, for programs of the driver
    stop, tasks = asyncio.Event(), guard.Tasks()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with RunningDriver(loaded.config) as driver:
        if directory := os.environ.get("RUNTIME_DIRECTORY"):  # of the unit
            driver.write_ports(Path(directory) / "ports")
        notifier.ready(driver.status_line())
        driver.process.on_status = lambda: notifier.status(driver.status_line())
        tasks.start(notifier.keep_notifying(driver.status_line, lambda: ""), "notifier")
        stopped = tasks.start(stop.wait(), "waiting to be stopped")
        ready = msgspec.json.encode({"hosts": loaded.config.hosts}).decode()
        sys.stdout.write(f"ready {ready}\n")
        sys.stdout.flush()
        await asyncio.wait([driver.running, stopped], return_when=asyncio.FIRST_COMPLETED)
        if driver.running.done():
            await driver.running  # raises why it has ended
        notifier.stopping()
        await tasks.end()
