"""From values of the core to those of the wire. The only module that knows both."""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection

import msgspec

from forewarn.core import Event, GroupKind, GroupView, Machine, Status
from forewarn.core.events import MAX_READY_CHANGES
from forewarn.core.fleet import Place
from forewarn.core.time import SECOND, Time
from forewarn.support.limits import MAX_READY_NOTE
from forewarn.wire import document as wire
from forewarn.wire import errors, extensions
from forewarn.wire.errors import Problem
from forewarn.wire.instance import Facts, host_name_of
from forewarn.wire.times import rfc1123
from forewarn.wire.versions import Version

VM_SIZE = "Standard_D2s_v5"  # some clients reject a machine without one


def document(group: GroupView, version: Version) -> wire.Document:
    """Return the group's document with the events that this version lists. Which of their fields it
    shows is decided when the document is rendered."""
    iaas = group.kind is not GroupKind.CLOUD_SERVICE
    return wire.Document(
        group.incarnation,
        tuple(
            wire.Event(
                id=event.id,
                status=event.status.value,
                type=event.type.value,
                resources=tuple(version.resource(n, iaas=iaas) for n in event.resources),
                not_before=_seconds(event.not_before) if event.not_before is not None else None,
                description=event.description,
                source=event.source.value,
                duration=event.duration,
            )
            for event in group.events
            if event.status in (Status.SCHEDULED, Status.STARTED)
            and event.type.value in version.types
        ),
    )


def is_disturbed(group: GroupView, machine: str) -> bool:
    """Has an event of this machine started?"""
    return any(
        event.status is Status.STARTED and machine in event.resources for event in group.events
    )


class Guest(msgspec.Struct, frozen=True):
    """A machine, with what its instance metadata is made of."""

    name: str
    group: str
    machine: Machine
    place: Place

    def facts(self) -> Facts:
        return _facts(self.machine, self.group, self.place)


def computer_name(machine: Machine, place: Place) -> str:
    """Return a machine's own host name."""
    member = re.fullmatch(re.escape(place.scale_set) + r"_(\d+)", machine.name)
    if place.scale_set and member and not machine.computer_name and not place.flexible:
        return host_name_of(place.scale_set, int(member[1]))
    return machine.computer_name or machine.name


def _facts(machine: Machine, group: str, place: Place) -> Facts:
    return Facts(
        name=machine.name,
        vm_id=machine.vm_id,
        computer_name=computer_name(machine, place),
        location=place.location,
        zone=place.zone,
        resource_group=place.resource_group,
        subscription_id=place.subscription,
        scale_set=place.scale_set,
        placement_group_id=""
        if place.flexible or not place.scale_set
        else str(uuid.uuid5(uuid.NAMESPACE_OID, group)),
        update_domain=machine.update_domain,
        fault_domain=machine.fault_domain,
        spot=machine.spot,
        vm_size=VM_SIZE,
        tags=tuple(machine.tags.items()),
        private_ipv4=tuple(a for a in machine.addresses if ":" not in a),
        private_ipv6=tuple(a for a in machine.addresses if ":" in a),
    )


def readiness(event: Event, alive: Collection[str]) -> extensions.Readiness:
    """Return which machines are ready for an event, and which of its machines are not yet."""
    ready = {change.machine for change in event.ready}
    return extensions.Readiness(
        event.id,
        tuple(
            extensions.ReadyMachine(change.machine, date(change.at), change.note)
            for change in event.ready
        ),
        tuple(name for name in event.resources if name in alive and name not in ready),
    )


def read_readiness(body: bytes) -> extensions.ReadinessReport | Problem:
    """Parse the body of a PUT about the caller's readiness."""
    return extensions.read_readiness(body, MAX_READY_NOTE)


def read_postponement(body: bytes) -> Time | Problem:
    """Parse the body of a PUT that postpones an event."""
    seconds = extensions.read_postponement(body)
    return seconds if isinstance(seconds, Problem) else seconds * SECOND


def postponed(id: str, not_before: Time) -> extensions.Postponed:
    return extensions.Postponed(id, date(not_before))


def changed_too_often() -> Problem:
    return errors.changed_too_often(MAX_READY_CHANGES)


def date(at: Time) -> str:
    return rfc1123(_seconds(at))


def _seconds(at: Time) -> int:
    return at // SECOND
