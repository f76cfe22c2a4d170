"""The service's clock: what time it is, and, where it is virtual, winding it."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar import get, post
from litestar.params import JSONBody

from forewarn.control.http.authorization import ADMIN, KEEPS_LIMITS
from forewarn.control.http.context import Ask, Asked, AtHand, Context
from forewarn.control.http.errors import RefusedError, instant, length
from forewarn.control.schema import core as s
from forewarn.core import Now, Refused, Time
from forewarn.core.deciding.holds import clock_conflict
from forewarn.core.refusal import conflict, invalid
from forewarn.core.time import LAST, SECOND
from forewarn.service.engine.ledger import Hung
from forewarn.service.engine.virtual_time import VirtualTime
from forewarn.support import guard
from forewarn.support.logs import logger

PLAY_FOR = 20.0  # seconds of guard time after which a call that plays is answered, done or not

log = logger("forewarn.control")


def handlers(desk: AtHand) -> list[Any]:
    @get("/v1/clock", sync_to_thread=False, opt=KEEPS_LIMITS)
    def clock(ask: Ask) -> s.Clock:
        return clock_of(desk(), desk().platform.writer.now(), ask)

    @post("/v1/clock/advance", status_code=200)
    async def advance(ask: Ask, data: JSONBody[s.AdvanceRequest]) -> s.Clock:
        virtual_time, now = _virtual_time(desk()), desk().platform.writer.now()
        to = _until(now.at, data)
        try:
            await virtual_time.advance(to)
        except Hung as hung:
            raise RefusedError(conflict(str(hung))) from hung
        return _wound(ask, now)

    @post("/v1/clock/play", status_code=200)
    async def play(ask: Ask, data: JSONBody[s.AdvanceRequest]) -> s.Clock:
        virtual_time, now = _virtual_time(desk()), desk().platform.writer.now()
        # Whoever asks again may find that somebody else has wound it further meanwhile.
        to = _until(now.at, data, passed=data.to is not None)
        end = guard.monotonic() + PLAY_FOR
        try:
            while not await virtual_time.step(to, play=True):
                if guard.monotonic() >= end:
                    break
        except Hung as hung:
            raise RefusedError(conflict(str(hung))) from hung
        return _wound(ask, now)

    @post("/v1/clock/resume", status_code=200)
    async def resume(ask: Ask, data: JSONBody[s.ResumeClockRequest]) -> s.Clock:
        try:
            await _virtual_time(desk()).resume(data.speed)
        except ValueError as error:
            raise RefusedError(invalid(str(error))) from error
        log.info("the clock runs by itself", by=ask.by, speed=data.speed)
        return clock_of(desk(), desk().platform.writer.now(), ask)

    @post("/v1/clock/pause", status_code=200)
    async def pause(ask: Ask) -> s.Clock:
        await _virtual_time(desk()).pause()
        log.info("the clock stands still", by=ask.by)
        return clock_of(desk(), desk().platform.writer.now(), ask)

    @post("/v1/clock/accept", status_code=200, opt=dict(ADMIN))
    async def accept(ask: Ask) -> s.AcceptedClock:
        accepted = await desk().clock_acceptance.accept(ask.by)
        if isinstance(accepted, Refused):
            raise RefusedError(accepted)
        fields = msgspec.structs.asdict(clock_of(desk(), desk().platform.writer.now(), ask))
        before = s.time_of(accepted.before)
        return s.AcceptedClock(**fields, before=before, notes=list(accepted.notes))

    def _wound(ask: Asked, since: Now) -> s.Clock:
        reached = desk().platform.writer.now()  # kept nowhere: the log is all there is of it
        log.info("the clock was wound", by=ask.by, seconds=(reached.at - since.at) / SECOND)
        return clock_of(desk(), reached, ask)

    return [clock, advance, play, resume, pause, accept]


def clock_of(desk: Context, now: Now, ask: Asked) -> s.Clock:
    due = None if ask.limited else desk.next_due()  # which may be that of somebody else's event
    return s.Clock(
        now=s.time_of(now.at),
        virtual=desk.virtual_time is not None,
        speed=now.rules.speed,
        running_speed=desk.virtual_time.speed if desk.virtual_time is not None else 1.0,
        steady_since=None if now.steady_since is None else s.time_of(now.steady_since),
        next_due=None if due is None else s.time_of(due),
        untrusted=clock_conflict(now) or None,
    )


def _virtual_time(desk: Context) -> VirtualTime:
    if desk.virtual_time is None:
        raise RefusedError(
            conflict("this service runs on real time; start one with --clock virtual to wind it")
        )
    return desk.virtual_time


def _until(at: Time, data: s.AdvanceRequest, passed: bool = False) -> Time:
    if (data.by is None) == (data.to is None):
        raise RefusedError(invalid("say by how long or to when, one of the two"))
    to = instant(data.to) if data.to is not None else at + length("by", data.by or 0)
    if to < at and not passed:
        raise RefusedError(invalid("time does not go back"))
    if to > LAST:
        raise RefusedError(invalid("a clock is wound no further than the year 9000"))
    return to
