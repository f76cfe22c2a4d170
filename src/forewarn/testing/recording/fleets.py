"""The fleet of a recording: as it says itself, or guessed from the names in it.

Update domains are such that what happened was possible: machines of one event are in one, and so
are those that were disturbed at the same time. The others have one each.
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
MAX_NAME = 80  # as a fleet file allows
MAX_DOMAINS = 1_000  # of a group, the same
MAX_SCALE_SET = 100  # machines of a placement group, the same
_KINDS = ("standalone", "availability-set", "availability-zone", "cloud-service", "scale-set")


class Member(msgspec.Struct, kw_only=True):
    name: str
    update_domain: int = 0
    spot: bool = False


class Guess(msgspec.Struct, kw_only=True):
    """A group as a fleet file has it."""

    name: str
    kind: str
    machines: list[Member]
    scale_set: str = ""


class GuessedFleet(msgspec.Struct, frozen=True, kw_only=True):
    """The groups, what each machine of the recording is called here, and what was assumed."""

    groups: tuple[Guess, ...]
    names: Mapping[str, str]
    speaker: str
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
                *(m for life in recording.lives for m in life.machines),
            ]
        )
    ) or ["machine-0"]
    names = _usable(machines, notes)
    groups: list[Guess] = []
    taken: set[str] = set()
    for members in _together(machines, recording):
        guess = _guess(members, recording, names, taken, notes)
        taken.add(guess.name)
        groups.append(guess)
    most = max(recording.polls, key=lambda name: recording.polls[name], default=None)
    first = next((m for life in recording.lives for m in life.machines), machines[0])
    return GuessedFleet(
        groups=tuple(groups),
        names=names,
        speaker=names[most if most is not None else first],
        notes=tuple(notes),
    )


def _usable(machines: Iterable[str], notes: list[str]) -> dict[str, str]:
    """Give each machine a name that a fleet file allows; most have one already."""
    names: dict[str, str] = {}
    used = {name for name in machines if _is_name(name)}
    number = 0
    for name in machines:
        if _is_name(name):
            names[name] = name
            continue
        while (new := f"machine-{number}") in used:
            number += 1
        used.add(new)
        names[name] = new
        notes.append(f"'{name[:MAX_NAME]}' cannot be a machine's name, and is called '{new}' here")
    return names


def _is_name(name: str) -> bool:
    return len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None


def _together(machines: Sequence[str], recording: EventLives) -> list[list[str]]:
    """Group the machines that share a document, by the fleet, an event, or what they were shown."""
    sets = _Sets(machines)
    by_group: dict[str, str] = {}
    for name, facts in recording.machines.items():
        sets.join(name, by_group.setdefault(str(facts["group"]), name))
    by_event: dict[str, str] = {}
    for life in recording.lives:
        for name in life.machines:
            sets.join(name, by_event.setdefault(life.id, name))
        if life.group in by_group:
            sets.join(by_event[life.id], by_group[life.group])
    for who, ids in recording.shown.items():
        for id in ids:
            if id in by_event:
                sets.join(who, by_event[id])
    by_prefix: dict[str, str] = {}
    for name in machines:
        if name not in recording.machines and (found := _MEMBER.fullmatch(name)):
            sets.join(name, by_prefix.setdefault(found[1], name))
    if not recording.polls and not recording.machines:
        for name in machines[1:]:  # a text that says nothing of who asked is about one group
            sets.join(machines[0], name)
    return sets.all()


def _guess(
    members: list[str],
    recording: EventLives,
    names: Mapping[str, str],
    taken: set[str],
    notes: list[str],
) -> Guess:
    facts = next((recording.machines[name] for name in members if name in recording.machines), None)
    own = [names[name] for name in members]
    kind, scale_set = _kind(
        own, str(recording.groups.get(str(facts["group"]), "")) if facts else ""
    )
    name = str(facts["group"]) if facts else scale_set or (own[0] if len(own) == 1 else "")
    if not _is_name(name) or name in taken:
        base = name if _is_name(name) else kind
        name = next(n for i in range(len(taken) + 2) if (n := f"{base}-{i + 1}") not in taken)
    if facts is None:
        notes.append(f"that '{name}' is of kind {kind} is guessed from the names in it")
    domains = _domains(members, recording)
    deleted = {m for life in recording.lives if life.type == "Preempt" for m in life.machines}
    return Guess(
        name=name,
        kind=kind,
        scale_set=scale_set if scale_set != name else "",
        machines=[
            Member(
                name=names[one],
                update_domain=domains[one],
                spot=one in deleted or bool(recording.machines.get(one, {}).get("spot")),
            )
            for one in sorted(members, key=lambda one: _natural(names[one]))
        ],
    )


def _kind(names: Sequence[str], said: str) -> tuple[str, str]:
    """The kind, and the scale set's own name."""
    prefixes = {found[1] if (found := _MEMBER.fullmatch(name)) else "" for name in names}
    prefix = next(iter(prefixes)) if len(prefixes) == 1 else ""
    scaled = bool(prefix) and _is_name(prefix) and len(names) <= MAX_SCALE_SET
    if said in _KINDS and said != "scale-set" and (said != "standalone" or len(names) == 1):
        return said, ""
    if said in ("", "scale-set"):
        if not said and all(_INSTANCE.fullmatch(name) for name in names):
            return "cloud-service", ""
        if scaled:
            return "scale-set", prefix
    return ("standalone" if len(names) == 1 else "availability-set"), ""


def _domains(members: Sequence[str], recording: EventLives) -> dict[str, int]:
    known = {
        name: recording.machines[name].get("update_domain")
        for name in members
        if name in recording.machines
    }
    if len(known) == len(members) and all(type(d) is int for d in known.values()):
        return {name: domain for name, domain in known.items() if isinstance(domain, int)}
    sets = _Sets(members)
    here = [life for life in recording.lives if set(life.machines) <= set(members)]
    for life in here:
        for name in life.machines[1:]:
            sets.join(life.machines[0], name)
    disturbing = sorted(
        (one for one in here if _takes_turns(one)), key=lambda one: one.started or 0
    )
    for index, one in enumerate(disturbing):
        for other in disturbing[index + 1 :]:
            if one.over is not None and (other.started or 0) >= one.over:
                break
            sets.join(one.machines[0], other.machines[0])
    return {name: number % MAX_DOMAINS for number, part in enumerate(sets.all()) for name in part}


def _takes_turns(life: EventLife) -> bool:
    """Whether it starts only while no other update domain is disturbed."""
    return (
        life.started is not None
        and not life.sudden
        and life.source == "Platform"
        and life.type not in DELETING
    )


def _natural(name: str) -> list[Any]:
    return [(0, int(p), "") if p.isdecimal() else (1, 0, p) for p in re.split(r"([0-9]+)", name)]


class _Sets:
    """Names that belong together (union-find), in the order in which they came."""

    def __init__(self, names: Sequence[str]) -> None:
        self._parent = {name: name for name in names}

    def _root(self, name: str) -> str:
        while (parent := self._parent.setdefault(name, name)) != name:
            self._parent[name] = self._parent[parent]
            name = parent
        return name

    def join(self, one: str, other: str) -> None:
        self._parent[self._root(other)] = self._root(one)

    def all(self) -> list[list[str]]:
        found: dict[str, list[str]] = {}
        for name in self._parent:
            found.setdefault(self._root(name), []).append(name)
        return list(found.values())
