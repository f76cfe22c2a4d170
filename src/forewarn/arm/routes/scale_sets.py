"""Scale sets and their members."""

from __future__ import annotations

import asyncio

from forewarn.arm import views
from forewarn.arm.admission import denied
from forewarn.arm.errors import ArmError, invalid_parameter, not_allowed
from forewarn.arm.inventory import Inventory, ScaleSet
from forewarn.arm.operations import accepted
from forewarn.arm.options import EXPAND, FILTER, PAGED, SELECT, expansions, predicate
from forewarn.arm.paging import page
from forewarn.arm.request import Answer, Request
from forewarn.arm.routes.virtual_machines import (
    MAX_MACHINES,
    Members,
    delete,
    expands,
    maintain_now,
    offer_restarts,
    offer_verbs,
    too_many,
)
from forewarn.arm.routing import COMPUTE, RESOURCE_GROUP, SUBSCRIPTION, route
from forewarn.arm.scale_set_update import read_update
from forewarn.control.http.access.authorization import limit_text
from forewarn.control.http.context import CallContext
from forewarn.core import Group, Machine, Refused
from forewarn.core.access import Role
from forewarn.service.platform.platform import Outcomes

SCALE_SETS = COMPUTE + "/virtualMachineScaleSets"
SCALE_SET = RESOURCE_GROUP + SCALE_SETS + "/{scale_set}"
INSTANCE = SCALE_SET + "/virtualMachines/{instance}"


@route("GET", SUBSCRIPTION + SCALE_SETS, options=PAGED)
@route("GET", RESOURCE_GROUP + SCALE_SETS, options=PAGED)
async def list_scale_sets(request: Request) -> Answer:
    scale_sets = Inventory(request.call).scale_sets(*request.place)
    return await asyncio.to_thread(
        page, request, scale_sets, lambda scale_set: scale_set.key, views.scale_set
    )


@route("GET", SCALE_SET, options=(EXPAND,))
async def get_scale_set(request: Request) -> Answer:
    expansions(request.parameters, "userData")  # there is none
    return Answer(body=views.scale_set(scale_set_of(request)))


@route("GET", SCALE_SET + "/instanceView")
async def get_scale_set_instance_view(request: Request) -> Answer:
    scale_set, now = scale_set_of(request), request.now
    return Answer(body=await asyncio.to_thread(views.scale_set_instance_view, scale_set, now))


@route("PUT", SCALE_SET, role=Role.OPERATOR)
@route("PATCH", SCALE_SET, role=Role.OPERATOR)
async def update_scale_set(request: Request) -> Answer:
    """Scale in, and change the rules for events, in one commit."""
    body = request.body()

    async def work(call: CallContext, cause: str) -> Outcomes | Refused:
        scale_set = _whole_scale_set(request)
        update = read_update(body, views.scale_set(scale_set))
        return await call.removals.update_scale_set(
            scale_set.groups, call.by, change=update.change, to=update.capacity, cause=cause
        )

    id, events = await request.operations.carry_out(request, work)
    headers = dict(accepted(request, id, events).headers) if events else {}
    headers.pop("Location", None)  # clients take what is there for the scale set
    body = views.scale_set(scale_set_of(request))
    if not events:  # a client that is shown anything else waits, although the update is over
        body["properties"]["provisioningState"] = views.SUCCEEDED
    return Answer(body=body, headers=headers)


def _whole_scale_set(request: Request) -> ScaleSet:
    """Return a scale set of which the caller sees all groups."""
    name, call = request.names["scale_set"], request.call
    try:
        scale_set = scale_set_of(request)
    except ArmError as error:
        if error.code != "ResourceNotFound":
            raise
        raise not_allowed(
            f"There is no scale set '{name}', and scale sets are only made with the fleet file."
        ) from error
    if not Inventory(call).sees_all_of(scale_set):
        raise denied(
            call.caller,
            request.method,
            request.path,
            f"the token is limited to {limit_text(call.caller.limit)}, and scale set"
            f" '{scale_set.name}' has other groups",
        )
    return scale_set


@route("DELETE", SCALE_SET, role=Role.OPERATOR)
async def delete_scale_set(request: Request) -> Answer:
    scale_set = scale_set_of(request)
    raise not_allowed(
        f"Scale set '{scale_set.name}' can only be removed with the fleet file. Delete its"
        " instances, or scale it in to 0."
    )


@route("POST", SCALE_SET + "/performMaintenance", role=Role.TENANT)
async def perform_maintenance(request: Request) -> Answer:
    all_members = _instance_ids(request) in (None, ["*"])
    return await maintain_now(request, lambda: named_members(request), all_members=all_members)


@route("POST", SCALE_SET + "/delete", role=Role.OPERATOR)
async def delete_instances(request: Request) -> Answer:
    if _instance_ids(request) is None:
        raise invalid_parameter(
            "Required parameter 'instanceIds' is missing (null). To delete all instances, name"
            ' them as ["*"].'
        )
    return await delete(request, lambda: named_members(request))


# One member.


@route("GET", SCALE_SET + "/virtualMachines", options=(FILTER, SELECT, EXPAND, *PAGED))
async def list_instances(request: Request) -> Answer:
    scale_set, now, expand = scale_set_of(request), request.now, expands(request)
    if expansions(request.parameters, "instanceView", "instanceView/statuses", option=SELECT):
        expand = True  # and the rest is shown as well
    wanted = predicate(
        request.parameters,
        {
            "instanceView/statuses/code": lambda member: views.status_codes(member[1], member[2]),
            "properties/latestModelApplied": lambda _: "true",
        },
    )

    def build() -> Answer:
        return page(
            request,
            filter(wanted, scale_set.keyed_members()),
            lambda member: member[0],
            lambda member: views.instance(member[1], member[2], now, expand=expand),
        )

    return await asyncio.to_thread(build)


@route("GET", INSTANCE, options=(EXPAND,))
async def get_instance(request: Request) -> Answer:
    member = member_of(request)
    return Answer(body=views.instance(*member, request.now, expand=expands(request)))


@route("GET", INSTANCE + "/networkInterfaces", options=PAGED)
async def list_network_interfaces(request: Request) -> Answer:
    """There are none. Ansible's inventory asks for those of each instance."""
    member_of(request)
    nothing: tuple[str, ...] = ()
    return page(request, nothing, lambda name: (name,), lambda name: name)


def scale_set_of(request: Request) -> ScaleSet:
    return Inventory(request.call).scale_set(*request.place, request.names["scale_set"])


def member_of(request: Request) -> tuple[Group, Machine]:
    return Inventory(request.call).instance(scale_set_of(request), request.names["instance"])


def _instance_ids(request: Request) -> list[str] | None:
    """Return the ids of instances in the body; None: all."""
    by_name = {name.lower(): value for name, value in request.body().items()}
    ids = by_name.get("instanceids")
    if ids is None:
        return None
    if not isinstance(ids, list) or not ids or not all(isinstance(id, str) for id in ids):
        raise invalid_parameter('instanceIds must be a list of ids, such as ["0", "1"].')
    if len(ids) > MAX_MACHINES:
        raise too_many(len(ids))
    return ids


def named_members(request: Request) -> Members:
    return Inventory(request.call).instances(scale_set_of(request), _instance_ids(request))


offer_restarts(SCALE_SET, named_members)
offer_verbs(INSTANCE, lambda request: [member_of(request)])
