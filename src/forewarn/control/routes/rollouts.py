"""Rollouts in the control API: planning, starting, following, pausing and aborting them."""

from __future__ import annotations

from litestar.params import JSONBody

from forewarn.control.http import filters
from forewarn.control.http.access import authorization
from forewarn.control.http.context import Call, context, require_known_hosts
from forewarn.control.http.errors import RefusedError, duration_of, parse_enum, unwrap
from forewarn.control.http.operation import route
from forewarn.control.http.paging import parse_time_cursor
from forewarn.control.http.parameters import Id, Parameters
from forewarn.control.http.preconditions import current_rollout_tag
from forewarn.control.http.requests import arguments
from forewarn.control.operations import rollouts as operations
from forewarn.control.schema import queries as q
from forewarn.control.schema import rollouts as r
from forewarn.control.views import rollouts as views
from forewarn.core import EventType
from forewarn.core.refusal import invalid
from forewarn.core.rollouts.model import EVACUATE_WORK_RETURN, GATE_TIMEOUT, LIVE_MIGRATION, Gate
from forewarn.core.rollouts.selection import Selection
from forewarn.service.rollouts.request import RolloutRequest
from forewarn.service.rollouts.rollouts import RolloutReport


@route(operations.LIST_ROLLOUTS)
async def list_rollouts(call: Call, given: Parameters[q.RolloutQuery]) -> list[r.Rollout]:
    """Rollouts in progress first, then those that have ended, each the latest first."""
    visible = [
        summary
        for summary in await context().rollouts.list()
        if authorization.rollout_visible(call, summary.rollout)
    ]
    page = call.take_page(
        filters.rollouts(visible, given.state, parse_time_cursor(given.after)),
        given.limit,
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
    call: Call, data: JSONBody[r.RolloutRequest], given: Parameters[q.PlanQuery]
) -> r.RolloutPlan:
    """Returns what the rollout would do if it were started now, with times and sums, and its steps
    in the order of their announcement."""
    request = _rollout_request(data, call.by)
    draft, forecast = unwrap(await call.rollouts.plan(request))
    return views.plan(draft, forecast, lambda step: given.lane in (None, step.lane), given.steps)


@route(operations.GET_ROLLOUT)
async def get_rollout(
    call: Call, id: Id, given: Parameters[q.RolloutReportQuery]
) -> r.RolloutReport:
    id = await authorization.require_rollout(call, id)
    report: RolloutReport = unwrap(await context().rollouts.report(id))
    call.headers["ETag"] = await current_rollout_tag(context(), report.rollout)
    forecast = await context().rollouts.expected_end(report) if given.expected_end else None
    return views.report(report, forecast)


@route(operations.EXPLAIN_ROLLOUT)
async def explain_rollout(
    call: Call, id: Id, given: Parameters[q.LaneQuery]
) -> r.RolloutExplanation:
    """Lanes that wait for the same reason are counted, with some examples."""
    id = await authorization.require_rollout(call, id)
    require_known_hosts()
    return views.explanation(
        unwrap(await context().rollouts.explain(id, given.host or given.group))
    )


@route(operations.LIST_ROLLOUT_STEPS)
async def list_rollout_steps(call: Call, id: Id, given: Parameters[q.StepQuery]) -> list[r.Step]:
    """In the order of the rollout: by wave, then by lane."""
    id = await authorization.require_rollout(call, id)
    report: RolloutReport = unwrap(await context().rollouts.report(id))
    wanted = (
        step
        for step in views.steps(report)
        if step.number > given.after
        and given.state in (None, step.state)
        and (given.host or given.group) in (None, step.lane)
    )
    return call.take_page(wanted, given.limit, lambda item: (item.number,))


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
