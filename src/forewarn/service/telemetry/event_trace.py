"""The event trace: what happens, in the format that the judge reads, one JSON object per line.

Written as it happens, without waiting for the disk: a trace is evidence, not state.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from io import FileIO
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from forewarn.core import Event, Group, Machine, Time, World
from forewarn.core.changes import (
    Disabled,
    EventMoved,
    GroupDefined,
    MachinePut,
    MachineRemoved,
)
from forewarn.core.deciding.returns import back_within
from forewarn.core.events import EventType
from forewarn.core.fleet import domain_name
from forewarn.core.halts import Halt
from forewarn.core.labels import labels_of, matches, parse
from forewarn.core.lifecycle import SHOWN, Move
from forewarn.core.registry import (
    ConfigurationPut,
    ConfigurationRemoved,
    HaltPut,
    HaltReleased,
    HostPut,
    HostRemoved,
)
from forewarn.core.time import DAY, SECOND, Duration, Durations
from forewarn.core.windows.model import MaintenanceConfiguration
from forewarn.core.windows.openings import next_open
from forewarn.drivers.port import Impact
from forewarn.drivers.simulated import private
from forewarn.service.engine.clock import Clock, Interruption, RealClock
from forewarn.store.port import Commit, Store
from forewarn.support import guard
from forewarn.support.logs import logger

log = logger("forewarn")


Sink: TypeAlias = Callable[[dict[str, Any]], None]

STAGES = SHOWN | {Move.LIST}  # the moves that are recorded: what a guest could see, and since when
WINDOWS_AHEAD: Duration = 35 * DAY  # for which a line says when maintenance may start
WINDOWS_AGAIN: Duration = DAY  # before the end of which the next line is written
TAIL = 65_536  # bytes that are read at once to find the last line of a recording


class EventTrace:
    """`rules` are the durations of the service, if known: the judge needs the grace."""

    def __init__(self, emit: Sink, rules: Durations | None = None) -> None:
        self._sinks = [emit]
        self._rules = rules
        self._machines: dict[str, tuple[str, Machine]] = {}  # as recorded, with their groups
        self._groups: dict[str, Group] = {}  # as recorded
        self._nodes: set[str] = set()  # hosts that are expected to have a node
        self._windows: list[tuple[Any, ...]] = []  # as recorded
        self._windows_until: Time | None = None  # None: there are none
        self._begun = False
        self._cut_off: Time | None = None  # where the recording that is continued ends unfinished

    def add_sink(self, sink: Sink) -> None:
        """Pass every line from now on to this function as well."""
        self._sinks.append(sink)

    def write(self, kind: str, at: Time, **fields: Any) -> None:
        line = {"kind": kind, "t": at / SECOND, **fields}
        for sink in self._sinks:
            sink(line)

    def begin(
        self,
        store: Store,
        clock: Clock,
        now: Callable[[], World],
        *,
        engine: str,
        answered: bool = False,
    ) -> None:
        """Record from now on what this process does, with a store of this `engine`. If guests were
        `answered` before, this ends no outage."""
        self.continued(now().at)
        self.follow(store, clock)
        wall = {"clock": "wall"} if isinstance(clock, RealClock) else {}
        before = {"answered": True} if answered else {}
        self.write("up", now().at, engine=engine, **wall, **before)
        self._begun = True

    def continued(self, at: Time) -> None:
        """Record that lines are missing, if the process that has written the last one was killed:
        what was committed or answered just before that may not be in the recording."""
        if self._cut_off is not None:
            self.write("gap", self._cut_off, until=at / SECOND)
            self._cut_off = None

    def end(self, now: Callable[[], World]) -> None:
        if self._begun:
            self.write("down", now().at)
            self.write("end", now().at)

    def follow(self, store: Store, clock: Clock) -> None:
        """Record what commits contain that no request shows, beginning with the current state."""
        self._nodes = {host.name for host in store.registry.hosts.values() if host.node}
        if store.groups:
            at = clock.now(self._rules or Durations()).at
            self.state(store, at)
            self._planned([event for g in store.groups.values() for event in g.events], at)

        def on_commit(commit: Commit, changed: Mapping[str, Group]) -> None:
            self.on_commit(commit, changed)
            self._state_changed(store, commit, changed)

        def interrupted(interruption: Interruption) -> None:
            self.write("step", interruption.at, seconds=interruption.lost / SECOND)

        store.on_own_commit(on_commit)
        clock.on_interruption(interrupted)

    def state(self, store: Store, at: Time) -> None:
        """Record the fleet, and what keeps events from starting in it."""
        self.fleet(store, at)
        self._halts(store, at)
        self._write_windows(_windows(store), at)

    def _state_changed(self, store: Store, commit: Commit, changed: Mapping[str, Group]) -> None:
        """Record what a commit has changed of that. The whole fleet is written only if a machine
        is another one to its guests: it may have many."""
        fleet = groups = labels = False
        moved: dict[str, list[str]] = {}
        for entry in commit.entries:
            for item in entry.items:
                match item:
                    case MachinePut(machine=machine):
                        group, before = self._machines.get(machine.name, ("", None))
                        if (group, before and _identity(before)) != (
                            entry.group,
                            _identity(machine),
                        ):
                            fleet = True
                        elif before is not None and _hosts(before) != _hosts(machine):
                            moved[machine.name] = _hosts(machine)
                        labels = labels or before is None or before.labels != machine.labels
                        self._machines[machine.name] = entry.group, machine
                    case MachineRemoved():
                        fleet = True
                    case GroupDefined():
                        old, new = self._groups.get(entry.group), changed[entry.group]
                        fleet = fleet or old is None or old.kind is not new.kind
                        fleet = fleet or self._back_within(old) != self._back_within(new)
                        labels = labels or old is None or old.labels != new.labels
                        groups = True
                        self._groups[entry.group] = new
        if fleet:
            self.fleet(store, commit.at)
        elif moved:
            self.write("placement", commit.at, machines=moved)
        self._nodes_changed(commit)
        halts = store.registry.halts.values()
        placed = any(isinstance(put, HaltPut | HaltReleased) for put in commit.puts)
        hosts = fleet or moved or any(isinstance(put, HostPut | HostRemoved) for put in commit.puts)
        if (
            placed
            or (labels and any(halt.label for halt in halts))
            or (hosts and any(halt.host_label for halt in halts))
        ):
            self._halts(store, commit.at)
        configured = any(
            isinstance(put, ConfigurationPut | ConfigurationRemoved) for put in commit.puts
        )
        selected = any(c.select for c in store.registry.configurations.values())
        ending = self._windows_until is not None and commit.at > self._windows_until - WINDOWS_AGAIN
        if configured or groups or ending or ((fleet or labels) and selected):
            windows = _windows(store)
            if ending or windows != self._windows:
                self._write_windows(windows, commit.at)

    def _nodes_changed(self, commit: Commit) -> None:
        """Record which hosts are no longer expected to have a node."""
        for put in commit.puts:
            if isinstance(put, HostPut) and put.host.node:
                self._nodes.add(put.host.name)
            elif isinstance(put, HostPut | HostRemoved):
                name = put.host.name if isinstance(put, HostPut) else put.name
                if name in self._nodes:
                    self._nodes.discard(name)
                    self.without_node(commit.at, name)

    def _halts(self, store: Store, at: Time) -> None:
        halts = [_halt(halt, store) for halt in store.registry.halts.values()]
        self.write("halts", at, halts=halts)

    def _write_windows(self, windows: list[tuple[Any, ...]], at: Time) -> None:
        self._windows = windows
        until = at + WINDOWS_AHEAD
        self._windows_until = until if windows else None
        configurations = [
            {"name": configuration.name, **scope, "open": _open_times(configuration, at, until)}
            for configuration, scope in windows
        ]
        self.write("maintenance", at, until=until / SECOND, configurations=configurations)

    def _back_within(self, group: Group | None) -> dict[str, Any]:
        """Return for how many seconds at most events of a group wait for its machines, by type."""
        if group is None or self._rules is None:
            return {}
        seconds = {
            type.value: within / SECOND
            for type in EventType
            if (within := back_within(group, type, self._rules))
        }
        return {"back_within": seconds} if seconds else {}

    def on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        raised: list[Event] = []
        for entry in commit.entries:
            names = {machine.name for machine in changed[entry.group].machines}
            for item in entry.items:
                if isinstance(item, EventMoved) and item.what in STAGES:
                    self._stage(item, commit.at)
                match item:
                    case EventMoved(what=Move.FAIL, event=event):
                        raised.append(event)
                    case EventMoved(what=Move.RAISE | Move.APPROVE as what, event=event):
                        if what is Move.RAISE:
                            raised.append(event)
                        elif event.ignore_windows:
                            self.write("ignores-windows", commit.at, event=event.id)
                        if event.unannounced:
                            continue  # guests are neither asked nor shown it
                        if event.approved and event.approved.by not in names:
                            self.write("approval", commit.at, event=event.id, by=event.approved.by)
                    case EventMoved(event=event) if event.unannounced and event.status.over:
                        self.write("over", commit.at, event=event.id)
                    case Disabled():
                        removed = {} if changed[entry.group].machines else {"removed": True}
                        self.write("disabled", commit.at, group=entry.group, **removed)

        self._planned(raised, commit.at)

    def _stage(self, item: EventMoved, at: Time) -> None:
        what, event = item.what, item.event
        if event.unannounced:
            return
        self.write(
            "event",
            at,
            event=event.id,
            move=what.value,
            status=event.status.value,
            group=event.group,
            type=event.type.value,
            source=event.source.value,
            machines=event.resources,
            not_before=event.not_before / SECOND,
            seconds=event.duration,
            listed=event.listed,
            real=guard.boottime(),
            **_approval(event),
            **({"carried_out": True} if event.carried_out else {}),
        )

    def _planned(self, events: Iterable[Event], at: Time) -> None:
        """Write what no document says about events: which go together, when they may start, which
        are not announced, which were postponed, and which deliberately have less notice than their
        type promises."""
        joints: dict[str, list[Event]] = {}
        for event in events:
            if event.joint is not None:
                joints.setdefault(event.joint.id, []).append(event)
            if event.span is not None:
                closes = None if event.span.closes is None else event.span.closes / SECOND
                opens = event.span.opens / SECOND
                self.write("window", at, event=event.id, opens=opens, closes=closes)
            if event.ignore_windows:
                self.write("ignores-windows", at, event=event.id)
            elif event.deadline is not None:
                deadline = event.deadline / SECOND
                self.write("ignores-windows", at, event=event.id, **{"from": deadline})
            for postponement in event.postponed:
                later = postponement.after / SECOND
                self.write("postponed", at, event=event.id, not_before=later)
            if event.short_notice or (event.failure and not event.traits.sudden):
                self.write("short-notice", at, event=event.id)
            if event.unannounced:
                self.write(
                    "unannounced",
                    at,
                    event=event.id,
                    group=event.group,
                    type=event.type.value,
                    source=event.source.value,
                    machines=event.resources,
                )
        for id, members in joints.items():
            groups = {event.id: event.group for event in members}
            joint = members[0].joint
            domain = {}
            if joint is not None and joint.domain is not None:
                domain["domain"] = domain_name(joint.domain)
            self.write("joint", at, id=id, host=members[0].host, events=groups, **domain)

    def impact(self, impact: Impact) -> None:
        """Record what a simulation did to machines."""
        self.write(
            "impact",
            round(impact.t * SECOND),
            event=impact.event,
            type=impact.type,
            machines=impact.machines,
            seconds=impact.seconds,
        )

    def disconnected(self, at: Time, host: str, machines: Iterable[str]) -> None:
        """Record that control cannot reach the node on a host, which answers these machines."""
        self.write("disconnected", at, host=host, machines=list(machines))

    def joined(self, at: Time, host: str, machines: Iterable[str]) -> None:
        """Record that the node shows these machines everything that it had missed."""
        self.write("joined", at, host=host, machines=list(machines))

    def reach(self, at: Time, hosts: Iterable[str], *, reached: bool) -> None:
        """Record that control cannot reach the nodes of hosts, or can reach them again."""
        if names := list(hosts):
            self.write("reachable" if reached else "unreachable", at, hosts=names)

    def without_node(self, at: Time, host: str) -> None:
        """Record that a host is no longer expected to have a node."""
        self.write("without-node", at, host=host)

    def unresponsive(
        self,
        at: Time,
        machine: str,
        caller_id: str,
        seconds: float,
        by_itself: bool,
        unanswered: bool,
        fault: str,
    ) -> None:
        """Record that the clock has waited in vain for a client, which had polled before."""
        self.write(
            "unresponsive",
            at,
            real=guard.boottime(),
            machine=machine,
            client=caller_id,
            seconds=seconds,
            by_itself=by_itself,
            unanswered=unanswered,
            **({"fault": fault} if fault else {}),
        )

    def responsive(self, at: Time, machine: str, caller_id: str) -> None:
        """Record that such a client has polled again."""
        self.write("responsive", at, real=guard.boottime(), machine=machine, client=caller_id)

    def fleet(self, store: Store, at: Time) -> None:
        self._groups = dict(store.groups)
        self._machines = {
            machine.name: (group.name, machine)
            for group in store.groups.values()
            for machine in group.machines
        }
        groups = {
            group.name: {
                "kind": group.kind.value,
                **self._back_within(group),
                **({"shown": group.shown} if group.shown else {}),
            }
            for group in store.groups.values()
        }
        machines = {
            name: {
                "group": group,
                "update_domain": machine.update_domain,
                **({"fault_domain": machine.fault_domain} if machine.split else {}),
                "addresses": machine.addresses,
                **({"hosts": hosts} if (hosts := _hosts(machine)) else {}),
                **({"spot": True} if machine.spot else {}),
            }
            for name, (group, machine) in self._machines.items()
            if machine.alive
        }
        pace = {}
        if self._rules is not None:
            pace["grace"] = self._rules.paced(self._rules.start_grace) / SECOND
            if self._rules.speed != 1.0:
                pace["speed"] = self._rules.speed
        self.write("fleet", at, groups=groups, machines=machines, **pace)


def _identity(machine: Machine) -> tuple[Any, ...]:
    """Return what a fleet line says about a machine, except for its hosts."""
    return machine.domain, machine.addresses, machine.spot, machine.alive


def _hosts(machine: Machine) -> list[str]:
    """Return the host that a machine is on, and another one on which it may be as well."""
    return [host for host in (machine.host, machine.disputed) if host]


def _halt(halt: Halt, store: Store) -> dict[str, Any]:
    line: dict[str, Any] = {"id": halt.id}
    if halt.groups:
        line["groups"] = halt.groups
    if halt.label or halt.host_label:
        names = _selected(halt.label, store.groups)
        if halt.host_label:
            terms, hosts = parse(halt.host_label), store.registry.hosts.values()
            matching = {host.name for host in hosts if matches(terms, host.labels)}
            machines = (m for group in store.groups.values() for m in group.machines)
            there = {m.name for m in machines if not matching.isdisjoint(_hosts(m))}
            names = [name for name in names if name in there]
        line["machines"] = names
    return line


def _selected(selector: str, groups: Mapping[str, Group]) -> list[str]:
    """Return the machines whose labels match a selector."""
    terms = parse(selector)
    return [m.name for g in groups.values() for m in g.machines if matches(terms, labels_of(g, m))]


def _windows(store: Store) -> list[tuple[Any, ...]]:
    """Return everything that limits when maintenance may start, and to what it applies."""
    windows: list[tuple[Any, ...]] = [
        (configuration, {"groups": [group.name]})
        for group in store.groups.values()
        if (configuration := group.policy.configuration)
    ]
    for configuration in store.registry.configurations.values():
        select = configuration.select
        scope = {"machines": _selected(select, store.groups)} if select else {}
        windows.append((configuration, scope))
    return windows


def _open_times(
    configuration: MaintenanceConfiguration, begin: Time, until: Time
) -> list[tuple[float, float]]:
    """Return when a configuration allows maintenance to start, between two times."""
    times: list[tuple[float, float]] = []
    at = begin
    while at < until and (span := next_open((configuration,), at)) is not None:
        closes = until if span.closes is None else min(span.closes, until)
        if span.opens >= until:
            break
        times.append((max(span.opens, begin) / SECOND, closes / SECOND))
        at = closes
    return times


def _approval(event: Event) -> dict[str, Any]:
    """Return who approved an event. A guest's request is recorded only when it has been answered,
    which is after its effects."""
    if event.approved is None:
        return {}
    return {"approved": event.approved.at / SECOND, "approved_by": event.approved.by}


class FileEventTrace(EventTrace):
    def __init__(self, path: Path, rules: Durations, host: str = "") -> None:
        """`host` is that of the node that records; empty: it is no node."""
        super().__init__(self._append, rules)
        self._host = {"host": host} if host else {}
        self._file = private(path).open("a+b", buffering=0)
        self._cut_off = _cut_off(self._file)
        self._broken = False

    def _append(self, record: dict[str, Any]) -> None:
        if self._broken:
            return
        line = msgspec.json.encode({**record, **self._host}) + b"\n"
        try:
            before = os.fstat(self._file.fileno()).st_size
            if self._file.write(line) != len(line):
                self._file.truncate(before)  # the trace ends with a whole line
                raise OSError(errno.ENOSPC, "not enough space for the whole line")
        except OSError as error:  # evidence is lost, but the service goes on
            self._broken = True
            log.error(
                "the event trace can no longer be written", file=self._file.name, why=str(error)
            )

    def close(self) -> None:
        self._file.close()


class _LastLine(msgspec.Struct):
    kind: str
    t: float


def _cut_off(file: FileIO) -> Time | None:
    """Return the time of the last line of a recording that ends although its service had not
    stopped; None for any other file. An incomplete last line is removed."""
    end, tail = file.seek(0, os.SEEK_END), b""
    while end and tail.count(b"\n") < 2:
        begin = max(0, end - TAIL)
        file.seek(begin)
        end, tail = begin, file.read(end - begin) + tail
    *_, last, torn = (b"", *tail.rsplit(b"\n", 2))
    try:
        line = msgspec.json.decode(last, type=_LastLine)
    except msgspec.DecodeError:
        if torn:
            file.write(b"\n")
        return None
    if torn:
        file.truncate(end + len(tail) - len(torn))
    return None if line.kind in ("down", "end") else round(line.t * SECOND)
