"""The control API: HTTP in, verbs of the platform, shapes of `schema` out. Decides nothing.

Problems are RFC 9457. Until there are tokens it is served on loopback only, and a request must
name a loopback host, so that a page in a browser cannot reach it under another name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from litestar import Litestar, Request, Response, get, post
from litestar.exceptions import HTTPException
from litestar.openapi.config import OpenAPIConfig
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from forewarn import __version__
from forewarn.control import fleet, happenings, history, metrics, rollouts, views
from forewarn.control import schema as s
from forewarn.control.answers import (
    RefusedError,
    allowed,
    http_problem,
    instant,
    length,
    named,
    not_stored,
    outcome,
    problem,
    refused,
    selector,
)
from forewarn.core import EventType, Machine, Now, Source, Time
from forewarn.core.refusal import conflict, invalid, unknown
from forewarn.core.selection import labels_of, matches
from forewarn.core.time import LAST
from forewarn.service.applying import Applying
from forewarn.service.history import History
from forewarn.service.hosts import Hosts
from forewarn.service.leaving import Leaving
from forewarn.service.ledger import Hung
from forewarn.service.platform import Platform
from forewarn.service.readings import Reading
from forewarn.service.rollouts import Rollouts
from forewarn.store.port import StoreFailed

MAX_LISTED = 1_000  # events that are over, in one answer


class Desk(msgspec.Struct, frozen=True):
    """What the API is given: the platform, and the few things a node alone knows."""

    platform: Platform
    leaving: Leaving
    hosts: Hosts
    rollouts: Rollouts
    history: History
    applying: Applying
    metadata: str
    url_of: Callable[[Machine], str]
    next_due: Callable[[], Time | None]
    advance: Callable[[Time], Awaitable[None]] | None  # where the clock is virtual
    readings: Callable[[], Iterable[Reading]]


def create(desk: Desk) -> Litestar:
    platform = desk.platform
    by = "operator"

    @get("/v1/status", sync_to_thread=False)
    def status() -> s.Status:
        groups = list(platform.inventory.groups())
        return s.Status(
            version=__version__,
            clock=_clock(desk, platform.writer.now()),
            metadata=desk.metadata,
            groups=len(groups),
            machines=sum(len(group.machines) for group in groups),
            events=len(platform.active()),
        )

    @get("/v1/machines", sync_to_thread=False)
    def machines(
        group: FromQuery[str | None] = None, label: FromQuery[str | None] = None
    ) -> list[s.Machine]:
        wanted = selector(label) or ()
        return [
            views.machine(g, m, platform.witness.polls(m.name), desk.url_of)
            for g in platform.inventory.groups()
            for m in g.machines
            if group in (None, g.name) and matches(wanted, labels_of(g, m))
        ]

    def one_machine(name: str) -> s.Machine:
        found = platform.inventory.machine(name)
        if found is None:
            raise RefusedError(unknown(platform.inventory.unknown_machine(name)))
        return views.machine(*found, platform.witness.polls(name), desk.url_of)

    def one_group(name: str) -> s.Group:
        found = platform.inventory.group(name)
        if found is None:
            raise RefusedError(unknown(platform.inventory.unknown_group(name)))
        return views.group(found)

    @get("/v1/machines/{name:str}", sync_to_thread=False)
    def machine(name: FromPath[str]) -> s.Machine:
        return one_machine(name)

    @post("/v1/machines/{name:str}/restart", status_code=200)
    async def restart(name: FromPath[str]) -> s.Outcome:
        return outcome(await platform.maintain(name, EventType.REBOOT, by))

    @post("/v1/machines/{name:str}/redeploy", status_code=200)
    async def redeploy(name: FromPath[str]) -> s.Outcome:
        return outcome(await platform.maintain(name, EventType.REDEPLOY, by))

    @post("/v1/machines/{name:str}/restore", status_code=200)
    async def restore(name: FromPath[str]) -> s.Machine:
        allowed(await platform.restore(name, by))
        return one_machine(name)

    @get("/v1/groups", sync_to_thread=False)
    def groups(label: FromQuery[str | None] = None) -> list[s.Group]:
        wanted = selector(label) or ()
        found = platform.inventory.groups()
        return [views.group(group) for group in found if matches(wanted, group.labels)]

    @get("/v1/groups/{name:str}", sync_to_thread=False)
    def group(name: FromPath[str]) -> s.Group:
        return one_group(name)

    @post("/v1/groups/{name:str}/disable", status_code=200)
    async def disable(name: FromPath[str]) -> s.Group:
        allowed(await platform.disable(name, by))
        return one_group(name)

    @get("/v1/events")
    async def events(
        group: FromQuery[str | None] = None,
        past: FromQuery[bool] = False,
        limit: Annotated[int, QueryParameter(ge=1, le=MAX_LISTED)] = 100,
    ) -> list[s.Event]:
        active = [e for e in platform.active() if group in (None, e.group)]
        over = list(await platform.past(group, limit)) if past else []
        return [views.event(event) for event in (*active, *over)]

    @post("/v1/events", status_code=201)
    async def schedule(data: JSONBody[s.ScheduleRequest]) -> s.Outcome:
        return outcome(
            await platform.schedule(
                type=named(EventType, "type", data.type),
                machines=tuple(data.machines),
                by=by,
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
    async def approve(id: FromPath[str]) -> s.Outcome:
        return outcome(await platform.approve(id, by))

    @post("/v1/events/{id:str}/cancel", status_code=200)
    async def cancel(id: FromPath[str]) -> s.Outcome:
        return outcome(await platform.cancel(id, by))

    @post("/v1/events/{id:str}/retry", status_code=200)
    async def retry(id: FromPath[str]) -> s.Outcome:
        return outcome(await platform.retry(id, by))

    @post("/v1/events/{id:str}/finish", status_code=200)
    async def finish(id: FromPath[str], data: JSONBody[s.FinishRequest]) -> s.Outcome:
        return outcome(await platform.finish(id, by, data.reason))

    @get("/v1/events/{id:str}/explain")
    async def explain(id: FromPath[str]) -> s.Explanation:
        return views.explanation(allowed(await platform.explain(id)))

    @get("/v1/clock", sync_to_thread=False)
    def clock() -> s.Clock:
        return _clock(desk, platform.writer.now())

    @post("/v1/clock/advance", status_code=200)
    async def advance(data: JSONBody[s.AdvanceRequest]) -> s.Clock:
        now = platform.writer.now()
        await _advance(desk, now.at, data)
        return _clock(desk, platform.writer.now())

    @get("/metrics", media_type=metrics.CONTENT_TYPE, sync_to_thread=False)
    def numbers() -> bytes:
        return metrics.exposition(desk.readings())

    return Litestar(
        [
            *(status, machines, machine, restart, redeploy, restore, groups, group, disable),
            *(events, schedule, event, approve, cancel, retry, finish, explain, clock, advance),
            numbers,
            *happenings.handlers(desk),
            *fleet.handlers(desk),
            *history.handlers(desk),
            *rollouts.handlers(desk),
        ],
        before_request=_local_only,
        logging_config=None,
        exception_handlers={
            RefusedError: refused,
            StoreFailed: not_stored,
            HTTPException: http_problem,
        },
        openapi_config=OpenAPIConfig(title="forewarn control API", version=__version__),
    )


async def _advance(desk: Desk, at: Time, data: JSONBody[s.AdvanceRequest]) -> None:
    if desk.advance is None:
        raise RefusedError(
            conflict("this service runs on real time; start one with --clock virtual to wind it")
        )
    if (data.by is None) == (data.to is None):
        raise RefusedError(invalid("say by how long or to when, one of the two"))
    to = instant(data.to) if data.to is not None else at + length("by", data.by or 0)
    if to < at:
        raise RefusedError(invalid("time does not go back"))
    if to > LAST:
        raise RefusedError(invalid("a clock is wound no further than the year 9000"))
    try:
        await desk.advance(to)
    except Hung as hung:
        raise RefusedError(conflict(str(hung))) from hung


def _clock(desk: Desk, now: Now) -> s.Clock:
    due = desk.next_due()
    return s.Clock(
        now=s.time_of(now.at),
        virtual=desk.advance is not None,
        speed=now.rules.speed,
        steady_since=None if now.steady_since is None else s.time_of(now.steady_since),
        next_due=None if due is None else s.time_of(due),
    )


def _local_only(request: Request[Any, Any, Any]) -> Response[s.Problem] | None:
    """A page in a browser names the host it came from, and says where from."""
    host = request.headers.get("host", "localhost")
    name = urlsplit(f"//{host}").hostname or ""
    if _is_local(name) and "origin" not in request.headers:
        return None
    return problem(403, "Forbidden", "the control API answers local programs only")


def _is_local(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"
