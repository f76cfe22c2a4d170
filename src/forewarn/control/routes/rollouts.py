"""Rollouts in the control API: planning, starting, following, pausing and aborting them."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from litestar import Request, get, post
from litestar.params import JSONBody, QueryParameter

from forewarn.control.http import filters
from forewarn.control.http.access import authorization
from forewarn.control.http.context import Call, context, require_known_hosts
from forewarn.control.http.errors import RefusedError, duration_of, instant, parse_enum, unwrap
from forewarn.control.http.operation import KeyedResponse, Operation, links_to
from forewarn.control.http.paging import (
    MAX_PAGE,
    Limit,
    TimedAfter,
    add_next_link,
    parse_time_cursor,
    take_page,
)
from forewarn.control.http.parameters import Id, query
from forewarn.control.http.preconditions import current_rollout_tag
from forewarn.control.schema import rollouts as r
from forewarn.control.views import rollouts as views
from forewarn.core import EventType
from forewarn.core.access import Role
from forewarn.core.labels import Selector, parse
from forewarn.core.refusal import invalid
from forewarn.core.rollouts.model import (
    EVACUATE_WORK_RETURN,
    GATE_TIMEOUT,
    LIVE_MIGRATION,
    Conflicts,
    Gate,
    WorkBy,
)
from forewarn.core.rollouts.progress import StepState
from forewarn.core.rollouts.selection import MAX_SELECTED, Selection
from forewarn.core.windows.syntax import parse_window
from forewarn.service.rollouts.request import PauseAfter, RolloutRequest
from forewarn.service.rollouts.rollouts import STATES, RolloutReport
from forewarn.support.text import listing

OfGroup: TypeAlias = Annotated[
    str | None, query("Name of a group of the rollout; only what is about it.")
]
OfHost: TypeAlias = Annotated[
    str | None, query("Name of a host of the rollout; only what is about it.")
]


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
        refuses=(404, 409),
        commands=("rollout plan",),
        command_example="rollout plan --type Reboot --group web",
        example={"type": "Reboot", "groups": ["web"], "notice": 1800, "bake": 300},
    ).options,
)
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


@get(
    "/v1/rollouts/{id:str}/explain",
    **Operation(
        id="explainRollout",
        tag="rollouts",
        summary="Explain what a rollout waits for",
        respects_limits=True,
        refuses=(409, 503),
        commands=("rollout explain", "rollout show"),
        command_example="rollout explain 1B2C",
    ).options,
)
async def explain_rollout(
    call: Call, id: Id, group: OfGroup = None, host: OfHost = None
) -> r.RolloutExplanation:
    """Lanes that wait for the same reason are counted, with some examples."""
    id = await authorization.require_rollout(call, id)
    require_known_hosts()
    return views.explanation(unwrap(await context().rollouts.explain(id, host or group)))


@get(
    "/v1/rollouts/{id:str}/steps",
    **Operation(
        id="listRolloutSteps",
        tag="rollouts",
        summary="List the steps of a rollout",
        respects_limits=True,
        paged=True,
        refuses=(409,),
        commands=("rollout show",),
        command_example="rollout show 1B2C --all",
    ).options,
)
async def list_rollout_steps(
    request: Request[Any, Any, Any],
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
    page, more = take_page(wanted, limit)
    if more:
        last = (page[-1].number,)
        add_next_link(call.headers, request.url.path, request.scope["query_string"], last)
    return page


@post(
    "/v1/rollouts/{id:str}/skip",
    **Operation(
        id="skipRolloutSteps",
        tag="rollouts",
        summary="Skip steps of a rollout",
        keyed_response=KeyedResponse.ROLLOUT,
        conditional=True,
        links=links_to("getRollout", parameter="id", place="id"),
        commands=("rollout skip",),
        command_example="rollout skip 1B2C --host host-a",
        example={"lanes": ["web"], "reason": "tested separately"},
    ).options,
)
async def skip_rollout_steps(call: Call, id: Id, data: JSONBody[r.SkipRequest]) -> r.RolloutReport:
    """Steps that have not started are left out. Events that were announced for them are
    withdrawn."""
    skipped = await call.rollouts.skip(id, call.by, data.reason, lanes=data.lanes, steps=data.steps)
    return views.report(unwrap(skipped))


@post(
    "/v1/rollouts/{id:str}/pause",
    **Operation(
        id="pauseRollout",
        tag="rollouts",
        summary="Pause a rollout",
        keyed_response=KeyedResponse.ROLLOUT,
        conditional=True,
        links=links_to("getRollout", parameter="id", place="id"),
        commands=("rollout pause",),
        command_example="rollout pause 1B2C",
        example={"reason": "errors in web"},
    ).options,
)
async def pause_rollout(call: Call, id: Id, data: JSONBody[r.PauseRequest]) -> r.RolloutReport:
    """No further steps are announced until the rollout is resumed. Events that are already
    announced are carried out, unless `withdraw` is true: then those that have not started are
    withdrawn, and announced again after the pause."""
    paused = await call.rollouts.pause(id, call.by, data.reason, withdraw=data.withdraw)
    return views.report(unwrap(paused))


@post(
    "/v1/rollouts/{id:str}/resume",
    **Operation(
        id="resumeRollout",
        tag="rollouts",
        summary="Resume a rollout after a pause, or after one of its events was cancelled",
        keyed_response=KeyedResponse.ROLLOUT,
        conditional=True,
        links=links_to("getRollout", parameter="id", place="id"),
        commands=("rollout resume",),
        command_example="rollout resume 1B2C",
    ).options,
)
async def resume_rollout(call: Call, id: Id) -> r.RolloutReport:
    return views.report(unwrap(await call.rollouts.resume(id, call.by)))


@post(
    "/v1/rollouts/{id:str}/abort",
    **Operation(
        id="abortRollout",
        tag="rollouts",
        summary="Abort a rollout",
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
        selection = _selection(data)
    except ValueError as error:
        raise RefusedError(invalid(str(error))) from error
    moves = data.type.lower() == LIVE_MIGRATION
    works = data.type.lower() == EVACUATE_WORK_RETURN
    return RolloutRequest(
        type=EventType.FREEZE if moves or works else parse_enum(EventType, "event type", data.type),
        moves=moves,
        works=works,
        work_by=parse_enum(WorkBy, "work_by", data.work_by),
        selection=selection,
        by=by,
        notice=None if data.notice is None else duration_of("notice", data.notice),
        short_notice=data.short_notice,
        description=data.description,
        ticket=data.ticket,
        duration=data.duration,
        at_once=data.at_once,
        windows=windows,
        gate=gate,
        bake=duration_of("bake", data.bake),
        conflicts=parse_enum(Conflicts, "conflicts", data.conflicts),
        order_by=tuple(data.order_by),
        canary=tuple(data.canary),
        waves=tuple(data.waves),
        pause_after=parse_enum(PauseAfter, "pause_after", data.pause_after),
        max_failures=data.max_failures,
        lasts=None if data.lasts is None else duration_of("lasts", data.lasts),
        ignore_windows=data.ignore_windows,
        allow_overlap=data.allow_overlap,
        must_end_in_window=data.must_end_in_window,
        deadline=None if data.deadline is None else instant(data.deadline),
    )


def _selection(data: r.RolloutRequest) -> Selection:
    """Raises ValueError for a label selector that is none."""
    values: dict[str, Any] = {
        field: tuple(_selector(text) for text in getattr(data, field)[: MAX_SELECTED + 1])
        if field.endswith("labels")
        else tuple(getattr(data, field))
        for field in Selection.__struct_fields__
    }
    return Selection(**values)


def _selector(text: str) -> Selector:
    """Parse a label selector. An empty one is refused: it would select everything, and is probably
    a mistake."""
    selector = parse(text)
    if not selector:
        raise ValueError("an empty selector selects nothing; write for example tier=web")
    return selector
