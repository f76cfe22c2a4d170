"""The history: one record for people about each thing that a commit has changed.

Records are derived from the changes of commits and the state before them alone, so that they can
be derived again at any time. The only exception is which machines were shown an event, which comes
from the index of polls. Storing and querying records is the store's task.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec

from forewarn.core.changes import (
    Change,
    Disabled,
    Enabled,
    EventMoved,
    GroupDefined,
    MachinePut,
    MachineRemoved,
)
from forewarn.core.events import IGNORES_WINDOWS, Event
from forewarn.core.fleet import REVOKED, Health, Host, Machine
from forewarn.core.group import Group
from forewarn.core.lifecycle import Move
from forewarn.core.registry import (
    PLACED,
    ClockAccepted,
    ConfigurationPut,
    ConfigurationRemoved,
    HaltPut,
    HaltReleased,
    HostPut,
    HostRemoved,
    Put,
    RolloutPut,
    StateRestored,
    TokenPut,
)
from forewarn.core.time import Time
from forewarn.support.text import in_words, listing, utc

DRIVER = "driver"  # `Record.by` for answers of the driver


class RecordKind(enum.Enum):
    """What a record of the history is about. The values are stored and shown to users."""

    RAISED = "raised"
    STRUCK = "struck"
    LISTED = "listed"
    SEEN = "seen"
    APPROVED = "approved"
    POSTPONED = "postponed"
    READY = "ready"
    LEFT = "left"
    RETIMED = "retimed"
    STARTED = "started"
    ATTEMPTED = "attempted"
    ANSWERED = "answered"
    CARRIED_OUT = "carried-out"
    FINISHED = "finished"
    WITHDRAWN = "withdrawn"
    ENABLED = "enabled"
    DISABLED = "disabled"
    GROUP_CHANGED = "group-changed"
    MACHINE_ADDED = "machine-added"
    MACHINE_CHANGED = "machine-changed"
    MACHINE_MOVED = "machine-moved"
    MACHINE_GONE = "machine-gone"
    MACHINE_RESTORED = "machine-restored"
    MACHINE_REMOVED = "machine-removed"
    MACHINE_NOT_BACK = "machine-not-back"
    MACHINE_BACK = "machine-back"
    HOST_ADDED = "host-added"
    HOST_CHANGED = "host-changed"
    HOST_DEGRADED = "host-degraded"
    HOST_FAILED = "host-failed"
    HOST_REPAIRED = "host-repaired"
    HOST_CORDONED = "host-cordoned"
    HOST_UNCORDONED = "host-uncordoned"
    HOST_NODE_JOINED = "host-node-joined"
    HOST_WITHOUT_NODE = "host-without-node"
    HOST_ENROLLMENT = "host-enrollment"
    HOST_ENROLLED = "host-enrolled"
    HOST_REVOKED = "host-revoked"
    HOST_REMOVED = "host-removed"
    ROLLOUT_STARTED = "rollout-started"
    ROLLOUT_PAUSED = "rollout-paused"
    ROLLOUT_RESUMED = "rollout-resumed"
    ROLLOUT_SKIPPED = "rollout-skipped"
    ROLLOUT_ABORTED = "rollout-aborted"
    ROLLOUT_ENDED = "rollout-ended"
    ROLLOUT_CHANGED = "rollout-changed"
    HALT_PLACED = "halt-placed"
    HALT_RELEASED = "halt-released"
    MAINTENANCE_CHANGED = "maintenance-changed"
    MAINTENANCE_REMOVED = "maintenance-removed"
    TOKEN_CREATED = "token-created"
    TOKEN_REVOKED = "token-revoked"
    STATE_RESTORED = "state-restored"
    CLOCK_ACCEPTED = "clock-accepted"

    @property
    def ends(self) -> bool:
        """Is this the last record of an event?"""
        return self in (RecordKind.FINISHED, RecordKind.WITHDRAWN)


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    at: Time
    what: RecordKind
    seq: int = 0  # assigned when the record is stored; never reused
    by: str = ""  # who did it; empty: the service itself, by its rules
    group: str = ""
    event: str = ""
    machine: str = ""  # the machine that it is about, or that did it
    type: str = ""  # these four are the event's
    machines: tuple[str, ...] = ()
    host: str = ""
    cause: str = ""  # of the event; or the id or name of what is no group, machine or host
    note: str = ""  # for people: the reason, the ending, or the driver's last line of output
    output: str = ""  # of the driver
    answer: str = ""  # for programs: a JSON object with what the driver has answered
    # Of SEEN and STARTED: since when each machine of the event has been shown it, if it has. It is
    # complete some seconds after that. None: not known.
    shown: Mapping[str, Time] | None = None

    def with_event(self, event: Event) -> Record:
        """Return the record with the fields of its event that never change."""
        alone = self.what.value.startswith("machine-")
        return msgspec.structs.replace(
            self,
            type=event.type.value,
            machines=self.machines if alone else event.resources,
            host=self.host or event.host,
            cause=event.cause,
        )


MOVES: Mapping[Move, RecordKind] = {
    Move.RAISE: RecordKind.RAISED,
    Move.FAIL: RecordKind.STRUCK,
    Move.LIST: RecordKind.LISTED,
    Move.APPROVE: RecordKind.APPROVED,
    Move.POSTPONE: RecordKind.POSTPONED,
    Move.READY: RecordKind.READY,
    Move.LEAVE: RecordKind.LEFT,
    Move.RETIME: RecordKind.RETIMED,
    Move.START: RecordKind.STARTED,
    Move.ATTEMPT: RecordKind.ATTEMPTED,
    Move.ANSWER: RecordKind.ANSWERED,
    Move.FINISH: RecordKind.FINISHED,
    Move.WITHDRAW: RecordKind.WITHDRAWN,
}

HEALTH: Mapping[Health, RecordKind] = {
    Health.HEALTHY: RecordKind.HOST_REPAIRED,
    Health.DEGRADED: RecordKind.HOST_DEGRADED,
    Health.FAILED: RecordKind.HOST_FAILED,
}

OF_NODES = (  # records about the node of a host, whose note is that of the change
    RecordKind.HOST_NODE_JOINED,
    RecordKind.HOST_WITHOUT_NODE,
    RecordKind.HOST_ENROLLMENT,
    RecordKind.HOST_ENROLLED,
    RecordKind.HOST_REVOKED,
)

ROLLOUT: Mapping[str, RecordKind] = {
    what.value.removeprefix("rollout-"): what
    for what in RecordKind
    if what.value.startswith("rollout-")
}

TOKEN: Mapping[str, RecordKind] = {
    "created": RecordKind.TOKEN_CREATED,
    "revoked": RecordKind.TOKEN_REVOKED,
}

Changed: TypeAlias = Iterable[tuple[str, tuple[Change, ...]]]
ReplayNote: TypeAlias = tuple[int, str, str]  # number of repetitions, kind, note


class HistoryWriter:
    """Writes the records of one commit after the other.

    `groups` and `hosts` are the state before the first commit and are only read; what the commits
    change is remembered here.
    """

    def __init__(self, groups: Mapping[str, Group], hosts: Mapping[str, Host]) -> None:
        self._groups = groups
        self._hosts = hosts
        self._defined: dict[str, GroupDefined] = {}
        self._machines: dict[tuple[str, str], Machine | None] = {}
        self._changed_hosts: dict[str, Host | None] = {}
        self._replay_notes: list[ReplayNote] = []

    def replay_notes(self) -> tuple[ReplayNote, ...]:
        """Return what the records since the last call say beyond the changes themselves.

        It is stored with the commit, for `HistoryReplayer`.
        """
        notes, self._replay_notes = tuple(self._replay_notes), []
        return notes

    def records(self, at: Time, changed: Changed, puts: Iterable[Put] = ()) -> Iterator[Record]:
        for put in puts:
            yield from self._registry_records(at, put)
        for group, items in changed:
            finish: EventMoved | None = None  # it is the cause of the machine changes after it
            for item in items:
                match item:
                    case EventMoved():
                        if item.what is Move.FINISH:
                            finish = item
                        yield from self._event_records(at, group, item)
                    case MachinePut():
                        yield self._machine_record(at, group, item, finish)
                    case MachineRemoved(name=name, by=by):
                        self._machines[group, name] = None
                        yield Record(
                            at=at,
                            what=RecordKind.MACHINE_REMOVED,
                            by=by,
                            group=group,
                            machine=name,
                            machines=(name,),
                        )
                    case GroupDefined(by=by):
                        note = self._group_change(group, item)
                        self._note(RecordKind.GROUP_CHANGED, note)
                        yield Record(
                            at=at, what=RecordKind.GROUP_CHANGED, by=by, group=group, note=note
                        )
                    case Enabled():
                        yield Record(at=at, what=RecordKind.ENABLED, group=group)
                    case Disabled(why=why, by=by):
                        yield Record(at=at, what=RecordKind.DISABLED, by=by, group=group, note=why)

    def _event_records(self, at: Time, group: str, item: EventMoved) -> Iterator[Record]:
        event = item.event
        by, note = _actor_and_note(item)
        machine = "" if by in event.resources or not self._is_machine(group, by) else by
        waits = item.what is Move.ANSWER and event.waiting is not None
        what = RecordKind.CARRIED_OUT if waits else MOVES[item.what]
        record = _event_record(event, at, what, by, note, machine)
        if item.output or item.answer:
            record = msgspec.structs.replace(record, output=item.output, answer=item.answer)
        yield record
        if item.what is Move.RAISE and event.approved is not None:
            yield _event_record(
                event, at, RecordKind.APPROVED, event.approved.by, "as it was raised"
            )

    def _machine_record(
        self, at: Time, group: str, item: MachinePut, finish: EventMoved | None
    ) -> Record:
        machine = item.machine
        what, note = self._machine_change(group, machine)
        self._note(what, note)
        by, event = item.by, None
        if finish is not None and machine.name in finish.event.resources:
            by, event = by or finish.by, finish.event
        record = Record(
            at=at,
            what=what,
            by=by,
            group=group,
            event=event.id if event else "",
            machine=machine.name,
            machines=(machine.name,),
            host=machine.host,
            note=note,
        )
        return record.with_event(event) if event else record

    def _registry_records(self, at: Time, put: Put) -> Iterator[Record]:
        match put:
            case HostPut(host=host, by=by):
                what = self._host_change(host)
                self._note(what, "")
                note = host.cordon_note if what is RecordKind.HOST_CORDONED else host.note
                if what in OF_NODES:
                    note = put.note
                yield Record(at=at, what=what, by=by, host=host.name, note=note)
            case HostRemoved(name=name, by=by):
                self._changed_hosts[name] = None
                yield Record(at=at, what=RecordKind.HOST_REMOVED, by=by, host=name)
            case RolloutPut(rollout=rollout, what=change, by=by):
                what = ROLLOUT.get(change, RecordKind.ROLLOUT_CHANGED)
                note = _rollout_note(put, what)
                yield Record(
                    at=at,
                    what=what,
                    by=by,
                    type=rollout.type.value,
                    cause=rollout.id,
                    note=note,
                )
            case HaltPut(halt=halt, what=change, by=by) if change == PLACED:
                note = _joined(halt.scope, halt.note)
                yield Record(at=at, what=RecordKind.HALT_PLACED, by=by, cause=halt.id, note=note)
            case HaltReleased(id=id, scope=scope, note=note, by=by):
                note = _joined(scope, note)
                yield Record(at=at, what=RecordKind.HALT_RELEASED, by=by, cause=id, note=note)
            case TokenPut(token=token, what=change, by=by) if change in TOKEN:
                note = f"{token.name} ({token.role.value})"
                yield Record(at=at, what=TOKEN[change], by=by, cause=token.id, note=note)
            case ConfigurationPut(configuration=configuration, by=by):
                what, note = RecordKind.MAINTENANCE_CHANGED, configuration.summary
                yield Record(at=at, what=what, by=by, cause=configuration.name, note=note)
            case ConfigurationRemoved(name=name, by=by):
                yield Record(at=at, what=RecordKind.MAINTENANCE_REMOVED, by=by, cause=name)
            case StateRestored(commit=commit):
                note = f"from a copy that ends with commit {commit}; what was done since is unknown"
                yield Record(at=at, what=RecordKind.STATE_RESTORED, note=note)
            case ClockAccepted(before=before, by=by):
                error = f"{in_words(abs(before - at))} {'ahead' if before > at else 'behind'}"
                note = f"the service's time was {utc(before)}, {error}"
                yield Record(at=at, what=RecordKind.CLOCK_ACCEPTED, by=by, note=note)

    def _note(self, what: RecordKind, note: str) -> None:
        pending = self._replay_notes
        if pending and pending[-1][1:] == (what.value, note):
            pending[-1] = pending[-1][0] + 1, what.value, note
        else:
            pending.append((1, what.value, note))

    def _machine_change(self, group: str, machine: Machine) -> tuple[RecordKind, str]:
        before = self._machine_before(group, machine.name)
        self._machines[group, machine.name] = machine
        return _machine_change(before, machine)

    def _host_change(self, host: Host) -> RecordKind:
        before = self._changed_hosts.get(host.name, self._hosts.get(host.name))
        self._changed_hosts[host.name] = host
        if before is None:
            return RecordKind.HOST_ADDED
        if before.health is not host.health:
            return HEALTH[host.health]
        if bool(before.cordoned) is not bool(host.cordoned):
            return RecordKind.HOST_CORDONED if host.cordoned else RecordKind.HOST_UNCORDONED
        if before.node is not host.node:
            return RecordKind.HOST_NODE_JOINED if host.node else RecordKind.HOST_WITHOUT_NODE
        if (before.node_key, before.driver_key) != (host.node_key, host.driver_key):
            revoked = REVOKED in {host.node_key, host.driver_key} - {
                before.node_key,
                before.driver_key,
            }
            return RecordKind.HOST_REVOKED if revoked else RecordKind.HOST_ENROLLED
        if before.enrollment != host.enrollment:
            return RecordKind.HOST_ENROLLMENT
        return RecordKind.HOST_CHANGED

    def _group_change(self, group: str, item: GroupDefined) -> str:
        before = self._defined.get(group) or self._groups.get(group) or Group(name=group)
        self._defined[group] = item
        names = ("kind", "policy", "place", "labels")
        return ", ".join(n for n in names if getattr(before, n) != getattr(item, n))

    def _machine_before(self, group: str, name: str) -> Machine | None:
        if (group, name) in self._machines:
            return self._machines[group, name]
        before = self._groups.get(group)
        return before.machine(name) if before else None

    def _is_machine(self, group: str, name: str) -> bool:
        return bool(name) and self._machine_before(group, name) is not None


class HistoryReplayer(HistoryWriter):
    """Writes the records of one stored commit again, without the states before it.

    What can only be derived from those states was stored with the commit
    (`HistoryWriter.replay_notes`).
    """

    def __init__(self, notes: Iterable[ReplayNote]) -> None:
        super().__init__({}, {})
        self._stored = _expanded(notes)

    def _note(self, what: RecordKind, note: str) -> None:
        """Do nothing: the notes were stored with the commit."""

    def _machine_change(self, group: str, machine: Machine) -> tuple[RecordKind, str]:
        del group, machine
        return next(self._stored)

    def _host_change(self, host: Host) -> RecordKind:
        del host
        return next(self._stored)[0]

    def _group_change(self, group: str, item: GroupDefined) -> str:
        del group, item
        return next(self._stored)[1]


def _expanded(notes: Iterable[ReplayNote]) -> Iterator[tuple[RecordKind, str]]:
    for times, what, note in notes:
        for _ in range(times):
            yield RecordKind(what), note


def seen(event: Event, machine: str, at: Time, shown: Mapping[str, Time] | None = None) -> Record:
    """Return the record that `machine` was the first to be shown the event, and since when each of
    its own machines has been shown it."""
    unaffected = "" if machine in event.resources else machine
    record = _event_record(event, at, RecordKind.SEEN, machine, "", unaffected)
    return msgspec.structs.replace(record, shown=shown)


def _event_record(
    event: Event, at: Time, what: RecordKind, by: str, note: str, machine: str = ""
) -> Record:
    return Record(
        at=at,
        what=what,
        by=by,
        group=event.group,
        event=event.id,
        machine=machine,
        type=event.type.value,
        machines=event.resources,
        host=event.host,
        cause=event.cause,
        note=note,
    )


def _actor_and_note(item: EventMoved) -> tuple[str, str]:
    event, by, note = item.event, item.by, item.note
    match item.what:
        case Move.RAISE | Move.FAIL:
            note = _with_ticket(event.description, event.ticket)
            if event.ignore_windows:
                note = _joined(note, IGNORES_WINDOWS)
            return by or event.by, note
        case Move.APPROVE if note == IGNORES_WINDOWS:
            return by, note
        case Move.POSTPONE if event.postponed:
            last = event.postponed[-1]
            jointly = "" if last.group else ", with the whole maintenance of its host"
            return by, f"from {utc(last.before)} to {utc(last.after)}{jointly}"
        case Move.APPROVE if event.approved is not None:
            return event.approved.by, note
        case Move.START if event.approved is not None:
            return event.approved.by, "approved"
        case Move.START:
            return by, "the notice has passed"
        case Move.READY:
            own_note = next((report.note for report in event.ready if report.machine == by), "")
            return by, _joined(note, own_note)
        case Move.RETIME:
            return by, "its times were recorded by a clock that was ahead"
        case Move.LEAVE:
            return by, ", ".join(event.left)
        case Move.ATTEMPT if event.attempt is not None:
            return by, f"attempt {event.attempt.number}"
        case Move.ANSWER if event.waiting is not None:
            note = f"waiting for {listing(event.waiting.machines)} to poll again"
            return by or DRIVER, _with_output(note, item.output)
        case Move.ANSWER if event.attempt is not None:
            return by or DRIVER, _with_output(event.attempt.note, item.output) or "not done yet"
        case Move.FINISH | Move.WITHDRAW:
            by = by or (DRIVER if event.carried_out else "")
            return by, _with_output(event.ending, item.output)
    return by, note


def _rollout_note(put: RolloutPut, what: RecordKind) -> str:
    rollout = put.rollout
    match what:
        case RecordKind.ROLLOUT_STARTED:
            override = IGNORES_WINDOWS if rollout.ignore_windows else ""
            return _joined(_with_ticket(rollout.selection, rollout.ticket), override)
        case RecordKind.ROLLOUT_PAUSED:
            return rollout.paused.why if rollout.paused else ""
        case RecordKind.ROLLOUT_RESUMED:
            return rollout.resumed.why if rollout.resumed else ""
        case RecordKind.ROLLOUT_ABORTED:
            return rollout.aborted.why if rollout.aborted else ""
        case RecordKind.ROLLOUT_SKIPPED:
            return put.note
        case RecordKind.ROLLOUT_CHANGED:
            return put.what
    return ""


def _with_ticket(note: str, ticket: str) -> str:
    if not ticket:
        return note
    return f"{note} (ticket {ticket})" if note else f"ticket {ticket}"


def _with_output(note: str, output: str) -> str:
    """Return the note, with the driver's last line of output if it does not end with that."""
    last_line = output.rpartition("\n")[2].strip()
    return note if note.endswith(last_line) else _joined(note, last_line)


def _joined(*parts: str) -> str:
    return ": ".join(dict.fromkeys(part for part in parts if part))


def _machine_change(before: Machine | None, after: Machine) -> tuple[RecordKind, str]:
    if before is None:
        return RecordKind.MACHINE_ADDED, ""
    if before.alive and not after.alive:
        return RecordKind.MACHINE_GONE, after.gone
    if after.alive and not before.alive:
        return RecordKind.MACHINE_RESTORED, f"had been {before.gone}"
    if before.host != after.host:
        note = f"from {before.host or 'nowhere'} to {after.host or 'nowhere'}"
        return RecordKind.MACHINE_MOVED, note
    if after.disputed and after.disputed != before.disputed:
        evidence = "it polls on" if after.disputed_by_poll else "a fleet file says"
        note = f"on {after.host}, but {evidence} {after.disputed}"
        return RecordKind.MACHINE_CHANGED, note
    if after.answered_on and after.answered_on != before.answered_on:
        note = f"answered on {after.answered_on}: the node of {after.host} is cut off"
        return RecordKind.MACHINE_CHANGED, note
    if after.not_back != before.not_back:
        if after.not_back is None:
            return RecordKind.MACHINE_BACK, ""
        return RecordKind.MACHINE_NOT_BACK, f"it has not polled since {utc(after.not_back.since)}"
    names = [n for n in Machine.__struct_fields__ if getattr(before, n) != getattr(after, n)]
    return RecordKind.MACHINE_CHANGED, ", ".join(names)
