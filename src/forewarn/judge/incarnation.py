"""DocumentIncarnation over time: one number for one array, upwards, and only when it must.

Two answers of different versions see different parts of one array, so they are compared in
the part that both can see.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from .dialect import FULL_SIGHT, SIGHT
from .document import Document
from .facts import Facts
from .findings import Findings
from .fleet import RECORD_SLACK
from .order import Order, Period, Sighting
from .records import Disabled, Exchange, Trace

# Seconds; a first GET that took longer may have enabled the group before the event was raised.
AT_ONCE = 1.0

_Array = tuple[tuple[str, str, str], ...]


class Incarnations:
    """Of one group."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._looked: set[tuple[Period, Document]] = set()
        self._arrays: dict[tuple[Period, int], dict[int, _Array]] = {}
        self._highest: dict[Period, int] = {}

    def judge(self, sighting: Sighting) -> None:
        period, document = sighting.period, sighting.document
        incarnation = document.incarnation
        if period is None or incarnation is None:
            return
        highest = self._highest.get(period)
        if highest is not None and incarnation < highest:
            message = f"The incarnation went down from {highest} to {incarnation}."
            self._findings.add_seen("incarnation-down", message, sighting)
        if (period, document) in self._looked:
            return
        self._looked.add((period, document))
        sight = document.version.sight
        arrays = self._arrays.setdefault((period, incarnation), {})
        for other, array in arrays.items():
            both = min(sight, other)
            if _visible(array, both) != _visible(document.array, both):
                message = f"Incarnation {incarnation} stood for two different arrays of events."
                self._findings.add_seen("incarnation-same", message, sighting)
                break
        arrays.setdefault(sight, document.array)

    def settle(self, sighting: Sighting) -> None:
        period, incarnation = sighting.period, sighting.document.incarnation
        if period is not None and incarnation is not None:
            self._highest[period] = max(self._highest.get(period, 0), incarnation)


def _visible(array: _Array, sight: int) -> _Array:
    return tuple(entry for entry in array if SIGHT[entry[2]] <= sight)


def judge_complete(
    trace: Trace,
    sightings: Sequence[Sighting],
    unclear: Sequence[Exchange],
    order: Order,
    facts: Facts,
    findings: Findings,
) -> None:
    """Judge what only a trace without gaps can prove: that nothing happened in between. `unclear`
    are polls whose answers cannot be read."""
    if not trace.gapless:
        return
    by_group: dict[str, list[Sighting]] = {}
    for sighting in sorted(sightings, key=lambda s: s.exchange.place):
        if sighting.caller.key is not None:
            by_group.setdefault(sighting.caller.key, []).append(sighting)
    seen = {sighting.exchange.index for sighting in sightings}
    others = [exchange for exchange in unclear if exchange.index not in seen]
    for group in by_group.values():
        for one, other in pairwise(_apart(group, order)):
            if _idle(one, other):
                message = (
                    f"The incarnation went from {one.document.incarnation} to "
                    f"{other.document.incarnation}, but the events are the same."
                )
                findings.add_seen("incarnation-idle", message, other)
        named = group[0].caller.group
        if named is None:
            continue
        _judge_start(None, group, others, order, findings)
        for disabled in trace.disabled:
            if disabled.group == named:
                _judge_start(disabled, group, others, order, findings)
        _judge_pending(group, facts, findings)


def judge_unchanged(trace: Trace, sightings: Iterable[Sighting], findings: Findings) -> None:
    """Where every step of an event is recorded and none was taken since a group was disabled, its
    document is still the first one, whoever asked for it before."""
    if not trace.moves or trace.unreadable or trace.steps:
        return
    slack = 0.0 if trace.complete else RECORD_SLACK
    for sighting in sightings:
        group, period = sighting.caller.group, sighting.period
        incarnation = sighting.document.incarnation
        if group is None or period is None or period[0] == 0 or incarnation in (None, 1):
            continue
        disabled = [line.t for line in trace.disabled if line.group == group][period[0] - 1]
        changes = (*trace.changes.get(group, ()), *trace.changes.get(None, ()))
        if not any(disabled - slack <= t <= sighting.exchange.t + slack for t in changes):
            message = f"No event has changed since the group was disabled; it is {incarnation}."
            findings.add_seen("incarnation-start", message, sighting)


def _apart(group: Sequence[Sighting], order: Order) -> Iterable[Sighting]:
    """A run of sightings, each certainly after the one before; what overlaps is left out."""
    run: list[Sighting] = []
    for number, sighting in enumerate(group):
        before = number == 0 or order.before(group[number - 1].exchange, sighting.exchange)
        after = number + 1 == len(group) or order.before(
            sighting.exchange, group[number + 1].exchange
        )
        if before and after and sighting.document.version.sight == FULL_SIGHT:
            run.append(sighting)
    return run


def _idle(one: Sighting, other: Sighting) -> bool:
    return (
        one.period is not None
        and one.period == other.period
        and one.document.incarnation is not None
        and other.document.incarnation is not None
        and one.document.incarnation != other.document.incarnation
        and one.document.array == other.document.array
    )


def _judge_start(
    disabled: Disabled | None,
    group: Sequence[Sighting],
    others: Sequence[Exchange],
    order: Order,
    findings: Findings,
) -> None:
    """Judge the first document after a disabling, or, with None, the first of all."""
    after = [s for s in group if disabled is None or _follows(disabled, s.exchange)]
    if not after:
        return
    first = after[0]
    if any(
        (disabled is None or disabled.place < other.place)
        and not order.before(first.exchange, other)
        for other in others
    ):
        return  # some other GET may have enabled the group before
    # If several overlap, any of them may have been the first.
    firsts = [s.document.incarnation for s in after if not order.before(first.exchange, s.exchange)]
    if 1 in firsts or None in firsts:
        return
    when = "the group was disabled" if disabled is not None else "the service began"
    message = f"The first document after {when} has incarnation {first.document.incarnation}."
    findings.add_seen("incarnation-start", message, first)


def _judge_pending(group: Sequence[Sighting], facts: Facts, findings: Findings) -> None:
    """What a user asks for while the group is not enabled happens at once and is never shown, so
    the first document of a period has no user's event but those that an earlier one showed."""
    listed: dict[str, Period] = {}
    for sighting in group:
        period, document = sighting.period, sighting.document
        if period is None:
            return
        for event in document.events or ():
            earlier = listed.setdefault(event.id, period) != period
            if (
                document.incarnation == 1
                and not earlier
                and facts.known[event.id].facts.get("source") == "User"
                and sighting.exchange.t - sighting.exchange.asked <= AT_ONCE
            ):
                message = "A user asked for it while the group was not enabled, but it is shown."
                findings.add_seen("unannounced-shown", message, sighting, event.id)


def _follows(disabled: Disabled, exchange: Exchange) -> bool:
    return disabled.t <= exchange.asked and disabled.place < exchange.place
