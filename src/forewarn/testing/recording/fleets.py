"""The fleet of a recording, from its `fleet` lines.

Machines that no such line names, as in a recording of an endpoint, form one group with one update
domain, in which whatever was recorded is possible.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from forewarn.core.events import types_that
from forewarn.testing.recording.event_lives import EventLives

_MEMBER = re.compile(r"(.*)_(?:0|[1-9][0-9]{0,8})")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?")
MAX_NAME = 80  # characters, as in a fleet file
_KINDS = ("standalone", "availability-set", "availability-zone", "cloud-service")
_OF_SPOT = [type.value for type in types_that(lambda traits: traits.spot_only)]
OTHERS = "recorded"  # the group of machines that no line names


class RecordedMachine(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    update_domain: int
    spot: bool


class RecordedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group, as in a fleet file."""

    name: str
    kind: str
    machines: tuple[RecordedMachine, ...]
    scale_set: str = ""


class RecordedFleet(msgspec.Struct, frozen=True, kw_only=True):
    """The groups, the machine that a program under test runs on, and notes about assumptions."""

    groups: tuple[RecordedGroup, ...]
    under_test: str
    notes: tuple[str, ...] = ()


def recorded_fleet(recording: EventLives) -> RecordedFleet:
    """Return the fleet. Raises ValueError for a machine whose name no fleet file allows."""
    machines = list(
        dict.fromkeys(
            [
                *recording.machines,
                *recording.polls,
                *(machine for life in recording.lives for machine in life.machines),
            ]
        )
    ) or ["machine-0"]
    for name in machines:
        if len(name) > MAX_NAME or not _NAME.fullmatch(name):
            raise ValueError(
                f"'{name[:MAX_NAME]}' is not a valid machine name; replace it by one with letters,"
                " digits, '-', '_' and '.' in the recording"
            )
    busiest = max(recording.polls, key=lambda name: recording.polls[name], default=None)
    first = next((machine for life in recording.lives for machine in life.machines), machines[0])
    by_group: dict[str, list[str]] = {}
    for name in machines:
        group = str(recording.machines.get(name, {}).get("group", OTHERS))
        by_group.setdefault(group, []).append(name)
    notes: tuple[str, ...] = ()
    if any(name not in recording.machines for name in machines):
        notes = (f"its machines are in one availability set, '{OTHERS}', in one update domain",)
    return RecordedFleet(
        groups=tuple(_groups(by_group, recording)), under_test=busiest or first, notes=notes
    )


def _groups(
    by_group: Mapping[str, Sequence[str]], recording: EventLives
) -> Iterator[RecordedGroup]:
    preempted = {
        machine for life in recording.lives if life.type in _OF_SPOT for machine in life.machines
    }
    for name, members in by_group.items():
        kind, scale_set = _kind(members, recording.groups.get(name, ""))
        facts = {member: recording.machines.get(member, {}) for member in members}
        yield RecordedGroup(
            name=name,
            kind=kind,
            scale_set=scale_set if scale_set != name else "",
            machines=tuple(
                RecordedMachine(
                    name=member,
                    update_domain=_domain(facts[member]),
                    spot=member in preempted or bool(facts[member].get("spot")),
                )
                for member in sorted(members, key=_sort_key)
            ),
        )


def _kind(names: Sequence[str], recorded_kind: str) -> tuple[str, str]:
    """Return the kind of a group, and the name of its scale set."""
    if recorded_kind in _KINDS and (recorded_kind != "standalone" or len(names) == 1):
        return recorded_kind, ""
    prefixes = {match[1] if (match := _MEMBER.fullmatch(name)) else "" for name in names}
    if recorded_kind == "scale-set" and len(prefixes) == 1 and (prefix := prefixes.pop()):
        return "scale-set", prefix
    return "availability-set", ""


def _domain(facts: Mapping[str, Any]) -> int:
    domain = facts.get("update_domain")
    return domain if type(domain) is int else 0


def _sort_key(name: str) -> list[Any]:
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part)
        for part in re.split(r"([0-9]+)", name)
    ]
