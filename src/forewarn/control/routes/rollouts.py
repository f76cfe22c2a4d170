"""Rollouts in the control API."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, get, post
from litestar.params import JSONBody, QueryParameter

from forewarn.control.http import authorization, filters
from forewarn.control.http.context import Call, context
from forewarn.control.http.errors import RefusedError, allowed, length, named
from forewarn.control.http.operation import Creates, Operation, links_to
from forewarn.control.http.paging import MAX_PAGE, Limit, TimedAfter, cut, linked, timed_mark
from forewarn.control.http.parameters import Id
from forewarn.control.http.preconditions import shown_rollout
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
        commands=("rollout list",),
        command_example="rollout list",
    ).options,
)
async def list_rollouts(
    request: Request[Any, Any, Any],
    call: Call,
    wanted: Annotated[
        str | None,
        QueryParameter(
            name="state",
            description="Only rollouts that stand so.",
            schema_extra={"enum": "RolloutState"},
        ),
    ] = None,
    limit: Limit = MAX_PAGE,
    after: TimedAfter = None,
) -> list[r.Rollout]:
    """Those under way first, then those that are over, each the latest first."""
    if wanted is not None and wanted not in STATES:
        raise RefusedError(invalid(f"'{wanted}' is no state; there are {listing(STATES)}"))
    visible = [
        summary
        for summary in await context().rollouts.list()
        if authorization.rollout_seen(call, summary.rollout)
    ]
    page, more = cut(filters.rollouts(visible, wanted, timed_mark(after)), limit)
    if more:
        last = filters.rollout_place(page[-1])
        linked(call.headers, request.url.path, request.scope["query_string"], last)
    return [views.rollout(summary) for summary in page]


@post(
    "/v1/rollouts",
    **Operation(
        id="startRollout",
        tag="rollouts",
        summary="Start a rollout",
        status=201,
        respects_limits=True,
        creates=Creates.ROLLOUT,
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
    wanted = _wanted(data, call.by)
    authorization.selected(call, wanted)
    made = views.report(allowed(await call.rollouts.start(wanted)))
    call.headers["Location"] = f"/v1/rollouts/{made.id}"
    return made


@post(
    "/v1/rollouts/plan",
    **Operation(
        id="planRollout",
        tag="rollouts",
        summary="Plan a rollout: what would happen when, if it were started now",
        role=Role.VIEWER,
        respects_limits=True,
        refuses=(404, 409),
        commands=("rollout plan",),
        command_example="rollout plan --type Reboot --group web",
        example={"type": "Reboot", "groups": ["web"], "notice": 1800, "bake": 300},
    ).options,
)
async def plan_rollout(call: Call, data: JSONBody[r.RolloutRequest]) -> r.RolloutPlan:
    lasts = None if data.lasts is None else length("lasts", data.lasts)
    wanted = _wanted(data, call.by)
    authorization.selected(call, wanted)
    return views.plan(*allowed(await call.rollouts.plan(wanted, lasts)))


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
    id = await authorization.rollout(call, id)
    report: RolloutReport = allowed(await context().rollouts.report(id))
    call.headers["ETag"] = await shown_rollout(context(), report.rollout)
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
    id = await authorization.rollout(call, id)
    return views.explanation(allowed(await context().rollouts.explain(id)))


@post(
    "/v1/rollouts/{id:str}/pause",
    **Operation(
        id="pauseRollout",
        tag="rollouts",
        summary="Pause a rollout: announce nothing more for now",
        respects_limits=True,
        creates=Creates.ROLLOUT,
        conditional=True,
        links=links_to("getRollout", parameter="id", place="id"),
        commands=("rollout pause",),
        command_example="rollout pause 1B2C",
        example={"reason": "errors in web"},
    ).options,
)
async def pause_rollout(call: Call, id: Id, data: JSONBody[r.SwitchRequest]) -> r.RolloutReport:
    id = await authorization.rollout(call, id)
    return views.report(allowed(await call.rollouts.pause(id, call.by, data.reason)))


@post(
    "/v1/rollouts/{id:str}/resume",
    **Operation(
        id="resumeRollout",
        tag="rollouts",
        summary="Resume a rollout after a pause, or after one of its events was cancelled",
        respects_limits=True,
        creates=Creates.ROLLOUT,
        conditional=True,
        links=links_to("getRollout", parameter="id", place="id"),
        commands=("rollout resume",),
        command_example="rollout resume 1B2C",
    ).options,
)
async def resume_rollout(call: Call, id: Id) -> r.RolloutReport:
    id = await authorization.rollout(call, id)
    return views.report(allowed(await call.rollouts.resume(id, call.by)))


@post(
    "/v1/rollouts/{id:str}/abort",
    **Operation(
        id="abortRollout",
        tag="rollouts",
        summary="Abort a rollout: cancel what has not started",
        respects_limits=True,
        creates=Creates.ROLLOUT,
        conditional=True,
        links=links_to("getRollout", parameter="id", place="id"),
        commands=("rollout abort",),
        command_example="rollout abort 1B2C",
        example={"reason": "wrong version"},
    ).options,
)
async def abort_rollout(call: Call, id: Id, data: JSONBody[r.SwitchRequest]) -> r.RolloutReport:
    id = await authorization.rollout(call, id)
    return views.report(allowed(await call.rollouts.abort(id, call.by, data.reason)))


def _wanted(data: r.RolloutRequest, by: str) -> RolloutRequest:
    gate = None
    if data.gate_http or data.gate_command:
        timeout = data.gate_timeout
        gate = Gate(
            http=data.gate_http,
            command=data.gate_command,
            timeout=GATE_TIMEOUT if timeout is None else length("gate_timeout", timeout),
        )
    elif data.gate_timeout is not None:
        raise RefusedError(invalid("a gate's timeout needs a gate: an address or a command"))
    try:
        windows = tuple(parse_window(text) for text in data.windows[:MAX_SELECTED])
        labels = tuple(_selector(text) for text in data.labels[: MAX_SELECTED + 1])
    except ValueError as error:
        raise RefusedError(invalid(str(error))) from error
    return RolloutRequest(
        type=named(EventType, "type", data.type),
        selection=Selection(groups=tuple(data.groups), labels=labels, hosts=tuple(data.hosts)),
        by=by,
        notice=None if data.notice is None else length("notice", data.notice),
        short_notice=data.short_notice,
        description=data.description,
        duration=data.duration,
        at_once=data.at_once,
        windows=windows,
        gate=gate,
        bake=length("bake", data.bake),
    )


def _selector(text: str) -> Selector:
    """An empty one would select everything, which nobody means who writes nothing."""
    selector = parse(text)
    if not selector:
        raise ValueError("an empty selector selects nothing; write for example tier=web")
    return selector
