"""Judges DocumentIncarnation over time: one number per list of events, which only goes up.

Two answers of different versions see different parts of one array, so they are compared in
the part that both can see.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from forewarn.judge.dialect import LAST_WAVE, WAVE
from forewarn.judge.findings import Findings
from forewarn.judge.reading.document import Document
from forewarn.judge.reading.facts import Facts
from forewarn.judge.reading.fleet import RECORD_SLACK
from forewarn.judge.reading.gaps import Gaps
from forewarn.judge.reading.order import Order, Period, Sighting
from forewarn.judge.reading.records import Disabled, Exchange, Trace

# Seconds within which guests on all hosts are shown what control has decided.
SHOWN_WITHIN = 60.0
# Seconds; a first GET that took longer may have enabled the group before the event was raised.
MAX_FIRST_GET = 1.0

_Array = tuple[tuple[str, str, str], ...]


class Incarnations:
    """The incarnations of one group."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._checked: set[tuple[Period, Document]] = set()
        self._arrays: dict[tuple[Period, int], dict[int, _Array]] = {}
        self._highest: dict[Period, int] = {}

    def judge(self, sighting: Sighting) -> None:
        period, incarnation = sighting.period, sighting.document.incarnation
        if period is None or incarnation is None:
            return
        highest = self._highest.get(period)
        if highest is not None and incarnation < highest:
            message = f"The incarnation went down from {highest} to {incarnation}."
            self._findings.add_seen("incarnation-down", message, sighting)

    def compare(self, sighting: Sighting) -> None:
        """Compare it with all others of its incarnation, in any order."""
        period, document = sighting.period, sighting.document
        incarnation = document.incarnation
        if period is None or incarnation is None or (period, document) in self._checked:
            return
        self._checked.add((period, document))
        wave = document.version.wave
        arrays = self._arrays.setdefault((period, incarnation), {})
        for other_wave, array in arrays.items():
            common_wave = min(wave, other_wave)
            if _visible(array, common_wave) != _visible(document.array, common_wave):
                message = f"Incarnation {incarnation} was used for two different lists of events."
                self._findings.add_seen("incarnation-same", message, sighting)
                break
        arrays.setdefault(wave, document.array)

    def settle(self, sighting: Sighting) -> None:
        period, incarnation = sighting.period, sighting.document.incarnation
        if period is not None and incarnation is not None:
            self._highest[period] = max(self._highest.get(period, 0), incarnation)


def _visible(array: _Array, wave: int) -> _Array:
    return tuple(entry for entry in array if WAVE[entry[2]] <= wave)


def judge_complete(
    trace: Trace,
    sightings: Sequence[Sighting],
    unclear: Sequence[Exchange],
    order: Order,
    facts: Facts,
    findings: Findings,
) -> None:
    """Judge what only a trace without gaps can prove: that nothing happened in between.

    `unclear` are polls whose answers cannot be read.
    """
    if not trace.gapless:
        return
    by_group: dict[str, list[Sighting]] = {}
    for sighting in sorted(sightings, key=lambda sighting: sighting.exchange.position):
        if sighting.caller.key is not None:
            by_group.setdefault(sighting.caller.key, []).append(sighting)
    seen = {sighting.exchange.index for sighting in sightings}
    others = [exchange for exchange in unclear if exchange.index not in seen]
    for group in by_group.values():
        for earlier, later in pairwise(_certain_run(group, order)):
            if _changed_without_reason(earlier, later):
                message = (
                    f"The incarnation went from {earlier.document.incarnation} to "
                    f"{later.document.incarnation}, but the events are the same."
                )
                findings.add_seen("incarnation-idle", message, later)
        group_name = group[0].caller.group
        if group_name is None:
            continue
        _judge_start(None, group, others, order, findings)
        for disabled in trace.disabled:
            if disabled.group == group_name:
                _judge_start(disabled, group, others, order, findings)
        _judge_pending(group, facts, findings)


def judge_unchanged(
    trace: Trace, gaps: Gaps, sightings: Iterable[Sighting], findings: Findings
) -> None:
    """Judge documents after a group was disabled, if every step of its events is recorded.

    Without a step since then, the document is still the first one.
    """
    if not trace.moves or trace.unreadable or trace.steps:
        return
    slack = 0.0 if trace.complete else RECORD_SLACK
    for sighting in sightings:
        group, period = sighting.caller.group, sighting.period
        incarnation = sighting.document.incarnation
        if group is None or period is None or period[0] == 0 or incarnation in (None, 1):
            continue
        line = [line for line in trace.disabled if line.group == group][period[0] - 1]
        if line.removed or line.hidden_until is not None:
            continue  # its first document has another number, or was perhaps not seen
        disabled = line.t
        if gaps.hide(disabled, sighting.exchange.t):
            continue
        changes = (*trace.changes.get(group, ()), *trace.changes.get(None, ()))
        if not any(disabled - slack <= t <= sighting.exchange.t + slack for t in changes):
            message = (
                "No event has changed since the group was disabled, but the incarnation is"
                f" {incarnation}."
            )
            findings.add_seen("incarnation-start", message, sighting)


def judge_idle(
    trace: Trace, gaps: Gaps, sightings: Iterable[Sighting], order: Order, findings: Findings
) -> None:
    """Judge documents of a group between which no step of its events is recorded, if every step is:
    their incarnation is the same."""
    if not trace.moves or trace.unreadable:
        return
    by_group: dict[str, list[Sighting]] = {}
    for sighting in sorted(sightings, key=lambda sighting: sighting.exchange.position):
        if sighting.caller.group is not None:
            by_group.setdefault(sighting.caller.group, []).append(sighting)
    slack = RECORD_SLACK + order.clock_error
    for name, group in by_group.items():
        changes = [*trace.interruptions, *trace.changes.get(name, ()), *trace.changes.get(None, ())]
        changes.sort()
        for earlier, later in pairwise(_certain_run(group, order)):
            if not _changed_without_reason(earlier, later):
                continue
            shown_after = 0.0 if earlier.exchange.host is None else SHOWN_WITHIN
            since = earlier.exchange.asked - slack - shown_after
            until = later.exchange.t + slack
            known = bisect_left(changes, since) == bisect_right(changes, until)
            if known and not gaps.hide(since, until):
                message = (
                    f"The incarnation went from {earlier.document.incarnation} to "
                    f"{later.document.incarnation}, but no event has changed."
                )
                findings.add_seen("incarnation-idle", message, later)


def _certain_run(group: Sequence[Sighting], order: Order) -> Iterable[Sighting]:
    """Return sightings that are each certainly after the one before; leave out overlaps."""
    run: list[Sighting] = []
    for number, sighting in enumerate(group):
        before = number == 0 or order.before(group[number - 1].exchange, sighting.exchange)
        after = number + 1 == len(group) or order.before(
            sighting.exchange, group[number + 1].exchange
        )
        if before and after and sighting.document.version.wave == LAST_WAVE:
            run.append(sighting)
    return run


def _changed_without_reason(earlier: Sighting, later: Sighting) -> bool:
    return (
        earlier.period is not None
        and earlier.period == later.period
        and earlier.document.incarnation is not None
        and later.document.incarnation is not None
        and earlier.document.incarnation != later.document.incarnation
        and earlier.document.array == later.document.array
        and _not_befores(earlier.document) == _not_befores(later.document)  # or one was postponed
    )


def _not_befores(document: Document) -> list[int | None]:
    return [event.not_before for event in document.events or ()]


def _judge_start(
    disabled: Disabled | None,
    group: Sequence[Sighting],
    others: Sequence[Exchange],
    order: Order,
    findings: Findings,
) -> None:
    """Judge the first document after a group was disabled, or, with None, the first of all."""
    after = [
        sighting for sighting in group if disabled is None or _follows(disabled, sighting.exchange)
    ]
    if not after:
        return
    if disabled is not None and disabled.removed:
        _judge_continuation(disabled, group, after, findings)
        return
    first = after[0]
    if any(
        (disabled is None or disabled.position < other.position)
        and not order.before(first.exchange, other)
        for other in others
    ):
        return  # some other GET may have enabled the group before
    # If several overlap, any of them may have been the first.
    firsts = [
        sighting.document.incarnation
        for sighting in after
        if not order.before(first.exchange, sighting.exchange)
    ]
    if 1 in firsts or None in firsts:
        return
    when = "the group was disabled" if disabled is not None else "the service began"
    message = f"The first document after {when} has incarnation {first.document.incarnation}."
    findings.add_seen("incarnation-start", message, first)


def _judge_continuation(
    disabled: Disabled,
    group: Sequence[Sighting],
    after: Sequence[Sighting],
    findings: Findings,
) -> None:
    """Judge the first document of a group that was removed and created again under its name: its
    guests may remember every number that they have been shown."""
    shown = [
        sighting.document.incarnation
        for sighting in group
        if sighting.exchange.t < disabled.t and sighting.document.incarnation is not None
    ]
    incarnation = after[0].document.incarnation
    if shown and incarnation is not None and incarnation <= max(shown):
        message = (
            f"The group was removed and created again, and its incarnation is {incarnation}"
            f" although guests have been shown {max(shown)}."
        )
        findings.add_seen("incarnation-start", message, after[0])


def _judge_pending(group: Sequence[Sighting], facts: Facts, findings: Findings) -> None:
    """Judge user events in the first document of an enabled period.

    What a user requests while the group is not enabled happens at once and is never listed. So the
    first document has no user event except those that were listed before.
    """
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
                and facts.events[event.id].facts.get("source") == "User"
                and sighting.exchange.t - sighting.exchange.asked <= MAX_FIRST_GET
            ):
                message = "A user requested it while the group was not enabled, but it is listed."
                findings.add_seen("unannounced-shown", message, sighting, event.id)


def _follows(disabled: Disabled, exchange: Exchange) -> bool:
    return disabled.t <= exchange.asked and disabled.position < exchange.position
