"""The driver: an event is a short list of steps, each of which is one task (a UPID) of the server.

Before a step begins, it is noted, with the latest task of its kind: a later one is the step's own.
So whoever goes on, in another process or after a crash, begins no step a second time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import ClassVar
from urllib.parse import urlsplit

import msgspec

from forewarn.core import EventType
from forewarn.core.time import SECOND, Duration
from forewarn.drivers.port import (
    Checked,
    Done,
    Driver,
    DriverContext,
    DriverOptions,
    Failed,
    Happened,
    Later,
    NotYet,
    Observed,
    Ok,
    Performed,
    Running,
    Task,
    TaskMachine,
    Unknown,
    Veto,
)
from forewarn.drivers.registry import DriverType
from forewarn.support.text import parse_duration
from forewarn_proxmox.api import Guest, Note, Proxmox, ProxmoxError

LOOK_AGAIN = 2 * SECOND
SUSPEND, RESUME, SHUTDOWN, START, MIGRATE, DESTROY = (
    "suspend", "resume", "shutdown", "start", "migrate", "destroy",
)  # fmt: skip


class ProxmoxOptions(DriverOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str  # of any node of the cluster, such as https://10.0.0.1:8006
    token_file: str  # with USER@REALM!TOKENID=SECRET
    ca: str = ""  # of the servers' certificates; /etc/pve/pve-root-ca.pem
    freeze: str = "5s"  # for how long a guest is suspended if the event does not say
    shutdown: str = "60s"  # for how long a guest may shut down before it is stopped

    paths: ClassVar[tuple[str, ...]] = ("token_file", "ca")

    def problems(self) -> Iterator[tuple[str, str]]:
        url = urlsplit(self.url)
        if url.scheme not in ("http", "https") or not url.hostname:
            yield "url", f"'{self.url}' is not a URL; write for example https://10.0.0.1:8006"
        for key in ("freeze", "shutdown"):
            try:
                parse_duration(getattr(self, key))
            except ValueError as error:
                yield key, str(error)


class ProxmoxDriver(Driver):
    repeatable = False

    def __init__(self, options: ProxmoxOptions, context: DriverContext) -> None:
        self._options, self._context = options, context
        self._proxmox = Proxmox(options.url, options.token_file, options.ca)

    async def check(self, task: Task) -> Checked:
        if not task.machines:
            return Veto("none of its machines exists")
        try:
            nodes = await self._proxmox.nodes()
            for machine in task.machines:
                if await self._proxmox.guest(machine.name) is None:
                    return Veto(f"{machine.name}: there is no such guest")
                if task.moves and not machine.target:
                    return Veto(f"{machine.name}: there is no host that it could move to")
                if machine.target and machine.target not in nodes:
                    return Veto(f"{machine.name}: {machine.target} is not online")
        except ProxmoxError as error:
            return Veto(str(error))
        return Ok()

    async def observe(self, task: Task) -> Observed:
        moved: dict[str, str] = {}
        try:
            for machine in task.machines:
                guest = await self._proxmox.guest(machine.name)
                if guest is None:
                    if task.type.traits.deletes:
                        continue
                    return Unknown(f"{machine.name} does not exist")
                note = await self._proxmox.note(guest)
                if note.event == task.event and note.fence > task.fence:
                    return Unknown(f"{machine.name}: attempt {note.fence} came before {task.fence}")
                if note.event != task.event or note.step < len(_steps(task, note.target)):
                    return NotYet()
                if note.target:
                    moved[machine.name] = guest.node
        except ProxmoxError as error:
            return Later(None, str(error))
        return Happened(moved)

    async def perform(self, task: Task) -> Performed:
        calls = (self._go_on(task, machine) for machine in task.machines)
        answers = await asyncio.gather(*calls)
        for kind in (Unknown, Running, Failed):
            for answer in answers:
                if isinstance(answer, kind):
                    return answer
        done = [answer for answer in answers if isinstance(answer, Done)]
        return Done({name: host for answer in done for name, host in answer.moved.items()})

    async def aclose(self) -> None:
        await self._proxmox.close()

    async def _go_on(self, task: Task, machine: TaskMachine) -> Performed:
        """Take the next step with one machine."""
        try:
            guest = await self._proxmox.guest(machine.name)
            if guest is None:
                if task.type.traits.deletes:
                    return Done()
                return Failed(f"there is no guest {machine.name}")
            note = await self._proxmox.note(guest)
            if note.event != task.event:
                target = machine.target if machine.target != guest.node else ""
                note = Note(task.event, task.fence, target=target)
            elif note.fence > task.fence:
                return Unknown(f"{machine.name}: attempt {note.fence} came before {task.fence}")
            return await self._step(task, machine, guest, note)
        except ProxmoxError as error:
            return Unknown(f"{machine.name}: {error}")

    async def _step(self, task: Task, machine: TaskMachine, guest: Guest, note: Note) -> Performed:
        steps = _steps(task, note.target)
        if note.step >= len(steps):
            return Done({machine.name: guest.node} if note.target else {})
        step = steps[note.step]
        kind = _kind(guest, step)
        if note.node:  # it was begun, unless whoever has noted that has got no further
            upid = await self._proxmox.latest(guest, note.node, kind)
            if upid != note.before:
                ended = await self._proxmox.task(upid)
                if ended.status == "running":
                    return Running(LOOK_AGAIN, f"{machine.name}: {step}")
                # Somebody has to look into it before it is begun once more.
                if ended.exitstatus != "OK":
                    return Unknown(f"{machine.name}: {step} ended with {ended.exitstatus}")
                return await self._next(task, machine, guest, note)
        if step == SHUTDOWN and guest.status == "stopped":
            return await self._next(task, machine, guest, note)
        if step == RESUME and (left := note.since + self._frozen(task) - task.now) > 0:
            return Running(left, f"{machine.name} is suspended")
        before = await self._proxmox.latest(guest, guest.node, kind)
        note = msgspec.structs.replace(note, fence=task.fence, node=guest.node, before=before)
        await self._proxmox.write(guest, note)
        if not self._context.may_act():
            return Unknown("this control node does not decide any more")
        await self._begin(task, guest, step, note.target)
        return Running(LOOK_AGAIN, f"{machine.name}: {step}")

    def _frozen(self, task: Task) -> Duration:
        wanted = task.duration * SECOND
        return wanted if wanted > 0 else parse_duration(self._options.freeze)

    async def _next(self, task: Task, machine: TaskMachine, guest: Guest, note: Note) -> Performed:
        since = task.now if _steps(task, note.target)[note.step] == SUSPEND else note.since
        note = msgspec.structs.replace(note, step=note.step + 1, node="", before="", since=since)
        await self._proxmox.write(guest, note)
        return await self._step(task, machine, guest, note)

    async def _begin(self, task: Task, guest: Guest, step: str, target: str) -> None:
        ask, options = self._proxmox.ask, {}
        if step == DESTROY:
            await ask("DELETE", guest.path)
            return
        if step == MIGRATE:
            await ask(
                "POST", f"{guest.path}/migrate", {"target": target, "online": int(task.moves)}
            )
            return
        if step == SHUTDOWN:
            seconds = parse_duration(self._options.shutdown) // SECOND
            options = {"timeout": seconds, "forceStop": 1}
        await ask("POST", f"{guest.path}/status/{step}", options)


def _steps(task: Task, target: str) -> tuple[str, ...]:
    if task.type.traits.deletes:
        return (SHUTDOWN, DESTROY)
    if task.moves:
        return (MIGRATE,)
    if task.type is EventType.FREEZE:
        return (SUSPEND, RESUME)
    return (SHUTDOWN, MIGRATE, START) if target else (SHUTDOWN, START)


def _kind(guest: Guest, step: str) -> str:
    """Return what the list of tasks calls the task of a step."""
    prefix = "qm" if guest.type == "qemu" else "vz"
    return f"{prefix}{'migrate' if step == MIGRATE else step}"


DRIVER = DriverType(ProxmoxDriver, ProxmoxOptions)
