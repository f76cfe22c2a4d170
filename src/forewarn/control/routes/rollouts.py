"""Rollouts in the control API: HTTP in, verbs of `service.rollouts`, shapes out."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Request, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from forewarn.control.http import authorization, filters
from forewarn.control.http.authorization import KEEPS_LIMITS, VIEWER
from forewarn.control.http.context import Ask, AtHand
from forewarn.control.http.errors import RefusedError, allowed, length, named
from forewarn.control.http.paging import MAX_PAGE, After, Limit, cut, linked, timed_mark
from forewarn.control.http.preconditions import shown_rollout
from forewarn.control.schema import rollouts as r
from forewarn.control.schema.core import time_of
from forewarn.control.schema.types import STATES
from forewarn.control.views import core
from forewarn.core import EventType
from forewarn.core.labels import Selector, parse
from forewarn.core.refusal import invalid
from forewarn.core.rollouts.forecast import Forecast
from forewarn.core.rollouts.lanes import MAX_SELECTED, Selection
from forewarn.core.rollouts.model import GATE_TIMEOUT, Gate, Rollout, Switch
from forewarn.core.rollouts.progress import StepProgress, Wait
from forewarn.core.rollouts.window_syntax import parse_window
from forewarn.core.time import SECOND, Time
from forewarn.service.rollouts.request import RolloutRequest
from forewarn.service.rollouts.rollouts import Explained, Explanation, Report, Summary
from forewarn.support.text import listing


def handlers(desk: AtHand) -> list[Any]:
    @get("/v1/rollouts", opt=KEEPS_LIMITS)
    async def rollouts_list(
        request: Request[Any, Any, Any],
        ask: Ask,
        wanted: Annotated[str | None, QueryParameter(name="state")] = None,
        limit: Limit = MAX_PAGE,
        after: After = None,
    ) -> list[r.Rollout]:
        """Those under way first, then those that are over, each the latest first."""
        if wanted is not None and wanted not in STATES:
            raise RefusedError(invalid(f"'{wanted}' is no state; there are {listing(STATES)}"))
        every = [
            one
            for one in await desk().rollouts.list()
            if authorization.rollout_seen(ask, one.rollout)
        ]
        ends = timed_mark(after)
        found, more = cut(filters.rollouts(every, wanted, ends), limit)
        if more:
            last = filters.rollout_place(found[-1])
            linked(ask.heads, request.url.path, request.scope["query_string"], last)
        return [summary(one) for one in found]

    @post("/v1/rollouts", status_code=201, opt=KEEPS_LIMITS)
    async def rollout_start(ask: Ask, data: JSONBody[r.RolloutRequest]) -> r.RolloutReport:
        wanted = _wanted(data, ask.by)
        authorization.selected(ask, wanted)
        made = whole(allowed(await ask.rollouts.start(wanted)))
        ask.heads["Location"] = f"/v1/rollouts/{made.id}"
        return made

    @post("/v1/rollouts/plan", status_code=200, opt={**KEEPS_LIMITS, **VIEWER})
    async def rollout_plan(ask: Ask, data: JSONBody[r.RolloutRequest]) -> r.RolloutPlan:
        lasts = None if data.lasts is None else length("lasts", data.lasts)
        wanted = _wanted(data, ask.by)
        authorization.selected(ask, wanted)
        return planned(*allowed(await ask.rollouts.plan(wanted, lasts)))

    @get("/v1/rollouts/{id:str}", opt=KEEPS_LIMITS)
    async def rollout_show(ask: Ask, id: FromPath[str]) -> r.RolloutReport:
        id = await authorization.rollout(ask, id)
        found: Report = allowed(await desk().rollouts.report(id))
        ask.heads["ETag"] = await shown_rollout(desk(), found.rollout)
        return whole(found)

    @get("/v1/rollouts/{id:str}/explain", opt=KEEPS_LIMITS)
    async def rollout_explain(ask: Ask, id: FromPath[str]) -> r.RolloutExplanation:
        id = await authorization.rollout(ask, id)
        return explained(allowed(await desk().rollouts.explain(id)))

    @post("/v1/rollouts/{id:str}/pause", status_code=200, opt=KEEPS_LIMITS)
    async def rollout_pause(
        ask: Ask, id: FromPath[str], data: JSONBody[r.SwitchRequest]
    ) -> r.RolloutReport:
        id = await authorization.rollout(ask, id)
        return whole(allowed(await ask.rollouts.pause(id, ask.by, data.why)))

    @post("/v1/rollouts/{id:str}/resume", status_code=200, opt=KEEPS_LIMITS)
    async def rollout_resume(ask: Ask, id: FromPath[str]) -> r.RolloutReport:
        id = await authorization.rollout(ask, id)
        return whole(allowed(await ask.rollouts.resume(id, ask.by)))

    @post("/v1/rollouts/{id:str}/abort", status_code=200, opt=KEEPS_LIMITS)
    async def rollout_abort(
        ask: Ask, id: FromPath[str], data: JSONBody[r.SwitchRequest]
    ) -> r.RolloutReport:
        id = await authorization.rollout(ask, id)
        return whole(allowed(await ask.rollouts.abort(id, ask.by, data.why)))

    return [
        *(rollouts_list, rollout_start, rollout_plan, rollout_show, rollout_explain),
        *(rollout_pause, rollout_resume, rollout_abort),
    ]


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


def summary(one: Summary) -> r.Rollout:
    return r.Rollout(**_fields(one))


def whole(report: Report) -> r.RolloutReport:
    return r.RolloutReport(
        **_fields(report.summary),
        steps=[_step(lane.lane.name, s) for lane in report.next.lanes for s in lane.steps],
        waits=[r.Wait(**_wait(wait)) for wait in report.next.waits],
    )


def _fields(one: Summary) -> dict[str, Any]:
    rollout = one.rollout
    return {
        "id": rollout.id,
        "type": rollout.type.value,
        "state": one.state,
        "selection": rollout.selection,
        "by": rollout.by,
        "created_at": time_of(rollout.created_at),
        "steps_over": one.steps_over,
        "steps_in_all": len(rollout.steps),
        "at_once": rollout.at_once,
        "notice": rollout.promised / SECOND,
        "description": rollout.description,
        "windows": [window.said for window in rollout.windows],
        "gate": rollout.gate.named if rollout.gate else "",
        "gate_timeout": rollout.gate.timeout / SECOND if rollout.gate else None,
        "bake": rollout.bake / SECOND,
        "paused": _switch(rollout.paused),
        "resumed": _switch(rollout.resumed),
        "aborted": _switch(rollout.aborted),
        "ended_at": _time(rollout.ended_at),
    }


def explained(explanation: Explanation) -> r.RolloutExplanation:
    return r.RolloutExplanation(
        rollout=summary(explanation.report.summary),
        says=explanation.says,
        waits=[_explained(one) for one in explanation.waits],
    )


def planned(rollout: Rollout, forecast: Forecast) -> r.RolloutPlan:
    return r.RolloutPlan(
        type=rollout.type.value,
        selection=rollout.selection,
        zone=rollout.windows[0].zone if rollout.windows else "UTC",
        steps=[
            r.Planned(
                lane=one.lane,
                machines=list(one.step.machines),
                update_domain=None if one.step.host else one.step.domain,
                host=one.step.host,
                announced_at=time_of(one.announced_at),
                not_before=time_of(one.not_before),
                ends_at=time_of(one.ends_at),
            )
            for one in forecast.steps
        ],
        done_at=_time(forecast.done_at),
        left_out=forecast.left_out,
        says=forecast.says,
    )


def _explained(one: Explained) -> r.WaitExplained:
    details = [
        r.EventHolds(
            event=event.id,
            status=event.status.value,
            says=says,
            holds=[core.hold_view(hold) for hold in holds],
        )
        for event, holds, says in one.events
    ]
    return r.WaitExplained(**_wait(one.wait), details=details)


def _step(lane: str, stands: StepProgress) -> r.Step:
    step, events = stands.step, stands.events
    started = [event.started_at for event in events if event.started_at is not None]
    return r.Step(
        lane=lane,
        state=stands.state.value,
        machines=list(step.machines),
        update_domain=None if step.host else step.domain,
        host=step.host,
        events=[event.id for event in events],
        not_before=_time(events[0].not_before) if events else None,
        started_at=_time(min(started, default=None)),
        ended_at=_time(stands.ended_at) if events and stands.state.over else None,
    )


def _wait(wait: Wait) -> dict[str, Any]:
    fields = msgspec.structs.asdict(wait)
    return fields | {
        "kind": wait.kind.value,
        "since": time_of(wait.since),
        "until": _time(wait.until),
        "events": list(wait.events),
    }


def _switch(switch: Switch | None) -> r.Switch | None:
    return None if switch is None else r.Switch(by=switch.by, at=time_of(switch.at), why=switch.why)


def _time(at: Time | None) -> Any:
    return None if at is None else time_of(at)
