"""Maintenance configurations: when maintenance of the machines that are assigned may start.

They are the maintenance configurations of the fleet. As these belong to no group, all of them are
in the default resource group, and have no location and no tags. Only the scope `Host` is offered.

A configuration has one maintenance window here (`arm.maintenance_windows`). What the fleet's
configurations have beyond that is in `extensionProperties`, in the texts of a fleet file, several
of them separated by semicolons: `select`, `windows` in place of a maintenance window, `blackouts`.
Without `select`, a configuration is for the machines that are assigned to it
(`configuration_assignments`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from forewarn.arm import inventory as i
from forewarn.arm import maintenance_windows as windows
from forewarn.arm.assignments import assigned_label, assignments_in
from forewarn.arm.errors import ArmError, invalid_parameter, not_allowed, not_found, unwrap
from forewarn.arm.options import PAGED
from forewarn.arm.paging import page
from forewarn.arm.request import Answer, Request
from forewarn.arm.routing import MAINTENANCE, RESOURCE_GROUP, SUBSCRIPTION, route
from forewarn.control.views import azure
from forewarn.core.access import Role
from forewarn.core.windows.model import MaintenanceConfiguration
from forewarn.service.fleet.build import FleetError, configuration_of
from forewarn.service.fleet.shapes import MaintenanceEntry
from forewarn.support.text import listing

CONFIGURATIONS = MAINTENANCE + "/maintenanceConfigurations"
CONFIGURATION = RESOURCE_GROUP + CONFIGURATIONS + "/{name}"
KIND = "Microsoft.Maintenance/maintenanceConfigurations"
# Properties that can have only one value here.
FIXED = {
    "namespace": "Microsoft.Maintenance",
    "maintenanceScope": "Host",
    "visibility": "Custom",
}
SEPARATOR = "; "


@route("GET", SUBSCRIPTION + CONFIGURATIONS, limited=False, options=PAGED)
@route("GET", RESOURCE_GROUP + CONFIGURATIONS, limited=False, options=PAGED)
async def list_configurations(request: Request) -> Answer:
    found = request.context.configurations.all() if _is_here(request) else []
    return page(request, found, lambda configuration: (configuration.name,), _view)


@route("GET", CONFIGURATION, limited=False)
async def get_configuration(request: Request) -> Answer:
    return Answer(body=_view(_existing(request)))


@route("PUT", CONFIGURATION, role=Role.OPERATOR, limited=False)
async def put_configuration(request: Request) -> Answer:
    if not _is_here(request):
        raise not_allowed(
            "Maintenance configurations belong to the whole fleet: they are in resource group"
            f" '{azure.DEFAULT_RESOURCE_GROUP}' of subscription '{azure.DEFAULT_SUBSCRIPTION}'."
        )
    name = request.names["name"]
    known = find(request, name)
    # Not 201 for a new one: old SDKs take only 200.
    return Answer(body=await _set(request, known.name if known else name, request.body()))


@route("PATCH", CONFIGURATION, role=Role.OPERATOR, limited=False)
async def patch_configuration(request: Request) -> Answer:
    known = _existing(request)
    return Answer(body=await _set(request, known.name, _merged(_view(known), request.body())))


@route("DELETE", CONFIGURATION, role=Role.OPERATOR, limited=False)
async def delete_configuration(request: Request) -> Answer:
    try:
        known = _existing(request)
    except ArmError as error:
        if error.code != "ResourceNotFound":
            raise
        return Answer(status=204)
    groups = list(request.call.platform.machine_index.groups())
    assigned = await asyncio.to_thread(assignments_in, groups, [known])
    if assigned:
        raise not_allowed(
            f"Maintenance configuration '{known.name}' is assigned to"
            f" {listing([found.resource for found in assigned])}; delete its assignments first."
        )
    unwrap(await request.context.configurations.remove(known.name, request.call.by))
    return Answer(body=_view(known))


def find(request: Request, name: str) -> MaintenanceConfiguration | None:
    for configuration in request.context.configurations.all():
        if configuration.name.lower() == name.lower():
            return configuration
    return None


def configuration_id(name: str) -> str:
    return (
        f"/subscriptions/{azure.DEFAULT_SUBSCRIPTION}/resourceGroups/{azure.DEFAULT_RESOURCE_GROUP}"
        f"{CONFIGURATIONS}/{name}"
    )


def _is_here(request: Request) -> bool:
    """Are the maintenance configurations at this place? Raises ArmError if there is none."""
    return i.Inventory(request.call).is_default(*request.place)


def _existing(request: Request) -> MaintenanceConfiguration:
    names = request.names
    known = find(request, names["name"]) if _is_here(request) else None
    if known is None:
        raise not_found(KIND, names["name"], names["resource_group"])
    return known


async def _set(request: Request, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    configuration = _parse(name, body)
    unwrap(await request.context.configurations.set(configuration, request.call.by))
    return _view(configuration)


def _parse(name: str, body: Mapping[str, Any]) -> MaintenanceConfiguration:
    """Raises ArmError, which names the property that cannot be had."""
    if body.get("tags"):
        raise _invalid("tags", "maintenance configurations have no tags here")
    properties = _table(body, "properties")
    for key, value in properties.items():
        if key in ("maintenanceWindow", "extensionProperties") or value is None:
            continue
        if key not in FIXED:
            raise _invalid(f"properties.{key}", "maintenance configurations do not have this here")
        if str(value).lower() != FIXED[key].lower():
            raise _invalid(f"properties.{key}", f"only '{FIXED[key]}' is possible here")
    if properties.get("maintenanceScope") is None:
        raise _invalid("properties.maintenanceScope", "this property is required: 'Host'")
    window = _table(properties, "maintenanceWindow", at="properties.")
    more = _table(properties, "extensionProperties", at="properties.")
    for key, value in more.items():
        if key not in ("select", "windows", "blackouts") or not isinstance(value, str):
            raise _invalid(
                f"properties.extensionProperties.{key}",
                "only 'select', 'windows' and 'blackouts' are possible, each a text",
            )
    texts = {
        key: [text.strip() for text in more.get(key, "").split(";") if text.strip()]
        for key in ("windows", "blackouts")
    }
    if window and texts["windows"]:
        raise _invalid(
            "properties.maintenanceWindow", "leave this out, or extensionProperties.windows"
        )
    if not (window or texts["windows"] or texts["blackouts"]):
        raise _invalid("properties.maintenanceWindow", "this property is required")
    if window:
        schedule = windows.parse(window)
        texts["windows"] = [schedule.window]
        texts["blackouts"] = [*filter(None, [schedule.blackout]), *texts["blackouts"]]
    entry = MaintenanceEntry(
        name=name,
        select=more["select"] if "select" in more else assigned_label(name),
        windows=texts["windows"],
        blackouts=[*texts["blackouts"]],
    )
    try:
        return configuration_of(entry, ())
    except FleetError as error:
        key = error.field.partition("[")[0]
        if key == "windows" and window:
            raise _invalid("properties.maintenanceWindow", error.message) from error
        if key == "name" or key not in more:
            raise _invalid("name", error.message) from error
        raise _invalid(f"properties.extensionProperties.{key}", error.message) from error


def _view(configuration: MaintenanceConfiguration) -> dict[str, Any]:
    properties: dict[str, Any] = dict(FIXED)
    more: dict[str, str] = {}
    blackouts: Any = configuration.blackouts
    if (shown := windows.shown_as(configuration.windows, blackouts)) is not None:
        properties["maintenanceWindow"], blackouts = shown
    elif configuration.windows:
        more["windows"] = SEPARATOR.join(window.text for window in configuration.windows)
    if blackouts:
        more["blackouts"] = SEPARATOR.join(blackout.text for blackout in blackouts)
    if configuration.select != assigned_label(configuration.name):
        more["select"] = configuration.select
    return {
        "id": configuration_id(configuration.name),
        "name": configuration.name,
        "type": KIND,
        "location": azure.DEFAULT_LOCATION,
        "tags": {},
        "properties": {**properties, "extensionProperties": more},
    }


def _table(body: Mapping[str, Any], key: str, at: str = "") -> dict[str, Any]:
    value = body.get(key)
    if value is not None and not isinstance(value, dict):
        raise _invalid(at + key, "this must be an object")
    return value or {}


def _merged(before: dict[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value with a change; null removes a property."""
    merged = dict(before)
    for key, value in change.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = _merged(merged[key], value)
        else:
            merged[key] = value
    return merged


def _invalid(name: str, problem: str) -> ArmError:
    return invalid_parameter(f"{name}: {problem}.")
