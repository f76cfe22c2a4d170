"""Events in the control API: scheduling them, looking at them, moving them."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from forewarn.control.http import authorization, filters
from forewarn.control.http.authorization import KEEPS_LIMITS
from forewarn.control.http.context import Ask, AtHand, Context
from forewarn.control.http.errors import (
    RefusedError,
    allowed,
    id_of,
    instant,
    length,
    named,
    outcome,
    when,
)
from forewarn.control.http.filters import EventFilter
from forewarn.control.http.paging import After, linked, timed_mark
from forewarn.control.http.preconditions import event_tag
from forewarn.control.schema import core as s
from forewarn.control.views import core
from forewarn.core import Event, EventType, Source, Status
from forewarn.core.refusal import unknown

MAX_LISTED = 1_000  # events in one answer, and how many are unless somebody says

Name = FromQuery[str | None]


def handlers(desk: AtHand) -> list[Any]:
    @get("/v1/events", opt=KEEPS_LIMITS)
    async def events(
        request: Request[Any, Any, Any],
        ask: Ask,
        group: Name = None,
        machine: Name = None,
        host: Name = None,
        type: Name = None,
        status: Name = None,
        source: Name = None,
        cause: Name = None,
        rollout: Name = None,
        raised_since: Name = None,
        past: FromQuery[bool] = False,
        limit: Annotated[int, QueryParameter(ge=1, le=MAX_LISTED)] = MAX_LISTED,
        after: After = None,
    ) -> list[s.Event]:
        """Those that are not over in the order they were raised; then, if `past` says so or the
        status wanted is one of theirs, those that are, the latest first."""
        if group is not None:
            authorization.group(ask, group)
        if machine is not None:
            authorization.machines(ask, machine)
        if host is not None:
            authorization.host(ask, host, whole=False)
        wanted = EventFilter(
            group=group,
            machine=machine,
            host=host,
            type=None if type is None else named(EventType, "type", type),
            status=None if status is None else named(Status, "status", status),
            source=None if source is None else named(Source, "source", source),
            cause=cause,
            rollout=None if rollout is None else id_of("rollout", rollout),
            raised_since=when("raised_since", raised_since, desk().platform.writer.now().at),
            past=past,
            sees=ask.sees,
        )
        page: list[Event] = []
        async for event in filters.events(desk().platform, wanted, timed_mark(after)):
            if len(page) == limit:
                ends = filters.event_place(page[-1])
                linked(ask.heads, request.url.path, request.scope["query_string"], ends)
                break
            page.append(event)
        if not page:  # one that is no more may still have events that are over
            _known(desk(), group, machine, host)
        return [core.event(event) for event in page]

    @post("/v1/events", status_code=201, opt=KEEPS_LIMITS)
    async def schedule(ask: Ask, data: JSONBody[s.ScheduleRequest]) -> s.Outcome:
        authorization.machines(ask, *data.machines)
        made = outcome(
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
        ask.heads["Location"] = f"/v1/events/{made.id}"
        return made

    @get("/v1/events/{id:str}", opt=KEEPS_LIMITS)
    async def event(ask: Ask, id: FromPath[str]) -> s.Event:
        id = await authorization.event(ask, id)
        found = allowed(await desk().platform.event(id))
        ask.heads["ETag"] = event_tag(found)
        return core.event(found)

    @post("/v1/events/{id:str}/approve", status_code=200, opt=KEEPS_LIMITS)
    async def approve(ask: Ask, id: FromPath[str]) -> s.Outcome:
        id = await authorization.event(ask, id, whole=True)
        return outcome(await ask.platform.approve(id, ask.by))

    @post("/v1/events/{id:str}/cancel", status_code=200, opt=KEEPS_LIMITS)
    async def cancel(ask: Ask, id: FromPath[str]) -> s.Outcome:
        id = await authorization.event(ask, id, whole=True)
        return outcome(await ask.platform.cancel(id, ask.by))

    @post("/v1/events/{id:str}/retry", status_code=200, opt=KEEPS_LIMITS)
    async def retry(ask: Ask, id: FromPath[str]) -> s.Outcome:
        id = await authorization.event(ask, id, whole=True)
        return outcome(await ask.platform.retry(id, ask.by))

    @post("/v1/events/{id:str}/finish", status_code=200, opt=KEEPS_LIMITS)
    async def finish(ask: Ask, id: FromPath[str], data: JSONBody[s.FinishRequest]) -> s.Outcome:
        id = await authorization.event(ask, id, whole=True)
        return outcome(await ask.platform.finish(id, ask.by, data.reason))

    @get("/v1/events/{id:str}/explain", opt=KEEPS_LIMITS)
    async def explain(ask: Ask, id: FromPath[str]) -> s.Explanation:
        id = await authorization.event(ask, id)
        return core.explanation(
            authorization.explained(ask, allowed(await desk().platform.explain(id)))
        )

    return [events, schedule, event, approve, cancel, retry, finish, explain]


def _known(desk: Context, group: str | None, machine: str | None, host: str | None) -> None:
    machine_index = desk.platform.machine_index
    if group is not None and machine_index.group(group) is None:
        raise RefusedError(unknown(machine_index.unknown_group(group)))
    if machine is not None and machine_index.machine(machine) is None:
        raise RefusedError(unknown(machine_index.unknown_machine(machine)))
    if host is not None:
        allowed(desk.hosts.host(host))
