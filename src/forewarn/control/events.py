"""Events in the control API: scheduling them, looking at them, moving them."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from forewarn.control import schema as s
from forewarn.control import views
from forewarn.control.answers import RefusedError, allowed, instant, length, named, outcome
from forewarn.control.desk import Ask, Desk
from forewarn.core import EventType, Source
from forewarn.core.refusal import unknown
from forewarn.service.platform import Platform

MAX_LISTED = 1_000  # events that are over, in one answer


def handlers(desk: Desk) -> list[Any]:
    platform = desk.platform

    @get("/v1/events")
    async def events(
        group: FromQuery[str | None] = None,
        past: FromQuery[bool] = False,
        limit: Annotated[int, QueryParameter(ge=1, le=MAX_LISTED)] = 100,
    ) -> list[s.Event]:
        active = [e for e in platform.active() if group in (None, e.group)]
        over = list(await platform.past(group, limit)) if past else []
        if group is not None and not active and not over:
            _known(platform, group)  # one that is no more may still have events that are over
        return [views.event(event) for event in (*active, *over)]

    @post("/v1/events", status_code=201)
    async def schedule(ask: Ask, data: JSONBody[s.ScheduleRequest]) -> s.Outcome:
        return outcome(
            await ask.platform.schedule(
                type=named(EventType, "type", data.type),
                machines=tuple(data.machines),
                by=ask.by,
                source=named(Source, "source", data.source),
                notice=None if data.notice is None else length("notice", data.notice),
                not_before=None if data.not_before is None else instant(data.not_before),
                short_notice=data.short_notice,
                description=data.description,
                duration=data.duration,
            )
        )

    @get("/v1/events/{id:str}")
    async def event(id: FromPath[str]) -> s.Event:
        return views.event(allowed(await platform.event(id)))

    @post("/v1/events/{id:str}/approve", status_code=200)
    async def approve(ask: Ask, id: FromPath[str]) -> s.Outcome:
        return outcome(await ask.platform.approve(id, ask.by))

    @post("/v1/events/{id:str}/cancel", status_code=200)
    async def cancel(ask: Ask, id: FromPath[str]) -> s.Outcome:
        return outcome(await ask.platform.cancel(id, ask.by))

    @post("/v1/events/{id:str}/retry", status_code=200)
    async def retry(ask: Ask, id: FromPath[str]) -> s.Outcome:
        return outcome(await ask.platform.retry(id, ask.by))

    @post("/v1/events/{id:str}/finish", status_code=200)
    async def finish(ask: Ask, id: FromPath[str], data: JSONBody[s.FinishRequest]) -> s.Outcome:
        return outcome(await ask.platform.finish(id, ask.by, data.reason))

    @get("/v1/events/{id:str}/explain")
    async def explain(id: FromPath[str]) -> s.Explanation:
        return views.explanation(allowed(await platform.explain(id)))

    return [events, schedule, event, approve, cancel, retry, finish, explain]


def _known(platform: Platform, group: str) -> None:
    if platform.inventory.group(group) is None:
        raise RefusedError(unknown(platform.inventory.unknown_group(group)))
