"""The driver: what is done to each instance of a task, and what can be seen of it afterwards.

Every step looks first at the instance and its note, so that the next one can be taken by another
process, after a crash or a take-over. A note is written before anything is done, and after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from forewarn.core import EventType
from forewarn.core.time import SECOND, Duration
from forewarn.drivers.port import (
    Checked,
    Done,
    Driver,
    DriverContext,
    Failed,
    Happened,
    Later,
    NotYet,
    Observed,
    Ok,
    Performed,
    Running,
    Seen,
    Task,
    TaskMachine,
    Unknown,
    Veto,
)
from forewarn.drivers.registry import DriverType
from forewarn.support import guard
from forewarn_incus.api import (
    ALONE,
    BEGUN,
    FROZEN,
    OVER,
    RUNNING,
    STATE_FROZEN,
    STOPPED,
    Incus,
    IncusError,
    Instance,
    Misnamed,
    Moving,
    Note,
    NotReached,
    misnamed,
)
from forewarn_incus.options import IncusOptions
from forewarn_incus.watch import seen

ENUMERATE = 1.0  # seconds between two enumerations of all instances
LOOK_AGAIN = 2 * SECOND  # while something else is being done to an instance


class _Unclear(Exception):
    """What has become of an instance is not known."""


class _Refused(Exception):
    """Nothing was done to an instance."""

    def __init__(self, why: str, unsuitable: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.unsuitable = unsuitable


class _Wait(msgspec.Struct, frozen=True):
    """The step has to be taken again after this time."""

    after: Duration
    progress: str


class _Ended(msgspec.Struct, frozen=True):
    """The event is over for an instance."""

    host: str = ""  # where it is now, if it was to move
    away: float = -1.0  # for how many seconds it stood still, if that is known


class IncusDriver(Driver):
    repeatable = False  # it is only unknown where somebody has to look

    def __init__(self, options: IncusOptions, context: DriverContext) -> None:
        self._options = options
        self._context = context
        self._incus = Incus(options)

    async def check(self, task: Task) -> Checked:
        if not task.machines:
            return Veto("none of its machines exists")
        try:
            members = await self._incus.members()
            for machine in task.machines:
                if why := await self._why_not(task, machine, members):
                    return Veto(f"{machine.name}: {why}")
        except IncusError as error:
            return Veto(str(error))
        return Ok()

    async def observe(self, task: Task) -> Observed:
        try:
            ends = [await self._ended(task, machine) for machine in task.machines]
        except (_Unclear, Misnamed) as error:
            return Unknown(str(error))
        except IncusError as error:
            return Later(None, str(error))
        if None in ends:
            return NotYet()
        names = [machine.name for machine in task.machines]
        moved, away = _outcomes(dict(zip(names, ends, strict=True)))
        return Happened(moved, away=away)

    async def perform(self, task: Task) -> Performed:
        """Take the next steps with all machines, whatever comes of the others."""
        steps = (self._go_on(task, machine) for machine in task.machines)
        results = await asyncio.gather(*steps, return_exceptions=True)
        refused: list[_Refused] = []
        unclear: list[str] = []
        waits: list[_Wait] = []
        ends: dict[str, _Ended] = {}
        for machine, result in zip(task.machines, results, strict=True):
            match result:
                case _Ended():
                    ends[machine.name] = result
                case _Wait():
                    waits.append(result)
                case Moving():
                    waits.append(_Wait(LOOK_AGAIN, str(result)))
                case _Refused():
                    refused.append(result)
                case IncusError() | _Unclear():
                    unclear.append(f"{machine.name}: {result}")
                case BaseException():
                    raise result
        moved, away = _outcomes(ends)
        if unclear:
            return Unknown("; ".join(unclear))
        if waits:  # those that were refused are tried again when the others are done
            after = min(wait.after for wait in waits)
            return Running(after, "; ".join(wait.progress for wait in waits))
        if refused:
            unsuitable = dict.fromkeys(host for error in refused for host in error.unsuitable)
            why = "; ".join(str(error) for error in refused)
            return Failed(why, unsuitable=tuple(unsuitable), moved=moved)
        return Done(moved, away=away)

    async def watch(self, report: Callable[[Seen], None]) -> None:
        """Enumerate all instances again and again: that is cheap, and nothing can be missed."""
        alone = self._context.hosts[0] if len(self._context.hosts) == 1 else ""
        known: set[str] = set()
        while True:
            try:
                members = await self._incus.members()
                if members or alone:
                    instances = await self._incus.instances()
                    names = {one.name for one in instances if not one.is_temporary}
                    whole = not misnamed(instances) and await self._are_gone(known - names)
                    if whole:
                        known = names
                    for one in seen(instances, members, alone, whole):
                        report(one)
            except IncusError:
                pass  # of what does not answer, nothing is known
            await guard.pause(ENUMERATE)

    async def _are_gone(self, names: set[str]) -> bool:
        """Do none of these exist? Members are asked one by one while an instance may go from one to
        the other, so that it was with none of them."""
        return not any([await self._incus.instance(name) for name in sorted(names)])

    async def aclose(self) -> None:
        await self._incus.close()

    # One machine.

    async def _why_not(self, task: Task, machine: TaskMachine, members: set[str]) -> str:
        instance = await self._incus.instance(machine.name)
        if instance is None:
            return "there is no such instance"
        if task.moves and not instance.can_move_live:
            return (
                "it cannot move while it runs: only a virtual machine with migration.stateful can"
            )
        if task.moves and not machine.target:
            return "there is no host that it could move to"
        if _moves(task) and machine.target and machine.target not in members:
            return (
                f"it cannot move to {machine.target}, which is no member of the cluster or offline"
            )
        if instance.ephemeral and not task.type.traits.deletes and task.type is not _FREEZE:
            return "it is ephemeral, and would be deleted when it is stopped"
        return ""

    async def _ended(self, task: Task, machine: TaskMachine) -> _Ended | None:
        """Return what has become of a machine, or None if the event is not over for it."""
        instance = await self._incus.instance(machine.name)
        if instance is None:
            return _Ended() if task.type.traits.deletes else _unclear(machine, "does not exist")
        note = instance.note
        if note.event != task.event:
            return None
        _refuse_late(machine, note, task)
        if task.type.traits.deletes:
            kept = self._options.keep and instance.status == STOPPED
            return _Ended() if kept else None
        host = "" if instance.location == ALONE or not _moves(task) else instance.location
        if note.stage == OVER:
            return _Ended(host)
        if task.type is _FREEZE and not task.moves:
            return None  # it has to be thawed
        arrived = not _moves(task) or host == note.target
        restarted = task.moves or instance.last_used_at != note.started
        return _Ended(host) if arrived and restarted and instance.status == RUNNING else None

    async def _go_on(self, task: Task, machine: TaskMachine) -> _Ended | _Wait:
        # Also if it is running already: it cannot be written to before its start is over, and what
        # is written to it while it moves does not move with it. What is read before may be old.
        if doing := await self._incus.operation(machine.name):
            return _Wait(LOOK_AGAIN, f"{machine.name}: {doing}")
        instance = await self._incus.instance(machine.name)
        if instance is None:
            if task.type.traits.deletes:
                return _Ended()
            raise _Refused(f"there is no instance {machine.name}")
        note = instance.note
        if note.event == task.event:
            _refuse_late(machine, note, task)
            if (ended := await self._ended(task, machine)) is not None:
                await self._finish(task, instance, note)
                return ended
            if _moves(task) and machine.target not in ("", note.target):
                note = msgspec.structs.replace(note, target=machine.target, fence=task.fence)
                await self._incus.write(instance.name, note)
        else:
            note = await self._begin(task, machine, instance)
        if not self._context.may_act():
            raise _Unclear("this control node does not decide any more")
        if task.type.traits.deletes:
            return await self._delete(instance)
        if task.type is _FREEZE and not task.moves:
            return await self._freeze(task, instance, note)
        if task.moves:
            return await self._move_live(task, instance, note)
        return await self._restart(task, machine, instance, note)

    async def _begin(self, task: Task, machine: TaskMachine, instance: Instance) -> Note:
        if task.moves and not machine.target:
            raise _Refused(f"there is no host that {machine.name} could move to")
        note = Note(
            event=task.event,
            fence=task.fence,
            stage=BEGUN,
            target=(machine.target or instance.location) if _moves(task) else "",
            since=task.now,
            started=instance.last_used_at,
        )
        await self._incus.write(instance.name, note)
        return note

    async def _finish(self, task: Task, instance: Instance, note: Note) -> None:
        if note.stage != OVER:
            over = msgspec.structs.replace(note, stage=OVER, fence=task.fence)
            await self._incus.write(instance.name, over)

    async def _delete(self, instance: Instance) -> _Ended:
        if instance.status != STOPPED:
            await self._stop(instance)
        if not self._options.keep and not instance.ephemeral:
            await self._incus.delete(instance.name)
        return _Ended()

    async def _freeze(self, task: Task, instance: Instance, note: Note) -> _Ended | _Wait:
        if note.stage == BEGUN:
            if instance.status == RUNNING:
                await self._incus.set_state(instance.name, "freeze")
            elif instance.status != STATE_FROZEN:
                raise _Refused(f"{instance.name} does not run")
            note = msgspec.structs.replace(note, stage=FROZEN, since=task.now, fence=task.fence)
            await self._incus.write(instance.name, note)
        wanted = task.duration * SECOND if task.duration > 0 else self._options.duration("freeze")
        if (left := note.since + wanted - task.now) > 0:
            return _Wait(left, f"{instance.name} is frozen")
        if instance.status == STATE_FROZEN:
            await self._incus.set_state(instance.name, "unfreeze")
        await self._finish(task, instance, note)
        return _Ended(away=_seconds(note.since, task.now))

    async def _move_live(self, task: Task, instance: Instance, note: Note) -> _Ended:
        await self._move(instance, note.target, live=True)
        await self._finish(task, instance, note)
        return _Ended(note.target)

    async def _restart(
        self, task: Task, machine: TaskMachine, instance: Instance, note: Note
    ) -> _Ended:
        """Stop an instance, move it if it is to move, and start it."""
        away = note.target not in ("", instance.location)
        to_stop = instance.status != STOPPED and not machine.host_failed
        if to_stop and (away or instance.last_used_at == note.started):
            await self._stop(instance)
        if away:
            await self._move_or_start(instance, note.target)
        await self._incus.set_state(instance.name, "start")
        await self._finish(task, instance, note)
        moved_to = "" if note.target == ALONE else note.target
        return _Ended(moved_to, away=_seconds(note.since, task.now))

    async def _move_or_start(self, instance: Instance, target: str) -> None:
        """Move an instance that was stopped. If it cannot move, it is started where it is."""
        try:
            await self._move(instance, target, live=False)
        except _Refused:
            with suppress(IncusError):
                await self._incus.set_state(instance.name, "start")
            raise

    async def _stop(self, instance: Instance) -> None:
        if instance.status == STATE_FROZEN:  # it could not answer
            await self._incus.set_state(instance.name, "unfreeze")
        patience = self._options.duration("shutdown") / SECOND
        await self._incus.set_state(instance.name, "stop", patience=patience)

    async def _move(self, instance: Instance, target: str, *, live: bool) -> None:
        try:
            await self._incus.move(instance.name, target, live=live)
        except NotReached:
            raise
        except IncusError as error:
            raise _Refused(f"{instance.name} to {target}: {error}", (target,)) from error


_FREEZE = EventType.FREEZE


def _moves(task: Task) -> bool:
    return task.moves or task.type.traits.relocates


def _refuse_late(machine: TaskMachine, note: Note, task: Task) -> None:
    if note.fence > task.fence:
        raise _Unclear(
            f"an attempt at {machine.name} with fence {note.fence} came before {task.fence}"
        )


def _seconds(since: int, now: int) -> float:
    return max(now - since, 0) / SECOND


def _unclear(machine: TaskMachine, why: str) -> _Ended:
    raise _Unclear(f"{machine.name} {why}")


def _outcomes(ends: Mapping[str, _Ended | None]) -> tuple[dict[str, str], dict[str, float]]:
    """Return where machines are now and for how long they stood still, as far as that is known."""
    known = {name: ended for name, ended in ends.items() if ended is not None}
    moved = {name: ended.host for name, ended in known.items() if ended.host}
    away = {name: ended.away for name, ended in known.items() if ended.away >= 0}
    return moved, away


DRIVER = DriverType(IncusDriver, IncusOptions)
