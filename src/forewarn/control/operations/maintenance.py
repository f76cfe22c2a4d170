"""Operations of the control API on maintenance configurations."""

from __future__ import annotations

from forewarn.control.operations.operation import Operation
from forewarn.control.schema import maintenance as m
from forewarn.control.schema import queries as q

LIST_MAINTENANCE = Operation(
    "GET /v1/maintenance",
    "List maintenance configurations",
    list[m.Maintenance],
    query=q.PageQuery,
    paged=True,
    command="maintenance list",
    help="List the maintenance configurations of the fleet.",
)

SET_MAINTENANCE = Operation(
    "PUT /v1/maintenance/{name}",
    "Add or replace a maintenance configuration",
    m.MaintenanceOutcome,
    takes=m.MaintenanceRequest,
    command="maintenance set nights --window '22:00-04:00 Europe/Berlin'",
    help="Add a maintenance configuration, or replace it.",
    example={"select": "tier=web", "windows": ["sat,sun 22:00-04:00 Europe/Berlin"]},
)

REMOVE_MAINTENANCE = Operation(
    "DELETE /v1/maintenance/{name}",
    "Remove a maintenance configuration",
    m.Maintenance,
    command="maintenance remove nights",
    help="Remove a maintenance configuration. Events that only it has held can then start.",
    done="maintenance configuration '{0}' is removed",
)
