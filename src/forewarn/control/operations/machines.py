"""Operations of the control API on machines."""

from __future__ import annotations

from forewarn.control.operations.operation import Operation
from forewarn.control.schema import core as s
from forewarn.control.schema import queries as q

LIST_MACHINES = Operation(
    "GET /v1/machines",
    "List machines",
    list[s.Machine],
    query=q.MachineQuery,
    respects_limits=True,
    paged=True,
    refuses=(404,),
    command="machine list --group web",
    options={"gone": "gone/present", "not_back": "not_back/back", "enabled": "enabled/disabled"},
)

GET_MACHINE = Operation(
    "GET /v1/machines/{name}",
    "Get a machine",
    s.Machine,
    respects_limits=True,
    command="machine show web_0",
    used_by=("run",),
    help="Show one machine.",
)

RESTART_MACHINE = Operation(
    "POST /v1/machines/{name}/restart",
    "Restart a machine as its user, announced as a Reboot",
    s.Outcome,
    role="tenant",
    respects_limits=True,
    command="machine restart web_0",
)

REDEPLOY_MACHINE = Operation(
    "POST /v1/machines/{name}/redeploy",
    "Redeploy a machine as its user, announced as a Redeploy",
    s.Outcome,
    role="tenant",
    respects_limits=True,
    command="machine redeploy web_0",
)

RESTORE_MACHINE = Operation(
    "POST /v1/machines/{name}/restore",
    "Restore a machine that was evicted or deleted",
    s.MachineOutcome,
    respects_limits=True,
    command="machine restore web_2",
    help=(
        "Bring back a machine that was evicted or deleted, or record that one is back that is "
        "listed as not back."
    ),
    done="{result.name} has been restored",
)

RECORD_MOVE = Operation(
    "POST /v1/machines/{name}/moved",
    "Record which host a machine is on",
    s.MachineOutcome,
    takes=s.MovedRequest,
    refuses=(404,),
    command="machine moved web_0 --to h3",
    example={"host": "h3"},
    options={"host": "to"},
    help=(
        "Record that a machine is on another host, because somebody or something else moved it."
        "\n\nNothing is done to the machine. What is planned for its old host does not affect it"
        " any more."
    ),
    done="{result.name} is on {result.host}",
)

EVICT_MACHINE = Operation(
    "POST /v1/machines/{name}/evict",
    "Evict a spot machine, announced as a Preempt",
    s.Outcome,
    command="machine evict web_2",
)

DELETE_MACHINE = Operation(
    "POST /v1/machines/{name}/delete",
    "Delete a machine, announced as a Terminate if the group's policy requires it",
    s.Outcome,
    respects_limits=True,
    command="machine delete web_1",
)

FAIL_MACHINE = Operation(
    "POST /v1/machines/{name}/fail",
    "Make a machine fail without notice",
    s.Outcome,
    takes=s.FailMachineRequest,
    command="machine fail web_1 --type Reboot",
    example={"type": "Reboot"},
    help="Report a sudden failure: an event that starts at once, without notice.",
)

LIST_UNKNOWN_CALLERS = Operation(
    "GET /v1/callers",
    "List unknown callers",
    list[s.UnknownCaller],
    query=q.PageQuery,
    paged=True,
    command="caller list",
    help="List addresses that call the metadata endpoint but belong to no machine.",
)

LIST_DRIFT = Operation(
    "GET /v1/drift",
    "List machines that are not as the inventory has them",
    list[s.MachineDrift],
    query=q.PageQuery,
    paged=True,
    command="machine list --drift",
)

RESTART_MACHINES = Operation(
    "POST /v1/batch/restart",
    "Restart several machines as their user, in one commit or not at all",
    s.Outcomes,
    takes=s.MachinesRequest,
    role="tenant",
    respects_limits=True,
    refuses=(409,),
    command="machine restart web_0 web_1",
    example={"machines": ["web_0", "web_1"]},
    for_one=RESTART_MACHINE,
    arguments=("machines",),
    help=(
        "Restart machines as their user would: each is announced as a Reboot. If one is refused, "
        "none is restarted."
    ),
)

REDEPLOY_MACHINES = Operation(
    "POST /v1/batch/redeploy",
    "Redeploy several machines as their user, in one commit or not at all",
    s.Outcomes,
    takes=s.MachinesRequest,
    role="tenant",
    respects_limits=True,
    refuses=(409,),
    command="machine redeploy web_0 web_1",
    example={"machines": ["web_0", "web_1"]},
    for_one=REDEPLOY_MACHINE,
    arguments=("machines",),
    help=(
        "Redeploy machines to other hosts as their user would: each is announced as a Redeploy. "
        "If one is refused, none is redeployed."
    ),
)

EVICT_MACHINES = Operation(
    "POST /v1/batch/evict",
    "Evict several spot machines, in one commit or not at all",
    s.Outcomes,
    takes=s.MachinesRequest,
    refuses=(409,),
    command="machine evict web_0 web_1",
    example={"machines": ["web_0", "web_1"]},
    for_one=EVICT_MACHINE,
    arguments=("machines",),
    help=(
        "Evict spot machines: each is announced as a Preempt. If one is refused, none is evicted."
    ),
)

DELETE_MACHINES = Operation(
    "POST /v1/batch/delete",
    "Delete several machines, in one commit or not at all",
    s.Outcomes,
    takes=s.MachinesRequest,
    respects_limits=True,
    refuses=(409,),
    command="machine delete web_0 web_1",
    example={"machines": ["web_0", "web_1"]},
    for_one=DELETE_MACHINE,
    arguments=("machines",),
    help=(
        "Delete machines: each is announced as a Terminate if its scale set has terminate "
        "notifications. If one is refused, none is deleted."
    ),
)
