"""The event trace: what happens, in the format that the judge reads, one JSON object per line.

Written as it happens, without waiting for the disk: a trace is evidence, not state.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from forewarn.core import Event, Group, Now, Time
from forewarn.core.changes import (
    Disabled,
    EventMoved,
    GroupDefined,
    MachinePut,
    MachineRemoved,
)
from forewarn.core.deciding.configurations import configurations_for
from forewarn.core.lifecycle import SHOWN, Move
from forewarn.core.registry import ConfigurationPut, ConfigurationRemoved
from forewarn.core.time import SECOND, Durations
from forewarn.drivers.port import Impact
from forewarn.drivers.simulated import private
from forewarn.service.engine.clock import Clock, Interruption
from forewarn.store.port import Commit, Store
from forewarn.support import guard
from forewarn.support.logs import logger

log = logger("forewarn")


Sink: TypeAlias = Callable[[dict[str, Any]], None]

STAGES = SHOWN | {Move.LIST}  # the moves that are recorded: what a guest could see, and since when


class EventTrace:
    """`rules` are the durations of the service, if known: the judge needs the grace."""

    def __init__(self, emit: Sink, rules: Durations | None = None) -> None:
        self._sinks = [emit]
        self._rules = rules

    def add_sink(self, sink: Sink) -> None:
        """Pass every line from now on to this function as well."""
        self._sinks.append(sink)

    def write(self, kind: str, at: Time, **fields: Any) -> None:
        line = {"kind": kind, "t": at / SECOND, **fields}
        for sink in self._sinks:
            sink(line)

    def follow(self, store: Store, clock: Clock) -> None:
        """Record what commits contain that no request shows, beginning with the current state."""
        if store.groups:
            at = clock.now(self._rules or Durations()).at
            self.fleet(store, at)
            self._planned([event for g in store.groups.values() for event in g.events], at)

        def on_commit(commit: Commit, changed: Mapping[str, Group]) -> None:
            self.on_commit(commit, changed)
            configured = (ConfigurationPut, ConfigurationRemoved)
            if any(isinstance(put, configured) for put in commit.puts) or any(
                isinstance(item, MachinePut | MachineRemoved | GroupDefined)
                for entry in commit.entries
                for item in entry.items
            ):
                self.fleet(store, commit.at)

        def interrupted(interruption: Interruption) -> None:
            self.write("step", interruption.at, seconds=interruption.lost / SECOND)

        store.on_commit(on_commit)
        clock.on_interruption(interrupted)

    def on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        raised: list[Event] = []
        for entry in commit.entries:
            names = {machine.name for machine in changed[entry.group].machines}
            for item in entry.items:
                if isinstance(item, EventMoved) and item.what in STAGES:
                    self._stage(item.what, item.event, commit.at)
                match item:
                    case EventMoved(what=Move.FAIL, event=event):
                        raised.append(event)
                    case EventMoved(what=Move.RAISE | Move.APPROVE as what, event=event):
                        if what is Move.RAISE:
                            raised.append(event)
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

    def _stage(self, what: Move, event: Event, at: Time) -> None:
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
            real=guard.monotonic(),
            **_approval(event),
        )

    def _planned(self, events: Iterable[Event], at: Time) -> None:
        """Write what no document says about events: which go together, when they may start, which
        are not announced, and which deliberately have less notice than their type promises."""
        joints: dict[str, list[Event]] = {}
        for event in events:
            if event.joint is not None:
                joints.setdefault(event.joint.id, []).append(event)
            if event.span is not None:
                closes = None if event.span.closes is None else event.span.closes / SECOND
                opens = event.span.opens / SECOND
                self.write("window", at, event=event.id, opens=opens, closes=closes)
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
            self.write("joint", at, id=id, host=members[0].host, events=groups)

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
            real=guard.monotonic(),
            machine=machine,
            client=caller_id,
            seconds=seconds,
            by_itself=by_itself,
            unanswered=unanswered,
            **({"fault": fault} if fault else {}),
        )

    def responsive(self, at: Time, machine: str, caller_id: str) -> None:
        """Record that such a client has polled again."""
        self.write("responsive", at, real=guard.monotonic(), machine=machine, client=caller_id)

    def fleet(self, store: Store, at: Time) -> None:
        now = Now(at=at, configurations=tuple(store.registry.configurations.values()))
        groups = {
            group.name: {
                "kind": group.kind.value,
                **({"windows": True} if configurations_for(group, group.alive, now) else {}),
            }
            for group in store.groups.values()
        }
        machines = {
            machine.name: {
                "group": group.name,
                "update_domain": machine.update_domain,
                "addresses": machine.addresses,
                **({"spot": True} if machine.spot else {}),
            }
            for group in store.groups.values()
            for machine in group.machines
            if machine.alive
        }
        pace = {}
        if self._rules is not None:
            pace["grace"] = self._rules.paced(self._rules.start_grace) / SECOND
            if self._rules.speed != 1.0:
                pace["speed"] = self._rules.speed
        self.write("fleet", at, groups=groups, machines=machines, **pace)


def _approval(event: Event) -> dict[str, Any]:
    """Return who approved an event. A guest's request is recorded only when it has been answered,
    which is after its effects."""
    if event.approved is None:
        return {}
    return {"approved": event.approved.at / SECOND, "approved_by": event.approved.by}


class FileEventTrace(EventTrace):
    def __init__(self, path: Path, rules: Durations) -> None:
        self._file = private(path).open("ab", buffering=0)
        self._broken = False
        super().__init__(self._append, rules)

    def _append(self, record: dict[str, Any]) -> None:
        if self._broken:
            return
        line = msgspec.json.encode(record) + b"\n"
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
