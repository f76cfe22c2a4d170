"""Judges polls that were answered 500.

The first poll of a group enables it, which has to be made durable. If that fails, and while the
service stops, 500 is correct. A group that is already enabled must get its document.
"""

from collections.abc import Iterable

from forewarn.judge.reading.disconnected_times import DisconnectedTimes
from forewarn.judge.reading.fleet import RECORD_SLACK, Caller, Fleets
from forewarn.judge.reading.order import DISABLED_AFTER, Order, Sighting
from forewarn.judge.reading.records import Exchange, Trace

from .answer import Answers


def judge_failed(
    answers: Answers,
    sightings: Iterable[Sighting],
    trace: Trace,
    order: Order,
    disconnected: DisconnectedTimes,
    fleets: Fleets,
) -> None:
    """Report failed polls of groups that were certainly enabled."""
    polls_by_group: dict[str | None, list[Sighting]] = {}
    if answers.failed:
        for sighting in sightings:
            polls_by_group.setdefault(sighting.caller.key, []).append(sighting)
    for exchange, caller in answers.failed:
        # A node has nothing to show to a machine that is being moved to another host.
        moving = caller.machine is not None and not fleets.is_there(caller.machine, exchange)
        if moving or _interrupted(exchange, trace):
            continue
        # A node that is disconnected does not know what became of the group meanwhile.
        alone = disconnected.touched(exchange, caller.machine) is not None
        if any(
            order.before(earlier.exchange, exchange)
            and _enabled(earlier.exchange, exchange, caller, trace)
            and (not alone or earlier.caller.machine == caller.machine)
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
