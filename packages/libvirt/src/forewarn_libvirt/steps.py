"""One step with one machine: look where its domain is and what its note says, and act once.

A note is written before something is done and after it, so that whoever comes next knows how far
it is. Nothing here waits: a step that has to wait returns for how long.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

import libvirt
import msgspec

from forewarn.core.time import SECOND, Duration
from forewarn.drivers.port import Task, TaskMachine
from forewarn_libvirt import disks, migrations
from forewarn_libvirt.definitions import Definitions, NotKept
from forewarn_libvirt.hosts import Domain, Hosts
from forewarn_libvirt.migrations import Key, Migrations
from forewarn_libvirt.notes import BEGUN, FROZEN, OVER, Note, with_note
from forewarn_libvirt.options import LibvirtOptions

LOOK_AGAIN: Duration = SECOND  # at a guest that shuts down, or a migration
# Why a domain is off that nobody has switched off.
FAILED = frozenset(
    {
        libvirt.VIR_DOMAIN_SHUTOFF_UNKNOWN,  # its host was restarted
        libvirt.VIR_DOMAIN_SHUTOFF_CRASHED,
        libvirt.VIR_DOMAIN_SHUTOFF_FAILED,
        libvirt.VIR_DOMAIN_SHUTOFF_DAEMON,
    }
)


class Wait(NamedTuple):
    """What is under way takes more time."""

    after: Duration
    progress: str


class Refused(Exception):
    """Nothing was done to the machine now; the message says why. It can be tried again."""

    def __init__(self, why: str, *unsuitable: str) -> None:
        super().__init__(why)
        self.unsuitable = unsuitable  # hosts that cannot take it


class Unclear(Exception):
    """Somebody has to look at the machine; the message says why."""


class Place(NamedTuple):
    """The domains of a machine by host, and the one that is running, if any."""

    found: Mapping[str, Domain]
    running: Domain | None

    @property
    def active(self) -> bool:
        return any(domain.active for domain in self.found.values())

    @property
    def domain(self) -> Domain | None:
        return self.running or next(iter(self.found.values()), None)


class Steps:
    def __init__(
        self,
        options: LibvirtOptions,
        hosts: Hosts,
        definitions: Definitions,
        migrations: Migrations,
        may_act: Callable[[], bool],
    ) -> None:
        self._options = options
        self._hosts = hosts
        self._definitions = definitions
        self._migrations = migrations
        self._may_act = may_act
        self._asked: set[Key] = set()  # who was asked by this process to shut down

    def has_happened(
        self, task: Task, machine: TaskMachine, moved: dict[str, str], away: dict[str, float]
    ) -> bool:
        """Return whether nothing is left to do about a machine. Changes nothing but the fence
        number, so that whoever was late cannot act any more."""
        return self._has_happened(task, machine, self._look(task, machine), moved, away)

    def _has_happened(
        self,
        task: Task,
        machine: TaskMachine,
        place: Place,
        moved: dict[str, str],
        away: dict[str, float],
    ) -> bool:
        if task.type.traits.deletes:
            return not place.found
        domain, event = place.running, event_of(task, machine)
        if domain is None or (note := domain.note()).event != event:
            return False
        if any(d.note().event == event for d in place.found.values() if d is not domain):
            return False  # what is left of it elsewhere has to be removed
        if task.moves:
            if domain.host != note.target:
                return False
            if (seconds := migrations.downtime(domain)) is not None:
                away[machine.name] = seconds
        elif note.stage != OVER:
            return False
        if task.moves or task.type.traits.relocates:
            moved[machine.name] = domain.host
        return True

    def go_on(
        self, task: Task, machine: TaskMachine, moved: dict[str, str], away: dict[str, float]
    ) -> Wait | None:
        """Take the next step with a machine. None: nothing is left to do."""
        place = self._look(task, machine)
        if self._has_happened(task, machine, place, moved, away):
            if not task.type.traits.deletes and machine.name in moved:
                self._arrived(machine, moved[machine.name])
            return None
        if task.type.traits.deletes:
            return self._delete(task, machine, place)
        if task.type.traits.relocates:
            wait = self._redeploy(task, machine, place)
        elif place.domain is None:
            raise Refused(f"there is no domain {machine.name} on {machine.host}")
        elif task.moves:
            return self._migrate(task, machine, place, moved)
        elif task.type.traits.restarts:
            return self._reboot(task, machine, place.domain)
        else:
            return self._freeze(task, machine, place.running, away)
        if wait is None:
            self._arrived(machine, machine.target)
            moved[machine.name] = machine.target or machine.host
        return wait

    # What is done.

    def _freeze(
        self, task: Task, machine: TaskMachine, domain: Domain | None, away: dict[str, float]
    ) -> Wait | None:
        if domain is None:
            raise Refused(f"{machine.name} is not running on {machine.host}")
        note = domain.note()
        if note.event != event_of(task, machine):
            if domain.paused:
                raise Refused(f"{machine.name} is suspended already, by somebody else")
            note = self._begin(domain, task, machine)
        if note.stage == BEGUN:
            if not domain.paused:
                self._act()
                domain.handle.suspend()
            note = msgspec.structs.replace(note, stage=FROZEN, since=task.now)
            domain.write(note)
        freeze = self._options.duration("freeze")
        length = task.duration * SECOND if task.duration >= 0 else freeze
        if (left := note.since + length - task.now) > 0:
            return Wait(left, f"{machine.name} is suspended")
        if domain.handle.state()[0] == libvirt.VIR_DOMAIN_PAUSED:  # nobody else has resumed it
            self._act()
            domain.handle.resume()
            away[machine.name] = (task.now - note.since) / SECOND
        domain.write(msgspec.structs.replace(note, stage=OVER))
        return None

    def _reboot(self, task: Task, machine: TaskMachine, domain: Domain) -> Wait | None:
        """Shut down and start again: a new run, with the note of the definition."""
        note = domain.note()
        mine = note.event == event_of(task, machine)
        if not domain.active:
            if not mine and domain.reason not in FAILED:
                raise Refused(f"{machine.name} was shut down by somebody else")
            self._begin(domain, task, machine, inactive=OVER)
        else:
            if not domain.persistent:
                raise Refused(f"{machine.name} has no definition from which it could be started")
            if not mine:
                note = self._begin(domain, task, machine, inactive=OVER)
            if (wait := self._stop(task, machine, domain, note)) is not None:
                return wait
        self._act()
        domain.handle.create()
        return None

    def _migrate(
        self, task: Task, machine: TaskMachine, place: Place, moved: dict[str, str]
    ) -> Wait | None:
        key = (event_of(task, machine), machine.name)
        domain = place.running
        stopped = place.found.get(machine.host)
        if stopped is not None and stopped.migrating and not self._migrations.is_running(key):
            self._settle(machine, stopped, key[0])
        if (stopped is not None and stopped.migrating) or (domain is None and place.active):
            return Wait(LOOK_AGAIN, f"{machine.name} is being handed over")
        if domain is None:
            raise Refused(f"{machine.name} is not running on {machine.host}")
        to = domain.note().target or machine.target
        if (job := domain.job()) or self._migrations.is_running(key):
            return Wait(LOOK_AGAIN, f"{machine.name} to {to}: {migrations.progress(job)}")
        if (problem := self._migrations.take_problem(key)) is not None:
            raise Refused(problem.why, *([to] if problem.unsuitable else []))
        if domain.host == machine.target:  # by somebody else
            moved[machine.name] = domain.host
            return None
        if not machine.target:
            raise Refused(f"there is no host that {machine.name} could move to")
        copies = disks.local(domain.definition(), self._options.shared)
        if copies and not self._options.copy_disks:
            raise Refused(f"{machine.name}: {copies[0]} is on no shared storage")
        self._begin(domain, task, machine)
        if not self._migrations.start(key, domain, machine.target, bool(copies)):
            return Wait(LOOK_AGAIN, f"{machine.name} waits for other migrations from {domain.host}")
        return Wait(LOOK_AGAIN, f"{machine.name} to {machine.target}: begun")

    def _settle(self, machine: TaskMachine, stopped: Domain, event: str) -> None:
        """Settle which domain is the machine, if the libvirt of its host was killed while that of
        the target took over: it has left the domain stopped, without a job."""
        note = stopped.note()
        if note.event != event or stopped.job() or not stopped.persistent:
            return
        targets = {note.target, machine.target}
        there = self._hosts.find_all(targets, machine.name, machine.vm_id)
        self._act()
        if not there:  # not even a definition: it has never run there
            stopped.handle.resume()
        elif any(domain.active and not domain.migrating for domain in there.values()):
            stopped.handle.destroy()
            stopped.undefine(stopped.definition())

    def _redeploy(self, task: Task, machine: TaskMachine, place: Place) -> Wait | None:
        """Define there, stop here, start there, undefine here; or start again here if there is no
        other host, or where somebody else has moved it."""
        source = place.running or place.found.get(machine.host) or place.domain
        if source is None:
            self._start_elsewhere(task, machine)
            return None
        target, note = machine.target or source.host, source.note()
        if source.active and note.event == event_of(task, machine) and note.stage == OVER:
            self._remove_unused(place, note)
            return None
        if target == source.host:
            moved_already = source.active and target != machine.host
            return None if moved_already else self._reboot(task, machine, source)
        if note.event != event_of(task, machine) or note.target != target:
            if note.event == event_of(task, machine) and note.target not in ("", source.host):
                others = self._hosts.find_all([note.target], machine.name, machine.vm_id)
                self._remove_unused(Place(others, None), note)
            note = self._begin(source, task, machine)
        there = place.found.get(target)
        if there is None or not there.active:
            there = self._define(machine, target, source.definition(), note)
        if (wait := self._stop(task, machine, source, note)) is not None:
            return wait
        self._start(machine, there)
        with contextlib.suppress(libvirt.libvirtError):
            there.handle.setAutostart(source.handle.autostart())
        source.undefine(source.definition())
        return None

    def _start_elsewhere(self, task: Task, machine: TaskMachine) -> None:
        """Start a machine whose host has failed from the definition that was kept."""
        if not machine.host_failed:
            raise Refused(f"there is no domain {machine.name} on {machine.host}")
        if not machine.target:
            raise Refused(f"there is no host that {machine.name} could move to")
        definition = self._definitions.find(machine.host, machine.name, machine.vm_id)
        if definition is None:
            raise Refused(f"no definition of {machine.name} on {machine.host} was kept")
        note = Note(event_of(task, machine), task.fence, BEGUN, machine.target, task.now)
        self._start(machine, self._define(machine, machine.target, definition, note))

    def _delete(self, task: Task, machine: TaskMachine, place: Place) -> Wait | None:
        for domain in place.found.values():
            note = domain.note()
            if note.event != event_of(task, machine):
                note = self._begin(domain, task, machine)
            if (wait := self._stop(task, machine, domain, note)) is not None:
                return wait
            self._act()
            if domain.persistent:
                definition = domain.definition()
                if not self._options.keep_disks:
                    disks.delete(self._hosts.connection(domain.host), definition)
                domain.undefine(definition, firmware=not self._options.keep_disks)
            with contextlib.suppress(NotKept):
                self._definitions.forget(domain.host, machine.name)
        return None

    # Of what that consists.

    def _look(self, task: Task, machine: TaskMachine) -> Place:
        """Find the domains of a machine: on its host and its target, or else on all hosts."""
        near = [host for host in (machine.host, machine.target) if host]
        if not near:
            raise Refused(f"the fleet does not say which host {machine.name} is on")
        reachable = near[1:] if machine.host_failed else near
        found = self._hosts.find_all(reachable, machine.name, machine.vm_id)
        if not found:
            others = sorted(task.known_hosts - set(near))
            found = self._hosts.find_all(others, machine.name, machine.vm_id)
        for domain in found.values():
            _admit(domain, task)
        running = [domain for domain in found.values() if domain.active and not domain.migrating]
        if len(running) > 1:
            hosts = " and ".join(domain.host for domain in running)
            raise Unclear(f"{machine.name} is running on {hosts}")
        return Place(found, running[0] if running else None)

    def _begin(
        self, domain: Domain, task: Task, machine: TaskMachine, inactive: str = BEGUN
    ) -> Note:
        """Write that an event begins, and with which stage the domain is started the next time."""
        event, number = event_of(task, machine), domain.handle.ID() if domain.active else -1
        note = Note(event, task.fence, BEGUN, machine.target, task.now, number)
        domain.write(note, msgspec.structs.replace(note, stage=inactive))
        return note

    def _stop(self, task: Task, machine: TaskMachine, domain: Domain, note: Note) -> Wait | None:
        """Ask a guest to shut down, and power it off when its time is up. None: it is off."""
        if not domain.active:
            return None
        left = note.since + self._options.duration("shutdown") - task.now
        key = (event_of(task, machine), machine.name)
        if left > 0 and not domain.paused:
            if key not in self._asked:
                self._act()
                with contextlib.suppress(libvirt.libvirtError):  # then it is powered off later
                    domain.handle.shutdown()
                self._asked.add(key)
            if domain.handle.isActive():
                return Wait(min(LOOK_AGAIN, left), f"{machine.name} is shutting down")
        self._asked.discard(key)
        if domain.handle.isActive():
            self._act()
            domain.handle.destroy()
        return None

    def _define(self, machine: TaskMachine, host: str, definition: str, note: Note) -> Domain:
        """Define a machine on its new host, where it will have been redeployed once it runs."""
        over = msgspec.structs.replace(note, stage=OVER, target=host)
        try:
            return self._hosts.define(host, with_note(definition, over))
        except libvirt.libvirtError as error:
            raise Refused(f"{machine.name} cannot be defined on {host}: {error}", host) from error

    def _start(self, machine: TaskMachine, domain: Domain) -> None:
        if domain.active:
            return
        self._act()
        try:
            domain.handle.create()
        except libvirt.libvirtError as error:
            domain.undefine(domain.definition())
            why = f"{machine.name} cannot be started on {domain.host}: {error}"
            raise Refused(why, domain.host) from error

    def _remove_unused(self, place: Place, note: Note) -> None:
        """Remove what an event has left on hosts where the machine is not running."""
        for domain in place.found.values():
            if not domain.active and domain.note().event == note.event:
                domain.undefine(domain.definition())

    def _arrived(self, machine: TaskMachine, host: str) -> None:
        """Remove what is left of a machine where it was, and keep its definition here."""
        if not host or host == machine.host:
            return
        domain = self._hosts.find(host, machine.name, machine.vm_id)
        with contextlib.suppress(NotKept):  # the next check of an event says so
            if domain is not None:
                self._definitions.keep(domain)
            self._definitions.forget(machine.host, machine.name)

    def _act(self) -> None:
        if not self._may_act():
            raise Refused("this control node does not decide any more")


def event_of(task: Task, machine: TaskMachine) -> str:
    """Return the event of a machine: a task may be several, of which any one may lead."""
    return next((part.event for part in task.parts if machine.name in part.machines), task.event)


def _admit(domain: Domain, task: Task) -> None:
    """Refuse an attempt that comes after a newer one, and let the domain remember the newest."""
    live, inactive = domain.notes()
    highest = max(live.fence, inactive.fence)
    if task.fence < highest:
        raise Unclear(
            f"the attempt with fence number {task.fence} is refused: one with {highest} came before"
            f" it to {domain.handle.name()}"
        )
    if task.fence > highest:
        domain.write(*(msgspec.structs.replace(n, fence=task.fence) for n in (live, inactive)))
