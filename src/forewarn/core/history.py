"""The history: what a commit means to people, one record per thing that happened.

Derived from the changes of commits and from what was so before them, and from nothing else, so
it can be written anew at any time; only who saw an event first comes from the index of polls. How
records are kept and asked for is the store's affair.
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
from forewarn.core.events import Event
from forewarn.core.fleet import Health, Host, Machine
from forewarn.core.group import Group
from forewarn.core.lifecycle import Move
from forewarn.core.registry import (
    ClockAccepted,
    HostPut,
    HostRemoved,
    Put,
    RolloutPut,
    StateRestored,
    TokenPut,
)
from forewarn.core.time import Time
from forewarn.support.text import in_words, utc

DRIVER = "driver"  # who has finished what went well


class What(enum.Enum):
    RAISED = "raised"
    STRUCK = "struck"
    LISTED = "listed"
    SEEN = "seen"
    APPROVED = "approved"
    READY = "ready"
    LEFT = "left"
    RETIMED = "retimed"
    STARTED = "started"
    ATTEMPTED = "attempted"
    ANSWERED = "answered"
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
    HOST_ADDED = "host-added"
    HOST_CHANGED = "host-changed"
    HOST_DEGRADED = "host-degraded"
    HOST_FAILED = "host-failed"
    HOST_REPAIRED = "host-repaired"
    HOST_REMOVED = "host-removed"
    ROLLOUT_STARTED = "rollout-started"
    ROLLOUT_PAUSED = "rollout-paused"
    ROLLOUT_RESUMED = "rollout-resumed"
    ROLLOUT_ABORTED = "rollout-aborted"
    ROLLOUT_ENDED = "rollout-ended"
    ROLLOUT_CHANGED = "rollout-changed"
    TOKEN_CREATED = "token-created"
    TOKEN_REVOKED = "token-revoked"
    STATE_RESTORED = "state-restored"
    CLOCK_ACCEPTED = "clock-accepted"

    @property
    def ends(self) -> bool:
        """Is it the last that is said of an event?"""
        return self in (What.FINISHED, What.WITHDRAWN)


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    at: Time
    what: What
    seq: int = 0  # given when it is kept, never given twice
    by: str = ""  # empty: the service itself, as it was bound to
    group: str = ""
    event: str = ""
    machine: str = ""  # the one it is about, or who spoke, if that is one machine
    type: str = ""  # these four are the event's
    machines: tuple[str, ...] = ()
    host: str = ""
    cause: str = ""  # what brought the event about, or which rollout or token it is about
    note: str = ""  # the reason, the ending, the driver's words

    def of(self, event: Event) -> Record:
        """With what never changes about its event."""
        alone = self.what.value.startswith("machine-")
        return msgspec.structs.replace(
            self,
            type=event.type.value,
            machines=self.machines if alone else event.resources,
            host=self.host or event.host,
            cause=event.cause,
        )


MOVES: Mapping[Move, What] = {
    Move.RAISE: What.RAISED,
    Move.STRIKE: What.STRUCK,
    Move.LIST: What.LISTED,
    Move.APPROVE: What.APPROVED,
    Move.READY: What.READY,
    Move.LEAVE: What.LEFT,
    Move.RETIME: What.RETIMED,
    Move.START: What.STARTED,
    Move.ATTEMPT: What.ATTEMPTED,
    Move.ANSWER: What.ANSWERED,
    Move.FINISH: What.FINISHED,
    Move.WITHDRAW: What.WITHDRAWN,
}

HEALTH: Mapping[Health, What] = {
    Health.HEALTHY: What.HOST_REPAIRED,
    Health.DEGRADED: What.HOST_DEGRADED,
    Health.FAILED: What.HOST_FAILED,
}

ROLLOUT: Mapping[str, What] = {
    what.value.removeprefix("rollout-"): what for what in What if what.value.startswith("rollout-")
}

TOKEN: Mapping[str, What] = {"created": What.TOKEN_CREATED, "revoked": What.TOKEN_REVOKED}

Changed: TypeAlias = Iterable[tuple[str, tuple[Change, ...]]]
Word: TypeAlias = tuple[int, str, str]  # so many times in a row: what, and the note


class HistoryWriter:
    """Writes down one commit after the other. What was so before the first is only looked up;
    what the commits themselves change is remembered."""

    def __init__(self, groups: Mapping[str, Group], hosts: Mapping[str, Host]) -> None:
        self._groups = groups
        self._hosts = hosts
        self._defined: dict[str, GroupDefined] = {}
        self._machines: dict[tuple[str, str], Machine | None] = {}
        self._put: dict[str, Host | None] = {}
        self._words: list[Word] = []

    def words(self) -> tuple[Word, ...]:
        """What the records since the last call say that the changes alone do not tell, for those
        who read the changes later (`HistoryReplayer`)."""
        words, self._words = tuple(self._words), []
        return words

    def records(self, at: Time, changed: Changed, puts: Iterable[Put] = ()) -> Iterator[Record]:
        for put in puts:
            yield from self._beside(at, put)
        for group, items in changed:
            ends: EventMoved | None = None  # what happens to machines after it, it has done
            for item in items:
                match item:
                    case EventMoved():
                        if item.what is Move.FINISH:
                            ends = item
                        yield from self._moved(at, group, item)
                    case MachinePut():
                        yield self._machine(at, group, item, ends)
                    case MachineRemoved(name=name, by=by):
                        self._machines[group, name] = None
                        yield Record(
                            at=at,
                            what=What.MACHINE_REMOVED,
                            by=by,
                            group=group,
                            machine=name,
                            machines=(name,),
                        )
                    case GroupDefined(by=by):
                        note = self._redefined(group, item)
                        self._note(What.GROUP_CHANGED, note)
                        yield Record(at=at, what=What.GROUP_CHANGED, by=by, group=group, note=note)
                    case Enabled():
                        yield Record(at=at, what=What.ENABLED, group=group)
                    case Disabled(why=why, by=by):
                        yield Record(at=at, what=What.DISABLED, by=by, group=group, note=why)

    def _moved(self, at: Time, group: str, item: EventMoved) -> Iterator[Record]:
        event = item.event
        by, note = _who_and_why(item)
        machine = "" if by in event.resources or not self._is_machine(group, by) else by
        yield _of(event, at, MOVES[item.what], by, note, machine)
        if item.what is Move.RAISE and event.approved is not None:
            yield _of(event, at, What.APPROVED, event.approved.by, "as it was raised")

    def _machine(self, at: Time, group: str, item: MachinePut, ends: EventMoved | None) -> Record:
        machine = item.machine
        what, note = self._became(group, machine)
        self._note(what, note)
        by, event = item.by, None
        if ends is not None and machine.name in ends.event.resources:
            by, event = by or ends.by, ends.event
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
        return record.of(event) if event else record

    def _beside(self, at: Time, put: Put) -> Iterator[Record]:
        match put:
            case HostPut(host=host, by=by):
                what = self._host(host)
                self._note(what, "")
                yield Record(at=at, what=what, by=by, host=host.name, note=host.note)
            case HostRemoved(name=name, by=by):
                self._put[name] = None
                yield Record(at=at, what=What.HOST_REMOVED, by=by, host=name)
            case RolloutPut(rollout=rollout, what=said, by=by):
                what = ROLLOUT.get(said, What.ROLLOUT_CHANGED)
                note = _rollout_note(put, what)
                yield Record(
                    at=at,
                    what=what,
                    by=by,
                    type=rollout.type.value,
                    cause=rollout.id,
                    note=note,
                )
            case TokenPut(token=token, what=said, by=by) if said in TOKEN:
                note = f"{token.name} ({token.role.value})"
                yield Record(at=at, what=TOKEN[said], by=by, cause=token.id, note=note)
            case StateRestored(commit=commit):
                note = f"from a copy that ends with commit {commit}; what was done since is unknown"
                yield Record(at=at, what=What.STATE_RESTORED, note=note)
            case ClockAccepted(before=before, by=by):
                error = f"{in_words(abs(before - at))} {'ahead' if before > at else 'behind'}"
                note = f"the service's time was {utc(before)}, {error}"
                yield Record(at=at, what=What.CLOCK_ACCEPTED, by=by, note=note)

    def _note(self, what: What, note: str) -> None:
        words = self._words
        if words and words[-1][1:] == (what.value, note):
            words[-1] = words[-1][0] + 1, what.value, note
        else:
            words.append((1, what.value, note))

    def _became(self, group: str, machine: Machine) -> tuple[What, str]:
        before = self._known(group, machine.name)
        self._machines[group, machine.name] = machine
        return _became(before, machine)

    def _host(self, host: Host) -> What:
        before = self._put.get(host.name, self._hosts.get(host.name))
        self._put[host.name] = host
        if before is None:
            return What.HOST_ADDED
        return What.HOST_CHANGED if before.health is host.health else HEALTH[host.health]

    def _redefined(self, group: str, item: GroupDefined) -> str:
        before = self._defined.get(group) or self._groups.get(group) or Group(name=group)
        self._defined[group] = item
        names = ("kind", "policy", "place", "labels")
        return ", ".join(n for n in names if getattr(before, n) != getattr(item, n))

    def _known(self, group: str, name: str) -> Machine | None:
        if (group, name) in self._machines:
            return self._machines[group, name]
        known = self._groups.get(group)
        return known.machine(name) if known else None

    def _is_machine(self, group: str, name: str) -> bool:
        return bool(name) and self._known(group, name) is not None


class HistoryReplayer(HistoryWriter):
    """Writes the records of one stored commit again, without the states before it.

    What only those states would tell was stored with the commit (`HistoryWriter.words`).
    """

    def __init__(self, words: Iterable[Word]) -> None:
        super().__init__({}, {})
        self._stored = _one_by_one(words)

    def _note(self, what: What, note: str) -> None:
        """Do nothing: the words were stored with the commit."""

    def _became(self, group: str, machine: Machine) -> tuple[What, str]:
        del group, machine
        return next(self._stored)

    def _host(self, host: Host) -> What:
        del host
        return next(self._stored)[0]

    def _redefined(self, group: str, item: GroupDefined) -> str:
        del group, item
        return next(self._stored)[1]


def _one_by_one(words: Iterable[Word]) -> Iterator[tuple[What, str]]:
    for times, what, note in words:
        for _ in range(times):
            yield What(what), note


def seen(event: Event, machine: str, at: Time) -> Record:
    """The first machine that was shown the event."""
    elsewhere = "" if machine in event.resources else machine
    return _of(event, at, What.SEEN, machine, "", elsewhere)


def _of(event: Event, at: Time, what: What, by: str, note: str, machine: str = "") -> Record:
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


def _who_and_why(item: EventMoved) -> tuple[str, str]:
    event, by, said = item.event, item.by, item.note
    match item.what:
        case Move.RAISE | Move.STRIKE:
            return by or event.by, event.description
        case Move.APPROVE if event.approved is not None:
            return event.approved.by, said
        case Move.START if event.approved is not None:
            return event.approved.by, "approved"
        case Move.START:
            return by, "the notice has passed"
        case Move.READY:
            words = next((r.note for r in event.ready if r.machine == by), "")
            return by, _joined(said, words)
        case Move.RETIME:
            return by, "its times were recorded by a clock that was ahead"
        case Move.LEAVE:
            return by, ", ".join(event.left)
        case Move.ATTEMPT if event.attempt is not None:
            return by, f"attempt {event.attempt.number}"
        case Move.ANSWER if event.attempt is not None:
            return by or DRIVER, _joined(event.attempt.note, said) or "not done yet"
        case Move.FINISH | Move.WITHDRAW:
            return by or (DRIVER if event.carried_out else ""), _joined(event.ending, said)
    return by, said


def _rollout_note(put: RolloutPut, what: What) -> str:
    rollout = put.rollout
    match what:
        case What.ROLLOUT_STARTED:
            return rollout.selection
        case What.ROLLOUT_PAUSED:
            return rollout.paused.why if rollout.paused else ""
        case What.ROLLOUT_RESUMED:
            return rollout.resumed.why if rollout.resumed else ""
        case What.ROLLOUT_ABORTED:
            return rollout.aborted.why if rollout.aborted else ""
        case What.ROLLOUT_CHANGED:
            return put.what
    return ""


def _joined(*words: str) -> str:
    return ": ".join(dict.fromkeys(word for word in words if word))


def _became(before: Machine | None, after: Machine) -> tuple[What, str]:
    if before is None:
        return What.MACHINE_ADDED, ""
    if before.alive and not after.alive:
        return What.MACHINE_GONE, after.gone
    if after.alive and not before.alive:
        return What.MACHINE_RESTORED, f"had been {before.gone}"
    if before.host != after.host:
        note = f"from {before.host or 'nowhere'} to {after.host or 'nowhere'}"
        return What.MACHINE_MOVED, note
    names = [n for n in Machine.__struct_fields__ if getattr(before, n) != getattr(after, n)]
    return What.MACHINE_CHANGED, ", ".join(names)
