"""Tenants, subscriptions and resource groups, which can only be read."""

from __future__ import annotations

from typing import Any

from forewarn.arm.errors import ArmError
from forewarn.arm.inventory import Inventory
from forewarn.arm.options import FILTER, PAGED, Field, predicate
from forewarn.arm.paging import page
from forewarn.arm.request import Answer, Request
from forewarn.arm.routing import RESOURCE_GROUP, SUBSCRIPTION, route
from forewarn.control.views.azure import DEFAULT_SUBSCRIPTION
from forewarn.service.access.machine_tokens import TENANT_ID


@route("GET", "/tenants")
async def list_tenants(request: Request) -> Answer:
    del request
    tenant = {
        "id": f"/tenants/{TENANT_ID}",
        "tenantId": TENANT_ID,
        "displayName": "forewarn",
        "tenantCategory": "Home",
    }
    return Answer(body={"value": [tenant]})


@route("GET", "/subscriptions")
async def list_subscriptions(request: Request) -> Answer:
    found = Inventory(request.call).subscriptions()
    return Answer(body={"value": [_subscription(id) for id in found]})


@route("GET", SUBSCRIPTION)
async def get_subscription(request: Request) -> Answer:
    wanted = request.names["subscription"]
    Inventory(request.call).groups(wanted)
    return Answer(body=_subscription(wanted))


@route("GET", SUBSCRIPTION + "/locations")
async def list_locations(request: Request) -> Answer:
    inventory, subscription = Inventory(request.call), request.names["subscription"]
    names = dict.fromkeys(inventory.resource_groups(subscription).values())
    return Answer(
        body={
            "value": [
                {
                    "id": f"/subscriptions/{subscription}/locations/{name}",
                    "name": name,
                    "displayName": name,
                    "regionalDisplayName": name,
                    "type": "Region",
                    "metadata": {"regionType": "Physical"},
                }
                for name in names
            ]
        }
    )


@route("GET", SUBSCRIPTION + "/resourceGroups", options=(FILTER, *PAGED))
async def list_resource_groups(request: Request) -> Answer:
    subscription = request.names["subscription"]
    found = Inventory(request.call).resource_groups(subscription)
    no_tags: dict[str, Field] = {"tagName": lambda _: (), "tagValue": lambda _: ()}
    return page(
        request,
        filter(predicate(request.parameters, no_tags), found),
        lambda name: (name,),
        lambda name: _resource_group(subscription, name, found[name]),
    )


@route("GET", RESOURCE_GROUP)
@route("HEAD", RESOURCE_GROUP)
async def get_resource_group(request: Request) -> Answer:
    subscription, wanted = request.names["subscription"], request.names["resource_group"]
    for name, location in Inventory(request.call).resource_groups(subscription).items():
        if name.lower() == wanted.lower():
            if request.method == "HEAD":
                return Answer(status=204)
            return Answer(body=_resource_group(subscription, name, location))
    raise ArmError(404, "ResourceGroupNotFound", f"Resource group '{wanted}' could not be found.")


def _subscription(id: str) -> dict[str, Any]:
    return {
        "id": f"/subscriptions/{id}",
        "subscriptionId": id,
        "tenantId": TENANT_ID,
        "displayName": "forewarn" if id == DEFAULT_SUBSCRIPTION else id,
        "state": "Enabled",
        "authorizationSource": "RoleBased",
        "managedByTenants": [],
    }


def _resource_group(subscription: str, name: str, location: str) -> dict[str, Any]:
    return {
        "id": f"/subscriptions/{subscription}/resourceGroups/{name}",
        "name": name,
        "type": "Microsoft.Resources/resourceGroups",
        "location": location,
        "tags": {},
        "properties": {"provisioningState": "Succeeded"},
    }
