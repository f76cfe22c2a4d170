"""How the service stands: its clock, which may be wound, its size, its numbers."""

from __future__ import annotations

from typing import Any

import structlog
from litestar import Request, Response, get, post
from litestar.params import JSONBody

from forewarn import __version__
from forewarn.control import metrics
from forewarn.control import schema as s
from forewarn.control.access import KEEPS_LIMITS
from forewarn.control.answers import RefusedError, instant, length
from forewarn.control.desk import Ask, Asked, Desk
from forewarn.core import Now, Time
from forewarn.core.refusal import conflict, invalid
from forewarn.core.time import LAST, SECOND
from forewarn.service.ledger import Hung

log = structlog.get_logger("forewarn.control")


def handlers(desk: Desk) -> list[Any]:
    platform = desk.platform

    @get("/v1/status", sync_to_thread=False, opt=KEEPS_LIMITS)
    def status(ask: Ask) -> s.Status:
        groups = [group for group in platform.inventory.groups() if ask.sees(group.name)]
        return s.Status(
            version=__version__,
            clock=_clock(desk, platform.writer.now(), ask),
            metadata=desk.metadata,
            groups=len(groups),
            machines=sum(len(group.machines) for group in groups),
            events=sum(ask.sees(event.group) for event in platform.active()),
        )

    @get("/v1/clock", sync_to_thread=False, opt=KEEPS_LIMITS)
    def clock(ask: Ask) -> s.Clock:
        return _clock(desk, platform.writer.now(), ask)

    @post("/v1/clock/advance", status_code=200)
    async def advance(ask: Ask, data: JSONBody[s.AdvanceRequest]) -> s.Clock:
        now = platform.writer.now()
        await _advance(desk, now.at, data)
        reached = platform.writer.now()  # which is kept nowhere: the log is all there is of it
        log.info("the clock was wound", by=ask.by, seconds=(reached.at - now.at) / SECOND)
        return _clock(desk, reached, ask)

    @get("/metrics", media_type=metrics.CONTENT_TYPE, sync_to_thread=False)
    def numbers(request: Request[Any, Any, Any]) -> Response[bytes]:
        text, kind = metrics.exposition(desk.readings(), request.headers.get("accept", ""))
        return Response(text, media_type=kind)

    return [status, clock, advance, numbers]


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


def _clock(desk: Desk, now: Now, ask: Asked) -> s.Clock:
    due = None if ask.limited else desk.next_due()  # which may be that of somebody else's event
    return s.Clock(
        now=s.time_of(now.at),
        virtual=desk.advance is not None,
        speed=now.rules.speed,
        steady_since=None if now.steady_since is None else s.time_of(now.steady_since),
        next_due=None if due is None else s.time_of(due),
    )
