"""Operations of the control API on the inventory."""

from __future__ import annotations

from typing import Any

from forewarn.control.operations.operation import Operation
from forewarn.control.schema import queries as q
from forewarn.control.schema.fleet import FleetDifference, FleetProgress
from forewarn.control.schema.overview import Overview
from forewarn.control.schema.search import Hits

PUT_FLEET = Operation(
    "PUT /v1/fleet",
    "Apply a fleet file to the inventory, or plan it",
    FleetDifference,
    query=q.PutFleetQuery,
    fleet_text="fleet",
    refuses=(409,),
    command="apply fleet.yaml --plan",
    example={
        "hosts": ["h1"],
        "groups": [
            {
                "name": "web",
                "kind": "availability-set",
                "machines": [{"name": "app-0"}, {"name": "app-1"}],
            }
        ],
    },
)

GET_FLEET = Operation("GET /v1/fleet", "Get the inventory as a fleet file", dict[str, Any])

GET_FLEET_PROGRESS = Operation(
    "GET /v1/fleet/progress",
    "Get the progress of the fleet that is being applied",
    FleetProgress,
    used_by=("apply",),
)

PUT_GROUP = Operation(
    "PUT /v1/groups/{name}",
    "Create or replace a group",
    FleetDifference,
    query=q.RemovalQuery,
    fleet_text="group",
    refuses=(409,),
    example={"kind": "availability-set", "machines": [{"name": "app-0"}, {"name": "app-1"}]},
)

REMOVE_GROUP = Operation(
    "DELETE /v1/groups/{name}",
    "Remove a group and its machines from the inventory",
    FleetDifference,
    query=q.RemovalQuery,
    refuses=(409,),
)

PUT_HOST = Operation(
    "PUT /v1/hosts/{name}",
    "Create or replace a host",
    FleetDifference,
    fleet_text="host",
    refuses=(409,),
    example={"labels": {"rack": "r1"}},
)

REMOVE_HOST = Operation(
    "DELETE /v1/hosts/{name}",
    "Remove a host from the inventory",
    FleetDifference,
    query=q.ForceQuery,
    refuses=(409,),
)

REMOVE_MACHINE = Operation(
    "DELETE /v1/machines/{name}",
    "Remove a machine from the inventory",
    FleetDifference,
    query=q.ForceQuery,
    refuses=(409,),
)

PUT_MACHINE = Operation(
    "PUT /v1/machines/{name}",
    "Create or replace a machine",
    FleetDifference,
    query=q.ForceQuery,
    fleet_text="machine",
    refuses=(409,),
    example={"group": "db", "update_domain": 1},
)

PATCH_MACHINE = Operation(
    "PATCH /v1/machines/{name}",
    "Change a machine",
    FleetDifference,
    query=q.ForceQuery,
    fleet_text="change of a machine",
    refuses=(409,),
    example={"labels": {"ring": "canary"}},
)

GET_OVERVIEW = Operation(
    "GET /v1/overview",
    "Get the numbers of machines by what happens to them",
    Overview,
    query=q.OverviewQuery,
    respects_limits=True,
)

SEARCH = Operation(
    "GET /v1/search",
    "Find machines, groups, hosts, events and rollouts",
    Hits,
    query=q.SearchQuery,
    respects_limits=True,
)
