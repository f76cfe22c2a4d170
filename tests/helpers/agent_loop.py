"""An agent in the test's own loop, with a client whose documents a test decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from forewarn.agent.agent import Agent
from forewarn.agent.config.model import Config, Hook, Rule
from forewarn.agent.running.runners import Runners
from forewarn.agent.state.store import StateStore
from forewarn.client import ApprovalRefusedError
from forewarn.client.events import Document, EndpointStatus, Event, Snapshot
from forewarn.client.identity import Identity
from forewarn.client.rules import ids
from helpers.agent_model import BEGINNING

HOOK = Hook(
    name="hook",
    commands={"prepare": ("true",), "undo": ("true",)},
    stages=("prepare", "undo"),
)


class Readiness(NamedTuple):
    waiting: tuple[str, ...]


class ScriptedClient:
    """A client: its documents are what a test puts there."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[tuple[Event, ...]] = asyncio.Queue()
        self.hidden: frozenset[str] = frozenset()
        self.ready_ones: set[str] | None = None  # None: this endpoint knows of no such thing
        self.at = BEGINNING
        self.approved: list[str] = []
        self.refuses = 0
        self.there = True
        self.status = EndpointStatus(
            endpoint="http://x",
            version="2020-07-01",
            long_poll=True,
            problem="",
            since=BEGINNING,
            responses=0,
            failures=0,
        )

    async def snapshots(
        self, max_wait: Callable[[], float] | None = None
    ) -> AsyncIterator[Snapshot]:
        while True:
            events = await self.queue.get()
            document = Document(1, events)
            yield Snapshot(document=document, changes=(), at=self.at, hidden_types=self.hidden)

    async def identity(self) -> Identity:
        if not self.there:
            await asyncio.Event().wait()
        return Identity("web_0")

    async def approve(self, *events: Event | str, timeout: float = 0.0) -> None:
        if self.refuses:
            self.refuses -= 1
            raise ApprovalRefusedError("no")
        self.approved += ids(events)

    async def report_ready(
        self, event: Event | str, note: str = "", *, timeout: float = 0.0
    ) -> Readiness | None:
        if self.ready_ones is not None:
            self.ready_ones.add("web_0")
        return await self.readiness(event)

    async def readiness(self, event: Event | str, *, timeout: float = 0.0) -> Readiness | None:
        if self.ready_ones is None or not isinstance(event, Event):
            return None
        return Readiness(tuple(one for one in event.resources if one not in self.ready_ones))

    def now(self) -> datetime:
        return self.at


class AgentLoop:
    """An agent in the test's own loop, with a real store and real runners."""

    def __init__(self, state: Path, hook: Hook = HOOK, **rule: Any) -> None:
        self.client = ScriptedClient()
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self._changed = asyncio.Event()
        self.store = StateStore(state)
        named = Rule(name="all", hooks=("hook",), **rule)
        config = Config(state=state, rules=(named,), hooks={"hook": hook})
        self.agent = Agent(
            config,
            self.client,
            self.store,
            lambda on_end, tasks: Runners(self.store, on_end, tasks),
            self._log,
        )

    def _log(self, what: str, /, **facts: Any) -> None:
        self.lines.append((what, facts))
        self._changed.set()

    async def reported(self, what: str, times: int = 1) -> list[dict[str, Any]]:
        async with asyncio.timeout(20):
            while len(found := [facts for output, facts in self.lines if output == what]) < times:
                self._changed.clear()
                await self._changed.wait()
        return found

    async def __aenter__(self) -> AgentLoop:
        self._task = asyncio.get_running_loop().create_task(self.agent.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        self.store.release()
