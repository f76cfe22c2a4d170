"""The fleet of a recording: from its `fleet` line, or guessed from the names in it.

Update domains are chosen so that what was recorded is possible: the machines of an event share one,
and so do machines that were disturbed at the same time. Every other machine has its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from forewarn.testing.recording.event_lives import EventLife, EventLives
from forewarn.wire.versions import DELETING

_MEMBER = re.compile(r"(.*)_(?:0|[1-9][0-9]{0,8})")
_INSTANCE = re.compile(r".+_IN_[0-9]+")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
MAX_NAME = 80  # characters, as in a fleet file
MAX_DOMAINS = 1_000  # of a group, as in a fleet file
MAX_SCALE_SET = 100  # machines of a placement group
_KINDS = ("standalone", "availability-set", "availability-zone", "cloud-service", "scale-set")


class GuessedMachine(msgspec.Struct, kw_only=True):
    name: str
    update_domain: int = 0
    spot: bool = False


class GuessedGroup(msgspec.Struct, kw_only=True):
    """A group, as in a fleet file."""

    name: str
    kind: str
    machines: list[GuessedMachine]
    scale_set: str = ""


class GuessedFleet(msgspec.Struct, frozen=True, kw_only=True):
    """The groups, the new name of each recorded machine, and notes about what was assumed."""

    groups: tuple[GuessedGroup, ...]
    names: Mapping[str, str]
    under_test: str
    notes: tuple[str, ...]

    def group_of(self, machine: str) -> str:
        name = self.names.get(machine, machine)
        return next(g.name for g in self.groups for m in g.machines if m.name == name)


def guess_fleet(recording: EventLives) -> GuessedFleet:
    notes: list[str] = []
    machines = list(
        dict.fromkeys(
            [
                *recording.machines,
                *recording.polls,
                *(machine for life in recording.lives for machine in life.machines),
            ]
        )
    ) or ["machine-0"]
    names = _valid_names(machines, notes)
    groups: list[GuessedGroup] = []
    used_names: set[str] = set()
    for members in _group_machines(machines, recording):
        group = _guess_group(members, recording, names, used_names, notes)
        used_names.add(group.name)
        groups.append(group)
    busiest = max(recording.polls, key=lambda name: recording.polls[name], default=None)
    first = next((machine for life in recording.lives for machine in life.machines), machines[0])
    return GuessedFleet(
        groups=tuple(groups),
        names=names,
        under_test=names[busiest if busiest is not None else first],
        notes=tuple(notes),
    )


def _valid_names(machines: Iterable[str], notes: list[str]) -> dict[str, str]:
    """Give each machine a name that a fleet file allows; most have one already."""
    names: dict[str, str] = {}
    used = {name for name in machines if _is_valid(name)}
    number = 0
    for name in machines:
        if _is_valid(name):
            names[name] = name
            continue
        while (new_name := f"machine-{number}") in used:
            number += 1
        used.add(new_name)
        names[name] = new_name
        notes.append(
            f"'{name[:MAX_NAME]}' is not a valid machine name and was renamed '{new_name}'"
        )
    return names


def _is_valid(name: str) -> bool:
    return len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None


def _group_machines(machines: Sequence[str], recording: EventLives) -> list[list[str]]:
    """Group machines that share a document: by the fleet, an event, or what they were shown."""
    sets = _DisjointSets(machines)
    by_group: dict[str, str] = {}
    for name, facts in recording.machines.items():
        sets.join(name, by_group.setdefault(str(facts["group"]), name))
    by_event: dict[str, str] = {}
    for life in recording.lives:
        for name in life.machines:
            sets.join(name, by_event.setdefault(life.id, name))
        if life.group in by_group:
            sets.join(by_event[life.id], by_group[life.group])
    for machine, ids in recording.shown.items():
        for id in ids:
            if id in by_event:
                sets.join(machine, by_event[id])
    by_prefix: dict[str, str] = {}
    for name in machines:
        if name not in recording.machines and (match := _MEMBER.fullmatch(name)):
            sets.join(name, by_prefix.setdefault(match[1], name))
    if not recording.polls and not recording.machines:
        for name in machines[1:]:  # without polls, assume that a text is about one group
            sets.join(machines[0], name)
    return sets.all()


def _guess_group(
    members: list[str],
    recording: EventLives,
    names: Mapping[str, str],
    used_names: set[str],
    notes: list[str],
) -> GuessedGroup:
    facts = next((recording.machines[name] for name in members if name in recording.machines), None)
    machine_names = [names[name] for name in members]
    kind, scale_set = _kind(
        machine_names, str(recording.groups.get(str(facts["group"]), "")) if facts else ""
    )
    name = (
        str(facts["group"])
        if facts
        else scale_set or (machine_names[0] if len(machine_names) == 1 else "")
    )
    if not _is_valid(name) or name in used_names:
        base = name if _is_valid(name) else kind
        name = next(
            candidate
            for i in range(len(used_names) + 2)
            if (candidate := f"{base}-{i + 1}") not in used_names
        )
    if facts is None:
        notes.append(f"the kind of '{name}' ({kind}) is guessed from the names of its machines")
    domains = _domains(members, recording)
    preempted = {
        machine for life in recording.lives if life.type == "Preempt" for machine in life.machines
    }
    return GuessedGroup(
        name=name,
        kind=kind,
        scale_set=scale_set if scale_set != name else "",
        machines=[
            GuessedMachine(
                name=names[member],
                update_domain=domains[member],
                spot=member in preempted or bool(recording.machines.get(member, {}).get("spot")),
            )
            for member in sorted(members, key=lambda member: _sort_key(names[member]))
        ],
    )


def _kind(names: Sequence[str], recorded_kind: str) -> tuple[str, str]:
    """Return the kind of a group, and the name of its scale set."""
    prefixes = {match[1] if (match := _MEMBER.fullmatch(name)) else "" for name in names}
    prefix = next(iter(prefixes)) if len(prefixes) == 1 else ""
    is_scale_set = bool(prefix) and _is_valid(prefix) and len(names) <= MAX_SCALE_SET
    if (
        recorded_kind in _KINDS
        and recorded_kind != "scale-set"
        and (recorded_kind != "standalone" or len(names) == 1)
    ):
        return recorded_kind, ""
    if recorded_kind in ("", "scale-set"):
        if not recorded_kind and all(_INSTANCE.fullmatch(name) for name in names):
            return "cloud-service", ""
        if is_scale_set:
            return "scale-set", prefix
    return ("standalone" if len(names) == 1 else "availability-set"), ""


def _domains(members: Sequence[str], recording: EventLives) -> dict[str, int]:
    recorded = {
        name: recording.machines[name].get("update_domain")
        for name in members
        if name in recording.machines
    }
    if len(recorded) == len(members) and all(type(domain) is int for domain in recorded.values()):
        return {name: domain for name, domain in recorded.items() if isinstance(domain, int)}
    sets = _DisjointSets(members)
    lives = [life for life in recording.lives if set(life.machines) <= set(members)]
    for life in lives:
        for name in life.machines[1:]:
            sets.join(life.machines[0], name)
    disturbing = sorted(
        (earlier for earlier in lives if _respects_domains(earlier)),
        key=lambda earlier: earlier.started or 0,
    )
    for index, earlier in enumerate(disturbing):
        for later in disturbing[index + 1 :]:
            if earlier.over is not None and (later.started or 0) >= earlier.over:
                break
            sets.join(earlier.machines[0], later.machines[0])
    return {
        name: number % MAX_DOMAINS
        for number, machines in enumerate(sets.all())
        for name in machines
    }


def _respects_domains(life: EventLife) -> bool:
    """Return whether an event starts only while no other update domain is disturbed."""
    return (
        life.started is not None
        and not life.sudden
        and life.source == "Platform"
        and life.type not in DELETING
    )


def _sort_key(name: str) -> list[Any]:
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in re.split(r"([0-9]+)", name)
    ]


class _DisjointSets:
    """Disjoint sets of names (union-find), in the order of the names."""

    def __init__(self, names: Sequence[str]) -> None:
        self._parent = {name: name for name in names}

    def _root(self, name: str) -> str:
        while (parent := self._parent.setdefault(name, name)) != name:
            self._parent[name] = self._parent[parent]
            name = parent
        return name

    def join(self, first: str, second: str) -> None:
        self._parent[self._root(second)] = self._root(first)

    def all(self) -> list[list[str]]:
        sets: dict[str, list[str]] = {}
        for name in self._parent:
            sets.setdefault(self._root(name), []).append(name)
        return list(sets.values())
