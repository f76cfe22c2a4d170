"""The inventory in the control API: the whole fleet, or single groups, hosts and machines.

Bodies are YAML or JSON. They are passed on as text, so that errors can name the line and the field.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, delete, get, put
from litestar.exceptions import HTTPException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge

from forewarn.control.http.context import Call, context
from forewarn.control.http.errors import RefusedError, unwrap
from forewarn.control.http.operation import REPEATABLE, Operation
from forewarn.control.http.parameters import Force, Name, query
from forewarn.control.http.preconditions import bytes_tag, fleet_tag
from forewarn.control.schema.fleet import MAX_FLEET_BYTES, FleetDifference, FleetProgress
from forewarn.core import Group, Refused
from forewarn.core.fleet import Host
from forewarn.core.refusal import invalid
from forewarn.service.fleet import edit, shapes
from forewarn.service.fleet.diff import Difference
from forewarn.service.fleet.export import entry_of

MAX_HOST_BYTES = 1024 * 1024  # of the body of one host
JSON = "application/json"


def snapshot() -> tuple[dict[str, Group], dict[str, Host]]:
    return dict(context().store.groups), dict(context().store.registry.hosts)


@put(
    "/v1/fleet",
    request_max_body_size=MAX_FLEET_BYTES,
    **Operation(
        id="putFleet",
        tag="fleet",
        summary="Apply a fleet file to the inventory, or plan it",
        why_no_key=REPEATABLE,
        conditional=True,
        fleet_text="fleet",
        refuses=(409,),
        commands=("apply",),
        command_example="apply fleet.yaml --plan",
        example={
            "hosts": ["h1"],
            "groups": [
                {
                    "name": "web",
                    "kind": "availability-set",
                    "machines": [{"name": "app-0"}, {"name": "app-1"}],
                }
            ],
        },
    ).options,
)
async def put_fleet(
    call: Call,
    request: Request[Any, Any, Any],
    plan: Annotated[bool, query("Return what would change, without changing it.")] = False,
    force: Force = False,
) -> FleetDifference:
    text = await _text(request)
    # Computed before the comparison, so that If-Match detects a change in between.
    tag = await asyncio.to_thread(fleet_tag, *snapshot()) if plan else ""
    difference = await context().fleet_apply.text(
        text, by=call.by, force=force, plan=plan, unless=call.precondition
    )
    return _difference_view(difference, planned=plan, etag=tag)


@get(
    "/v1/fleet",
    **Operation(
        id="getFleet",
        tag="fleet",
        summary="Get the inventory as a fleet file",
        tagged=True,
    ).options,
)
async def get_fleet(call: Call) -> Response[bytes]:
    """Applying the response again changes nothing."""
    current = context().fleet_apply.current()
    encoded = await asyncio.to_thread(lambda: msgspec.json.encode(entry_of(current)))
    call.headers["ETag"] = bytes_tag(encoded)
    return Response(encoded, media_type=JSON)


@get(
    "/v1/fleet/schema",
    sync_to_thread=False,
    **Operation(
        id="getFleetSchema",
        tag="fleet",
        summary="Get the JSON Schema of a fleet file",
        respects_limits=True,
        command_example="apply --schema",
    ).options,
)
def get_fleet_schema() -> dict[str, Any]:
    return shapes.schema()


@get(
    "/v1/fleet/progress",
    sync_to_thread=False,
    **Operation(
        id="getFleetProgress",
        tag="fleet",
        summary="Get the progress of the fleet that is being applied",
        commands=("apply",),
    ).options,
)
def get_fleet_progress() -> FleetProgress:
    progress = context().fleet_apply.progress
    return FleetProgress(progress.stage, progress.fraction)


async def apply_change(call: Call, change: edit.Change, *, force: bool) -> FleetDifference:
    difference = await context().fleet_apply.change(
        change, by=call.by, force=force, unless=call.precondition
    )
    return _difference_view(difference, planned=False)


def host_of(machine: str) -> str:
    member = context().platform.machine_index.machine(machine)
    return member[1].host if member else ""


@put(
    "/v1/groups/{name:str}",
    request_max_body_size=MAX_FLEET_BYTES,
    **Operation(
        id="putGroup",
        tag="fleet",
        summary="Create or replace a group",
        why_no_key=REPEATABLE,
        conditional=True,
        fleet_text="group",
        refuses=(409,),
        example={"kind": "availability-set", "machines": [{"name": "app-0"}, {"name": "app-1"}]},
    ).options,
)
async def put_group(
    call: Call,
    name: Name,
    request: Request[Any, Any, Any],
    force: Force = False,
) -> FleetDifference:
    return await apply_change(
        call, edit.put_group(name, await _text(request, "group")), force=force
    )


@delete(
    "/v1/groups/{name:str}",
    **Operation(
        id="removeGroup",
        tag="fleet",
        summary="Remove a group and its machines from the inventory",
        why_no_key=REPEATABLE,
        conditional=True,
        refuses=(409,),
    ).options,
)
async def remove_group(call: Call, name: Name, force: Force = False) -> FleetDifference:
    """Unlike a deletion of machines, this is not announced to guests."""
    return await apply_change(call, edit.remove_group(name), force=force)


@put(
    "/v1/hosts/{name:str}",
    request_max_body_size=MAX_HOST_BYTES,
    **Operation(
        id="putHost",
        tag="fleet",
        summary="Create or replace a host",
        why_no_key=REPEATABLE,
        conditional=True,
        fleet_text="host",
        refuses=(409,),
        example={"labels": {"rack": "r1"}},
    ).options,
)
async def put_host(call: Call, name: Name, request: Request[Any, Any, Any]) -> FleetDifference:
    text = await _text(request, "host", MAX_HOST_BYTES)
    return await apply_change(call, edit.put_host(name, text), force=False)


@delete(
    "/v1/hosts/{name:str}",
    **Operation(
        id="removeHost",
        tag="fleet",
        summary="Remove a host from the inventory",
        why_no_key=REPEATABLE,
        conditional=True,
        refuses=(409,),
    ).options,
)
async def remove_host(call: Call, name: Name, force: Force = False) -> FleetDifference:
    return await apply_change(call, edit.remove_host(name, host_of), force=force)


@delete(
    "/v1/machines/{name:str}",
    **Operation(
        id="removeMachine",
        tag="fleet",
        summary="Remove a machine from the inventory",
        why_no_key=REPEATABLE,
        conditional=True,
        refuses=(409,),
    ).options,
)
async def remove_machine(call: Call, name: Name, force: Force = False) -> FleetDifference:
    """Unlike `POST /v1/machines/{name}/delete`, this is not announced to guests."""
    return await apply_change(call, edit.remove_machine(name), force=force)


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
    return msgspec.convert(fields, FleetDifference, from_attributes=True)
