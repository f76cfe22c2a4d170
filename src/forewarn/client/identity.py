"""The identity of this machine: the request for it, and what is read from the answer. Also the two
names of a scale set's member.

Events list machines by the name in `/metadata/instance/compute`, and by nothing else; a host name
is often another, so it is shown but never compared. Pure.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from forewarn.wire.instance import host_name_of, instance_of

VERSIONS: tuple[str, ...] = ("2021-02-01", "2020-09-01", "2019-06-04", "2017-12-01", "2017-08-01")
"""Versions to use in this order, until one is accepted. The first has all that is read here; later
ones would only be refused by more services."""

PREVIEW_PREFIX = "_"
"""Under 2017-03-01 events list a machine with this before its name."""

MAX_TAGS = 256
"""More are not read. Azure has 50 at most."""


class Identity(msgspec.Struct, frozen=True):
    """The identity of this machine. What the service does not provide is empty or None."""

    name: str
    """The name that events list, such as `vmss_18`."""

    vm_id: str = ""
    """The unique ID of the machine, which stays the same when it is redeployed."""

    scale_set: str = ""
    """The name of its scale set."""

    host_name: str = ""
    """The computer name, such as `vmss00000i`. Events do not list it."""

    resource_group: str = ""
    """The name of its resource group."""

    subscription_id: str = ""
    """The ID of its subscription."""

    location: str = ""
    """The region, such as `westeurope`."""

    zone: str = ""
    """The availability zone."""

    update_domain: int | None = None
    """The number of its update domain."""

    fault_domain: int | None = None
    """The number of its fault domain."""

    priority: str = ""
    """`Spot` for a machine that may be evicted, otherwise `Regular`."""

    placement_group: str = ""
    """The ID of its placement group."""

    tags: tuple[tuple[str, str], ...] = ()
    """Its tags as pairs of a name and a value, in the order of the service."""

    def matches(self, resource: str) -> bool:
        """Return whether an entry of an event's Resources is this machine. `Event.affects` looks at
        all entries.

        Args:
            resource: An entry of `Event.resources`.
        """
        return resource in (self.name, PREVIEW_PREFIX + self.name)


def target(version: str) -> str:
    """Return the target of the request."""
    return f"/metadata/instance/compute?api-version={version}&format=json"


def parse_identity(body: bytes) -> Identity | None:
    """Return the identity in an answer; None if it has no name."""
    compute = _decode(body)
    inner = compute.get("compute")
    if isinstance(inner, dict):  # the whole tree
        compute = inner
    name = _text(compute, "name")
    if not name:
        return None
    profile = compute.get("osProfile")
    return Identity(
        name=name,
        vm_id=_text(compute, "vmId"),
        scale_set=_text(compute, "vmScaleSetName"),
        host_name=_text(profile, "computerName") if isinstance(profile, dict) else "",
        resource_group=_text(compute, "resourceGroupName"),
        subscription_id=_text(compute, "subscriptionId"),
        location=_text(compute, "location"),
        zone=_text(compute, "zone"),
        update_domain=_number(compute, "platformUpdateDomain"),
        fault_domain=_number(compute, "platformFaultDomain"),
        priority=_text(compute, "priority"),
        placement_group=_text(compute, "placementGroupId"),
        tags=_tags(compute)[:MAX_TAGS],
    )


_CONTROLS_AS_BLANKS = b" " * 32 + bytes(range(32, 256))


def _decode(body: bytes) -> dict[str, Any]:
    """Decode an object, even if the service left raw control characters in a text."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        plain = body.decode("utf-8-sig", "replace").encode().translate(_CONTROLS_AS_BLANKS)
        try:
            value = msgspec.json.decode(plain)
        except (msgspec.DecodeError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _text(fields: dict[str, Any], key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""


def _number(fields: dict[str, Any], key: str) -> int | None:
    """Return a number, which the service writes as text."""
    value = fields.get(key)
    if isinstance(value, str) and len(value) <= 9 and value.isascii() and value.isdigit():
        return int(value)
    return value if type(value) is int else None


def _tags(fields: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    tags = fields.get("tagsList")
    if isinstance(tags, list):
        entries = [entry for entry in tags if isinstance(entry, dict)]
        return tuple((_text(e, "name"), _text(e, "value")) for e in entries if _text(e, "name"))
    return _parse_tags(_text(fields, "tags"))


def _parse_tags(line: str) -> tuple[tuple[str, str], ...]:
    """Parse `a:b;c:d`. A value may contain colons, and semicolons where that is unambiguous."""
    tags: list[tuple[str, str]] = []
    for piece in line.split(";"):
        name, colon, value = piece.partition(":")
        if colon and name:
            tags.append((name, value))
        elif tags and piece:  # no tag is without a colon: it belongs to the value before
            tags[-1] = (tags[-1][0], f"{tags[-1][1]};{piece}")
    return tuple(tags)


# The two names of a scale set's member: `vmss_18`, which events list, and its host name
# `vmss00000i`. One follows from the other. This is for people and their scripts, which often know
# only the host name; the client itself never goes by host names.

_MEMBER = re.compile(r"(.+)_(0|[1-9][0-9]*)", re.DOTALL | re.ASCII)


def host_name(name: str, prefix: str | None = None) -> str | None:
    """Return the host name of a scale set's member: `vmss00000i` for `vmss_18`. None if this is not
    a member's name.

    Args:
        name: The name that events list.
        prefix: The prefix of the scale set's host names, if that is not the scale set's name.
    """
    member = _MEMBER.fullmatch(name)
    if member is None or len(member[2]) > 10:
        return None
    try:
        return host_name_of(member[1] if prefix is None else prefix, int(member[2]))
    except ValueError:
        return None


def instance_name(host_name: str, scale_set: str) -> str | None:
    """Return the name of a scale set's member by its host name: `vmss_18` for `vmss00000i` of
    `vmss`, in any letter case, and also with a domain.

    The prefix may differ from the scale set's name, so only the last six digits (of base 36) are
    read. Any name that ends in six letters or digits looks like a member's: use this only for
    machines that are in this scale set. None if the host name is not a member's.

    Args:
        host_name: The computer name of the machine.
        scale_set: The name of its scale set.
    """
    if not scale_set:
        return None
    try:
        _, number = instance_of(host_name.partition(".")[0])
    except ValueError:
        return None
    return f"{scale_set}_{number}"
