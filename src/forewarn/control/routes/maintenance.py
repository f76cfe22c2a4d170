"""Maintenance configurations in the control API: when maintenance of some machines may start."""

from __future__ import annotations

import msgspec
from litestar.params import JSONBody

from forewarn.control.http.context import Call, context
from forewarn.control.http.errors import RefusedError, unwrap
from forewarn.control.http.operation import route
from forewarn.control.http.paging import parse_name_cursor
from forewarn.control.http.parameters import Name, Parameters
from forewarn.control.operations import maintenance as operations
from forewarn.control.schema import maintenance as m
from forewarn.control.schema import queries as q
from forewarn.control.views import maintenance as views
from forewarn.core.refusal import invalid
from forewarn.service.fleet.build import FleetError, configuration_of
from forewarn.service.fleet.shapes import MaintenanceEntry


@route(operations.LIST_MAINTENANCE)
def list_maintenance(call: Call, given: Parameters[q.PageQuery]) -> list[m.Maintenance]:
    """Ordered by name. Windows and blackouts of single groups are part of their policies."""
    known, after = context().configurations.all(), parse_name_cursor(given.after)
    page = call.page(known, given.limit, lambda item: (item.name,), after)
    return [views.configuration(item) for item in page]


@route(operations.SET_MAINTENANCE)
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


@route(operations.REMOVE_MAINTENANCE)
async def remove_maintenance(call: Call, name: Name) -> m.Maintenance:
    """Events that it holds start as soon as nothing else holds them."""
    return views.configuration(unwrap(await context().configurations.remove(name, call.by)))
