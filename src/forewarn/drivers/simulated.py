"""Machines that are only pretended: what would be done to them is written down.

The record is an `ImpactJournal`: in memory, or a file that outlives the process, so that after a
crash `observe` can truly say whether it happened. Its lines are trace lines, ready for the judge.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from forewarn.core import Source
from forewarn.core.time import MINUTE, SECOND, Duration
from forewarn.drivers.port import (
    Again,
    Checked,
    Done,
    Happened,
    NotYet,
    Observed,
    Ok,
    Performed,
    Task,
    Unknown,
    Veto,
)

KEPT_IMPACTS = 10_000  # of events that are over, which a world remembers


class Profile(msgspec.Struct, frozen=True):
    started: Duration  # how long the event stays Started: until it is done and checked
    impact: int = -1  # seconds for which the machine is really away; -1: not said


# Medians of what has been seen in a real cloud.
MIGRATION = Profile(5 * MINUTE, impact=5)
MAINTENANCE = Profile(10 * MINUTE, impact=9)
USERS = Profile(10 * MINUTE)
DELETION = Profile(30 * SECOND)


class Impact(msgspec.Struct, frozen=True, tag_field="kind", tag="impact"):
    t: float
    event: str
    type: str
    machines: tuple[str, ...]
    seconds: int = -1  # how long the machines were away; -1: not said


class ImpactJournal:
    """What has been done to pretended machines, by event."""

    def __init__(self) -> None:
        self._impacts: dict[str, Impact] = {}
        self._over: dict[str, None] = {}  # events that need not be remembered

    def impact(self, event: str) -> Impact | None:
        return self._impacts.get(event)

    def strike(self, impact: Impact) -> None:
        self._impacts[impact.event] = impact

    def over(self, event: str) -> None:
        """Nobody will ask for it again, or hardly."""
        self._over[event] = None
        if len(self._over) > KEPT_IMPACTS:
            oldest = next(iter(self._over))
            del self._over[oldest]
            self._impacts.pop(oldest, None)

    def close(self) -> None:
        """Nothing more will be done to it."""


class FileImpactJournal(ImpactJournal):
    """A world that outlives the process: one line per impact, on disk before it counts."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        whole = path.read_bytes() if path.exists() else b""
        kept = []
        for line in whole.splitlines()[-KEPT_IMPACTS:]:
            try:
                super().strike(msgspec.json.decode(line, type=Impact))
                kept.append(line + b"\n")
            except msgspec.MsgspecError:
                continue  # torn by a crash: it did not count
        if b"".join(kept) != whole:
            fresh = path.with_name(path.name + ".new")
            with private(fresh).open("wb") as file:
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)  # as it was
                file.write(b"".join(kept))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        self._file = private(path).open("ab", buffering=0)

    def strike(self, impact: Impact) -> None:
        """A line that does not come to disk whole is taken back: it did not happen."""
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
        super().strike(impact)

    def close(self) -> None:
        self._file.close()


def private(path: Path) -> Path:
    """Make it, for its owner alone, unless it is there: it tells of everybody's machines."""
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    return path


class SimulatedDriver:
    repeatable = True  # the world itself knows what happened

    def __init__(self, world: ImpactJournal, paced: Callable[[Duration], Duration]) -> None:
        self._world = world
        self._paced = paced
        self._lasting: dict[str, Duration] = {}

    def let_last(self, event: str, length: Duration | None) -> None:
        """How long this event stays Started, instead of what its profile says (None)."""
        if length is None:
            self._lasting.pop(event, None)
        else:
            self._lasting[event] = length

    async def check(self, task: Task) -> Checked:
        return Ok() if task.machines else Veto("none of its machines is there")

    async def observe(self, task: Task) -> Observed:
        if any(self._world.impact(event) is None for event in _struck(task)):
            return NotYet()
        if task.started_at is None:
            return Unknown("it happened, though it has not started")
        return Happened(_moved(task)) if task.now >= self._over_at(task) else NotYet()

    async def perform(self, task: Task) -> Performed:
        seconds = task.duration if task.duration >= 0 else _profile(task).impact
        for event, names in _struck(task).items():
            if self._world.impact(event) is None:
                self._world.strike(
                    Impact(task.now / SECOND, event, task.type.value, names, seconds)
                )
        over_at = self._over_at(task)
        if task.now < over_at:
            return Again(over_at)
        for event in _struck(task):
            self._world.over(event)
            self._lasting.pop(event, None)
        return Done(_moved(task))

    def _over_at(self, task: Task) -> int:
        started = task.now if task.started_at is None else task.started_at
        length = self._lasting.get(task.event, _profile(task).started)
        return started + self._paced(length)


def _profile(task: Task) -> Profile:
    traits = task.type.traits
    if task.host:
        return MAINTENANCE
    if traits.deletes:
        return DELETION
    if task.source is Source.USER:
        return USERS
    return MIGRATION if traits.keeps_memory else MAINTENANCE


def _struck(task: Task) -> dict[str, tuple[str, ...]]:
    """The machines that are touched, by event: one host may carry several groups' machines."""
    if task.parts:
        return {part.event: part.machines for part in task.parts}
    return {task.event: tuple(machine.name for machine in task.machines)}


def _moved(task: Task) -> dict[str, str]:
    """A redeploy or a live migration moves each machine to the best host there is."""
    if not task.type.traits.relocates and not task.moves:
        return {}
    moved = {}
    for machine in task.machines:
        others = [host for host in task.hosts if host != machine.host]
        if others:
            moved[machine.name] = others[0]
    return moved
