"""The inventory in the control API: the whole fleet, or single groups, hosts and machines.

Bodies are YAML or JSON. They are passed on as text, so that errors can name the line and the field.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge

from forewarn.control.http.context import Call, context
from forewarn.control.http.errors import RefusedError, unwrap
from forewarn.control.http.operation import route
from forewarn.control.http.parameters import Name, Parameters
from forewarn.control.http.preconditions import bytes_tag, fleet_tag
from forewarn.control.http.requests import arguments
from forewarn.control.operations import fleet as operations
from forewarn.control.schema import core as s
from forewarn.control.schema import queries as q
from forewarn.control.schema.fleet import MAX_FLEET_BYTES, FleetDifference, FleetProgress
from forewarn.core import Group, Refused
from forewarn.core.fleet import Host
from forewarn.core.refusal import invalid
from forewarn.core.windows.model import MaintenanceConfiguration
from forewarn.service.fleet import edit, shapes
from forewarn.service.fleet.apply import FleetApply
from forewarn.service.fleet.diff import Difference
from forewarn.service.fleet.export import entry_of
from forewarn.service.fleet.read import group_of_machine
from forewarn.service.fleet.removal_limit import NAMED
from forewarn.support.convert import convert

MAX_HOST_BYTES = 1024 * 1024  # of the body of one host
JSON = "application/json"


def _shown_only(
    view: type[msgspec.Struct], entry: type[msgspec.Struct], *more: str
) -> frozenset[str]:
    """Return the fields that are shown, but cannot be changed."""
    changeable = {field.name for field in msgspec.structs.fields(entry)}.union(more)
    return frozenset(field.name for field in msgspec.structs.fields(view)) - changeable


SHOWN_OF_MACHINE = _shown_only(s.Machine, shapes.MachineEntry, "group")
SHOWN_OF_GROUP = _shown_only(s.Group, shapes.GroupEntry, *edit.POLICY_KEYS)
SHOWN_OF_HOST = _shown_only(s.Host, shapes.HostEntry)


def snapshot() -> tuple[dict[str, Group], dict[str, Host], dict[str, MaintenanceConfiguration]]:
    registry = context().store.registry
    return dict(context().store.groups), dict(registry.hosts), dict(registry.configurations)


@route(operations.PUT_FLEET, request_max_body_size=MAX_FLEET_BYTES)
async def put_fleet(
    call: Call, request: Request[Any, Any, Any], given: Parameters[q.PutFleetQuery]
) -> FleetDifference:
    text = await _text(request)
    # Computed before the comparison, so that If-Match detects a change in between.
    tag = await asyncio.to_thread(fleet_tag, *snapshot()) if given.plan else ""
    difference = await context().fleet_apply.text(
        text,
        by=call.by,
        unless=call.precondition,
        **arguments(given, FleetApply.text),
    )
    return _difference_view(difference, planned=given.plan, etag=tag)


@route(operations.GET_FLEET)
async def get_fleet(call: Call) -> Response[bytes]:
    """For each machine, the response names the host that it is known to be on. Applying the
    response changes nothing, except that moves become part of the inventory."""
    current = context().fleet_apply.current()
    encoded = await asyncio.to_thread(lambda: msgspec.json.encode(entry_of(current)))
    call.headers["ETag"] = bytes_tag(encoded)
    return Response(encoded, media_type=JSON)


@route(operations.GET_FLEET_PROGRESS)
def get_fleet_progress() -> FleetProgress:
    progress = context().fleet_apply.progress
    return FleetProgress(progress.stage, progress.fraction)


async def apply_change(
    call: Call,
    change: edit.Change,
    *,
    force: bool,
    remove: int | None = None,
    only: Callable[[], Collection[str]] | None = None,
) -> FleetDifference:
    difference = await context().fleet_apply.change(
        change, by=call.by, force=force, remove=remove, only=only, unless=call.precondition
    )
    return _difference_view(difference, planned=False)


def host_of(machine: str) -> str:
    member = context().platform.machine_index.machine(machine)
    return member[1].host if member else ""


@route(operations.PUT_GROUP, request_max_body_size=MAX_FLEET_BYTES, ignores=SHOWN_OF_GROUP)
async def put_group(
    call: Call, name: Name, request: Request[Any, Any, Any], given: Parameters[q.RemovalQuery]
) -> FleetDifference:
    text, addresses = await _text(request, "group"), context().fleet_apply.addresses
    change = edit.put_group(name, text, SHOWN_OF_GROUP, addresses)
    return await apply_change(call, change, force=given.force, remove=given.remove)


@route(operations.REMOVE_GROUP)
async def remove_group(
    call: Call, name: Name, given: Parameters[q.RemovalQuery]
) -> FleetDifference:
    """Unlike a deletion of machines, this is not announced to guests."""
    return await apply_change(call, edit.remove_group(name), force=given.force, remove=given.remove)


@route(operations.PUT_HOST, request_max_body_size=MAX_HOST_BYTES, ignores=SHOWN_OF_HOST)
async def put_host(call: Call, name: Name, request: Request[Any, Any, Any]) -> FleetDifference:
    text = await _text(request, "host", MAX_HOST_BYTES)
    return await apply_change(call, edit.put_host(name, text, SHOWN_OF_HOST), force=False)


@route(operations.REMOVE_HOST)
async def remove_host(call: Call, name: Name, given: Parameters[q.ForceQuery]) -> FleetDifference:
    return await apply_change(call, edit.remove_host(name, host_of), force=given.force)


@route(operations.REMOVE_MACHINE)
async def remove_machine(
    call: Call, name: Name, given: Parameters[q.ForceQuery]
) -> FleetDifference:
    """Unlike `POST /v1/machines/{name}/delete`, this is not announced to guests."""
    machine_index = context().platform.machine_index
    if machine_index.machine(name) is None:
        raise RefusedError(machine_index.unknown_machine(name))
    change = edit.remove_machine(name)
    return await apply_change(
        call,
        change,
        force=given.force,
        remove=NAMED,
        only=lambda: {machine_index.group_of(name) or ""},
    )


@route(operations.PUT_MACHINE, request_max_body_size=MAX_HOST_BYTES, ignores=SHOWN_OF_MACHINE)
async def put_machine(
    call: Call, name: Name, request: Request[Any, Any, Any], given: Parameters[q.ForceQuery]
) -> FleetDifference:
    """Takes the keys of a machine in a fleet file, and `group`. What `GET` returns can be sent
    back; fields that cannot be changed are ignored. A `host` is where the machine is: what is
    planned for its old host does not affect it any more."""
    return await _machine_changed(call, name, request, force=given.force, keep=False)


@route(operations.PATCH_MACHINE, request_max_body_size=MAX_HOST_BYTES, ignores=SHOWN_OF_MACHINE)
async def patch_machine(
    call: Call, name: Name, request: Request[Any, Any, Any], given: Parameters[q.ForceQuery]
) -> FleetDifference:
    """Like `PUT`, but keys that are omitted keep their values; null sets the default."""
    machine_index = context().platform.machine_index
    if machine_index.machine(name) is None:
        raise RefusedError(machine_index.unknown_machine(name))
    return await _machine_changed(call, name, request, force=given.force, keep=True)


async def _machine_changed(
    call: Call, name: str, request: Request[Any, Any, Any], *, force: bool, keep: bool
) -> FleetDifference:
    text = await _text(request, "machine", MAX_HOST_BYTES)
    machine_index = context().platform.machine_index
    group = group_of_machine(text)
    change = edit.put_machine(
        name,
        text,
        machine_index,
        ignored=SHOWN_OF_MACHINE,
        keep=keep,
        addresses=context().fleet_apply.addresses,
    )
    return await apply_change(
        call, change, force=force, only=lambda: {group, machine_index.group_of(name) or ""}
    )


async def _text(
    request: Request[Any, Any, Any], kind: str = "fleet", max_bytes: int = MAX_FLEET_BYTES
) -> str:
    try:
        return (await request.body()).decode("utf-8")
    except RequestEntityTooLarge as error:
        detail = f"a {kind} may have at most {max_bytes:,} bytes"
        raise HTTPException(detail, status_code=413) from error
    except UnicodeDecodeError as error:
        raise RefusedError(invalid(f"the body is not UTF-8: {error}")) from error


def _difference_view(
    difference: Difference | Refused, *, planned: bool, etag: str = ""
) -> FleetDifference:
    fields = {**msgspec.structs.asdict(unwrap(difference)), "planned": planned, "etag": etag}
    return convert(fields, FleetDifference, from_attributes=True)
