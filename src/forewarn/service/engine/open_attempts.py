"""Open attempts: what the driver has said of each so far, and waiting until it is asked again.

This is kept in memory alone. After a crash, an open attempt is observed in any case.
"""

from __future__ import annotations

import asyncio

import msgspec

from forewarn.core import Time
from forewarn.service.engine.ledger import Ledger
from forewarn.service.engine.scheduler import Scheduler


class Interim(msgspec.Struct, frozen=True):
    """What a driver has said of an attempt that is not over."""

    since: Time
    until: Time  # when it is asked again
    unseen: str = ""  # why it cannot see what has happened


class OpenAttempts:
    def __init__(self, scheduler: Scheduler, ledger: Ledger) -> None:
        self._scheduler = scheduler
        self._ledger = ledger
        self._interim: dict[str, Interim] = {}  # by the id of the event, or of the work on a host
        self._waiting: dict[str, tuple[str, asyncio.Event]] = {}

    def interim(self, id: str) -> Interim | None:
        return self._interim.get(id)

    async def wait(self, id: str, call: str, interim: Interim) -> None:
        """Wait until the driver is asked again; `call` is the entry of its call in the ledger,
        which is released meanwhile, so that nobody who moves a virtual clock waits for it."""
        woken = asyncio.Event()
        self._interim[id], self._waiting[id] = interim, (call, woken)

        async def due() -> None:
            self.wake(id)

        self._scheduler.alarm(_alarm(id), interim.until, due)
        self._ledger.release(call)
        try:
            await woken.wait()
        finally:
            del self._waiting[id]
            if not woken.is_set():
                self._ledger.take(call)

    def wake(self, id: str) -> None:
        """Ask the driver at once, if it is waited for."""
        if id not in self._waiting:
            return
        call, woken = self._waiting[id]
        if not woken.is_set():
            self._ledger.take(call)
            woken.set()
            self._scheduler.alarm(_alarm(id), None, _nothing)

    def wake_all(self) -> None:
        for id in self._waiting:
            self.wake(id)

    def close(self, id: str) -> None:
        """Forget what was said of an attempt that is over."""
        self._interim.pop(id, None)


def _alarm(id: str) -> str:
    return f"driver/{id}"


async def _nothing() -> None:
    pass
