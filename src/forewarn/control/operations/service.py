"""Operations of the control API on the service itself."""

from __future__ import annotations

from forewarn.control.operations.operation import NOT_STORED, Operation
from forewarn.control.schema import core as s

GET_STATUS = Operation(
    "GET /v1/status",
    "Get the status of the service",
    s.Status,
    respects_limits=True,
    command="status",
    used_by=("run",),
)

GET_CONTROL_NODES = Operation(
    "GET /v1/control-nodes",
    "List the control nodes",
    list[s.ControlNode],
    command="control list",
    help="List the control nodes: which of them decides, and how far the others are behind.",
)

FORGET_CONTROL_NODE = Operation(
    "DELETE /v1/control-nodes/{name}",
    "Forget a control node that is gone",
    s.ControlNode,
    refuses=(409,),
    command="control forget c3",
    help=(
        "Forget a control node that is gone, so that it is no longer listed. One that is running "
        "is refused."
    ),
    done="{result.name}: forgotten; it was seen last at {result.seen:%Y-%m-%d %H:%M:%SZ}",
)

GET_METRICS = Operation("GET /metrics", "Get metrics for Prometheus", bytes)

GET_HEALTH = Operation(
    "GET /healthz", "Check that the service is alive", s.HealthReport, public=True, also=(503,)
)

GET_READINESS = Operation(
    "GET /readyz",
    "Check that the service is ready",
    s.HealthReport,
    public=True,
    also=(503,),
    used_by=("control list", "rollout explain"),
)

GET_LEADERSHIP = Operation(
    "GET /leaderz", "Check that this control node decides", s.HealthReport, public=True, also=(503,)
)

GET_CLOCK = Operation(
    "GET /v1/clock",
    "Get the service's time",
    s.Clock,
    respects_limits=True,
    command="clock show",
    used_by=("run",),
    help="Show the service's time, and when the next deadline is due.",
)

ADVANCE_CLOCK = Operation(
    "POST /v1/clock/advance",
    "Advance a virtual clock",
    s.Clock,
    takes=s.AdvanceRequest,
    why_no_key=NOT_STORED,
    refuses=(409,),
    command="clock advance 10m",
    arguments=("by",),
    help="Advance a virtual clock, and return when everything that is due has been carried out.",
    example={"by": 600},
)

PLAY_CLOCK = Operation(
    "POST /v1/clock/play",
    "Play a virtual clock forward, waiting for clients at every change",
    s.Clock,
    takes=s.PlayRequest,
    why_no_key=NOT_STORED,
    refuses=(409,),
    command="clock play 15m",
    arguments=("by",),
    options={"reaction_time": "react", "stop_before": "stop_before"},
    help="Advance a virtual clock, and wait at every change until all clients have seen it.",
    example={"by": 900},
)

RESUME_CLOCK = Operation(
    "POST /v1/clock/resume",
    "Resume a virtual clock",
    s.Clock,
    takes=s.ResumeClockRequest,
    why_no_key=NOT_STORED,
    refuses=(409,),
    command="clock resume --speed 60",
    help="Let a virtual clock run by itself; it waits for clients as 'play' does.",
    example={"speed": 60},
)

PAUSE_CLOCK = Operation(
    "POST /v1/clock/pause",
    "Pause a virtual clock",
    s.Clock,
    why_no_key=NOT_STORED,
    refuses=(409,),
    command="clock pause",
    help="Pause a virtual clock.",
)

ACCEPT_CLOCK = Operation(
    "POST /v1/clock/accept",
    "Accept the wall clock after the service has stopped trusting it",
    s.AcceptedClock,
    role="admin",
    why_no_key="a second request is refused, because the clock is trusted by then",
    refuses=(409,),
    command="clock accept",
)

GET_BACKUP = Operation(
    "GET /v1/backup",
    "Download a backup of the whole state, an SQLite file",
    bytes,
    role="admin",
    refuses=(409, 503),
    command="backup copy.db",
)
