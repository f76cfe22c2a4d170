"""Checks expectations against the progress of events, the verdict, and the command's exit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from forewarn.core.time import SECOND, Duration
from forewarn.support.text import in_words, listing
from forewarn.testing.refused_requests import refused_requests
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
from forewarn.testing.scenarios.result import CommandExit, ExpectationResult
from forewarn.verdict.rules import check_rules
from forewarn.verdict.verdict import Verdict

MAX_LISTED = 5  # events or complaints that one result lists

_BY_MACHINES = (Moment.SEEN, Moment.PREPARED, Moment.APPROVED)
_MACHINE_DID = {
    Moment.SEEN: "saw it",
    Moment.PREPARED: "reported that it is ready",
    Moment.APPROVED: "approved it",
}
_EVENT_DID = {
    Moment.RAISED: "was raised",
    Moment.SEEN: "was seen",
    Moment.PREPARED: "was prepared for",
    Moment.APPROVED: "was approved",
    Moment.STARTED: "started",
    Moment.OVER: "was over",
    Moment.FINISHED: "finished",
    Moment.WITHDRAWN: "was withdrawn",
}


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that expectations are checked against."""

    events: Mapping[str, Sequence[TrackedEvent]]  # by the name of their step
    under_test: Sequence[str]
    verdict: Verdict
    ended: Sequence[CommandExit]
    paced: Callable[[Duration], Duration]  # from a duration in the file to one in this run
    groups: Mapping[str, str]  # by machine


def check(expectation: Expectation, facts: Facts) -> ExpectationResult:
    match expectation:
        case EventExpectation():
            problems = list(_event_problems(expectation, facts))
            unchecked = "" if problems else _unchecked(expectation, facts)
            return _result(_event_in_words(expectation), problems, expectation.line, unchecked)
        case ComplaintsExpectation():
            return _complaints(expectation, facts)
        case CommandExpectation():
            return _command(expectation, facts)


def _result(
    expected: str, problems: Sequence[str], line: int, unchecked: str = ""
) -> ExpectationResult:
    message = "; ".join(problems[:MAX_LISTED]) or unchecked
    if len(problems) > MAX_LISTED:
        message += f"; and {len(problems) - MAX_LISTED} more"
    return ExpectationResult(expected=expected, ok=not problems, message=message, line=line)


def _event_in_words(expectation: EventExpectation) -> str:
    parts = []
    for item in expectation.expected:
        text = f"{'is never' if item.never else 'is'} {item.moment.value}"
        if item.by:
            text += f" by {_by_in_words(item.by)}"
        if item.within is not None:
            text += f" within {in_words(item.within)}"
        if item.ahead is not None:
            text += f", {in_words(item.ahead)} ahead of NotBefore"
        parts.append(text)
    if expectation.in_time is not None:
        parts.append("is seen in time" if expectation.in_time else "is not seen in time")
    if expectation.idle is not None:
        machines = "idle" if expectation.idle else "busy"
        parts.append(f"is carried out on {machines} machines")
    of = f" of {expectation.of}" if expectation.of else ""
    return f"{expectation.event}{of} {' and '.join(parts)}"


def _by_in_words(by: Sequence[str]) -> str:
    texts = {ANY: "anybody", EACH: "each of its machines", OWN: "one of its own machines"}
    return texts.get(by[0], listing(by)) if len(by) == 1 else listing(by)


def _event_problems(expectation: EventExpectation, facts: Facts) -> Iterator[str]:
    events = list(facts.events.get(expectation.event, ()))
    if expectation.of:
        events = [event for event in events if expectation.of in event.machines]
    if not events:
        if not expectation.expected or not all(item.never for item in expectation.expected):
            of = f" for {expectation.of}" if expectation.of else ""
            yield f"'{expectation.event}' was never raised{of}"
        return
    for item in expectation.expected:
        pairs = [(event, _expected_machines(item, event, facts)) for event in events]
        if not any(names for _, names in pairs):
            pairs = [(event, [""]) for event in events]  # then it is expected of any machine
        for event, names in pairs:
            yield from (f"{event}: {text}" for text in _problems(item, event, names, facts))
    if expectation.in_time is not None:
        for event in events:
            texts = _time_problems(event, facts, expectation.in_time)
            yield from (f"{event}: {text}" for text in texts)
    if expectation.idle is not None:
        for event in events:
            texts = _idle_problems(event, facts, expectation.idle)
            yield from (f"{event}: {text}" for text in texts)


def _idle_problems(event: TrackedEvent, facts: Facts, wanted: bool) -> Iterator[str]:
    for name, reason in event.busy.items():
        if name in facts.under_test and wanted is bool(reason):
            yield f"{name} was still busy: {reason}" if reason else f"{name} was idle"


def _unchecked(expectation: EventExpectation, facts: Facts) -> str:
    """Return what could not be checked, because nothing says whether machines were idle."""
    events = facts.events.get(expectation.event, ())
    if expectation.idle is None or any(event.busy for event in events):
        return ""
    return "nothing reports whether machines are idle (--busy-check), so this was not checked"


def _problems(
    wanted: Expected, event: TrackedEvent, names: Sequence[str], facts: Facts
) -> Iterator[str]:
    if wanted.never:
        if (at := event.at(wanted.moment)) is not None:
            by = _by_suffix(event, wanted.moment)
            yield f"it {_EVENT_DID[wanted.moment]}{_after(event, at)}{by}"
        return
    if wanted.moment not in _BY_MACHINES:
        at = event.at(wanted.moment)
        if at is None:
            yield f"it never {_EVENT_DID[wanted.moment]}"
        else:
            yield from _delay_problems(wanted, event, at, f"it {_EVENT_DID[wanted.moment]}", facts)
        return
    times: Mapping[str, float] = getattr(event, wanted.moment.value)
    for name in names:
        at = times.get(name) if name else min(times.values(), default=None)
        if at is None:
            others = f", but {listing(list(times))} did" if times and name else ""
            subject = f"{name} never" if name else "nobody"
            reason = "" if wanted.moment is Moment.SEEN else _refusals(name, event, facts)
            yield f"{subject} {_MACHINE_DID[wanted.moment]}{others}{reason}"
        else:
            by = name or next(machine for machine, when in times.items() if when == at)
            yield from _delay_problems(
                wanted, event, at, f"{by} {_MACHINE_DID[wanted.moment]}", facts
            )
    if wanted.by == (OWN,):
        unaffected = [name for name in times if name not in event.machines]
        first = min(times, key=lambda name: times[name], default="")
        if first and first in unaffected:
            own, did = listing(event.machines), _MACHINE_DID[wanted.moment]
            yield f"{first} {did} first, and not one of its own machines ({own})"


def _refusals(name: str, event: TrackedEvent, facts: Facts) -> str:
    """Return which requests of the machine were refused, or of those under test, and why: one of
    them may have been its approval."""
    machines = [name] if name else _observers(event, facts)
    texts = [refused_requests(facts.verdict, machine) for machine in machines]
    return "".join(f"; {text}" for text in texts if text)


def _expected_machines(wanted: Expected, event: TrackedEvent, facts: Facts) -> Sequence[str]:
    """Return the machines of which the moment is expected; an empty name stands for any machine.

    Nothing is expected of a machine that cannot see the event.
    """
    if wanted.by == (EACH,):
        return event.machines
    if wanted.by in ((ANY,), (OWN,)):
        return [""]
    if wanted.by:
        return [name for name in wanted.by if facts.groups.get(name) == event.group]
    return _observers(event, facts) if wanted.moment is Moment.SEEN else [""]


def _observers(event: TrackedEvent, facts: Facts) -> list[str]:
    """Return the machines under test whose document shows this event."""
    return [name for name in facts.under_test if facts.groups.get(name) == event.group]


def _delay_problems(
    wanted: Expected, event: TrackedEvent, at: float, did: str, facts: Facts
) -> Iterator[str]:
    if wanted.within is not None and event.visible is not None:
        allowed = facts.paced(wanted.within) / SECOND
        if at - event.visible > allowed:
            yield f"{did}{_after(event, at)}; within {_seconds(allowed)} was expected"
    if wanted.ahead is not None:
        needed = facts.paced(wanted.ahead) / SECOND
        if event.not_before is None:
            yield f"{did}, and there was no NotBefore to be ahead of"
        elif event.not_before - at < needed:
            ahead = event.not_before - at
            actual = f"{_seconds(ahead)} ahead of" if ahead > 0 else f"{_seconds(-ahead)} after"
            yield f"{did} {actual} NotBefore; {_seconds(needed)} ahead was expected"


def _time_problems(event: TrackedEvent, facts: Facts, wanted: bool) -> Iterator[str]:
    observers = _observers(event, facts)
    affected = [name for name in observers if name in event.machines]
    for name in affected or observers:
        seen = event.seen.get(name)
        deadline = event.started if event.started is not None else event.over
        scheduled = event.seen_scheduled.get(name)
        timely = scheduled is not None and (deadline is None or scheduled <= deadline)
        if timely is wanted:
            continue
        if not wanted:
            yield f"{name} saw it in time"
        elif seen is None:
            yield f"{name} never saw it"
        else:
            yield f"{name} saw it only when it had started{_after(event, seen)}"


def _after(event: TrackedEvent, at: float) -> str:
    if event.visible is None:
        return ""
    return f" {_seconds(at - event.visible)} after it was listed"


def _by_suffix(event: TrackedEvent, moment: Moment) -> str:
    times: Mapping[str, float] = getattr(event, moment.value) if moment in _BY_MACHINES else {}
    return f", by {listing(list(times))}" if times else ""


def _seconds(length: float) -> str:
    return in_words(round(length * SECOND))


def _complaints(expectation: ComplaintsExpectation, facts: Facts) -> ExpectationResult:
    expected = "no complaints"
    if expectation.allowed:
        expected += f" but {listing(expectation.allowed)}"
    remaining = facts.verdict.without(*check_rules(*expectation.allowed)).complaints
    problems = [f"{item.machine}: {item.rule}: {item.message}" for item in remaining]
    return _result(expected, problems, expectation.line)


def _command(expectation: CommandExpectation, facts: Facts) -> ExpectationResult:
    expected = _command_in_words(expectation)
    if not facts.ended:
        message = "no command was run, so this was not checked"
        return ExpectationResult(expected=expected, ok=True, message=message, line=expectation.line)
    problems = [text for ended in facts.ended for text in _exit_problems(expectation, ended)]
    return _result(expected, problems, expectation.line)


def _command_in_words(expectation: CommandExpectation) -> str:
    parts = []
    if expectation.running is not None:
        parts.append("is still running" if expectation.running else "has ended by itself")
    if expectation.crashed is not None:
        parts.append("has crashed" if expectation.crashed else "has not crashed")
    if expectation.exit is not None:
        parts.append(f"exits with {expectation.exit}")
    return f"the command {' and '.join(parts)}"


def _exit_problems(wanted: CommandExpectation, ended: CommandExit) -> Iterator[str]:
    prefix = f"on {ended.machine} it "
    killed = f"was killed by the {ended.killed_by} of its machine" if ended.killed_by else ""
    crashed = not ended.terminated and ended.code != 0 and not killed
    if wanted.running is not None and wanted.running is not ended.terminated:
        yield prefix + (
            "was still running" if ended.terminated else killed or f"had ended with {ended.code}"
        )
    if wanted.crashed is not None and wanted.crashed is not crashed:
        yield prefix + (f"ended with {ended.code}" if crashed else "did not crash")
    if wanted.exit is not None and wanted.exit != ended.code:
        yield prefix + (
            "ignored SIGTERM and was killed"
            if ended.code is None
            else killed or f"exited with {ended.code}"
        )
