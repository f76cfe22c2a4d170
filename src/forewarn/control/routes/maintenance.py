"""Maintenance configurations in the control API: when maintenance of some machines may start."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import Request, delete, get, put
from litestar.params import JSONBody

from forewarn.control.http.context import Call, context
from forewarn.control.http.errors import RefusedError, unwrap
from forewarn.control.http.operation import REPEATABLE, Operation, links_to
from forewarn.control.http.paging import (
    MAX_PAGE,
    After,
    Limit,
    add_next_link,
    parse_name_cursor,
    take_page,
)
from forewarn.control.http.parameters import Name
from forewarn.control.schema import maintenance as m
from forewarn.control.views import maintenance as views
from forewarn.core.refusal import invalid
from forewarn.service.fleet.build import FleetError, configuration_of
from forewarn.service.fleet.shapes import MaintenanceEntry


@get(
    "/v1/maintenance",
    sync_to_thread=False,
    **Operation(
        id="listMaintenance",
        tag="maintenance",
        summary="List maintenance configurations",
        paged=True,
        links=links_to("setMaintenance", "removeMaintenance", parameter="name", place="0/name"),
        commands=("maintenance list",),
        command_example="maintenance list",
    ).options,
)
def list_maintenance(
    request: Request[Any, Any, Any], call: Call, limit: Limit = MAX_PAGE, after: After = None
) -> list[m.Maintenance]:
    """Ordered by name. Windows and blackouts of single groups are part of their policies."""
    cursor = parse_name_cursor(after)
    known = context().configurations.all()
    later = (item for item in known if cursor is None or (item.name, "") > cursor)
    configurations, more = take_page(later, limit)
    if more:
        last = (configurations[-1].name,)
        add_next_link(call.headers, request.url.path, request.scope["query_string"], last)
    return [views.configuration(item) for item in configurations]


@put(
    "/v1/maintenance/{name:str}",
    **Operation(
        id="setMaintenance",
        tag="maintenance",
        summary="Add or replace a maintenance configuration",
        why_no_key=REPEATABLE,
        commands=("maintenance set",),
        command_example="maintenance set nights --window '22:00-04:00 Europe/Berlin'",
        example={"select": "tier=web", "windows": ["sat,sun 22:00-04:00 Europe/Berlin"]},
    ).options,
)
async def set_maintenance(
    call: Call, name: Name, data: JSONBody[m.MaintenanceRequest]
) -> m.MaintenanceOutcome:
    """It applies at once, also to events that have been announced: these keep their `not_before`,
    and start when it allows them to. A note names groups for which no time is left at which
    maintenance may start."""
    entry = MaintenanceEntry(
        name=name, select=data.select, windows=data.windows, blackouts=[*data.blackouts]
    )
    try:
        configuration = configuration_of(entry, ())
    except FleetError as error:
        raise RefusedError(invalid(error.message, field=error.field)) from error
    notes = unwrap(await context().configurations.set(configuration, call.by))
    view = msgspec.structs.asdict(views.configuration(configuration))
    return m.MaintenanceOutcome(**view, notes=list(notes))


@delete(
    "/v1/maintenance/{name:str}",
    **Operation(
        id="removeMaintenance",
        tag="maintenance",
        summary="Remove a maintenance configuration",
        why_no_key=REPEATABLE,
        commands=("maintenance remove",),
        command_example="maintenance remove nights",
    ).options,
)
async def remove_maintenance(call: Call, name: Name) -> m.Maintenance:
    """Events that it holds start as soon as nothing else holds them."""
    return views.configuration(unwrap(await context().configurations.remove(name, call.by)))
