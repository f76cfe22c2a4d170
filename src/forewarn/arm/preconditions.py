"""Conditional requests: virtual machines, scale sets and their instances have an ETag, and If-Match
and If-None-Match are compared with it, inside the transaction that changes the resource."""

from __future__ import annotations

from collections.abc import Iterable

from forewarn.arm.errors import ArmError, invalid_parameter, unwrap
from forewarn.arm.inventory import Inventory
from forewarn.arm.request import Answer, Request
from forewarn.arm.routing import COMPUTE, RESOURCE_GROUP
from forewarn.control.http import preconditions
from forewarn.control.http.preconditions import (
    CurrentTag,
    Precondition,
    bytes_tag,
    event_tag,
    group_tag,
    matching,
)
from forewarn.core import Group, Machine
from forewarn.store.port import States

MACHINE = RESOURCE_GROUP + COMPUTE + "/virtualMachines/{name}"
SCALE_SET = RESOURCE_GROUP + COMPUTE + "/virtualMachineScaleSets/{scale_set}"


def machine_tag(group: Group, machine: Machine) -> str:
    """Return the tag of a machine, which shows what its events have come to."""
    events = [event for event in group.events if machine.name in event.resources]
    tags = [preconditions.machine_tag(group, machine), *map(event_tag, events)]
    return bytes_tag("".join(tags).encode())


def scale_set_tag(groups: Iterable[Group]) -> str:
    return bytes_tag("".join(map(group_tag, groups)).encode())


def precondition_of(request: Request, template: str) -> Precondition | None:
    """Return the condition under which a request may change the resource that its path names; None
    if it has none, or there is no such resource. Raises ArmError."""
    if_match, if_none_match = (request.headers.get(n, "") for n in ("if-match", "if-none-match"))
    if request.method == "GET" or not (if_match or if_none_match):
        return None
    if not template.startswith((MACHINE, SCALE_SET)):
        raise invalid_parameter(
            "This operation takes no If-Match and no If-None-Match: what it changes has no ETag."
        )
    try:
        current = _current(request)
    except ArmError as error:
        if error.status != 404:
            raise
        return None
    what, store = f"'{request.path}'", request.context.store
    return Precondition(if_match, if_none_match, what, current, store)


def _current(request: Request) -> CurrentTag:
    names, inventory = request.names, Inventory(request.call)
    place = request.place
    if "scale_set" not in names:
        group, machine = inventory.machine(*place, names["name"])
    else:
        scale_set = inventory.scale_set(*place, names["scale_set"])
        if "instance" not in names:
            groups = [group.name for group in scale_set.groups]
            return lambda states: scale_set_tag(states[name] for name in groups)
        group, machine = inventory.instance(scale_set, names["instance"])
    group_name, name = group.name, machine.name

    def current(states: States) -> str | None:
        found = states[group_name].machine(name)
        return None if found is None else machine_tag(states[group_name], found)

    return current


def with_tag(request: Request, answer: Answer) -> Answer:
    """Add the ETag of the resource in an answer; a client that has seen it gets 304."""
    tag = answer.body.get("etag") if isinstance(answer.body, dict) else None
    if tag is None or answer.status != 200:
        return answer
    headers = {**answer.headers, "ETag": tag}
    seen = request.headers.get("if-none-match", "")
    if request.method == "GET" and seen and matching(seen, tag, weakly=True):
        return Answer(status=304, headers=headers)
    return Answer(body=answer.body, headers=headers)


def check(precondition: Precondition | None) -> None:
    """Refuse a request whose condition does not hold, if no transaction has checked that, because
    it would change nothing. Raises ArmError."""
    if precondition is not None and not precondition.checked:
        unwrap(precondition.check_now())
