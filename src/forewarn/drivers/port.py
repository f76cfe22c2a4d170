"""The interface of a driver: the task it gets, the answers it gives, its options and its life.

An attempt is stored before `perform` is called. If the outcome of a stored attempt is not known,
after a crash for instance, `observe` is called first. A driver never waits on domain time: if
something has to pass first, it answers `Running` or, to have that survive a restart, `Again`.

How drivers are found by name is `drivers/registry.py`.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Protocol, TypeAlias

import msgspec
from msgspec import Meta

from forewarn.core import EventType, Source, Time
from forewarn.core.commands import Again, Done, Failed
from forewarn.core.time import Duration

__all__ = [
    "Again",
    "Checked",
    "Done",
    "Driver",
    "DriverContext",
    "DriverOptions",
    "Failed",
    "Happened",
    "Impact",
    "Later",
    "MachineState",
    "NotYet",
    "Observed",
    "Ok",
    "Part",
    "Performed",
    "Running",
    "Seen",
    "SeenMachine",
    "SharedImpacts",
    "Task",
    "TaskMachine",
    "Unknown",
    "Veto",
]


class TaskMachine(msgspec.Struct, frozen=True):
    name: str
    host: str = ""
    addresses: tuple[str, ...] = ()
    vm_id: str = ""
    labels: Mapping[str, str] = {}  # its own, and those of its group
    # The host that it is to move to, which is reserved for it until the event is over; in a check,
    # the one that it would be given now. Empty: it does not move, or control knows of no host.
    target: str = ""
    alternatives: tuple[str, ...] = ()  # others that could be its target, the best first
    host_failed: bool = False  # has its host failed, so that nothing can be asked there?


class Part(msgspec.Struct, frozen=True):
    """One of several events that are carried out together, and its machines."""

    event: str
    group: str
    machines: tuple[str, ...]


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One event that is to be carried out, or work on an empty host."""

    event: str  # its id, or that of the work
    group: str
    type: EventType
    source: Source
    machines: tuple[TaskMachine, ...]  # those that exist and are still affected
    work: bool = False  # on a host that was emptied for it: no event, but the work of a rollout
    # The host under maintenance, if any: all machines on it are affected at once. Or the empty one.
    host: str = ""
    moves: bool = False  # a live migration
    in_place: bool = False  # a reimage: a Redeploy after which the machine is on the same host
    parts: tuple[Part, ...] = ()  # the events carried out as one with this one, itself included
    host_labels: Mapping[str, Mapping[str, str]] = {}  # of all hosts named here that have labels
    known_hosts: frozenset[str] = frozenset()  # all hosts that a machine may be on afterwards
    duration: int = -1
    description: str = ""  # what guests are shown
    note: str = ""  # what operators have noted about the hosts of the machines
    ticket: str = ""  # the operators' reference
    rollout: str = ""  # id of the rollout that it is a step of, if any
    step: str = ""  # the name of that step, unique in the rollout
    attempt: int = 0
    # Grows with every attempt, whichever process makes it: whoever acts can refuse a lower one
    # than the highest that it has seen. 0 for a check.
    fence: int = 0
    started_at: Time | None = None
    now: Time


class Ok(msgspec.Struct, frozen=True, tag="ok"):
    pass


class Veto(msgspec.Struct, frozen=True, tag="veto"):
    why: str


class Happened(msgspec.Struct, frozen=True, tag="happened"):
    moved: dict[str, str] = {}
    output: str = ""
    answer: str = ""
    away: dict[str, float] = {}  # by machine: for how many seconds it stood still, as was measured


class NotYet(msgspec.Struct, frozen=True, tag="not-yet"):
    pass


class Later(msgspec.Struct, frozen=True, tag="later"):
    """What has happened cannot be seen at present. It is asked again `at` that time; None: after 5
    s, 10 s, and so on up to 5 min. Until then nothing else is done about the event."""

    at: Time | None
    why: str


class Unknown(msgspec.Struct, frozen=True, tag="unknown"):
    """What has happened will not become known by asking again."""

    why: str
    output: str = ""
    answer: str = ""


class Running(msgspec.Struct, frozen=True, tag="running"):
    """The task is being carried out. `perform` is called again `after` this time, for the same
    attempt. Nothing is stored: after a crash, `observe` is called."""

    after: Duration
    progress: str = ""  # for people, for example "63 %, 1.2 GiB left"


class MachineState(enum.StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"  # it is defined, and does not run
    CRASHED = "crashed"


MAX_SEEN = 2_000  # machines of one host that are reported
# What is seen may come from a driver process that was taken over, so it has limits.
SeenText: TypeAlias = Annotated[str, Meta(max_length=256)]


class SeenMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine as its hypervisor knows it."""

    name: SeenText
    vm_id: SeenText = ""
    state: MachineState
    reason: SeenText = ""  # why it is in that state, for people
    addresses: Annotated[tuple[SeenText, ...], Meta(max_length=64)] = ()
    # By port of the host: the MAC address there.
    ports: Annotated[dict[SeenText, SeenText], Meta(max_length=64)] = {}
    memory: int = 0  # bytes; 0: not known
    cpus: int = 0
    # Where it belongs in the inventory, if somebody has written that down at the hypervisor.
    group: SeenText = ""
    update_domain: int | None = None
    spot: bool = False


class Seen(msgspec.Struct, frozen=True, kw_only=True, tag="seen"):
    """What a driver has seen of the machines of a host."""

    host: SeenText
    machines: Annotated[tuple[SeenMachine, ...], Meta(max_length=MAX_SEEN)] = ()
    whole: bool = False  # are these all of the host, enumerated without an error?
    # Names of machines that somebody has removed from it.
    removed: Annotated[tuple[SeenText, ...], Meta(max_length=MAX_SEEN)] = ()

    def after(self, earlier: Seen) -> Seen:
        """Return what is known of the host after this and an earlier report."""
        machines = self.machines if self.whole else (*earlier.machines, *self.machines)
        present = {machine.name: machine for machine in machines}
        for name in self.removed:
            present.pop(name, None)
        removed = dict.fromkeys((*earlier.removed, *self.removed))
        return Seen(
            host=self.host,
            machines=tuple(sorted(present.values(), key=lambda machine: machine.name)),
            whole=self.whole or earlier.whole,
            removed=tuple(name for name in removed if name not in present)[-MAX_SEEN:],
        )


Checked: TypeAlias = Ok | Veto
Observed: TypeAlias = Happened | NotYet | Later | Unknown
# After Unknown, it is observed at once.
Performed: TypeAlias = Done | Running | Again | Failed | Unknown


class Impact(msgspec.Struct, frozen=True, tag_field="kind", tag="impact"):
    """What was done to machines; recorded for the judge."""

    t: float
    event: str
    type: str
    machines: tuple[str, ...]
    seconds: float = -1  # how long the machines were away; -1: not specified


class DriverOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a driver: the table in the settings file that has the driver's name.

    A subclass declares one field per key. A field without a default is required; say what it is,
    with an example, by `msgspec.Meta(description=…, examples=[…])`.
    """

    # Keys whose value is a path, relative to the settings file.
    paths: ClassVar[tuple[str, ...]] = ()
    # Keys whose value is a list: a program and its arguments. A program with a slash in its name is
    # relative to the settings file, and its arguments are hidden where settings are shown.
    programs: ClassVar[tuple[str, ...]] = ()

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the key and a message for each value that cannot be used."""
        yield from ()

    def open_files(self) -> int:
        """Return how many files and sockets the driver may keep open at a time."""
        return 0


class SharedImpacts(Protocol):
    """What was done to simulated machines, as JSON, for all control nodes. Its methods block."""

    def touch(self, event: str, fence: int, impact: str | None = None) -> tuple[int, bool]:
        """Return the highest fence number with which an event was touched, this one included, and
        whether it has an impact. Without one, it has this one from now on. If the number is higher
        than this one, nothing was changed."""

    def finish(self, event: str, fence: int) -> None:
        """Note that the impact of an event need not be kept for much longer."""

    def close(self) -> None: ...


class DriverContext(msgspec.Struct, frozen=True):
    """What a driver gets from the service that it works for."""

    # Returns the path of a file or directory of the driver's own, beside those of the service, by
    # its suffix; None: nothing outlives the process.
    file: Callable[[str], Path | None] = lambda _: None
    paced: Callable[[Duration], Duration] = lambda duration: duration  # divides by dev's --speed
    # Called with the id of a task that is being carried out, and how far that is, for people.
    on_progress: Callable[[str, str], None] = lambda *_: None
    may_act: Callable[[], bool] = lambda: True  # asked right before something is done to machines
    service_pid: int = 0  # by which programs that outlive the service are found
    # Calls a function, in any thread, with the time until which the service may act, in boot time:
    # now, and whenever it changes. None: it may act for as long as it runs.
    watch_lease: Callable[[Callable[[float], None]], None] | None = None
    # Returns where a simulation keeps what it has done; None: in a file.
    shared_impacts: Callable[[], SharedImpacts | None] = lambda: None
    hosts: tuple[str, ...] = ()  # the only ones that the driver acts on; empty: all
    term: Callable[[], int] = lambda: 0  # of the control node that it works for, among several
    # Called with the id of a task about which the driver can say more than when it was asked last.
    wake: Callable[[str], None] = lambda _: None


class Driver(ABC):
    """Carries events out, and does the work on empty hosts, if it can."""

    @property
    def works(self) -> bool:
        """Can it be given tasks that are work on an empty host?"""
        return False

    @property
    @abstractmethod
    def repeatable(self) -> bool:
        """May `perform` be called again if it is not known whether the event was carried out?"""

    @abstractmethod
    async def check(self, task: Task) -> Checked:
        """Can this event be carried out? Called before it is announced."""

    @abstractmethod
    async def observe(self, task: Task) -> Observed:
        """Has this event been carried out? An exception counts as Later."""

    @abstractmethod
    async def perform(self, task: Task) -> Performed:
        """Carry this event out, or see to it that it goes on."""

    async def watch(self, report: Callable[[Seen], None]) -> None:  # noqa: B027
        """Report the machines of the hosts: all of them at first, and whenever they were enumerated
        again, and each change as it happens. It is called once, after `open`, and runs until it is
        cancelled. Drivers that return at once report nothing."""

    def problem(self) -> str:
        """Return what keeps the driver from carrying out anything at present, or ""."""
        return ""

    def reload(self, options: DriverOptions) -> bool:
        """Use other options from the next call on; return False if that takes a restart."""
        del options
        return False

    async def open(self) -> None:  # noqa: B027 - most drivers have nothing to open
        """Connect, before the first call of another method but `problem` and `reload`. If it
        raises, this control node does not decide. Hosts that cannot be reached are no reason."""

    async def aclose(self) -> None:  # noqa: B027
        """Release what the driver holds, opened or not. It is not called any more."""
