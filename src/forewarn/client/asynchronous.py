"""`AsyncClient`: what is about to happen to this machine, for programs with a loop.

The same as `Client` in every other respect: both do what `rules.py` says.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from datetime import datetime
from types import TracebackType
from typing import TypeVar

from forewarn import guard
from forewarn.client import endpoint as where
from forewarn.client import pace
from forewarn.client.async_line import AsyncLine
from forewarn.client.events import Change, Event, Look
from forewarn.client.identity import Identity
from forewarn.client.rules import Readiness, Rules, ids
from forewarn.client.standing import Standing
from forewarn.client.steps import Answer, Ask, Rest, Steps, Tell
from forewarn.wire.beside import Word

T = TypeVar("T")


class AsyncClient:
    """See `Client`. Several tasks may use it; whoever watches is ended by being cancelled, or by
    leaving its loop."""

    def __init__(
        self, endpoint: str | None = None, *, wait: bool = True, interval: float = pace.INTERVAL
    ) -> None:
        self._rules = Rules(
            where.said(endpoint), where.candidates, wait=wait, interval=pace.checked(interval)
        )
        self._side = AsyncLine()  # for whatever is asked beside a watch
        self._side_lock = asyncio.Lock()

    async def events(self, *, patience: float = pace.PATIENCE) -> tuple[Event, ...]:
        return await self._done(self._rules.events(patience))

    async def approve(self, *events: Event | str, patience: float = pace.PATIENCE) -> None:
        if events:
            await self._done(self._rules.approve(list(ids(events)), patience))

    async def watch(self) -> AsyncGenerator[Change, None]:
        async for look in self.looks():
            for change in look.changes:
                yield change

    async def looks(self, within: Callable[[], float] | None = None) -> AsyncGenerator[Look, None]:
        line = AsyncLine()
        steps = self._rules.looks(within)
        reply: Answer | None = None
        try:
            while True:
                step = steps.send(reply)
                reply = None
                if isinstance(step, Ask):
                    reply = await line.ask(step)
                elif isinstance(step, Rest):
                    await guard.pause(step.seconds)
                elif isinstance(step, Tell):
                    yield step.what
        finally:
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
        word = Word(ready, note)
        return await self._done(self._rules.readiness(next(ids([event])), patience, word))

    async def readiness(
        self, event: Event | str, *, patience: float = pace.PATIENCE
    ) -> Readiness | None:
        return await self._done(self._rules.readiness(next(ids([event])), patience))

    def now(self) -> datetime:
        return self._rules.now()

    @property
    def standing(self) -> Standing:
        return self._rules.standing

    async def close(self) -> None:
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
        reply: Answer | None = None
        async with self._side_lock:
            while True:
                try:
                    step = steps.send(reply)
                except StopIteration as done:
                    result: T = done.value
                    return result
                reply = None
                if isinstance(step, Ask):
                    reply = await self._side.ask(step)
                elif isinstance(step, Rest):
                    await guard.pause(step.seconds)
