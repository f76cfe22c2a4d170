"""Did what was expected come true? From what was heard, the verdict, and how the program ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from forewarn.core.time import SECOND, Duration
from forewarn.support.text import in_words, listing
from forewarn.testing.scenarios.engine.event_tracker import TrackedEvent
from forewarn.testing.scenarios.model import (
    ANY,
    EACH,
    OWN,
    CommandExpectation,
    ComplaintsExpectation,
    EventExpectation,
    Expectation,
    Expected,
    Moment,
)
from forewarn.verdict.verdict import Verdict

MAX_SAID = 5  # events or complaints that one finding tells one by one

_BY_MACHINES = (Moment.SEEN, Moment.PREPARED, Moment.APPROVED)
_DID = {
    Moment.SEEN: "saw it",
    Moment.PREPARED: "said that it is ready",
    Moment.APPROVED: "approved it",
}
_CAME = {
    Moment.RAISED: "was raised",
    Moment.SEEN: "was seen",
    Moment.PREPARED: "was prepared for",
    Moment.APPROVED: "was approved",
    Moment.STARTED: "started",
    Moment.OVER: "was over",
    Moment.FINISHED: "finished",
    Moment.WITHDRAWN: "was withdrawn",
}


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a program under test ended."""

    machine: str
    code: int | None  # None: it was killed at the end, since it did not go
    told_to: bool  # by us, at the end


class ExpectationResult(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was expected, and what came of it."""

    expected: str
    ok: bool
    says: str = ""  # what was wrong; or, if all was well, what was not looked at
    line: int = 0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that is looked at."""

    named: Mapping[str, Sequence[TrackedEvent]]
    speakers: Sequence[str]
    verdict: Verdict
    ended: Sequence[Ended]
    least: Callable[[Duration], Duration]  # how a length of the file is counted in this run
    groups: Mapping[str, str]  # by machine


def find(expectation: Expectation, facts: Facts) -> ExpectationResult:
    match expectation:
        case EventExpectation():
            wrong = list(_wrong_events(expectation, facts))
            return _finding(_says(expectation), wrong, expectation.line)
        case ComplaintsExpectation():
            return _complaints(expectation, facts)
        case CommandExpectation():
            return _command(expectation, facts)


def _finding(expected: str, wrong: Sequence[str], line: int) -> ExpectationResult:
    shown = "; ".join(wrong[:MAX_SAID])
    if len(wrong) > MAX_SAID:
        shown += f"; and {len(wrong) - MAX_SAID} more"
    return ExpectationResult(expected=expected, ok=not wrong, says=shown, line=line)


def _says(expectation: EventExpectation) -> str:
    """The expectation as a sentence."""
    parts = []
    for one in expectation.expected:
        words = f"{'is never' if one.never else 'is'} {one.moment.value}"
        if one.by:
            words += f" by {_whom(one.by)}"
        if one.within is not None:
            words += f" within {in_words(one.within)}"
        if one.ahead is not None:
            words += f", {in_words(one.ahead)} ahead of NotBefore"
        parts.append(words)
    if expectation.in_time is not None:
        parts.append("is seen in time" if expectation.in_time else "is not seen in time")
    of = f" of {expectation.of}" if expectation.of else ""
    return f"{expectation.event}{of} {' and '.join(parts)}"


def _whom(by: Sequence[str]) -> str:
    words = {ANY: "anybody", EACH: "each of its machines", OWN: "one of its own machines"}
    return words.get(by[0], listing(by)) if len(by) == 1 else listing(by)


def _wrong_events(expectation: EventExpectation, facts: Facts) -> Iterator[str]:
    events = list(facts.named.get(expectation.event, ()))
    if expectation.of:
        events = [told for told in events if expectation.of in told.machines]
    if not events:
        if not expectation.expected or not all(one.never for one in expectation.expected):
            of = f" for {expectation.of}" if expectation.of else ""
            yield f"'{expectation.event}' was never raised{of}"
        return
    for one in expectation.expected:
        asked = [(told, _expected_of(one, told, facts)) for told in events]
        if not any(names for _, names in asked):
            asked = [(told, [""]) for told in events]  # then of whoever was there
        for told, names in asked:
            yield from (f"{told}: {wrong}" for wrong in _wrong(one, told, names, facts))
    if expectation.in_time is not None:
        for told in events:
            yield from (f"{told}: {w}" for w in _timely(told, facts, expectation.in_time))


def _wrong(
    wanted: Expected, told: TrackedEvent, names: Sequence[str], facts: Facts
) -> Iterator[str]:
    if wanted.never:
        if (at := told.at(wanted.moment)) is not None:
            yield f"it {_CAME[wanted.moment]}{_after(told, at)}{_who(told, wanted.moment)}"
        return
    if wanted.moment not in _BY_MACHINES:
        at = told.at(wanted.moment)
        if at is None:
            yield f"it never {_CAME[wanted.moment]}"
        else:
            yield from _too_late(wanted, told, at, f"it {_CAME[wanted.moment]}", facts)
        return
    times: Mapping[str, float] = getattr(told, wanted.moment.value)
    for name in names:
        at = times.get(name) if name else min(times.values(), default=None)
        if at is None:
            others = f", but {listing(list(times))} did" if times and name else ""
            yield f"{name or 'nobody'} {'never ' if name else ''}{_DID[wanted.moment]}{others}"
        else:
            by = name or next(who for who, when in times.items() if when == at)
            yield from _too_late(wanted, told, at, f"{by} {_DID[wanted.moment]}", facts)
    if wanted.by == (OWN,):
        strangers = [name for name in times if name not in told.machines]
        first = min(times, key=lambda name: times[name], default="")
        if first and first in strangers:
            own = listing(told.machines)
            yield f"{first} {_DID[wanted.moment]} first, and not one of its own machines ({own})"


def _expected_of(wanted: Expected, told: TrackedEvent, facts: Facts) -> Sequence[str]:
    """Of whom it is expected, one by one; an empty name is anybody. Of a machine nothing is
    expected that it cannot see."""
    if wanted.by == (EACH,):
        return told.machines
    if wanted.by in ((ANY,), (OWN,)):
        return [""]
    if wanted.by:
        return [name for name in wanted.by if facts.groups.get(name) == told.group]
    return _listeners(told, facts) if wanted.moment is Moment.SEEN else [""]


def _listeners(told: TrackedEvent, facts: Facts) -> list[str]:
    """The machines under test that are shown this event."""
    return [name for name in facts.speakers if facts.groups.get(name) == told.group]


def _too_late(
    wanted: Expected, told: TrackedEvent, at: float, did: str, facts: Facts
) -> Iterator[str]:
    if wanted.within is not None and told.visible is not None:
        allowed = facts.least(wanted.within) / SECOND
        if at - told.visible > allowed:
            yield f"{did}{_after(told, at)}; within {_seconds(allowed)} was expected"
    if wanted.ahead is not None:
        needed = facts.least(wanted.ahead) / SECOND
        if told.not_before is None:
            yield f"{did}, and there was no NotBefore to be ahead of"
        elif told.not_before - at < needed:
            ahead = told.not_before - at
            found = f"{_seconds(ahead)} ahead of" if ahead > 0 else f"{_seconds(-ahead)} after"
            yield f"{did} {found} NotBefore; {_seconds(needed)} ahead was expected"


def _timely(told: TrackedEvent, facts: Facts, wanted: bool) -> Iterator[str]:
    listeners = _listeners(told, facts)
    own = [name for name in listeners if name in told.machines]
    for name in own or listeners:
        seen = told.seen.get(name)
        by = told.started if told.started is not None else told.over
        scheduled = told.seen_scheduled.get(name)
        timely = scheduled is not None and (by is None or scheduled <= by)
        if timely is wanted:
            continue
        if not wanted:
            yield f"{name} saw it in time"
        elif seen is None:
            yield f"{name} never saw it"
        else:
            yield f"{name} saw it only when it had started{_after(told, seen)}"


def _after(told: TrackedEvent, at: float) -> str:
    if told.visible is None:
        return ""
    return f" {_seconds(at - told.visible)} after it could be seen"


def _who(told: TrackedEvent, moment: Moment) -> str:
    times: Mapping[str, float] = getattr(told, moment.value) if moment in _BY_MACHINES else {}
    return f", by {listing(list(times))}" if times else ""


def _seconds(length: float) -> str:
    return in_words(round(length * SECOND))


def _complaints(expectation: ComplaintsExpectation, facts: Facts) -> ExpectationResult:
    expected = "no complaints"
    if expectation.allowed:
        expected += f" but {listing(expectation.allowed)}"
    left = facts.verdict.without(*expectation.allowed).wrong
    wrong = [f"{one.machine}: {one.rule}: {one.says}" for one in left]
    return _finding(expected, wrong, expectation.line)


def _command(expectation: CommandExpectation, facts: Facts) -> ExpectationResult:
    expected = _command_says(expectation)
    if not facts.ended:
        says = "no command was run, so this was not looked at"
        return ExpectationResult(expected=expected, ok=True, says=says, line=expectation.line)
    wrong = [wrong for one in facts.ended for wrong in _wrong_end(expectation, one)]
    return _finding(expected, wrong, expectation.line)


def _command_says(expectation: CommandExpectation) -> str:
    parts = []
    if expectation.running is not None:
        parts.append("is still running" if expectation.running else "has ended by itself")
    if expectation.crashed is not None:
        parts.append("has crashed" if expectation.crashed else "has not crashed")
    if expectation.exit is not None:
        parts.append(f"exits with {expectation.exit}")
    return f"the command {' and '.join(parts)}"


def _wrong_end(wanted: CommandExpectation, ended: Ended) -> Iterator[str]:
    how = f"on {ended.machine} it "
    crashed = not ended.told_to and ended.code != 0
    if wanted.running is not None and wanted.running is not ended.told_to:
        yield how + ("was still running" if ended.told_to else f"had ended with {ended.code}")
    if wanted.crashed is not None and wanted.crashed is not crashed:
        yield how + (f"ended with {ended.code}" if crashed else "did not crash")
    if wanted.exit is not None and wanted.exit != ended.code:
        yield how + (
            "had to be killed, since it did not end when told to"
            if ended.code is None
            else f"exited with {ended.code}"
        )
