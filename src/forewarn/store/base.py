"""What the engines share: many works, one commit.

While one batch is being made durable the next one gathers. A batch is decided against an
overlay: each work sees what those before it have done. Only when the engine has it on disk does
it become the state, and are listeners called and callers answered. If the engine fails, the overlay
is dropped and every caller of the batch is refused, including those that changed nothing but saw
what is now not so. If it is unknown whether the batch is on disk, the service stops before any
caller is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from forewarn.core import Group, Time, apply
from forewarn.core.registry import Registry
from forewarn.store.port import (
    BeforeVisible,
    Commit,
    Listener,
    Measured,
    OutcomeUnknown,
    States,
    Stopping,
    Store,
    StoreFailed,
    Work,
)
from forewarn.support.logs import logger

MAX_BATCH = 512  # works decided for one commit

log = logger("forewarn")


class BatchingStore(Store):
    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._registry = Registry({}, {}, {})
        self._seq = 0
        self._listeners: list[Listener] = []
        self._before_visible: list[BeforeVisible] = []
        self._waiting: list[tuple[Work, asyncio.Future[Commit | None]]] = []
        self._worker: asyncio.Task[None] | None = None
        self._trouble = ""
        self._measured: Measured = lambda *_: None
        self._stopping: Stopping = lambda _: None

    @property
    def groups(self) -> Mapping[str, Group]:
        return MappingProxyType(self._groups)

    @property
    def registry(self) -> Registry:
        return self._registry

    @property
    def seq(self) -> int:
        return self._seq

    def healthy(self) -> str:
        return self._trouble

    def skip(self, numbers: int) -> None:
        self._seq += numbers

    def attach(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def measure(self, measured: Measured) -> None:
        self._measured = measured

    def on_unknown_outcome(self, stop: Stopping) -> None:
        self._stopping = stop

    def before_visible(self, call: BeforeVisible) -> None:
        self._before_visible.append(call)

    async def transact(self, work: Work) -> Commit | None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Commit | None] = loop.create_future()
        self._waiting.append((work, done))
        if self._worker is None:
            # It works for all callers, so it must not run in the context of the first one.
            context = contextvars.Context()
            self._worker = loop.create_task(self._run(), name="store", context=context)
        return await done

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[:MAX_BATCH]
                del self._waiting[:MAX_BATCH]
                await self._commit(batch)
        finally:
            self._worker = None

    async def _commit(self, batch: list[tuple[Work, asyncio.Future[Commit | None]]]) -> None:
        overlay: dict[str, Group] = {}
        states = States(overlay, self._groups, registry=self._registry)
        commits: list[Commit] = []
        decided: list[tuple[asyncio.Future[Commit | None], Commit | None]] = []
        for work, done in batch:
            try:
                wanted = work(states)
                changed = {
                    e.group: wanted.after.get(e.group) or apply(states[e.group], e.items)
                    for e in wanted.entries
                }
            except Exception as error:
                _fail(done, error)
                continue
            if not changed and not wanted.puts and wanted.key is None:
                decided.append((done, None))
                continue
            overlay.update(changed)
            seq = self._seq + len(commits) + 1
            commit = Commit(
                *(seq, wanted.at, wanted.lost, wanted.entries, wanted.puts),
                key=wanted.key,
                notes=wanted.notes if wanted.key else (),
                about=wanted.about if wanted.key else (),
            )
            if wanted.puts:
                if states.registry is self._registry:
                    states.registry = self._registry.copy()
                for put in wanted.puts:
                    states.registry.put(put)
            commits.append(commit)
            decided.append((done, commit))
        if commits:
            loop = asyncio.get_running_loop()
            began = loop.time()
            try:
                await self._persist(commits, self._groups, overlay)
            except Exception as error:
                known = isinstance(error, StoreFailed | OutcomeUnknown)
                failure = error if known else StoreFailed(repr(error))
                self._trouble = str(failure)
                self._measured(loop.time() - began, len(batch), 0, self._trouble)
                for done, _ in decided:
                    _fail(done, failure)
                return
            self._trouble = ""
            self._measured(loop.time() - began, len(batch), len(commits), "")
            for call in self._before_visible:
                try:
                    await call(commits, overlay)
                except Exception:
                    log.exception(
                        "a commit could not be prepared for other processes",
                        commit=commits[-1].seq,
                    )
            self._groups.update(overlay)
            self._registry = states.registry
            self._seq = commits[-1].seq
            for commit in commits:
                self._call_listeners(commit)
        for done, outcome in decided:
            if not done.done():
                done.set_result(outcome)

    def _call_listeners(self, commit: Commit) -> None:
        """Call every listener, even if one fails: the commit has happened."""
        changed = {entry.group: self._groups[entry.group] for entry in commit.entries}
        for listener in self._listeners:
            try:
                listener(commit, changed)
            except Exception:
                with contextlib.suppress(Exception):
                    log.exception("a listener failed", commit=commit.seq)

    async def close(self) -> None:
        if self._worker is not None:
            await asyncio.wait([self._worker])

    @abstractmethod
    async def _persist(
        self, commits: Sequence[Commit], before: Mapping[str, Group], after: Mapping[str, Group]
    ) -> None:
        """Make the commits and the states they lead to durable, all or nothing."""

    def _oldest_needed(self, cutoff: Time) -> Time:
        """Return the time of the oldest commit about an event that is still active: it is kept."""
        raised = (event.raised_at for group in self._groups.values() for event in group.events)
        return min(raised, default=cutoff)


def _fail(done: asyncio.Future[Commit | None], error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
