"""Control with its workers on a real Unix socket, and a worker whose messages a test sends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from forewarn import __version__
from forewarn.core import Durations, EventType, Refused
from forewarn.metadata.publishing.messages import (
    PROTOCOL,
    Held,
    Hello,
    Joined,
    MessageStream,
    SnapshotEnd,
    SnapshotPart,
    ToWorker,
    Welcome,
)
from forewarn.metadata.publishing.remote_upstream import RemoteUpstream
from forewarn.metadata.upstream import GroupNews
from forewarn.node import Config, Node
from forewarn.node.processes.worker_socket import make_dial
from forewarn.service.engine.clock import FollowedClock
from forewarn.service.fleet.read import parse
from forewarn.store.engines import state_name
from forewarn.support import guard

PATIENCE = 60.0  # seconds that something is waited for
FLEET = """
groups:
  - name: web
    kind: scale-set
    machines: [{name: web_0, address: 127.1.0.1}, {name: web_1, address: 127.1.0.2}]
"""


class Control:
    """A service that expects workers, and can be started again on what it has stored."""

    def __init__(self, directory: Path, workers: int) -> None:
        self.path = directory / "upstream"
        self.service = state_name(directory / "state.db")
        self.config = Config(
            fleet=parse(FLEET),
            state=directory / "state.db",
            rules=Durations(silence=None),
            workers=workers,
            upstream=self.path,
        )

    def __call__(self) -> Node:
        return Node(self.config)


def run_within_limit(body: Callable[[], Awaitable[None]]) -> None:
    async def guarded() -> None:
        try:
            async with asyncio.timeout(30):
                await body()
        finally:
            while ManualWorker.lines:
                ManualWorker.lines.pop().cut()
            await guard.pause(0)

    asyncio.run(guarded())


class WorkerView:
    """A worker's face: what it shows now, None while a group has to wait."""

    def __init__(self, upstream: RemoteUpstream) -> None:
        self.upstream = upstream
        self.of: dict[str, GroupNews] = {}
        upstream.attach(lambda news: self.of.update({news.view.name: news}))

    async def ready(self) -> None:
        """Until the group is shown. Control may let a worker in before it has read its fleet, and
        `enable` only waits for a group that is still being defined: the endpoint asks again."""
        await self.upstream.synchronized.wait()
        await until(lambda: "web" in self.of and self.upstream._staged.changing("web") is None)

    def events(self) -> int | None:
        view = self.of["web"].view
        return len(view.events) if view.enabled else None


@asynccontextmanager
async def worker(control: Control, number: int = 0) -> AsyncIterator[WorkerView]:
    tasks = guard.Tasks()
    upstream = RemoteUpstream(make_dial(control.path), number, FollowedClock(), control.service)
    tasks.start(upstream.run(), "line")
    tasks.start(upstream.report(), "reports")
    try:
        yield WorkerView(upstream)
    finally:
        await tasks.end()


class ManualWorker:
    """A worker that takes part by hand."""

    lines: ClassVar[list[MessageStream[ToWorker]]] = []

    def __init__(self, line: MessageStream[ToWorker]) -> None:
        self.stream = line

    @classmethod
    async def dialled(cls, control: Control) -> ManualWorker:
        """Connected, but without a word so far."""
        reader, writer = await make_dial(control.path)()
        line: MessageStream[ToWorker] = MessageStream(reader, writer, ToWorker)
        cls.lines.append(line)
        return cls(line)

    @classmethod
    async def connected(cls, control: Control, number: int, **other: Any) -> ManualWorker:
        mute = await cls.dialled(control)
        mute.greet(control, number, **other)
        return mute

    def greet(self, control: Control, number: int, **other: Any) -> None:
        said: dict[str, Any] = {
            "protocol": PROTOCOL,
            "version": __version__,
            "worker": number,
            "instance": "by hand",
            "serving": False,
            "service": control.service,
            **other,
        }
        self.stream.send(Hello(**said))

    async def until(self, kind: type[Any]) -> Any:
        async with asyncio.timeout(PATIENCE):
            while not isinstance(message := await self.stream.receive(), kind):
                pass
        return message

    async def join(self) -> ManualWorker:
        await self.until(Welcome)
        await self.until(SnapshotPart)
        whole = await self.until(SnapshotEnd)
        self.stream.send(Held(whole.number, whole=True))
        await self.until(Joined)
        return self


async def reboot(node: Node) -> str:
    done = await node.platform.schedule(type=EventType.REBOOT, machines=("web_0",), by="test")
    assert not isinstance(done, Refused)
    return done.event.id


async def until(says: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not says():
            await guard.pause(0.005)
