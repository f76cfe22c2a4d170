"""The service's clock: what time it is, and, where it is virtual, winding it."""

from __future__ import annotations

import msgspec
from litestar import get, post
from litestar.params import JSONBody

from forewarn.control.http.context import Call, CallContext, context
from forewarn.control.http.errors import RefusedError, instant, length
from forewarn.control.http.operation import Operation
from forewarn.control.schema import core as s
from forewarn.core import Now, Refused, Time
from forewarn.core.access import Role
from forewarn.core.refusal import conflict, invalid
from forewarn.core.time import LAST, SECOND
from forewarn.service.engine.ledger import Hung
from forewarn.service.engine.virtual_time import VirtualTime
from forewarn.support import guard
from forewarn.support.logs import logger

PLAY_FOR = 20.0  # seconds of guard time after which a call that plays is answered, done or not

log = logger("forewarn.control")


@get(
    "/v1/clock",
    sync_to_thread=False,
    **Operation(
        id="getClock",
        tag="service",
        summary="Get the service's time",
        respects_limits=True,
        commands=("clock show", "run"),
        command_example="clock show",
    ).options,
)
def get_clock(call: Call) -> s.Clock:
    return clock_of(call)


@post(
    "/v1/clock/advance",
    **Operation(
        id="advanceClock",
        tag="service",
        summary="Advance a virtual clock",
        keyless="nothing of it is stored",
        refuses=(409,),
        commands=("clock advance",),
        command_example="clock advance 10m",
        example={"by": 600},
    ).options,
)
async def advance_clock(call: Call, data: JSONBody[s.AdvanceRequest]) -> s.Clock:
    virtual_time, now = _virtual_time(), context().platform.writer.now()
    to = _until(now.at, data)
    try:
        await virtual_time.advance(to)
    except Hung as hung:
        raise RefusedError(conflict(str(hung))) from hung
    return _advanced(call, now)


@post(
    "/v1/clock/play",
    **Operation(
        id="playClock",
        tag="service",
        summary="Play a virtual clock forward, waiting at every change for the machines that poll",
        keyless="nothing of it is stored",
        refuses=(409,),
        commands=("clock play",),
        command_example="clock play 15m",
        example={"by": 900},
    ).options,
)
async def play_clock(call: Call, data: JSONBody[s.AdvanceRequest]) -> s.Clock:
    virtual_time, now = _virtual_time(), context().platform.writer.now()
    # Whoever asks again may find that somebody else has wound it further meanwhile.
    to = _until(now.at, data, passed=data.to is not None)
    end = guard.monotonic() + PLAY_FOR
    try:
        while not await virtual_time.step(to, play=True):
            if guard.monotonic() >= end:
                break
    except Hung as hung:
        raise RefusedError(conflict(str(hung))) from hung
    return _advanced(call, now)


@post(
    "/v1/clock/resume",
    **Operation(
        id="resumeClock",
        tag="service",
        summary="Let a virtual clock run by itself",
        keyless="nothing of it is stored",
        refuses=(409,),
        commands=("clock resume",),
        command_example="clock resume --speed 60",
        example={"speed": 60},
    ).options,
)
async def resume_clock(call: Call, data: JSONBody[s.ResumeClockRequest]) -> s.Clock:
    try:
        await _virtual_time().resume(data.speed)
    except ValueError as error:
        raise RefusedError(invalid(str(error))) from error
    log.info("the clock runs by itself", by=call.by, speed=data.speed)
    return clock_of(call)


@post(
    "/v1/clock/pause",
    **Operation(
        id="pauseClock",
        tag="service",
        summary="Stop a virtual clock",
        keyless="nothing of it is stored",
        refuses=(409,),
        commands=("clock pause",),
        command_example="clock pause",
    ).options,
)
async def pause_clock(call: Call) -> s.Clock:
    await _virtual_time().pause()
    log.info("the clock stands still", by=call.by)
    return clock_of(call)


@post(
    "/v1/clock/accept",
    **Operation(
        id="acceptClock",
        tag="service",
        summary="Accept the wall clock of a service that does not trust it",
        role=Role.ADMIN,
        keyless="a second request is refused, because the clock is trusted by then",
        refuses=(409,),
        commands=("clock accept",),
        command_example="clock accept",
    ).options,
)
async def accept_clock(call: Call) -> s.AcceptedClock:
    accepted = await context().clock_acceptance.accept(call.by)
    if isinstance(accepted, Refused):
        raise RefusedError(accepted)
    fields = msgspec.structs.asdict(clock_of(call))
    before = s.time_of(accepted.before)
    return s.AcceptedClock(**fields, before=before, notes=list(accepted.notes))


def _advanced(call: CallContext, since: Now) -> s.Clock:
    reached = context().platform.writer.now()  # kept nowhere: the log is all there is of it
    log.info("the clock was wound", by=call.by, seconds=(reached.at - since.at) / SECOND)
    return clock_of(call, reached)


def clock_of(call: CallContext, now: Now | None = None) -> s.Clock:
    now = now or context().platform.writer.now()
    virtual_time = context().virtual_time
    due = None if call.limited else context().next_due()  # it may be that of a foreign event
    return s.Clock(
        now=s.time_of(now.at),
        virtual=virtual_time is not None,
        speed=now.rules.speed,
        running_speed=virtual_time.speed if virtual_time is not None else 1.0,
        steady_since=None if now.steady_since is None else s.time_of(now.steady_since),
        next_due=None if due is None else s.time_of(due),
        untrusted=now.clock_problem or None,
    )


def _virtual_time() -> VirtualTime:
    virtual_time = context().virtual_time
    if virtual_time is None:
        raise RefusedError(
            conflict("this service runs on real time; only a virtual clock can be advanced")
        )
    return virtual_time


def _until(at: Time, data: s.AdvanceRequest, passed: bool = False) -> Time:
    if (data.by is None) == (data.to is None):
        raise RefusedError(invalid("say by how long or to when, one of the two"))
    to = instant(data.to) if data.to is not None else at + length("by", data.by or 0)
    if to < at and not passed:
        raise RefusedError(invalid("time does not go back"))
    if to > LAST:
        raise RefusedError(invalid("a clock is wound no further than the year 9000"))
    return to
