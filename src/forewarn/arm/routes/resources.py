"""All resources in one list, their tags, and the types of resources that there are: where general
tools begin."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

import msgspec

from forewarn.arm import inventory as i
from forewarn.arm import views
from forewarn.arm.errors import ArmError
from forewarn.arm.options import EXPAND, FILTER, PAGED, expansions, predicate
from forewarn.arm.paging import page, page_of_parts
from forewarn.arm.request import Answer, Request
from forewarn.arm.routing import RESOURCE_GROUP, SUBSCRIPTION, route
from forewarn.control.views import azure
from forewarn.core import Group, GroupKind, Machine, Time
from forewarn.core.fleet import Host

PROVIDER_EXPANSIONS = ("metadata", "resourceTypes/aliases")  # of which there are none
RESOURCE_EXPANSIONS = ("createdTime", "changedTime", "provisioningState")
# Types of resources by namespace, and an api-version that its clients know: any date is accepted.
TYPES = {
    "Microsoft.Compute": (
        "2024-07-01",
        *("virtualMachines", "virtualMachineScaleSets", "virtualMachineScaleSets/virtualMachines"),
        *("availabilitySets", "hostGroups", "hostGroups/hosts"),
    ),
    "Microsoft.Maintenance": (
        "2023-04-01",
        *("maintenanceConfigurations", "configurationAssignments", "applyUpdates", "updates"),
        "scheduledevents",
    ),
    "Microsoft.Resources": ("2022-09-01", "subscriptions", "resourceGroups", "resources"),
}


class Resource(msgspec.Struct, frozen=True, gc=False):
    id: str
    name: str
    type: str
    location: str
    view: Callable[[Time], dict[str, Any]]  # all of it
    tags: Mapping[str, str] = {}
    part: tuple[str, ...] = ()  # of the list that it is in

    @property
    def key(self) -> tuple[str, ...]:
        return (*self.part, self.id.lower())

    @property
    def resource_group(self) -> str:
        return self.id.split("/")[4]


@route("GET", SUBSCRIPTION + "/resources", options=(FILTER, EXPAND, *PAGED))
@route("GET", RESOURCE_GROUP + "/resources", options=(FILTER, EXPAND, *PAGED))
async def list_resources(request: Request) -> Answer:
    inventory = i.Inventory(request.call)
    groups, hosts = inventory.groups(*request.place), _hosts(inventory, *request.place)
    expanded = expansions(request.parameters, *RESOURCE_EXPANSIONS)
    # A resource is compared with each of its tags, so that name and value are those of one tag.
    wanted = predicate(
        request.parameters,
        {
            "resourceType": lambda found: found[0].type,
            "resourceGroup": lambda found: found[0].resource_group,
            "name": lambda found: found[0].name,
            "location": lambda found: found[0].location,
            "tagName": lambda found: found[1][:1],
            "tagValue": lambda found: found[1][1:],
        },
    )

    def is_wanted(resource: Resource) -> bool:
        tags: list[tuple[str, ...]] = [*resource.tags.items(), ()]
        return wanted is None or any(wanted((resource, tag)) for tag in tags)

    def build() -> Answer:
        parts: list[tuple[tuple[str, ...], Iterable[Resource]]] = [
            (("0", group.name), filter(is_wanted, _of_group(group)))
            for group in sorted(groups, key=lambda group: group.name)
        ]
        others = [*_scale_sets(groups), *hosts]
        parts.append((("1",), filter(is_wanted, others)))
        return page_of_parts(
            request, parts, lambda resource: resource.key, lambda found: _view(found, expanded)
        )

    return await asyncio.to_thread(build)


@route("GET", SUBSCRIPTION + "/tagNames", options=PAGED)
async def list_tags(request: Request) -> Answer:
    inventory = i.Inventory(request.call)
    groups, hosts = inventory.groups(*request.place), _hosts(inventory, *request.place)

    def build() -> Answer:
        of_machines = (resource for group in groups for resource in _of_group(group))
        counts = _counted_tags([*of_machines, *hosts])
        return page(
            request, counts, lambda name: (name,), lambda name: _tag(request, name, counts[name])
        )

    return await asyncio.to_thread(build)


def resources_at(inventory: i.Inventory, subscription: str) -> Iterator[Resource]:
    """Yield all resources of a subscription, in an order that stays the same."""
    groups = sorted(inventory.groups(subscription), key=lambda group: group.name)
    hosts = _hosts(inventory, subscription)
    return chain(chain.from_iterable(map(_of_group, groups)), _scale_sets(groups), hosts)


def _counted_tags(resources: Iterable[Resource]) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {}
    for resource in resources:
        for name, value in resource.tags.items():
            counts.setdefault(name, Counter())[value] += 1
    return counts


def _tag(request: Request, name: str, values: Counter[str]) -> dict[str, Any]:
    id = f"/subscriptions/{request.names['subscription']}/tagNames/{name}"
    return {
        "id": id,
        "tagName": name,
        "count": {"type": "Total", "value": values.total()},
        "values": [
            {
                "id": f"{id}/tagValues/{value}",
                "tagValue": value,
                "count": {"type": "Total", "value": count},
            }
            for value, count in sorted(values.items())
        ],
    }


def _of_group(group: Group) -> Iterator[Resource]:
    """Yield the machines of a group that are resources of their own, and its availability set."""
    part, location = ("0", group.name), azure.location_of(group)
    if group.kind is GroupKind.AVAILABILITY_SET:
        id = i.availability_set_id(group)
        yield Resource(
            *(id, group.name, i.AVAILABILITY_SETS, location),
            *(lambda _: views.availability_set(group), {}, part),
        )
    for machine in group.machines:
        if machine.alive and not i.is_uniform(group):
            id = i.machine_id(group, machine)
            yield Resource(
                *(id, machine.name, azure.MACHINES, location),
                *(_MachineView(group, machine), machine.tags, part),
            )


class _MachineView(msgspec.Struct, frozen=True, gc=False):
    group: Group
    machine: Machine

    def __call__(self, now: Time) -> dict[str, Any]:
        return views.virtual_machine(self.group, self.machine, now, expand=True)


def _scale_sets(groups: Iterable[Group]) -> Iterator[Resource]:
    """Yield the scale sets, each once."""
    for scale_set in i.scale_sets(groups):
        place = scale_set.place
        yield Resource(
            *(
                azure.scale_set_id(place),
                scale_set.name,
                azure.SCALE_SETS,
                azure.location_of(place),
            ),
            *(partial(_scale_set, scale_set), {}, ("1",)),
        )


def _scale_set(scale_set: i.ScaleSet, _: Time) -> dict[str, Any]:
    return views.scale_set(scale_set)


def _hosts(inventory: i.Inventory, subscription: str, resource_group: str = "") -> list[Resource]:
    """Return the hosts and their group, if they are at this place."""
    if not inventory.is_default(subscription, resource_group):
        return []
    location, part, hosts = azure.DEFAULT_LOCATION, ("1",), inventory.hosts()
    return [
        Resource(
            *(i.host_group_id(), i.HOST_GROUP, i.HOST_GROUPS, location),
            *(partial(views.host_group, hosts), {}, part),
        ),
        *(
            Resource(
                *(i.host_id(h.name), h.name, f"{i.HOST_GROUPS}/hosts", location),
                *(partial(_host, inventory, h), h.labels, part),
            )
            for h in hosts
        ),
    ]


def _host(inventory: i.Inventory, host: Host, now: Time) -> dict[str, Any]:
    return views.host(host, *inventory.on_host(host.name), now)


def _view(resource: Resource, expanded: set[str]) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": resource.id,
        "name": resource.name,
        "type": resource.type,
        "location": resource.location,
        "tags": resource.tags,
    }
    if "provisioningstate" in expanded:
        body["provisioningState"] = "Succeeded"
    for name in ("createdTime", "changedTime"):
        if name.lower() in expanded:
            body[name] = i.CREATED
    return body


@route("GET", SUBSCRIPTION + "/providers", options=(EXPAND, *PAGED))
async def list_providers(request: Request) -> Answer:
    expansions(request.parameters, *PROVIDER_EXPANSIONS)
    places = _locations(request)
    return page(request, TYPES, lambda name: (name,), lambda name: _provider(request, name, places))


@route("GET", SUBSCRIPTION + "/providers/{namespace}", options=(EXPAND,))
@route("POST", SUBSCRIPTION + "/providers/{namespace}/register")
async def get_provider(request: Request) -> Answer:
    expansions(request.parameters, *PROVIDER_EXPANSIONS)
    places, wanted = _locations(request), request.names["namespace"]
    for name in TYPES:
        if name.lower() == wanted.lower():
            return Answer(body=_provider(request, name, places))
    raise ArmError(
        404, "InvalidResourceNamespace", f"The resource namespace '{wanted}' is invalid."
    )


def _locations(request: Request) -> list[str]:
    """Return the locations of a subscription. Raises ArmError if there is no such subscription."""
    found = i.Inventory(request.call).resource_groups(request.names["subscription"])
    return sorted(set(found.values()))


def _provider(request: Request, namespace: str, locations: list[str]) -> dict[str, Any]:
    version, *types = TYPES[namespace]
    return {
        "id": f"/subscriptions/{request.names['subscription']}/providers/{namespace}",
        "namespace": namespace,
        "registrationState": "Registered",
        "registrationPolicy": "RegistrationRequired",
        "resourceTypes": [
            {
                "resourceType": type,
                "locations": locations,
                "apiVersions": [version],
                "defaultApiVersion": version,
                "capabilities": "None",
            }
            for type in types
        ],
    }
