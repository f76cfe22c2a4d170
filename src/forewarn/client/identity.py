"""Who this machine is, as the service tells it: what is asked, and what is read from the answer.

Events list machines by the name in `/metadata/instance/compute`, and by nothing else; a host name
is often another, so it is shown but never compared. Pure: who asks, and when, is elsewhere.
"""

from __future__ import annotations

from typing import Any

import msgspec

VERSIONS: tuple[str, ...] = ("2021-02-01", "2020-09-01", "2019-06-04", "2017-12-01", "2017-08-01")
"""What to ask with, in this order, until one is accepted. The first shows all that is read here;
what came later would only be refused by more services."""

PREVIEW_MARK = "_"
"""Under 2017-03-01 events list a machine with this before its name."""

MAX_TAGS = 256
"""More are not read. Azure has 50 at most."""


class Identity(msgspec.Struct, frozen=True):
    """This machine. What the service does not say is empty, or None."""

    name: str
    vm_id: str = ""
    scale_set: str = ""
    host_name: str = ""
    resource_group: str = ""
    subscription_id: str = ""
    location: str = ""
    zone: str = ""
    update_domain: int | None = None
    fault_domain: int | None = None
    priority: str = ""
    placement_group: str = ""
    tags: tuple[tuple[str, str], ...] = ()

    def is_named(self, resource: str) -> bool:
        """Is this entry of an event's Resources this machine?"""
        return resource in (self.name, PREVIEW_MARK + self.name)


def path(version: str) -> str:
    """What to GET."""
    return f"/metadata/instance/compute?api-version={version}&format=json"


def read(body: bytes) -> Identity | None:
    """Who the answer says we are; None if it does not say a name."""
    said = _decoded(body)
    inner = said.get("compute")
    if isinstance(inner, dict):  # the whole tree
        said = inner
    name = _text(said, "name")
    if not name:
        return None
    profile = said.get("osProfile")
    return Identity(
        name=name,
        vm_id=_text(said, "vmId"),
        scale_set=_text(said, "vmScaleSetName"),
        host_name=_text(profile, "computerName") if isinstance(profile, dict) else "",
        resource_group=_text(said, "resourceGroupName"),
        subscription_id=_text(said, "subscriptionId"),
        location=_text(said, "location"),
        zone=_text(said, "zone"),
        update_domain=_number(said, "platformUpdateDomain"),
        fault_domain=_number(said, "platformFaultDomain"),
        priority=_text(said, "priority"),
        placement_group=_text(said, "placementGroupId"),
        tags=_tags(said)[:MAX_TAGS],
    )


_CONTROLS_AS_BLANKS = b" " * 32 + bytes(range(32, 256))


def _decoded(body: bytes) -> dict[str, Any]:
    """The object in it, also where the service left raw control characters in a text."""
    try:
        said = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        plain = body.decode("utf-8-sig", "replace").encode().translate(_CONTROLS_AS_BLANKS)
        try:
            said = msgspec.json.decode(plain)
        except (msgspec.DecodeError, RecursionError):
            return {}
    return said if isinstance(said, dict) else {}


def _text(said: dict[str, Any], key: str) -> str:
    value = said.get(key)
    return value if isinstance(value, str) else ""


def _number(said: dict[str, Any], key: str) -> int | None:
    """The service writes numbers as texts."""
    value = said.get(key)
    if isinstance(value, str) and len(value) <= 9 and value.isascii() and value.isdigit():
        return int(value)
    return value if type(value) is int else None


def _tags(said: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    listed = said.get("tagsList")
    if isinstance(listed, list):
        entries = [entry for entry in listed if isinstance(entry, dict)]
        return tuple((_text(e, "name"), _text(e, "value")) for e in entries if _text(e, "name"))
    return _tags_in_a_line(_text(said, "tags"))


def _tags_in_a_line(line: str) -> tuple[tuple[str, str], ...]:
    """`a:b;c:d`, where a value may have colons in it, and semicolons as far as one can tell."""
    found: list[tuple[str, str]] = []
    for piece in line.split(";"):
        name, colon, value = piece.partition(":")
        if colon and name:
            found.append((name, value))
        elif found and piece:  # no tag is without a colon: it belongs to the value before
            found[-1] = (found[-1][0], f"{found[-1][1]};{piece}")
    return tuple(found)
