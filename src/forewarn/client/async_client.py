"""`AsyncClient`: what is about to happen to this machine, for programs with a loop.

The same as `Client` in every other respect: both do what `rules.py` says.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar

from forewarn.client import pace
from forewarn.client.async_connection import AsyncConnection
from forewarn.client.discovery import endpoint as where
from forewarn.client.errors import Closed
from forewarn.client.events import Change, Event, Look
from forewarn.client.identity import Identity
from forewarn.client.rules import ClientProtocol, Readiness, ids
from forewarn.client.status import EndpointStatus
from forewarn.client.steps import Ask, Do, Sleep, Steps, Tell
from forewarn.wire.extensions import ReadinessReport

T = TypeVar("T")


class AsyncClient:
    """See `Client`. Several tasks of one loop may use it; `close` ends what they watch, and so does
    cancelling them."""

    def __init__(
        self, endpoint: str | None = None, *, wait: bool = True, interval: float = pace.INTERVAL
    ) -> None:
        self._rules = ClientProtocol(
            where.said(endpoint), where.candidates, wait=wait, interval=pace.checked(interval)
        )
        self._side = AsyncConnection()  # for whatever is asked beside a watch
        self._side_lock = asyncio.Lock()
        self._watching: set[AsyncConnection] = set()
        self._closed = asyncio.Event()

    async def events(self, *, patience: float = pace.PATIENCE) -> tuple[Event, ...]:
        return await self._done(self._rules.events(patience))

    async def approve(self, *events: Event | str, patience: float = pace.PATIENCE) -> None:
        if events:
            await self._done(self._rules.approve(list(ids(events)), patience))

    async def watch(self) -> AsyncGenerator[Change, None]:
        async with contextlib.aclosing(self.looks()) as looks:
            async for look in looks:
                for change in look.changes:
                    yield change

    async def looks(self, within: Callable[[], float] | None = None) -> AsyncGenerator[Look, None]:
        line = AsyncConnection()
        self._watching.add(line)
        steps = self._rules.looks(within)
        reply: Any = None
        try:
            while not self._closed.is_set():
                step = steps.send(reply)
                reply = None
                if isinstance(step, Ask):
                    reply = await line.ask(step)
                elif isinstance(step, Sleep):
                    await self._rest(step.seconds)
                elif isinstance(step, Do):
                    reply = await asyncio.to_thread(step.work)
                elif isinstance(step, Tell):
                    yield step.what
        finally:
            self._watching.discard(line)
            steps.close()
            line.close()

    async def identity(self, *, patience: float = pace.PATIENCE) -> Identity:
        return await self._done(self._rules.identity(patience))

    async def ready(
        self,
        event: Event | str,
        note: str = "",
        *,
        ready: bool = True,
        patience: float = pace.PATIENCE,
    ) -> Readiness | None:
        word = ReadinessReport(ready, note)
        return await self._done(self._rules.readiness(next(ids([event])), patience, word))

    async def readiness(
        self, event: Event | str, *, patience: float = pace.PATIENCE
    ) -> Readiness | None:
        return await self._done(self._rules.readiness(next(ids([event])), patience))

    def now(self) -> datetime:
        return self._rules.now()

    @property
    def standing(self) -> EndpointStatus:
        return self._rules.standing

    async def close(self) -> None:
        self._closed.set()
        for line in (self._side, *self._watching):
            line.interrupt()
        async with self._side_lock:
            self._side.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _done(self, steps: Steps[T]) -> T:
        reply: Any = None
        while not self._closed.is_set():
            try:
                step = steps.send(reply)
            except StopIteration as done:
                result: T = done.value
                return result
            reply = None
            if isinstance(step, Ask):
                async with self._side_lock:
                    reply = await self._side.ask(step)
            elif isinstance(step, Sleep):
                await self._rest(step.seconds)
            elif isinstance(step, Do):
                reply = await asyncio.to_thread(step.work)
        raise Closed("this client was closed")

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closed.wait()
