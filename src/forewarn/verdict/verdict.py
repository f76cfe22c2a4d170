"""A verdict: what each machine did about each event, and what was wrong with it.

Values, how to narrow them down for an assertion, and nothing else: what they look like as text is
`rendering.py`, as JUnit XML `junit.py`. Times are seconds since 1970 on the service's clock, as in
a trace; lengths are seconds.
"""

from __future__ import annotations

from typing import Any

import msgspec

from forewarn.verdict.rules import WRONG

SHOWN_IN_REPR = 3  # complaints
MAX_REPR = 160  # characters of what is wrong: pytest cuts what is longer than 240 in the middle


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a client did wrong, or may come to grief with."""

    rule: str
    severity: str = WRONG  # or note
    machine: str
    group: str = ""
    event: str = ""
    at: float  # the first time
    times: int = 1
    says: str  # what was seen, and what would have been right


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """One event, as one machine of its group went through it."""

    machine: str
    group: str = ""
    event: str
    type: str
    source: str = ""
    concerned: bool = True  # is the machine one of its Resources?
    visible: float  # from when on the machine could have seen it
    not_before: float | None = None
    notice: float | None = None  # from visible to not_before
    seen: float | None = None  # when the machine was first shown it
    seen_after: float | None = None  # after it was visible
    statuses: tuple[str, ...] = ()  # that it was shown, in that order
    polls: int = 0  # of this machine while the event was there
    prepared: float | None = None  # when it said that it is ready
    approved: float | None = None  # when somebody of the group, or an operator, did
    approved_by: str = ""
    margin: float | None = None  # from that approval to not_before
    started: float | None = None
    started_by: str = ""  # approval, not-before or failure
    impact: float | None = None  # when something was really done to the machines
    over: float | None = None
    ending: str = ""  # finished or withdrawn; empty: it is not known, or not over
    in_time: bool | None = None  # seen before it started; None: there was nothing to be in time for


class Unannounced(msgspec.Struct, frozen=True, kw_only=True):
    """An event that was carried out without being shown to guests, so that none could prepare."""

    event: str
    group: str = ""
    type: str = ""
    source: str = ""
    machines: tuple[str, ...] = ()
    at: float  # when it was asked for
    impact: float | None = None  # when something was really done to the machines
    over: float | None = None


class Conduct(msgspec.Struct, frozen=True, kw_only=True):
    """How one machine asked."""

    machine: str
    group: str = ""
    polls: int = 0  # for the document, however they were answered
    waits: int = 0  # of these, long-polls
    approvals: int = 0  # requests that approve
    every: float | None = None  # real seconds between two polls: the median of the last
    longest: float | None = None  # and the longest of all
    on_clock: float | None = None  # the median on the service's clock, which may be wound
    first: float | None = None  # poll
    last: float | None = None  # poll
    versions: dict[str, int] = {}  # that it asked with
    approval_versions: dict[str, int] = {}  # that it approved with
    headers: dict[str, str] = {}  # telling ones that it sent, as it last did
    statuses: dict[str, int] = {}  # that it was answered
    faults: dict[str, int] = {}  # that it met


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    at: float | None = None  # the last that was heard
    courses: tuple[Course, ...] = ()
    conducts: tuple[Conduct, ...] = ()
    unannounced: tuple[Unannounced, ...] = ()
    complaints: tuple[Complaint, ...] = ()  # what is wrong first
    remarks: tuple[str, ...] = ()  # what this verdict does not know, or has forgotten

    @property
    def ok(self) -> bool:
        return not self.wrong

    @property
    def wrong(self) -> tuple[Complaint, ...]:
        return tuple(one for one in self.complaints if one.severity == WRONG)

    @property
    def notes(self) -> tuple[Complaint, ...]:
        return tuple(one for one in self.complaints if one.severity != WRONG)

    def check(self, *, strict: bool = False) -> Verdict:
        """Return the verdict, or raise AssertionError with all findings; `strict` counts notes."""
        __tracebackhide__ = True  # pytest shows the line that asked
        if not self.ok or (strict and self.notes):
            raise AssertionError(str(self))
        return self

    def of(self, machine: Any) -> Verdict:
        """What is about this machine only."""
        name = _name(machine)
        found = self._where(lambda one: one.machine == name)
        hidden = tuple(one for one in self.unannounced if name in one.machines)
        return msgspec.structs.replace(found, unannounced=hidden)

    def about(self, event: Any) -> Verdict:
        """What is about this event only; the first characters of its id will do."""
        id = _id(event)
        met = {one.machine for one in self.courses if one.event.startswith(id)}
        found = self._where(lambda one: one.event.startswith(id))
        conducts = tuple(one for one in self.conducts if one.machine in met)
        hidden = tuple(one for one in self.unannounced if one.event.startswith(id))
        return msgspec.structs.replace(found, conducts=conducts, unannounced=hidden)

    def without(self, *rules: str) -> Verdict:
        """The same, if these were allowed."""
        left = tuple(one for one in self.complaints if one.rule not in rules)
        return msgspec.structs.replace(self, complaints=left)

    def by(self, rule: str) -> tuple[Complaint, ...]:
        """The complaints of one rule."""
        return tuple(one for one in self.complaints if one.rule == rule)

    def course(self, machine: Any, event: Any) -> Course:
        """How one machine went through one event."""
        name, id = _name(machine), _id(event)
        for one in self.courses:
            if one.machine == name and one.event.startswith(id):
                return one
        raise LookupError(f"'{name}' has nothing to do with an event {id} that is known here")

    def conduct(self, machine: Any) -> Conduct:
        """How one machine asked."""
        name = _name(machine)
        for one in self.conducts:
            if one.machine == name:
                return one
        raise LookupError(f"'{name}' has not asked for anything")

    def knows(self, machine: Any) -> bool:
        """Has it asked, or was an event about it?"""
        name = _name(machine)
        known = {one.machine for one in self.conducts} | {one.machine for one in self.courses}
        return name in known

    def render(self) -> str:
        from forewarn.verdict.rendering import render

        return render(self)

    def _where(self, fits: Any) -> Verdict:
        return Verdict(
            at=self.at,
            courses=tuple(filter(fits, self.courses)),
            conducts=tuple(one for one in self.conducts if fits(_Named(one.machine))),
            complaints=tuple(filter(fits, self.complaints)),
            remarks=self.remarks,
        )

    def __str__(self) -> str:
        return self.render()

    def __repr__(self) -> str:
        """Short, since an assertion shows no more of it; `check()` says everything."""
        said = [f"{one.rule} by {one.machine}" for one in self.wrong]
        shown = ", ".join(said[:SHOWN_IN_REPR]) + (", …" if len(said) > SHOWN_IN_REPR else "")
        events = len({one.event for one in self.courses} | {e.event for e in self.unannounced})
        seen = f"{_count(len(self.conducts), 'machine')}, {_count(events, 'event')}"
        if not said:
            return f"<Verdict: nothing wrong; {seen}>"
        if len(said) == 1:
            shown += f": {self.wrong[0].says}"
        cut = shown if len(shown) <= MAX_REPR else shown[: MAX_REPR - 1] + "…"
        return f"<Verdict: {len(said)} wrong: {cut}; {seen}; .check() tells all>"


class _Named(msgspec.Struct, frozen=True):
    """A machine, where an event is asked for as well."""

    machine: str
    event: str = ""


def _name(machine: Any) -> str:
    return str(getattr(machine, "name", machine))


def _id(event: Any) -> str:
    return str(getattr(event, "id", event)).upper()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
