"""Operations of the control API on events."""

from __future__ import annotations

from forewarn.control.operations.operation import Operation
from forewarn.control.schema import core as s
from forewarn.control.schema import queries as q
from forewarn.control.schema.tonight import Tonight

LIST_EVENTS = Operation(
    "GET /v1/events",
    "List events",
    list[s.Event],
    query=q.EventQuery,
    respects_limits=True,
    paged=True,
    refuses=(404,),
    command="event list --all",
    used_by=("status",),
    options={"raised_since": "since"},
)

SCHEDULE_EVENT = Operation(
    "POST /v1/events",
    "Announce an event",
    s.Outcome,
    takes=s.ScheduleRequest,
    status=201,
    respects_limits=True,
    refuses=(404,),
    command="event schedule Reboot web_0 --notice 20m",
    example={"type": "Reboot", "machines": ["web_0"], "notice": 1200},
    arguments=("type", "machines"),
    help="Schedule an event, e.g. forewarn event schedule Reboot web_0 --notice 20m",
)

GET_EVENT = Operation(
    "GET /v1/events/{id}",
    "Get an event",
    s.EventDetails,
    respects_limits=True,
    refuses=(409,),
    command="event show 4933F66C",
    help="Show one event, even if it is over.",
)

APPROVE_EVENT = Operation(
    "POST /v1/events/{id}/approve",
    "Approve an event",
    s.Outcome,
    query=q.ApproveQuery,
    role="tenant",
    respects_limits=True,
    command="event approve 4933F66C",
    help="Approve an event as an operator, so that it can start before its notice has passed.",
)

POSTPONE_EVENT = Operation(
    "POST /v1/events/{id}/postpone",
    "Postpone an event that has not started",
    s.Outcome,
    takes=s.PostponeRequest,
    role="tenant",
    respects_limits=True,
    command="event postpone 4933F66C --by 30m",
    example={"by": 1800},
    help="Postpone an event that has not started, as far as the policy of its group allows.",
)

REPORT_READY = Operation(
    "POST /v1/events/{id}/ready",
    "Report whether a machine is ready for an event",
    s.Outcome,
    takes=s.ReadyRequest,
    role="tenant",
    respects_limits=True,
    refuses=(404,),
    command="event ready 4933F66C web_0 --note drained",
    example={"machine": "web_0", "note": "drained"},
    arguments=("machine",),
    options={"ready": "ready/withdraw"},
    help="Report that a machine is ready for an event, if it does not report that itself.",
)

CANCEL_EVENT = Operation(
    "POST /v1/events/{id}/cancel",
    "Cancel an event that has not started",
    s.Outcome,
    takes=s.CancelRequest,
    role="tenant",
    respects_limits=True,
    command="event cancel 4933F66C --reason 'wrong week'",
    example={"reason": "wrong week"},
)

CANCEL_EVENTS = Operation(
    "POST /v1/events/cancel",
    "Cancel several events that have not started",
    s.CancelledEvents,
    takes=s.CancelEventsRequest,
    role="tenant",
    respects_limits=True,
    why_no_key="an event is cancelled only once",
    refuses=(404, 409),
    command="event cancel --group web --yes",
    example={"group": "web", "type": "Reboot", "reason": "wrong week"},
)

RETRY_EVENT = Operation(
    "POST /v1/events/{id}/retry",
    "Retry a started event that waits for an operator",
    s.Outcome,
    respects_limits=True,
    command="event retry 4933F66C",
    help="Carry out a started event again, if it did not happen.",
)

FINISH_EVENT = Operation(
    "POST /v1/events/{id}/finish",
    "Declare a started event finished",
    s.Outcome,
    takes=s.FinishRequest,
    respects_limits=True,
    command="event finish 4933F66C --reason 'done by hand'",
    example={"reason": "done by hand"},
    help="Declare a started event finished, whatever its driver reports.",
)

ABANDON_EVENT = Operation(
    "POST /v1/events/{id}/abandon",
    "Give up a started event that did not happen",
    s.Outcome,
    takes=s.AbandonRequest,
    respects_limits=True,
    command="event abandon 4933F66C --reason 'the host cannot be repaired'",
    example={"reason": "the host cannot be repaired"},
    help="Give up a started event that did not happen, and whose driver keeps failing.",
)

EXPLAIN_EVENT = Operation(
    "GET /v1/events/{id}/explain",
    "Explain what an event waits for",
    s.Explanation,
    respects_limits=True,
    refuses=(409, 503),
    command="event explain 4933F66C",
    used_by=("status",),
    help="Explain what an event is waiting for, until when at most, and what would unblock it.",
)

GET_CALENDAR = Operation(
    "GET /v1/calendar.ics",
    "Get planned events as a calendar (iCalendar)",
    bytes,
    query=q.EventsOf,
    respects_limits=True,
    refuses=(404,),
)

GET_TONIGHT = Operation(
    "GET /v1/tonight",
    "Get what is going to be disturbed in the next hours",
    Tonight,
    query=q.TonightQuery,
    respects_limits=True,
    refuses=(404,),
    command="tonight",
)
