"""The watch of a driver, which goes on when the driver has raised an error."""

from __future__ import annotations

from collections.abc import Callable

from forewarn.drivers.port import Driver, Seen
from forewarn.support import guard
from forewarn.support.logs import logger

WATCHED_AGAIN = 5.0  # seconds after which a driver that has raised an error is asked again

log = logger("forewarn")


async def keep_watching(driver: Driver, report: Callable[[Seen], None]) -> None:
    """Have a driver report the machines of its hosts, until cancelled or the driver returns."""
    while True:
        try:
            return await driver.watch(report)
        except Exception as error:  # of the driver, whatever it raises
            why = f"{type(error).__name__}: {error}"
            log.error("the driver raised an error while it watched the machines", why=why)
        await guard.pause(WATCHED_AGAIN)
