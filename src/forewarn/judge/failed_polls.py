"""Judges polls that were answered 500.

The first poll of a group enables it, which has to be made durable. If that fails, and while the
service stops, 500 is correct. A group that is already enabled must get its document.
"""

from collections.abc import Iterable

from .answer import Answers
from .fleet import RECORD_SLACK, Caller
from .order import DISABLED_AFTER, Order, Sighting
from .records import Exchange, Trace


def judge_failed(
    answers: Answers, sightings: Iterable[Sighting], trace: Trace, order: Order
) -> None:
    """Report failed polls of groups that were certainly enabled."""
    polls_by_group: dict[str | None, list[Exchange]] = {}
    if answers.failed:
        for sighting in sightings:
            polls_by_group.setdefault(sighting.caller.key, []).append(sighting.exchange)
    for exchange, caller in answers.failed:
        if _interrupted(exchange, trace):
            continue
        if any(
            order.before(earlier, exchange) and _enabled(earlier, exchange, caller, trace)
            for earlier in polls_by_group.get(caller.key, ())
        ):
            answers.report_failed(exchange, caller)


def _interrupted(exchange: Exchange, trace: Trace) -> bool:
    return any(
        exchange.asked - RECORD_SLACK <= t <= exchange.t + RECORD_SLACK for t in trace.interruptions
    )


def _enabled(earlier: Exchange, exchange: Exchange, caller: Caller, trace: Trace) -> bool:
    """Return whether the group cannot have been disabled since."""
    return exchange.t - earlier.asked < DISABLED_AFTER and not any(
        earlier.asked - RECORD_SLACK <= line.t <= exchange.t + RECORD_SLACK
        and caller.group in (None, line.group)
        for line in trace.disabled
    )
