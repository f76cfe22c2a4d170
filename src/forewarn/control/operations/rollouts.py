"""Operations of the control API on rollouts."""

from __future__ import annotations

from forewarn.control.operations.operation import CHANGES_NOTHING, Operation
from forewarn.control.schema import queries as q
from forewarn.control.schema import rollouts as r

LIST_ROLLOUTS = Operation(
    "GET /v1/rollouts",
    "List rollouts",
    list[r.Rollout],
    query=q.RolloutQuery,
    respects_limits=True,
    paged=True,
    command="rollout list",
    help="List all rollouts: first those in progress, then those that are over.",
    used_by=("status",),
)

START_ROLLOUT = Operation(
    "POST /v1/rollouts",
    "Start a rollout",
    r.RolloutReport,
    takes=r.RolloutRequest,
    status=201,
    refuses=(404,),
    command="rollout start --type Reboot --group web --notice 30m --bake 5m",
    example={"type": "Reboot", "groups": ["web"], "notice": 1800, "bake": 300},
    options={"waves": "waves"},
)

PLAN_ROLLOUT = Operation(
    "POST /v1/rollouts/plan",
    "Plan a rollout without starting it",
    r.RolloutPlan,
    query=q.PlanQuery,
    takes=r.RolloutRequest,
    role="viewer",
    why_no_key=CHANGES_NOTHING,
    refuses=(404, 409),
    command="rollout plan --type Reboot --group web",
    example={"type": "Reboot", "groups": ["web"], "notice": 1800, "bake": 300},
    options={"waves": "waves"},
)

GET_ROLLOUT = Operation(
    "GET /v1/rollouts/{id}",
    "Get a rollout and its progress",
    r.RolloutReport,
    query=q.RolloutReportQuery,
    respects_limits=True,
    refuses=(409,),
    command="rollout show 1B2C",
    used_by=("rollout watch",),
)

EXPLAIN_ROLLOUT = Operation(
    "GET /v1/rollouts/{id}/explain",
    "Explain what a rollout waits for",
    r.RolloutExplanation,
    query=q.LaneQuery,
    respects_limits=True,
    refuses=(409, 503),
    command="rollout explain 1B2C",
    used_by=("rollout show",),
)

LIST_ROLLOUT_STEPS = Operation(
    "GET /v1/rollouts/{id}/steps",
    "List the steps of a rollout",
    list[r.Step],
    query=q.StepQuery,
    respects_limits=True,
    paged=True,
    refuses=(409,),
    command="rollout show 1B2C --all",
)

SKIP_ROLLOUT_STEPS = Operation(
    "POST /v1/rollouts/{id}/skip",
    "Skip steps of a rollout",
    r.RolloutReport,
    takes=r.SkipRequest,
    command="rollout skip 1B2C --lane host-a",
    help="Skip steps that have not started, and withdraw events already announced for them.",
    example={"lanes": ["web"], "reason": "tested separately"},
)

PAUSE_ROLLOUT = Operation(
    "POST /v1/rollouts/{id}/pause",
    "Pause a rollout",
    r.RolloutReport,
    takes=r.PauseRequest,
    command="rollout pause 1B2C",
    example={"reason": "errors in web"},
    help="Pause a rollout: no further step is announced. Events that exist are carried out.",
)

RESUME_ROLLOUT = Operation(
    "POST /v1/rollouts/{id}/resume",
    "Resume a rollout after a pause, or after one of its events was cancelled",
    r.RolloutReport,
    command="rollout resume 1B2C",
    help="Resume a paused rollout, and announce again what was cancelled.",
)

ABORT_ROLLOUT = Operation(
    "POST /v1/rollouts/{id}/abort",
    "Abort a rollout",
    r.RolloutReport,
    takes=r.SwitchRequest,
    command="rollout abort 1B2C",
    example={"reason": "wrong version"},
    help=(
        "Abort a rollout for good: cancel what has not started. Events that have started are "
        "carried out."
    ),
)
