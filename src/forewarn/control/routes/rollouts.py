"""Rollouts in the control API: planning, starting, following, pausing and aborting them."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, get, post
from litestar.params import JSONBody, QueryParameter

from forewarn.control.http import authorization, filters
from forewarn.control.http.context import Call, context
from forewarn.control.http.errors import RefusedError, duration_of, parse_enum, unwrap
from forewarn.control.http.operation import KeyedResponse, Operation, links_to
from forewarn.control.http.paging import (
    MAX_PAGE,
    Limit,
    TimedAfter,
    add_next_link,
    parse_time_cursor,
    take_page,
)
from forewarn.control.http.parameters import Id
from forewarn.control.http.preconditions import current_rollout_tag
from forewarn.control.schema import rollouts as r
from forewarn.control.views import rollouts as views
from forewarn.core import EventType
from forewarn.core.access import Role
from forewarn.core.labels import Selector, parse
from forewarn.core.refusal import invalid
from forewarn.core.rollouts.lanes import MAX_SELECTED, Selection
from forewarn.core.rollouts.model import GATE_TIMEOUT, Gate
from forewarn.core.rollouts.window_syntax import parse_window
from forewarn.service.rollouts.request import RolloutRequest
from forewarn.service.rollouts.rollouts import STATES, RolloutReport
from forewarn.support.text import listing


@get(
    "/v1/rollouts",
    **Operation(
        id="listRollouts",
        tag="rollouts",
        summary="List rollouts",
        respects_limits=True,
        paged=True,
        links=links_to("getRollout", "explainRollout", parameter="id", place="0/id"),
        commands=("rollout list", "status"),
        command_example="rollout list",
    ).options,
)
async def list_rollouts(
    request: Request[Any, Any, Any],
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
    page, more = take_page(
        filters.rollouts(visible, rollout_state, parse_time_cursor(after)), limit
    )
    if more:
        last = filters.rollout_key(page[-1])
        add_next_link(call.headers, request.url.path, request.scope["query_string"], last)
    return [views.rollout(summary) for summary in page]


@post(
    "/v1/rollouts",
    **Operation(
        id="startRollout",
        tag="rollouts",
        summary="Start a rollout",
        status=201,
        respects_limits=True,
        keyed_response=KeyedResponse.ROLLOUT,
        refuses=(404,),
        links=links_to(
            "getRollout",
            "explainRollout",
            "pauseRollout",
            "resumeRollout",
            "abortRollout",
            parameter="id",
            place="id",
        ),
        commands=("rollout start",),
        command_example="rollout start --type Reboot --group web --notice 30m --bake 5m",
        example={"type": "Reboot", "groups": ["web"], "notice": 1800, "bake": 300},
    ).options,
)
async def start_rollout(call: Call, data: JSONBody[r.RolloutRequest]) -> r.RolloutReport:
    request = _rollout_request(data, call.by)
    authorization.require_selection(call, request)
    report = views.report(unwrap(await call.rollouts.start(request)))
    call.headers["Location"] = f"/v1/rollouts/{report.id}"
    return report


@post(
    "/v1/rollouts/plan",
    **Operation(
        id="planRollout",
        tag="rollouts",
        summary="Plan a rollout without starting it",
        role=Role.VIEWER,
        respects_limits=True,
        refuses=(404, 409),
        commands=("rollout plan",),
        command_example="rollout plan --type Reboot --group web",
        example={"type": "Reboot", "groups": ["web"], "notice": 1800, "bake": 300},
    ).options,
)
async def plan_rollout(call: Call, data: JSONBody[r.RolloutRequest]) -> r.RolloutPlan:
    """Returns the steps that the rollout would take if it were started now, with their times."""
    lasts = None if data.lasts is None else duration_of("lasts", data.lasts)
    request = _rollout_request(data, call.by)
    authorization.require_selection(call, request)
    return views.plan(*unwrap(await call.rollouts.plan(request, lasts)))


@get(
    "/v1/rollouts/{id:str}",
    **Operation(
        id="getRollout",
        tag="rollouts",
        summary="Get a rollout and its progress",
        respects_limits=True,
        tagged=True,
        refuses=(409,),
        commands=("rollout show", "rollout watch"),
        command_example="rollout show 1B2C",
    ).options,
)
async def get_rollout(call: Call, id: Id) -> r.RolloutReport:
    id = await authorization.require_rollout(call, id)
    report: RolloutReport = unwrap(await context().rollouts.report(id))
    call.headers["ETag"] = await current_rollout_tag(context(), report.rollout)
    return views.report(report)


@get(
    "/v1/rollouts/{id:str}/explain",
    **Operation(
        id="explainRollout",
        tag="rollouts",
        summary="Explain what a rollout waits for",
        respects_limits=True,
        refuses=(409,),
        commands=("rollout explain", "rollout show"),
        command_example="rollout explain 1B2C",
    ).options,
)
async def explain_rollout(call: Call, id: Id) -> r.RolloutExplanation:
    id = await authorization.require_rollout(call, id)
    return views.explanation(unwrap(await context().rollouts.explain(id)))


@post(
    "/v1/rollouts/{id:str}/pause",
    **Operation(
        id="pauseRollout",
        tag="rollouts",
        summary="Pause a rollout",
        respects_limits=True,
        keyed_response=KeyedResponse.ROLLOUT,
        conditional=True,
        links=links_to("getRollout", parameter="id", place="id"),
        commands=("rollout pause",),
        command_example="rollout pause 1B2C",
        example={"reason": "errors in web"},
    ).options,
)
async def pause_rollout(call: Call, id: Id, data: JSONBody[r.SwitchRequest]) -> r.RolloutReport:
    """No further steps are announced until the rollout is resumed. Events that are already
    announced are not affected."""
    id = await authorization.require_rollout(call, id)
    return views.report(unwrap(await call.rollouts.pause(id, call.by, data.reason)))


@post(
    "/v1/rollouts/{id:str}/resume",
    **Operation(
        id="resumeRollout",
        tag="rollouts",
        summary="Resume a rollout after a pause, or after one of its events was cancelled",
        respects_limits=True,
        keyed_response=KeyedResponse.ROLLOUT,
        conditional=True,
        links=links_to("getRollout", parameter="id", place="id"),
        commands=("rollout resume",),
        command_example="rollout resume 1B2C",
    ).options,
)
async def resume_rollout(call: Call, id: Id) -> r.RolloutReport:
    id = await authorization.require_rollout(call, id)
    return views.report(unwrap(await call.rollouts.resume(id, call.by)))


@post(
    "/v1/rollouts/{id:str}/abort",
    **Operation(
        id="abortRollout",
        tag="rollouts",
        summary="Abort a rollout",
        respects_limits=True,
        keyed_response=KeyedResponse.ROLLOUT,
        conditional=True,
        links=links_to("getRollout", parameter="id", place="id"),
        commands=("rollout abort",),
        command_example="rollout abort 1B2C",
        example={"reason": "wrong version"},
    ).options,
)
async def abort_rollout(call: Call, id: Id, data: JSONBody[r.SwitchRequest]) -> r.RolloutReport:
    """Its events that have not started are cancelled, and no further steps are announced."""
    id = await authorization.require_rollout(call, id)
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
    try:
        windows = tuple(parse_window(text) for text in data.windows[:MAX_SELECTED])
        labels = tuple(_selector(text) for text in data.labels[: MAX_SELECTED + 1])
    except ValueError as error:
        raise RefusedError(invalid(str(error))) from error
    return RolloutRequest(
        type=parse_enum(EventType, "event type", data.type),
        selection=Selection(groups=tuple(data.groups), labels=labels, hosts=tuple(data.hosts)),
        by=by,
        notice=None if data.notice is None else duration_of("notice", data.notice),
        short_notice=data.short_notice,
        description=data.description,
        duration=data.duration,
        at_once=data.at_once,
        windows=windows,
        gate=gate,
        bake=duration_of("bake", data.bake),
    )


def _selector(text: str) -> Selector:
    """Parse a label selector. An empty one is refused: it would select everything, and is probably
    a mistake."""
    selector = parse(text)
    if not selector:
        raise ValueError("an empty selector selects nothing; write for example tier=web")
    return selector
