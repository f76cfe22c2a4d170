"""Assignments of maintenance configurations to virtual machines, scale sets and their virtual
machines, and availability sets. What an assignment is, `arm.assignments` says.

Assignments to everything that matches a filter are not offered: for that, configurations have
selectors. One that selects by other labels cannot be assigned, nor can its assignments be deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from forewarn.arm import inventory as i
from forewarn.arm.assignments import (
    Assignment,
    assigned_label,
    assignments_in,
    assignments_of,
    is_assignable,
    own_labels,
    relabelled,
)
from forewarn.arm.errors import ArmError, invalid_parameter, not_allowed, not_found, unwrap
from forewarn.arm.options import PAGED
from forewarn.arm.paging import page
from forewarn.arm.request import Answer, Request
from forewarn.arm.routes.maintenance_configurations import configuration_id, find
from forewarn.arm.routing import MAINTENANCE, SUBSCRIPTION, route
from forewarn.arm.targets import CHILD, RESOURCE, Target, target_of
from forewarn.control.views import azure
from forewarn.core.access import Role
from forewarn.core.labels import labels_problem
from forewarn.core.windows.model import MaintenanceConfiguration
from forewarn.service.access.secret import hidden

ASSIGNMENTS = MAINTENANCE + "/configurationAssignments"
KIND = "Microsoft.Maintenance/configurationAssignments"


@route("GET", RESOURCE + ASSIGNMENTS, limited=False, options=PAGED)
@route("GET", CHILD + ASSIGNMENTS, limited=False, options=PAGED)
async def list_assignments(request: Request) -> Answer:
    found = _assignments(request, target_of(request))
    return page(request, found, _key, _view)


@route("GET", SUBSCRIPTION + ASSIGNMENTS, limited=False, options=PAGED)
async def list_all_assignments(request: Request) -> Answer:
    """Those that were made by a label."""
    groups = i.Inventory(request.call).groups(request.names["subscription"])
    configurations = request.context.configurations.all()
    found = await asyncio.to_thread(assignments_in, groups, configurations)
    return page(request, found, _key, _view)


@route("GET", RESOURCE + ASSIGNMENTS + "/{assignment}", limited=False)
@route("GET", CHILD + ASSIGNMENTS + "/{assignment}", limited=False)
async def get_assignment(request: Request) -> Answer:
    name, resource_group = request.names["assignment"], request.names["resource_group"]
    found = _named(_assignments(request, target_of(request)), name)
    if found is None:
        raise not_found(KIND, name, resource_group)
    return Answer(body=_view(found))


@route("PUT", RESOURCE + ASSIGNMENTS + "/{assignment}", role=Role.OPERATOR, limited=False)
@route("PUT", CHILD + ASSIGNMENTS + "/{assignment}", role=Role.OPERATOR, limited=False)
async def put_assignment(request: Request) -> Answer:
    target, name = target_of(request), request.names["assignment"]
    configuration = _configuration(request, target)
    before = _assignments(request, target)
    for found in before:
        if found.configuration == configuration.name:
            if found.name.lower() == name.lower():
                return Answer(body=_view(found))
            raise not_allowed(
                f"Maintenance configuration '{configuration.name}' is assigned to '{target.id}'"
                f" already, as '{found.name}'."
            )
    if not is_assignable(configuration):
        raise not_allowed(
            f"Maintenance configuration '{configuration.name}' is for machines with the labels"
            f" '{configuration.select}', and cannot be assigned to others; change its selector, or"
            " the labels of the machines."
        )
    label = assigned_label(configuration.name)
    if problem := labels_problem({label: name}):
        raise invalid_parameter(f"configurationAssignmentName: {problem[1]}.")
    replaced = _named(before, name)
    removed = {} if replaced is None else _removal(request, target, replaced)
    await _relabel(request, target, {**removed, label: name})
    # Not 201 for a new one: old SDKs take only 200.
    return Answer(body=_view(Assignment(name, target.id, configuration.name)))


@route("DELETE", RESOURCE + ASSIGNMENTS + "/{assignment}", role=Role.OPERATOR, limited=False)
@route("DELETE", CHILD + ASSIGNMENTS + "/{assignment}", role=Role.OPERATOR, limited=False)
async def delete_assignment(request: Request) -> Answer:
    target = target_of(request)
    found = _named(_assignments(request, target), request.names["assignment"])
    if found is None:
        return Answer(status=204)
    await _relabel(request, target, _removal(request, target, found))
    return Answer(body=_view(found))


def _configuration(request: Request, target: Target) -> MaintenanceConfiguration:
    """Return the configuration that a request assigns. Raises ArmError."""
    properties = request.body().get("properties")
    properties = properties if isinstance(properties, dict) else {}
    if properties.get("filter"):
        raise invalid_parameter(
            "properties.filter: a configuration is assigned to the resource in the path."
        )
    resource = properties.get("resourceId") or target.id
    if str(resource).lower() != target.id.lower():
        raise invalid_parameter(f"properties.resourceId: must be '{target.id}', as in the path.")
    id = str(properties.get("maintenanceConfigurationId") or "")
    name = id.rpartition("/")[2]
    found = find(request, name) if id.lower() == configuration_id(name).lower() else None
    if found is None:
        raise ArmError(
            404,
            "ResourceNotFound",
            "properties.maintenanceConfigurationId: there is no maintenance configuration"
            f" '{hidden(id[:300])}'.",
        )
    return found


def _removal(request: Request, target: Target, found: Assignment) -> dict[str, str | None]:
    """Return the change of labels that ends an assignment. Raises ArmError if none does."""
    label = assigned_label(found.configuration)
    configuration = find(request, found.configuration)
    if configuration is None or not is_assignable(configuration):
        select = configuration.select if configuration else ""
        raise not_allowed(
            f"Maintenance configuration '{found.configuration}' is for"
            f" {f'all machines with the labels {select!r}' if select else 'all machines'}: this"
            " assignment cannot be deleted; change its selector, or the labels of the machines."
        )
    if label not in own_labels(target):
        raise not_allowed(
            f"'{found.name}' is an assignment of the group that '{target.id}' is in; delete it"
            " there."
        )
    return {label: None}


async def _relabel(request: Request, target: Target, labels: Mapping[str, str | None]) -> None:
    call = request.call
    change = relabelled(target, labels)
    unwrap(await request.context.fleet_apply.change(change, by=call.by, only=lambda: target.groups))


def _assignments(request: Request, target: Target) -> list[Assignment]:
    return assignments_of(target, request.context.configurations.all())


def _named(assignments: list[Assignment], name: str) -> Assignment | None:
    return next((found for found in assignments if found.name.lower() == name.lower()), None)


def _key(assignment: Assignment) -> tuple[str, str]:
    return assignment.resource, assignment.configuration


def _view(assignment: Assignment) -> dict[str, Any]:
    return {
        "id": f"{assignment.resource}{ASSIGNMENTS}/{assignment.name}",
        "name": assignment.name,
        "type": KIND,
        "location": azure.DEFAULT_LOCATION,
        "properties": {
            "maintenanceConfigurationId": configuration_id(assignment.configuration),
            "resourceId": assignment.resource,
        },
    }
