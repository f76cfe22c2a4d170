"""Availability sets, which can only be read: their machines are in the fleet file."""

from __future__ import annotations

import asyncio

from forewarn.arm import views
from forewarn.arm.inventory import Inventory
from forewarn.arm.options import EXPAND, PAGED, expansions
from forewarn.arm.paging import page
from forewarn.arm.request import Answer, Request
from forewarn.arm.routing import COMPUTE, RESOURCE_GROUP, SUBSCRIPTION, route
from forewarn.core import GroupKind

AVAILABILITY_SETS = COMPUTE + "/availabilitySets"


@route("GET", SUBSCRIPTION + AVAILABILITY_SETS, options=(EXPAND, *PAGED))
@route("GET", RESOURCE_GROUP + AVAILABILITY_SETS, options=(EXPAND, *PAGED))
async def list_availability_sets(request: Request) -> Answer:
    """Their machines are listed with or without `$expand=virtualMachines/$ref`."""
    expansions(request.parameters, "virtualMachines/$ref")
    groups = Inventory(request.call).groups(
        request.names["subscription"], request.names.get("resource_group")
    )
    return await asyncio.to_thread(
        page,
        request,
        (group for group in groups if group.kind is GroupKind.AVAILABILITY_SET),
        lambda group: (group.name,),
        views.availability_set,
    )


@route("GET", RESOURCE_GROUP + AVAILABILITY_SETS + "/{name}")
async def get_availability_set(request: Request) -> Answer:
    names = request.names
    group = Inventory(request.call).availability_set(
        names["subscription"], names["resource_group"], names["name"]
    )
    return Answer(body=views.availability_set(group))
