"""For when a step is announced, given that a driver is asked before the commit."""

from __future__ import annotations

import msgspec

from forewarn.core.events import Span
from forewarn.core.rollouts.model import Rollout
from forewarn.core.rollouts.next_step import appointment
from forewarn.core.time import SECOND, Duration, Now, Time

SLACK = SECOND  # a driver is asked between planning and announcing; the notice must still be whole


class StartTime(msgspec.Struct, frozen=True, kw_only=True):
    """A notice, so that it is counted from the commit; a time if the window opens later."""

    notice: Duration | None = None
    not_before: Time | None = None
    span: Span | None = None


def when_to_start(rollout: Rollout, now: Now) -> StartTime:
    soon = msgspec.structs.replace(now, at=now.at + SLACK)
    when = appointment(rollout, soon) if rollout.windows else None
    if when is None or when.span is None:
        return StartTime(notice=rollout.notice)
    if when.not_before > when.span.opens:
        return StartTime(notice=rollout.notice, span=when.span)
    return StartTime(not_before=when.not_before, span=when.span)


def moved_on(rollout: Rollout, before: Now, now: Now) -> bool:
    """Has the time that it could be announced for moved on meanwhile?"""
    first = when_to_start(rollout, before)
    return first.not_before is not None and first != when_to_start(rollout, now)
