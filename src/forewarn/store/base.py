"""What the engines share: works are collected into batches, and a batch is written as a whole.

While one batch is being made durable, the next one is collected. A batch is decided against an
overlay of the state, so that each work sees the changes of those before it. Only when the engine
has written the batch to disk does the overlay become the state; then listeners are called and
callers get their results. If the engine fails, the overlay is dropped and every caller of the batch
gets the error, including those that changed nothing, because they have seen changes that did not
happen. If it is unknown whether the batch is on disk, the service stops before any caller gets a
result.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from forewarn.core import Group, Time, apply
from forewarn.core.registry import GroupForgotten, Registry
from forewarn.store.port import (
    BatchListener,
    Commit,
    Listener,
    OutcomeUnknown,
    OutcomeUnknownListener,
    States,
    Store,
    StoreFailed,
    Work,
)
from forewarn.support import guard
from forewarn.support.logs import logger

MAX_BATCH = 512  # works that are written together
CHANGE_LIMIT = 0.001  # seconds that each change of a batch may take: there may be a million

Submitted: TypeAlias = tuple[Work, asyncio.Future[Commit | None]]

log = logger("forewarn")


class BatchingStore(Store):
    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._registry = Registry({}, {}, {}, {})
        self._seq = 0
        self._listeners: list[tuple[Listener, bool]] = []  # and whether it hears only own commits
        self._waiting: list[Submitted] = []
        self._worker: asyncio.Task[None] | None = None
        self._problem = ""
        self._writing_since: float | None = None  # see `waited`
        self._on_batch: BatchListener = lambda *_: None
        self._on_unknown_outcome: OutcomeUnknownListener = lambda _: None

    @property
    def groups(self) -> Mapping[str, Group]:
        return MappingProxyType(self._groups)

    @property
    def registry(self) -> Registry:
        return self._registry

    @property
    def seq(self) -> int:
        return self._seq

    def problem(self) -> str:
        return self._problem

    def waited(self) -> float:
        since = self._writing_since
        return 0.0 if since is None else max(0.0, guard.monotonic() - since)

    def busy(self) -> bool:
        since = self._writing_since
        return since is not None and guard.monotonic() < since

    def skip_numbers(self, count: int) -> None:
        self._seq += count

    def on_commit(self, listener: Listener) -> None:
        self._listeners.append((listener, False))

    def on_own_commit(self, listener: Listener) -> None:
        self._listeners.append((listener, True))

    def on_batch(self, listener: BatchListener) -> None:
        self._on_batch = listener

    def on_unknown_outcome(self, listener: OutcomeUnknownListener) -> None:
        self._on_unknown_outcome = listener

    async def transact(self, work: Work) -> Commit | None:
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Commit | None] = loop.create_future()
        self._waiting.append((work, result))
        if self._worker is None:
            context = self._worker_context()
            self._worker = loop.create_task(self._run(), name="store", context=context)
        return await result

    def _worker_context(self) -> contextvars.Context:
        """Return the context for works: those of all callers, so not that of the first one."""
        return contextvars.Context()

    async def _run(self) -> None:
        try:
            while self._waiting:
                works = self._waiting[:MAX_BATCH]
                del self._waiting[:MAX_BATCH]
                await self._commit(works)
        finally:
            self._worker = None

    async def _commit(self, works: list[Submitted]) -> None:
        overlay: dict[str, Group] = {}
        states = States(overlay, self._groups, registry=self._registry)
        commits: list[Commit] = []
        decided: list[tuple[asyncio.Future[Commit | None], Commit | None]] = []
        for work, result in works:
            try:
                batch = work(states)
                changed = {
                    e.group: batch.after.get(e.group) or apply(states[e.group], e.items)
                    for e in batch.entries
                }
            except Exception as error:
                _fail(result, error)
                continue
            if not changed and not batch.puts and batch.key is None:
                decided.append((result, None))
                continue
            overlay.update(changed)
            seq = self._seq + len(commits) + 1
            commit = Commit(
                *(seq, batch.at, batch.lost, batch.entries, batch.puts),
                key=batch.key,
                notes=batch.notes if batch.key else (),
                about=batch.about if batch.key else (),
            )
            if batch.puts:
                if states.registry is self._registry:
                    states.registry = self._registry.copy()
                for put in batch.puts:
                    states.registry.put(put)
                    if isinstance(put, GroupForgotten):
                        overlay[put.name] = Group(name=put.name)
            commits.append(commit)
            decided.append((result, commit))
        if commits:
            loop = asyncio.get_running_loop()
            start = loop.time()
            self._writing_since = guard.monotonic() + CHANGE_LIMIT * count_changes(commits)
            try:
                await self._persist(commits, self._groups, overlay)
            except Exception as error:
                self._writing_since = None
                own = isinstance(error, StoreFailed | OutcomeUnknown)
                failure = error if own else StoreFailed(repr(error))
                self._problem = str(failure)
                self._on_batch(loop.time() - start, len(works), 0, self._problem)
                for result, _ in decided:
                    _fail(result, failure)
                return
            self._writing_since = None
            self._problem = ""
            self._on_batch(loop.time() - start, len(works), len(commits), "")
            self._groups.update(overlay)
            for name in forgotten(commits, overlay):
                self._groups.pop(name, None)
            self._registry = states.registry
            self._seq = commits[-1].seq
            for commit in commits:
                self._call_listeners(commit)
        for result, outcome in decided:
            if not result.done():
                result.set_result(outcome)

    def _adopt(self, commits: Sequence[Commit]) -> None:
        """Take over commits that another process has made: they become the state one by one, and
        listeners are called, as if they were made here."""
        for commit in commits:
            for entry in commit.entries:
                before = self._groups.get(entry.group) or Group(name=entry.group)
                self._groups[entry.group] = apply(before, entry.items)
            if commit.puts:
                self._registry = self._registry.copy()
                for put in commit.puts:
                    self._registry.put(put)
                    if isinstance(put, GroupForgotten):
                        self._groups.pop(put.name, None)
            self._seq = commit.seq
            self._call_listeners(commit, own=False)

    def _call_listeners(self, commit: Commit, *, own: bool = True) -> None:
        """Call every listener, even if one fails: the commit has happened."""
        changed = {entry.group: self._groups[entry.group] for entry in commit.entries}
        for listener, only_own in self._listeners:
            if only_own and not own:
                continue
            try:
                listener(commit, changed)
            except Exception:
                with contextlib.suppress(Exception):
                    log.exception("a listener failed", commit=commit.seq)

    async def close(self) -> None:
        await self._finish_batches()

    async def _finish_batches(self) -> None:
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


def count_changes(commits: Sequence[Commit]) -> int:
    return sum(len(c.puts) + sum(len(e.items) for e in c.entries) for c in commits)


def forgotten(commits: Sequence[Commit], after: Mapping[str, Group]) -> list[str]:
    """Return the groups that these commits have forgotten and not created again since."""
    names = [p.name for c in commits for p in c.puts if isinstance(p, GroupForgotten)]
    return [name for name in names if after[name] == Group(name=name)]


def _fail(result: asyncio.Future[Commit | None], error: Exception) -> None:
    if not result.done():
        result.set_exception(error)
