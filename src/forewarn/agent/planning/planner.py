"""The next steps of all open cases, kept up to date case by case.

The next steps of one case are decided by `plan.py`, from the case's own progress and from the
state of the hooks that it shares with others. The planner knows for which cases these can have
changed: one that has made progress, whose time has come, whose turn it is to use a hook that has
become free, or whose undo no longer has to wait for a later one. Only those are evaluated, so that
the cost of a thousand events that wait for one hook grows linearly.

    update(progress)  a case is new or has changed
    plan(now)         return the steps that are due since the last call
    release(case)     its order could not be written, so other cases may use the hook meanwhile
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from heapq import heappop, heappush
from types import MappingProxyType
from typing import Generic, TypeVar

from forewarn.agent.config.model import Hook
from forewarn.agent.hooks import KINDS
from forewarn.agent.planning.plan import ANNOUNCED, next_steps, prepared, summary
from forewarn.agent.planning.steps import CaseProgress, Order, Plan, Step, World

CLOCK_STEP = timedelta(seconds=1)  # the service's clock was set back if it goes back by more

T = TypeVar("T", datetime, float)
Place = tuple[datetime, int]  # of a case among the others: first seen, first served


class Planner:
    def __init__(self) -> None:
        self.evaluated = 0  # how often a case was evaluated
        self._cases: dict[str, CaseProgress] = {}
        self._places: dict[str, Place] = {}
        self._count = 0
        self._due: list[tuple[Place, str]] = []
        self._is_due: set[str] = set()
        self._unseen: set[str] = set()  # cases that wait for the first document
        self._latest: datetime | None = None
        # Hooks that are running, or about to be.
        self._active: Counter[str] = Counter()
        self._taken: dict[str, str] = {}  # by hook: the case that is about to order it
        self._busy: set[str] = set()
        self._waiting: defaultdict[str, list[tuple[Place, str]]] = defaultdict(list)
        self._queued: set[tuple[str, str]] = set()  # hook and case of each entry in `_waiting`
        self._waits: dict[str, tuple[str, ...]] = {}  # by case: the hooks it waits for
        self._offered: defaultdict[str, list[str]] = defaultdict(list)
        # Hooks that are prepared and not undone: by case, and by hook with the last one first.
        self._to_undo: dict[str, dict[str, int]] = {}
        self._last: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        # When to evaluate a case again.
        self._wake_times: Alarms[datetime] = Alarms()  # by the service's clock
        self._retry_times: Alarms[float] = Alarms()  # by the machine's own

    def update(self, progress: CaseProgress) -> None:
        id = progress.case.id
        if not progress.case.open:
            self.remove(id)
            return
        if id not in self._places:
            self._count += 1
            self._places[id] = (progress.case.seen, self._count)
        self._replace(id, progress)
        self._make_due(id)

    def remove(self, id: str) -> None:
        if id in self._places:
            self._replace(id, None)
            del self._places[id]
            self._waits.pop(id, None)
            self._offered.pop(id, None)
            self._wake_times.set(id, None)
            self._retry_times.set(id, None)

    def release(self, id: str) -> None:
        """Free the hooks that the case was to order, since the order could not be written."""
        self._free([hook for hook, case in self._taken.items() if case == id])

    def plan(
        self,
        now: World,
        all_ready: Mapping[str, datetime] = MappingProxyType({}),
        *,
        blind: bool = False,
    ) -> Plan:
        """Return the steps that are due. `all_ready` says since when all machines of a case's event
        are known to be ready. `blind` means that the current document has not been read yet, so
        that only cases whose event is over go on."""
        self._tick(now)
        if not blind:
            while self._unseen:
                self._make_due(self._unseen.pop())
        steps: list[Step] = []
        while self._due:
            id = heappop(self._due)[1]
            self._is_due.discard(id)
            if (progress := self._cases.get(id)) is None:
                continue
            if blind and not progress.case.over:
                self._unseen.add(id)
            else:
                steps += self._evaluate(progress, now, all_ready.get(id))
            for hook in self._offered.pop(id, ()):
                self._offer(hook)  # to the next one, if it was not taken
        return Plan(tuple(steps), self._wake_times.first(), self._retry_times.first())

    def _evaluate(
        self, progress: CaseProgress, now: World, all_ready: datetime | None
    ) -> tuple[Step, ...]:
        self.evaluated += 1
        id = progress.case.id
        own = next_steps(progress, now, self._busy, self._held(id), all_ready)
        self._waits[id] = own.waits_for
        for hook in own.waits_for:
            if (hook, id) not in self._queued:
                self._queued.add((hook, id))
                heappush(self._waiting[hook], (self._places[id], id))
        for step in own.steps:
            if isinstance(step, Order):
                self._taken[step.hook.name] = id
                self._busy.add(step.hook.name)
        self._wake_times.set(id, own.wake_at)
        self._retry_times.set(id, own.retry_at)
        return own.steps

    def _tick(self, now: World) -> None:
        if self._latest is not None and now.service < self._latest - CLOCK_STEP:
            for id in self._cases:  # what was too late may not be any more
                self._make_due(id)
            self._latest = now.service
        self._latest = max(self._latest or now.service, now.service)
        for id in (*self._wake_times.passed(now.service), *self._retry_times.passed(now.guard)):
            self._make_due(id)

    def _make_due(self, id: str) -> None:
        if id not in self._is_due:
            self._is_due.add(id)
            heappush(self._due, (self._places[id], id))

    def _replace(self, id: str, progress: CaseProgress | None) -> None:
        before, after = _active(self._cases.get(id)), _active(progress)
        if progress is None:
            self._cases.pop(id, None)
        else:
            self._cases[id] = progress
        self._active.subtract(before)
        self._active.update(after)
        self._busy.update(after)
        self._change_to_undo(id, {} if progress is None else _to_undo(progress))
        taken = [hook for hook, case in self._taken.items() if case == id]
        self._free([*before, *taken])

    def _free(self, hooks: list[str]) -> None:
        for hook in hooks:
            self._taken.pop(hook, None)
            if not self._active[hook]:
                self._busy.discard(hook)
                self._offer(hook)

    def _offer(self, hook: str) -> None:
        """Have the first case that waits for a free hook evaluated."""
        waiting = self._waiting[hook]
        while waiting and hook not in self._busy:
            place, id = heappop(waiting)
            self._queued.discard((hook, id))
            if self._places.get(id) == place and hook in self._waits.get(id, ()):
                self._waits[id] = tuple(name for name in self._waits[id] if name != hook)
                self._offered[id].append(hook)
                self._make_due(id)
                return

    def _change_to_undo(self, id: str, after: dict[str, int]) -> None:
        before = self._to_undo.pop(id, {})
        if after:
            self._to_undo[id] = after
        for hook in before.keys() | after.keys():
            if before.get(hook) == after.get(hook):
                continue
            if hook in after:
                heappush(self._last[hook], (-after[hook], id))
            if (last := self._last_prepared(hook)) is not None:
                self._make_due(last[1])

    def _last_prepared(self, hook: str) -> tuple[int, str] | None:
        """Return the last run that prepared the hook and is not undone, and its case."""
        heap = self._last[hook]
        while heap:
            number, id = -heap[0][0], heap[0][1]
            if self._to_undo.get(id, {}).get(hook) == number:
                return number, id
            heappop(heap)
        return None

    def _held(self, id: str) -> frozenset[str]:
        """Return the hooks that another event has prepared later and not yet undone."""
        own = self._to_undo.get(id, {})
        last = {hook: self._last_prepared(hook) for hook in own}
        return frozenset(hook for hook, run in last.items() if run and run[0] > own[hook])


def _active(progress: CaseProgress | None) -> list[str]:
    return [] if progress is None else [run.hook for run in progress.runs if run.active]


def is_ordered(hook: Hook) -> bool:
    """Whether the later of two preparations of the hook has to be undone before the other."""
    return not hook.kind or KINDS[hook.kind].ordered


def _to_undo(progress: CaseProgress) -> dict[str, int]:
    return {
        hook.name: number
        for hook, number in prepared(progress)
        if number != ANNOUNCED and is_ordered(hook)
        if not summary(progress, hook, "undo").settled
    }


class Alarms(Generic[T]):
    """At most one time for each case at which to evaluate it again."""

    def __init__(self) -> None:
        self._set: dict[str, T] = {}
        self._heap: list[tuple[T, str]] = []

    def set(self, id: str, at: T | None) -> None:
        if at is None:
            self._set.pop(id, None)
        elif self._set.get(id) != at:
            self._set[id] = at
            heappush(self._heap, (at, id))

    def passed(self, now: T) -> list[str]:
        """Remove and return the cases whose time has come."""
        ids = []
        while (first := self.first()) is not None and first <= now:
            id = heappop(self._heap)[1]
            del self._set[id]
            ids.append(id)
        return ids

    def first(self) -> T | None:
        while self._heap and self._set.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None
