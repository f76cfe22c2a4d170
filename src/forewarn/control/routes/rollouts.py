"""Rollouts in the control API: planning, starting, following, pausing and aborting them."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from litestar.params import JSONBody, QueryParameter

from forewarn.control.http import filters
from forewarn.control.http.access import authorization
from forewarn.control.http.context import Call, context, require_known_hosts
from forewarn.control.http.errors import RefusedError, duration_of, parse_enum, unwrap
from forewarn.control.http.operation import route
from forewarn.control.http.paging import (
    MAX_PAGE,
    Limit,
    TimedAfter,
    parse_time_cursor,
)
from forewarn.control.http.parameters import Id, query
from forewarn.control.http.preconditions import current_rollout_tag
from forewarn.control.http.requests import arguments
from forewarn.control.operations import rollouts as operations
from forewarn.control.schema import rollouts as r
from forewarn.control.views import rollouts as views
from forewarn.core import EventType
from forewarn.core.refusal import invalid
from forewarn.core.rollouts.model import (
    EVACUATE_WORK_RETURN,
    GATE_TIMEOUT,
    LIVE_MIGRATION,
    Gate,
)
from forewarn.core.rollouts.progress import StepState
from forewarn.core.rollouts.selection import Selection
from forewarn.service.rollouts.request import RolloutRequest
from forewarn.service.rollouts.rollouts import STATES, RolloutReport
from forewarn.support.text import listing

OfGroup: TypeAlias = Annotated[
    str | None, query("Name of a group of the rollout; only what is about it.")
]
OfHost: TypeAlias = Annotated[
    str | None, query("Name of a host of the rollout; only what is about it.")
]


@route(operations.LIST_ROLLOUTS)
async def list_rollouts(
    call: Call,
    rollout_state: Annotated[
        str | None,
        QueryParameter(
            name="state",  # Litestar reserves the argument of that name
            description="Only rollouts in this state.",
            schema_extra={"enum": "RolloutState"},
        ),
    ] = None,
    limit: Limit = MAX_PAGE,
    after: TimedAfter = None,
) -> list[r.Rollout]:
    """Rollouts in progress first, then those that have ended, each the latest first."""
    if rollout_state is not None and rollout_state not in STATES:
        raise RefusedError(
            invalid(f"unknown state '{rollout_state}'; expected one of {listing(STATES)}")
        )
    visible = [
        summary
        for summary in await context().rollouts.list()
        if authorization.rollout_visible(call, summary.rollout)
    ]
    page = call.take_page(
        filters.rollouts(visible, rollout_state, parse_time_cursor(after)),
        limit,
        filters.rollout_key,
    )
    return [views.rollout(summary) for summary in page]


@route(operations.START_ROLLOUT)
async def start_rollout(call: Call, data: JSONBody[r.RolloutRequest]) -> r.RolloutReport:
    request = _rollout_request(data, call.by)
    report = views.report(unwrap(await call.rollouts.start(request)))
    call.headers["Location"] = f"/v1/rollouts/{report.id}"
    return report


@route(operations.PLAN_ROLLOUT)
async def plan_rollout(
    call: Call,
    data: JSONBody[r.RolloutRequest],
    lane: Annotated[
        str | None, query("Name of a group or host; only its steps are returned.")
    ] = None,
    steps: Annotated[
        int, QueryParameter(ge=0, le=MAX_PAGE, description="Maximum number of steps to return.")
    ] = MAX_PAGE,
) -> r.RolloutPlan:
    """Returns what the rollout would do if it were started now, with times and sums, and its steps
    in the order of their announcement."""
    request = _rollout_request(data, call.by)
    draft, forecast = unwrap(await call.rollouts.plan(request))
    return views.plan(draft, forecast, lambda step: lane in (None, step.lane), steps)


@route(operations.GET_ROLLOUT)
async def get_rollout(
    call: Call,
    id: Id,
    expected_end: Annotated[
        bool, query("Whether to forecast when it ends, which takes a moment for a large rollout.")
    ] = False,
) -> r.RolloutReport:
    id = await authorization.require_rollout(call, id)
    report: RolloutReport = unwrap(await context().rollouts.report(id))
    call.headers["ETag"] = await current_rollout_tag(context(), report.rollout)
    return views.report(
        report, await context().rollouts.expected_end(report) if expected_end else None
    )


@route(operations.EXPLAIN_ROLLOUT)
async def explain_rollout(
    call: Call, id: Id, group: OfGroup = None, host: OfHost = None
) -> r.RolloutExplanation:
    """Lanes that wait for the same reason are counted, with some examples."""
    id = await authorization.require_rollout(call, id)
    require_known_hosts()
    return views.explanation(unwrap(await context().rollouts.explain(id, host or group)))


@route(operations.LIST_ROLLOUT_STEPS)
async def list_rollout_steps(
    call: Call,
    id: Id,
    step_state: Annotated[
        str | None,
        QueryParameter(
            name="state",  # Litestar reserves the argument of that name
            description="Only steps in this state.",
            schema_extra={"enum": "StepState"},
        ),
    ] = None,
    group: OfGroup = None,
    host: OfHost = None,
    limit: Limit = MAX_PAGE,
    after: Annotated[
        int, QueryParameter(ge=0, le=MAX_PAGE, description="Only steps with a higher number.")
    ] = 0,
) -> list[r.Step]:
    """In the order of the rollout: by wave, then by lane."""
    id = await authorization.require_rollout(call, id)
    state = None if step_state is None else parse_enum(StepState, "state", step_state).value
    report: RolloutReport = unwrap(await context().rollouts.report(id))
    wanted = (
        step
        for step in views.steps(report)
        if step.number > after
        and state in (None, step.state)
        and (host or group) in (None, step.lane)
    )
    return call.take_page(wanted, limit, lambda item: (item.number,))


@route(operations.SKIP_ROLLOUT_STEPS)
async def skip_rollout_steps(call: Call, id: Id, data: JSONBody[r.SkipRequest]) -> r.RolloutReport:
    """Steps that have not started are left out. Events that were announced for them are
    withdrawn."""
    skipped = await call.rollouts.skip(id, call.by, data.reason, lanes=data.lanes, steps=data.steps)
    return views.report(unwrap(skipped))


@route(operations.PAUSE_ROLLOUT)
async def pause_rollout(call: Call, id: Id, data: JSONBody[r.PauseRequest]) -> r.RolloutReport:
    """No further steps are announced until the rollout is resumed. Events that are already
    announced are carried out, unless `withdraw` is true: then those that have not started are
    withdrawn, and announced again after the pause."""
    paused = await call.rollouts.pause(id, call.by, data.reason, withdraw=data.withdraw)
    return views.report(unwrap(paused))


@route(operations.RESUME_ROLLOUT)
async def resume_rollout(call: Call, id: Id) -> r.RolloutReport:
    return views.report(unwrap(await call.rollouts.resume(id, call.by)))


@route(operations.ABORT_ROLLOUT)
async def abort_rollout(call: Call, id: Id, data: JSONBody[r.SwitchRequest]) -> r.RolloutReport:
    """Its events that have not started are cancelled, and no further steps are announced."""
    return views.report(unwrap(await call.rollouts.abort(id, call.by, data.reason)))


def _rollout_request(data: r.RolloutRequest, by: str) -> RolloutRequest:
    gate = None
    if data.gate_http or data.gate_command:
        timeout = data.gate_timeout
        gate = Gate(
            http=data.gate_http,
            command=data.gate_command,
            timeout=GATE_TIMEOUT if timeout is None else duration_of("gate_timeout", timeout),
        )
    elif data.gate_timeout is not None:
        raise RefusedError(invalid("gate_timeout needs a gate: gate_http or gate_command"))
    selection = Selection(**arguments(data, Selection, only=SELECTION))
    if any(() in getattr(selection, field) for field in SELECTION if field.endswith("labels")):
        raise RefusedError(invalid(EMPTY_SELECTOR))  # it would select everything
    moves = data.type.lower() == LIVE_MIGRATION
    works = data.type.lower() == EVACUATE_WORK_RETURN
    fields = arguments(data, RolloutRequest, without=(*SELECTION, *_OTHERS))
    return RolloutRequest(
        type=EventType.FREEZE if moves or works else parse_enum(EventType, "event type", data.type),
        moves=moves,
        works=works,
        selection=selection,
        gate=gate,
        by=by,
        **fields,
    )


SELECTION = Selection.__struct_fields__
_OTHERS = ("type", "gate_http", "gate_command", "gate_timeout")
EMPTY_SELECTOR = "an empty selector selects nothing; write for example tier=web"
