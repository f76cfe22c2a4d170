"""The service's clock in the control API: reading it, and moving it if it is virtual."""

from __future__ import annotations

import msgspec
from litestar.params import JSONBody

from forewarn.control.http.context import Call, CallContext, context
from forewarn.control.http.errors import RefusedError, duration_of, instant
from forewarn.control.http.operation import route
from forewarn.control.operations import service as operations
from forewarn.control.schema import core as s
from forewarn.core import Refused, Time, World
from forewarn.core.refusal import conflict, invalid
from forewarn.core.time import MAX_TIME, SECOND
from forewarn.service.engine.catch_up import Patience
from forewarn.service.engine.ledger import Hung
from forewarn.service.engine.virtual_time import VirtualTime
from forewarn.support import guard
from forewarn.support.instants import to_datetime
from forewarn.support.logs import logger

PLAY_FOR = 20.0  # seconds of guard time after which a request to play is answered, done or not

log = logger("forewarn.control")


@route(operations.GET_CLOCK)
def get_clock(call: Call) -> s.Clock:
    """`next_due` is when the next event starts, ends or is otherwise due; it is null for a token
    that is limited to groups."""
    return clock_of(call)


@route(operations.ADVANCE_CLOCK)
async def advance_clock(call: Call, data: JSONBody[s.AdvanceRequest]) -> s.Clock:
    """Advances the clock by a duration (`by`) or to a time (`to`). Everything that becomes due is
    done when the response is sent."""
    virtual_time, now = _virtual_time(), context().platform.writer.now()
    to = _target(now.at, data)
    try:
        await virtual_time.advance(to)
    except Hung as hung:
        raise RefusedError(conflict(str(hung))) from hung
    return _advanced(call, now)


@route(operations.PLAY_CLOCK)
async def play_clock(call: Call, data: JSONBody[s.PlayRequest]) -> s.Clock:
    """Advances the clock like `/v1/clock/advance`, but at every change of a document waits until
    the machines that poll have seen it and have polled again, and gives each machine time to react
    to its own events. The response is sent after 20 seconds, or when the machines that are waited
    for then have polled; if `now` has not reached the requested time, repeat the request with the
    same `to`."""
    virtual_time, now = _virtual_time(), context().platform.writer.now()
    # When the request is repeated, somebody else may have advanced the clock beyond `to`.
    to = _target(now.at, data, past_allowed=data.to is not None)
    stop_before = tuple(duration_of("stop_before", seconds) for seconds in data.stop_before)
    patience = Patience(data.timeout, data.reaction_time, stop_before=stop_before)
    end = guard.monotonic() + PLAY_FOR
    try:
        while not await virtual_time.step(to, patience):
            if guard.monotonic() >= end:
                break
    except Hung as hung:
        raise RefusedError(conflict(str(hung))) from hung
    return _advanced(call, now)


@route(operations.RESUME_CLOCK)
async def resume_clock(call: Call, data: JSONBody[s.ResumeClockRequest]) -> s.Clock:
    """From now on the clock advances continuously, at `speed` times real time, until it is
    paused."""
    try:
        await _virtual_time().resume(data.speed)
    except ValueError as error:
        raise RefusedError(invalid(str(error))) from error
    log.info("the virtual clock was resumed", by=call.by, speed=data.speed)
    return clock_of(call)


@route(operations.PAUSE_CLOCK)
async def pause_clock(call: Call) -> s.Clock:
    """The clock stops at its current time."""
    await _virtual_time().pause()
    log.info("the virtual clock was paused", by=call.by)
    return clock_of(call)


@route(operations.ACCEPT_CLOCK)
async def accept_clock(call: Call) -> s.AcceptedClock:
    """The service continues with the time of the wall clock. See "The operator's guide" in the
    documentation."""
    accepted = await context().clock_acceptance.accept(call.by)
    if isinstance(accepted, Refused):
        raise RefusedError(accepted)
    fields = msgspec.structs.asdict(clock_of(call))
    before = to_datetime(accepted.before)
    return s.AcceptedClock(**fields, before=before, notes=list(accepted.notes))


def _advanced(call: CallContext, since: World) -> s.Clock:
    now = context().platform.writer.now()  # not in the history, only in the log
    log.info("the virtual clock was advanced", by=call.by, seconds=(now.at - since.at) / SECOND)
    return clock_of(call, now)


def clock_of(call: CallContext, now: World | None = None) -> s.Clock:
    now = now or context().platform.writer.now()
    virtual_time = context().virtual_time
    # It may be about a group outside the limit.
    due = None if call.limited else context().next_due()
    return s.Clock(
        now=to_datetime(now.at),
        virtual=virtual_time is not None,
        speed=now.rules.speed,
        running_speed=virtual_time.speed if virtual_time is not None else 1.0,
        steady_since=None if now.steady_since is None else to_datetime(now.steady_since),
        next_due=None if due is None else to_datetime(due),
        untrusted=now.clock_problem or None,
    )


def _virtual_time() -> VirtualTime:
    virtual_time = context().virtual_time
    if virtual_time is None:
        raise RefusedError(
            conflict(
                "this service runs on real time; only a virtual clock can be advanced: start it"
                " with --clock virtual"
            )
        )
    return virtual_time


def _target(at: Time, data: s.AdvanceRequest, past_allowed: bool = False) -> Time:
    if (data.by is None) == (data.to is None):
        raise RefusedError(invalid("give either 'by' or 'to'"))
    to = instant(data.to) if data.to is not None else at + duration_of("by", data.by or 0)
    if to < at and not past_allowed:
        raise RefusedError(invalid("the clock cannot be set back"))
    if to > MAX_TIME:
        raise RefusedError(invalid("a clock cannot be advanced beyond the year 9000"))
    return to
