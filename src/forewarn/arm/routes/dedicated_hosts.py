"""Hosts, which are all in one host group.

To restart a host is maintenance of it: all groups on it are told of a Reboot, and go together. To
redeploy it is to redeploy every machine on it, as its user would; the host itself stays as it is.
"""

from __future__ import annotations

import msgspec

from forewarn.arm import views
from forewarn.arm.inventory import HOST_GROUPS, Inventory
from forewarn.arm.options import EXPAND, PAGED
from forewarn.arm.paging import page
from forewarn.arm.request import Answer, Request
from forewarn.arm.routes.virtual_machines import expands, user_maintenance
from forewarn.arm.routing import RESOURCE_GROUP, SUBSCRIPTION, route
from forewarn.core import EventType
from forewarn.core.access import Role

GROUPS = f"/providers/{HOST_GROUPS}"
HOSTS = RESOURCE_GROUP + GROUPS + "/{host_group}/hosts"
HOST = HOSTS + "/{host}"


@route("GET", SUBSCRIPTION + GROUPS, options=PAGED)
@route("GET", RESOURCE_GROUP + GROUPS, options=PAGED)
async def list_host_groups(request: Request) -> Answer:
    inventory = Inventory(request.call)
    here = inventory.is_default(*request.place)
    groups = [views.host_group(inventory.hosts(), request.now)] if here else []
    return page(request, groups, lambda group: (group["name"],), lambda group: group)


@route("GET", RESOURCE_GROUP + GROUPS + "/{host_group}", options=(EXPAND,))
async def get_host_group(request: Request) -> Answer:
    hosts = _inventory(request).hosts()
    return Answer(body=views.host_group(hosts, request.now, expand=expands(request)))


@route("GET", HOSTS, options=(EXPAND, *PAGED))
async def list_hosts(request: Request) -> Answer:
    inventory, now, expand = _inventory(request), request.now, expands(request)
    return page(
        request,
        inventory.hosts(),
        lambda host: (host.name,),
        lambda host: views.host(host, *inventory.on_host(host.name), now, expand=expand),
    )


@route("GET", HOST, options=(EXPAND,))
async def get_host(request: Request) -> Answer:
    inventory = _inventory(request)
    host = inventory.host(request.names["host"])
    on_host = inventory.on_host(host.name)
    return Answer(body=views.host(host, *on_host, request.now, expand=expands(request)))


@route("GET", HOST + "/instanceView")
async def get_host_instance_view(request: Request) -> Answer:
    host = _inventory(request).host(request.names["host"])
    return Answer(body=views.host_instance_view(host, request.now))


@route("POST", HOST + "/restart", role=Role.OPERATOR, limited=False)
async def restart_host(request: Request) -> Answer:
    host = _inventory(request).host(request.names["host"])
    answer = await request.operations.start(
        request,
        lambda call, cause: call.hosts.maintain(host.name, EventType.REBOOT, call.by, cause=cause),
    )
    # Clients poll an operation nevertheless, and Azure's SDKs accept nothing else for this one.
    return msgspec.structs.replace(answer, status=200)


@route("POST", HOST + "/redeploy", role=Role.OPERATOR, limited=False)
async def redeploy_host(request: Request) -> Answer:
    inventory = _inventory(request)
    members, _ = inventory.on_host(inventory.host(request.names["host"]).name)
    staying = [(group, machine) for group, machine in members if machine in group.staying]
    answer = await user_maintenance(request, lambda: staying, EventType.REDEPLOY)
    # Azure's SDKs accept nothing else for this one, also if no machine is on the host.
    return msgspec.structs.replace(answer, status=202)


def _inventory(request: Request) -> Inventory:
    """Return the resources that the caller sees, if a path names the group of the hosts."""
    inventory = Inventory(request.call)
    inventory.require_host_group(*request.place, request.names["host_group"])
    return inventory
