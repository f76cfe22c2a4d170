"""Availability sets: their machines are in the fleet file; their rules for events can change."""

from __future__ import annotations

import asyncio

from forewarn.arm import views
from forewarn.arm.inventory import Inventory
from forewarn.arm.options import EXPAND, PAGED, expansions
from forewarn.arm.paging import page
from forewarn.arm.request import Answer, Request
from forewarn.arm.routes.virtual_machines import change_rules
from forewarn.arm.routing import COMPUTE, RESOURCE_GROUP, SUBSCRIPTION, route
from forewarn.core import Group, GroupKind
from forewarn.core.access import Role

AVAILABILITY_SETS = COMPUTE + "/availabilitySets"


@route("GET", SUBSCRIPTION + AVAILABILITY_SETS, options=(EXPAND, *PAGED))
@route("GET", RESOURCE_GROUP + AVAILABILITY_SETS, options=(EXPAND, *PAGED))
async def list_availability_sets(request: Request) -> Answer:
    """Their machines are listed with or without `$expand=virtualMachines/$ref`."""
    expansions(request.parameters, "virtualMachines/$ref")
    groups = Inventory(request.call).groups(*request.place)
    return await asyncio.to_thread(
        page,
        request,
        (group for group in groups if group.kind is GroupKind.AVAILABILITY_SET),
        lambda group: (group.name,),
        views.availability_set,
    )


@route("GET", RESOURCE_GROUP + AVAILABILITY_SETS + "/{name}")
async def get_availability_set(request: Request) -> Answer:
    return Answer(body=views.availability_set(_set_of(request)))


@route("PUT", RESOURCE_GROUP + AVAILABILITY_SETS + "/{name}", role=Role.OPERATOR)
@route("PATCH", RESOURCE_GROUP + AVAILABILITY_SETS + "/{name}", role=Role.OPERATOR)
async def update_availability_set(request: Request) -> Answer:
    await change_rules(request, lambda: _set_of(request), views.availability_set)
    return await get_availability_set(request)


def _set_of(request: Request) -> Group:
    return Inventory(request.call).availability_set(*request.place, request.names["name"])
