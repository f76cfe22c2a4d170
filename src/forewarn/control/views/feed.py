"""Conversion of commits and history records to the types of the feed and the history."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import msgspec

from forewarn.control.schema import feed as f
from forewarn.control.views import core
from forewarn.control.views.shape import view
from forewarn.core import Event
from forewarn.core.changes import (
    Disabled,
    Enabled,
    EventMoved,
    GroupDefined,
    MachinePut,
    MachineRemoved,
)
from forewarn.core.fleet import Host, Machine
from forewarn.core.history import HistoryReplayer, Record, RecordKind
from forewarn.core.registry import HostPut, HostRemoved, Put, RolloutPut, RolloutRemoved
from forewarn.core.rollouts.model import Rollout
from forewarn.store.port import Commit
from forewarn.support.instants import to_datetime


def commit(commit: Commit) -> f.FeedCommit:
    changes = [(entry.group, entry.items) for entry in commit.entries]
    records = HistoryReplayer(commit.replay_notes).records(commit.at, changes, commit.puts)
    view = f.FeedCommit(
        seq=commit.seq, at=to_datetime(commit.at), changes=[_change(record) for record in records]
    )
    _add_registry(view, commit.puts)
    events: dict[str, Event] = {}
    machines: dict[str, f.FeedMachine | None] = {}
    for name, items in changes:
        group = f.FeedGroup(name=name)
        for item in items:
            match item:
                case EventMoved(event=event):
                    events[event.id] = event
                case MachinePut(machine=machine):
                    machines[machine.name] = _machine(name, machine)
                case MachineRemoved(name=removed):
                    machines.setdefault(removed, None)  # unless it has moved to another group
                case GroupDefined(kind=kind, labels=labels):
                    group.kind, group.labels = kind.value, labels
                case Enabled():
                    group.enabled = True
                case Disabled():
                    group.enabled = False
        if group != f.FeedGroup(name=name):
            view.groups.append(group)
    view.events = [core.event(event) for event in events.values()]
    view.machines = [machine for machine in machines.values() if machine is not None]
    view.machines_removed = [name for name, machine in machines.items() if machine is None]
    return view


def filtered(whole: f.FeedCommit, keep: Callable[[f.FeedChange], bool]) -> f.FeedCommit:
    """Return a commit with only the changes to keep, and the values that these are about."""
    changes = [change for change in whole.changes if keep(change)]
    events = {change.event for change in changes}
    groups = {change.group for change in changes if not change.event and not change.machines}
    hosts = {change.host for change in changes if change.what.startswith("host-")}
    rollouts = {change.cause for change in changes if change.what.startswith("rollout-")}
    machines = {
        name for change in changes if change.what.startswith("machine-") for name in change.machines
    }
    return f.FeedCommit(
        seq=whole.seq,
        at=whole.at,
        changes=changes,
        events=[event for event in whole.events if event.id in events],
        machines=[machine for machine in whole.machines if machine.name in machines],
        machines_removed=[name for name in whole.machines_removed if name in machines],
        groups=[group for group in whole.groups if group.name in groups],
        hosts=[host for host in whole.hosts if host.name in hosts],
        hosts_removed=[name for name in whole.hosts_removed if name in hosts],
        rollouts=[rollout for rollout in whole.rollouts if rollout.id in rollouts],
        rollouts_removed=[id for id in whole.rollouts_removed if id in rollouts],
    )


def _add_registry(view: f.FeedCommit, puts: Iterable[Put]) -> None:
    hosts: dict[str, f.FeedHost | None] = {}
    rollouts: dict[str, f.FeedRollout | None] = {}
    for put in puts:
        match put:
            case HostPut(host=host):
                hosts[host.name] = _host(host)
            case HostRemoved(name=name):
                hosts[name] = None
            case RolloutPut(rollout=rollout):
                rollouts[rollout.id] = _rollout(rollout)
            case RolloutRemoved(id=id):
                rollouts[id] = None
    view.hosts = [host for host in hosts.values() if host is not None]
    view.hosts_removed = [name for name, host in hosts.items() if host is None]
    view.rollouts = [rollout for rollout in rollouts.values() if rollout is not None]
    view.rollouts_removed = [id for id, rollout in rollouts.items() if rollout is None]


def _change(record: Record) -> f.FeedChange:
    return view(f.FeedChange, record)


def _machine(group: str, machine: Machine) -> f.FeedMachine:
    return view(f.FeedMachine, machine, group=group)


def _host(host: Host) -> f.FeedHost:
    return view(f.FeedHost, host)


def _rollout(rollout: Rollout) -> f.FeedRollout:
    paused, aborted = rollout.paused is not None, rollout.aborted is not None
    return view(f.FeedRollout, rollout, paused=paused, aborted=aborted)


def history_record(record: Record, *, limited: bool = False) -> f.HistoryRecord:
    """Convert a record; for a `limited` caller, without what the driver has told the platform."""
    return view(
        f.HistoryRecord,
        record,
        output="" if limited else record.output,
        answer={} if limited else _answer(record.answer),
        shown=_shown(record),
    )


def _shown(record: Record) -> dict[str, datetime | None] | None:
    """Return since when the machines of an event that has started had been shown it."""
    if record.what is not RecordKind.STARTED or record.shown is None:
        return None
    before = {name: at for name, at in record.shown.items() if at <= record.at}
    return {name: to_datetime(before[name]) if name in before else None for name in record.machines}


def _answer(text: str) -> dict[str, Any]:
    """Return the answer of a driver. A driver of somebody else may have given something else."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any]) if text else {}
    except msgspec.MsgspecError:
        return {}
