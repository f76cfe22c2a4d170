"""Open attempts: what the driver has said of each so far, and waiting until it is asked again.

This is kept in memory alone. After a crash, an open attempt is observed in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from forewarn.core import Time
from forewarn.service.engine.feed import Progress
from forewarn.service.engine.ledger import Ledger
from forewarn.service.engine.scheduler import Scheduler
from forewarn.support.text import storable

MAX_PROGRESS = 200  # characters that are kept of what a driver says


class Interim(msgspec.Struct, frozen=True):
    """What a driver has said of an attempt that is not over."""

    progress: str = ""  # how far it is
    unseen: str = ""  # why it cannot see what has happened
    since: Time = 0  # it cannot
    until: Time | None = None  # when it is asked again


class OpenAttempts:
    def __init__(
        self, scheduler: Scheduler, ledger: Ledger, on_progress: Callable[[Progress], None]
    ) -> None:
        self._scheduler = scheduler
        self._ledger = ledger
        self._on_progress = on_progress  # of an event
        # By the id of what the driver carries out: the events that are carried out as one, with
        # their groups; none for work on a host.
        self._events: dict[str, Mapping[str, str]] = {}
        self._interim: dict[str, Interim] = {}  # by the id of the event, or of the work on a host
        self._waiting: dict[str, tuple[str, asyncio.Event]] = {}

    def interim(self, id: str) -> Interim | None:
        return self._interim.get(id)

    def begin(self, id: str, events: Mapping[str, str]) -> None:
        """Note that the driver is asked to carry something out: these events, with their groups, or
        work on a host."""
        self._events[id] = {**self._events.get(id, {}), **events}

    def report(self, id: str, progress: str) -> None:
        """Note how far the driver is; it may say so at any time until it has an answer."""
        text = storable(progress)[:MAX_PROGRESS]
        if id in self._events and self._interim.get(id) != Interim(text):
            self._note(id, Interim(text))
            for event, group in self._events[id].items():
                self._on_progress(Progress(event, group, text))

    async def wait(self, id: str, call: str, until: Time) -> None:
        """Wait until the driver is asked again at that time. `call` is the entry of its call in the
        ledger, which is released meanwhile: nobody who moves a virtual clock waits for it."""
        woken = asyncio.Event()
        self._waiting[id] = call, woken

        async def due() -> None:
            self.wake(id)

        self._scheduler.alarm(_alarm(id), until, due)
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

    def cannot_see(self, id: str, unseen: str, since: Time, until: Time) -> None:
        """Note why the driver cannot see what has happened."""
        progress = self._interim.get(id, Interim()).progress
        self._note(id, Interim(progress, unseen, since, until))

    def _note(self, id: str, interim: Interim) -> None:
        for one in (id, *self._events.get(id, ())):
            self._interim[one] = interim

    def close(self, id: str) -> None:
        """Forget what was said of an attempt that is over."""
        events = self._events.pop(id, {})
        interim = self._interim.pop(id, None)
        for event in events:
            self._interim.pop(event, None)
            if interim is not None and interim.progress:
                self._on_progress(Progress(event, "", ""))


def _alarm(id: str) -> str:
    return f"driver/{id}"


async def _nothing() -> None:
    pass
