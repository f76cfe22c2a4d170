"""The driver `simulated`: what would be done to machines is written to a journal.

An `ImpactJournal` is kept in memory, or in a file that outlives the process, so that `observe`
knows after a crash whether an event was carried out. Its lines are trace lines, which the
judge can read. Several control nodes share one, which is kept with the state.

As a real target should, it refuses calls of a deposed leader that arrive late: those with a lower
fence number than the highest that it has seen for the event.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from forewarn.core import EventType, Source
from forewarn.core.time import MINUTE, SECOND, Duration
from forewarn.drivers.port import (
    Again,
    Checked,
    Done,
    Driver,
    DriverContext,
    DriverOptions,
    Happened,
    Impact,
    NotYet,
    Observed,
    Ok,
    Performed,
    SharedImpacts,
    Task,
    Unknown,
    Veto,
)
from forewarn.drivers.registry import DriverType
from forewarn.support.files.replace import replace

KEPT_IMPACTS = 10_000  # impacts of finished events that a journal remembers


class Profile(msgspec.Struct, frozen=True):
    started: Duration  # how long the event stays Started
    impact: int = -1  # seconds for which the machine is away; -1: not specified


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """How one event is carried out, where that differs from its profile."""

    lasts: Duration | None = None  # how long it stays Started
    happens: EventType | None = None  # what its machines go through, instead of what was announced
    second_after: Duration | None = None  # when they are paused once more, after the first time
    second_duration: int = 1  # seconds for which they are


# Medians of what was measured in a real cloud.
MIGRATION = Profile(5 * MINUTE, impact=5)
MAINTENANCE = Profile(10 * MINUTE, impact=9)
USERS = Profile(10 * MINUTE)
DELETION = Profile(30 * SECOND)


class LateCall(Exception):
    """A call was refused, because one with a higher fence number came before it."""

    def __init__(self, event: str, fence: int, highest: int) -> None:
        super().__init__(
            f"the call for event {event} has the fence number {fence}, and one with {highest} came"
            " before it"
        )


class ImpactJournal:
    """What has been done to simulated machines, by event. `record` and `has_happened` raise
    LateCall."""

    def __init__(self) -> None:
        self._impacts: dict[str, Impact] = {}
        self._fences: dict[str, int] = {}  # the highest by event
        self._finished: dict[str, None] = {}  # events that need not be remembered, oldest first

    async def has_happened(self, event: str, fence: int) -> bool:
        self._admit(event, fence)
        return self.impact(event) is not None

    async def record(self, impact: Impact, fence: int) -> bool:
        """Add an impact, unless its event has one; return whether it was added."""
        self._admit(impact.event, fence)
        if self.impact(impact.event) is not None:
            return False
        self.add(impact)
        return True

    def _admit(self, event: str, fence: int) -> None:
        highest = self._fences.get(event, 0)
        if fence < highest:
            raise LateCall(event, fence, highest)
        self._fences[event] = fence

    def impact(self, event: str) -> Impact | None:
        return self._impacts.get(event)

    def add(self, impact: Impact) -> None:
        self._impacts[impact.event] = impact

    async def finish(self, event: str, fence: int) -> None:
        """Mark an event as one that need not be remembered any longer."""
        del fence
        self._finished[event] = None
        if len(self._finished) > KEPT_IMPACTS:
            oldest = next(iter(self._finished))
            del self._finished[oldest]
            self._impacts.pop(oldest, None)
            self._fences.pop(oldest, None)

    def close(self) -> None:
        """Close the journal's file, if there is one."""


class FileImpactJournal(ImpactJournal):
    """A journal that outlives the process: one line per impact, on disk before it counts."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        content = path.read_bytes() if path.exists() else b""
        lines = []
        for line in content.splitlines()[-KEPT_IMPACTS:]:
            try:
                super().add(msgspec.json.decode(line, type=Impact))
                lines.append(line + b"\n")
            except msgspec.MsgspecError:
                continue  # torn by a crash: it did not count
        if b"".join(lines) != content:
            replace(path, b"".join(lines), mode=path.stat().st_mode & 0o777)
        self._file = private(path).open("ab", buffering=0)

    def add(self, impact: Impact) -> None:
        """Write a line. If it cannot be written as a whole it is removed: it did not happen."""
        line = msgspec.json.encode(impact) + b"\n"
        before = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, "there is no room for the whole line", self._file.name)
            os.fsync(self._file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(before)
            raise
        super().add(impact)

    def close(self) -> None:
        self._file.close()


class SharedImpactJournal(ImpactJournal):
    """A journal that all control nodes share."""

    def __init__(self, shared: SharedImpacts) -> None:
        super().__init__()
        self._shared = shared

    async def has_happened(self, event: str, fence: int) -> bool:
        return await self._touch(event, fence)

    async def record(self, impact: Impact, fence: int) -> bool:
        return not await self._touch(impact.event, fence, msgspec.json.encode(impact).decode())

    async def _touch(self, event: str, fence: int, impact: str | None = None) -> bool:
        highest, happened = await asyncio.to_thread(self._shared.touch, event, fence, impact)
        if highest > fence:
            raise LateCall(event, fence, highest)
        return happened

    async def finish(self, event: str, fence: int) -> None:
        await asyncio.to_thread(self._shared.finish, event, fence)

    def close(self) -> None:
        self._shared.close()


def private(path: Path) -> Path:
    """Create a file that only its owner can read, unless it exists."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    return path


class ImpactListener(Protocol):
    """Is told of impacts while they last. An event is not carried on until it has returned."""

    async def impact_begins(self, impact: Impact) -> None:
        """Handle that an event begins to be carried out."""

    async def impact_ends(self, event: str) -> None:
        """Handle that the machines of an event are back. May be called again."""


class SimulatedDriver(Driver):
    repeatable = True  # the journal knows what has happened
    works = True  # which takes as long as the maintenance of a host, and leaves nothing behind

    def __init__(
        self,
        journal: ImpactJournal,
        paced: Callable[[Duration], Duration],
    ) -> None:
        self._journal = journal
        self._paced = paced
        self._courses: dict[str, Course] = {}  # by event, instead of what its profile says
        self._paused_again: set[str] = set()  # events
        self.listener: ImpactListener | None = None

    def let_take(self, event: str, course: Course | None) -> None:
        """Set how an event is carried out; None: as its profile says."""
        self._courses.pop(event, None)
        if course is not None:
            self._courses[event] = course

    async def aclose(self) -> None:
        self._journal.close()

    async def check(self, task: Task) -> Checked:
        return Ok() if task.machines or task.work else Veto("none of its machines exists")

    async def observe(self, task: Task) -> Observed:
        events = _impacts(task)  # each is looked at, so that none is changed by a late call
        happened = [await self._journal.has_happened(event, task.fence) for event in events]
        if not all(happened):
            return NotYet()
        if task.started_at is None:
            return Unknown("it was carried out, but it has not started")
        if task.now < self._end(task):
            return NotYet()
        return Happened(_moved(task), away=self._away(task))

    async def perform(self, task: Task) -> Performed:
        course = self._courses.get(task.event, Course())
        seconds = task.duration if task.duration >= 0 else _profile(task).impact
        happens = (course.happens or task.type).value
        for event, names in _impacts(task).items():
            impact = Impact(task.now / SECOND, event, task.type.value, names, seconds)
            recorded = await self._journal.record(impact, task.fence)
            if recorded and self.listener is not None:
                await self.listener.impact_begins(msgspec.structs.replace(impact, type=happens))
        end = self._end(task)
        if self.listener is not None:  # only then does it matter when the machines are back
            back = end if seconds < 0 else min(end, self._start(task) + self._back_after(seconds))
            if task.now < back:
                return Again(back)
            for event in _impacts(task):
                await self.listener.impact_ends(event)
            if (again := await self._pause_again(task, course, back)) is not None:
                return again
        if task.now < end:
            return Again(end)
        away = self._away(task)
        for event in _impacts(task):
            await self._journal.finish(event, task.fence)
            self._courses.pop(event, None)
            self._paused_again.discard(event)
        return Done(_moved(task), away=away)

    async def _pause_again(self, task: Task, course: Course, back: int) -> Again | None:
        """Pause the machines once more while the event is Started, if it is to take that course;
        return when to go on."""
        if course.second_after is None or self.listener is None:
            return None
        begins = back + self._paced(course.second_after)
        if task.now < begins:
            return Again(begins)
        if task.event not in self._paused_again:
            self._paused_again.add(task.event)
            names = tuple(machine.name for machine in task.machines)
            seconds, freeze = course.second_duration, EventType.FREEZE.value
            await self.listener.impact_begins(
                Impact(task.now / SECOND, task.event, freeze, names, seconds)
            )
        ends = begins + self._back_after(course.second_duration)
        if task.now < ends:
            return Again(ends)
        await self.listener.impact_ends(task.event)
        return None

    def _away(self, task: Task) -> dict[str, float]:
        """Return for how many seconds machines stood still; empty if that was not specified, or if
        they are gone."""
        course = self._courses.get(task.event, Course())
        seconds = task.duration if task.duration >= 0 else _profile(task).impact
        if seconds < 0 or (course.happens or task.type).traits.deletes:
            return {}
        away = min(self._back_after(seconds), self._end(task) - self._start(task))
        if course.second_after is not None:
            away += self._back_after(course.second_duration)
        names = (name for machines in _impacts(task).values() for name in machines)
        return dict.fromkeys(names, away / SECOND)

    def _start(self, task: Task) -> int:
        return task.now if task.started_at is None else task.started_at

    def _back_after(self, seconds: int) -> Duration:
        return self._paced(seconds * SECOND)

    def _end(self, task: Task) -> int:
        length = self._courses.get(task.event, Course()).lasts
        return self._start(task) + self._paced(_profile(task).started if length is None else length)


def _profile(task: Task) -> Profile:
    traits = task.type.traits
    if task.host:
        return MAINTENANCE
    if traits.deletes:
        return DELETION
    if task.source is Source.USER:
        return USERS
    return MIGRATION if traits.keeps_memory else MAINTENANCE


def _impacts(task: Task) -> dict[str, tuple[str, ...]]:
    """Return the affected machines by event: a host may have machines of several groups, and work
    on an empty one affects none."""
    if task.work:
        return {}
    if task.parts:
        return {part.event: part.machines for part in task.parts}
    return {task.event: tuple(machine.name for machine in task.machines)}


def _moved(task: Task) -> dict[str, str]:
    """Return the new host of each machine that a redeploy or a live migration moves."""
    if not task.type.traits.relocates and not task.moves:
        return {}
    return {machine.name: machine.target for machine in task.machines if machine.target}


def _make(options: DriverOptions, context: DriverContext) -> SimulatedDriver:
    del options  # there are none
    journal = ImpactJournal()
    if shared := context.shared_impacts():
        journal = SharedImpactJournal(shared)
    elif file := context.file("impacts"):
        journal = FileImpactJournal(file)
    return SimulatedDriver(journal, context.paced)


DRIVER = DriverType(_make)
