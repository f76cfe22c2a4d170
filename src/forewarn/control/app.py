"""The control API: HTTP in, verbs of the platform, shapes of `schema` out. Decides nothing.

Problems are RFC 9457. What may come in at all is `doorway.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Annotated

import msgspec
from litestar import Litestar, Response, get, post
from litestar.exceptions import HTTPException
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from forewarn import __version__
from forewarn.control import fleet, happenings, history, metrics, rollouts, views
from forewarn.control import schema as s
from forewarn.control.answers import (
    RefusedError,
    allowed,
    aside,
    http_problem,
    instant,
    length,
    named,
    not_stored,
    outcome,
    refused,
    selector,
    surprise,
)
from forewarn.control.doorway import admitted
from forewarn.core import EventType, Group, Machine, Now, Source, Time
from forewarn.core.refusal import conflict, invalid, unknown
from forewarn.core.selection import matches
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
MAX_MACHINES = 1_000_000  # machines in one answer, and how many are unless somebody says


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

    @get("/v1/machines", responses={200: ResponseSpec(list[s.Machine])})
    async def machines(
        group: FromQuery[str | None] = None,
        label: FromQuery[str | None] = None,
        limit: Annotated[int, QueryParameter(ge=1, le=MAX_MACHINES)] = MAX_MACHINES,
        after: FromQuery[str | None] = None,
    ) -> Response[bytes]:
        """In the order of the inventory; `after` is the last machine of the page before."""
        wanted = selector(label) or ()
        every = platform.inventory.groups()
        there = list(every) if group is None else [known_group(group)]
        if after is not None and platform.inventory.machine(after) is None:
            raise RefusedError(unknown(platform.inventory.unknown_machine(after)))
        polls = platform.witness.polls
        return await aside(
            lambda: list(islice(views.machines(there, wanted, polls, desk.url_of, after), limit))
        )

    def one_machine(name: str) -> s.Machine:
        found = platform.inventory.machine(name)
        if found is None:
            raise RefusedError(unknown(platform.inventory.unknown_machine(name)))
        return views.machine(*found, platform.witness.polls(name), desk.url_of)

    def known_group(name: str) -> Group:
        found = platform.inventory.group(name)
        if found is None:
            raise RefusedError(unknown(platform.inventory.unknown_group(name)))
        return found

    def one_group(name: str) -> s.Group:
        return views.group(known_group(name))

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
    async def restore(name: FromPath[str]) -> s.Restored:
        notes = list(allowed(await platform.restore(name, by)))
        return s.Restored(**msgspec.structs.asdict(one_machine(name)), notes=notes)

    @get("/v1/groups", responses={200: ResponseSpec(list[s.Group])})
    async def groups(label: FromQuery[str | None] = None) -> Response[bytes]:
        wanted = selector(label) or ()
        there = list(platform.inventory.groups())
        return await aside(
            lambda: [views.group(group) for group in there if matches(wanted, group.labels)]
        )

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
        if group is not None and not active and not over:
            known_group(group)  # one that is no more may still have events that are over
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
        before_request=admitted,
        logging_config=None,
        exception_handlers={
            RefusedError: refused,
            StoreFailed: not_stored,
            HTTPException: http_problem,
            Exception: surprise,
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
