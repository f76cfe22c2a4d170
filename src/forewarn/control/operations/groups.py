"""Operations of the control API on groups."""

from __future__ import annotations

from forewarn.control.operations.operation import Operation
from forewarn.control.schema import core as s
from forewarn.control.schema import queries as q

LIST_GROUPS = Operation(
    "GET /v1/groups",
    "List groups",
    list[s.Group],
    query=q.GroupQuery,
    respects_limits=True,
    paged=True,
    command="group list",
    options={"enabled": "enabled/disabled"},
    help="List all groups, and whether Scheduled Events are enabled for them.",
)

GET_GROUP = Operation(
    "GET /v1/groups/{name}",
    "Get a group",
    s.Group,
    respects_limits=True,
    command="group show web",
    help="Show one group.",
)

GET_GROUP_WINDOWS = Operation(
    "GET /v1/groups/{name}/windows",
    "Get the times in which maintenance of a group may start",
    s.GroupWindows,
    respects_limits=True,
    command="group windows web",
    used_by=("group show",),
    help="Show when maintenance of a group may start.",
)

DISABLE_GROUP = Operation(
    "POST /v1/groups/{name}/disable",
    "Disable Scheduled Events for a group",
    s.Group,
    respects_limits=True,
    command="group disable web",
    help="Disable Scheduled Events for a group, as happens after a day without a poll.",
    done="group '{result.name}' is disabled; the next poll enables it again",
)

EVICT_GROUP = Operation(
    "POST /v1/groups/{name}/evict",
    "Evict all spot machines of a group",
    s.Outcomes,
    command="group evict web",
    help="Evict all spot machines of a group or scale set: a Preempt for each.",
)

SCALE_IN = Operation(
    "POST /v1/groups/{name}/scale-in",
    "Scale in a scale set, deleting the machines with the highest numbers",
    s.Outcomes,
    takes=s.ScaleInRequest,
    respects_limits=True,
    command="group scale-in web --count 1",
    example={"count": 1},
    help="Delete instances of a scale set, those with the highest numbers first.",
)

SET_POLICY = Operation(
    "PATCH /v1/groups/{name}/policy",
    "Change a group's policy",
    s.GroupOutcome,
    takes=s.PolicyRequest,
    respects_limits=True,
    command="group policy web --terminate-notice 5m",
    example={"terminate_notice": 300},
    help="Show a group's policy, or change the given parts of it.",
)
