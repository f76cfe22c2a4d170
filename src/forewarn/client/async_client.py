"""`AsyncClient`: the events of this machine, for programs with an event loop.

The same as `Client` in every other respect: both carry out what `rules.py` decides.
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
from forewarn.client.discovery import endpoint as discovery
from forewarn.client.errors import ClientClosedError
from forewarn.client.events import Change, EndpointStatus, Event, Snapshot
from forewarn.client.identity import Identity
from forewarn.client.rules import ClientProtocol, Readiness, ids
from forewarn.client.steps import Call, Deliver, Request, Sleep, Steps
from forewarn.wire.extensions import ReadinessReport

T = TypeVar("T")


class AsyncClient:
    """An asynchronous client; see `Client` for the arguments and methods. Several tasks of one loop
    may use it. `close` ends their watches, and so does cancelling them."""

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        long_poll: bool = True,
        interval: float = pace.INTERVAL,
    ) -> None:
        self._protocol = ClientProtocol(
            discovery.configured_endpoint(endpoint),
            discovery.candidates,
            long_poll=long_poll,
            interval=pace.check_interval(interval),
        )
        self._connection = AsyncConnection()  # for all calls except watches
        self._lock = asyncio.Lock()  # of that connection
        self._watching: set[AsyncConnection] = set()
        self._closed = asyncio.Event()

    async def events(self, *, timeout: float = pace.TIMEOUT) -> tuple[Event, ...]:
        return await self._run(self._protocol.events(timeout))

    async def approve(self, *events: Event | str, timeout: float = pace.TIMEOUT) -> None:
        if events:
            await self._run(self._protocol.approve(list(ids(events)), timeout))

    async def watch(self) -> AsyncGenerator[Change, None]:
        async with contextlib.aclosing(self.snapshots()) as snapshots:
            async for snapshot in snapshots:
                for change in snapshot.changes:
                    yield change

    async def snapshots(
        self, max_wait: Callable[[], float] | None = None
    ) -> AsyncGenerator[Snapshot, None]:
        connection = AsyncConnection()
        self._watching.add(connection)
        steps = self._protocol.snapshots(max_wait)
        outcome: Any = None
        try:
            while not self._closed.is_set():
                step = steps.send(outcome)
                outcome = None
                if isinstance(step, Request):
                    outcome = await connection.send(step)
                elif isinstance(step, Sleep):
                    await self._rest(step.seconds)
                elif isinstance(step, Call):
                    outcome = await asyncio.to_thread(step.function)
                elif isinstance(step, Deliver):
                    yield step.snapshot
        finally:
            self._watching.discard(connection)
            steps.close()
            connection.close()

    async def identity(self, *, timeout: float = pace.TIMEOUT) -> Identity:
        return await self._run(self._protocol.identity(timeout))

    async def report_ready(
        self,
        event: Event | str,
        note: str = "",
        *,
        ready: bool = True,
        timeout: float = pace.TIMEOUT,
    ) -> Readiness | None:
        report = ReadinessReport(ready, note)
        return await self._run(self._protocol.readiness(next(ids([event])), timeout, report))

    async def readiness(
        self, event: Event | str, *, timeout: float = pace.TIMEOUT
    ) -> Readiness | None:
        return await self._run(self._protocol.readiness(next(ids([event])), timeout))

    def now(self) -> datetime:
        return self._protocol.now()

    @property
    def status(self) -> EndpointStatus:
        return self._protocol.status

    async def close(self) -> None:
        self._closed.set()
        for connection in (self._connection, *self._watching):
            connection.interrupt()
        async with self._lock:
            self._connection.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _run(self, steps: Steps[T]) -> T:
        outcome: Any = None
        while not self._closed.is_set():
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                result: T = done.value
                return result
            outcome = None
            if isinstance(step, Request):
                async with self._lock:
                    outcome = await self._connection.send(step)
            elif isinstance(step, Sleep):
                await self._rest(step.seconds)
            elif isinstance(step, Call):
                outcome = await asyncio.to_thread(step.function)
        raise ClientClosedError("this client is closed")

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closed.wait()
