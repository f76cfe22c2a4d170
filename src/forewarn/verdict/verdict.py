"""`Verdict`: narrowing a verdict down, checking it in an assertion, and showing it.

What it holds is `values.py`, its text `rendering.py`, and its JUnit XML `junit.py`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from forewarn.verdict import rendering
from forewarn.verdict.values import Complaint, Conduct, Course, VerdictData

SHOWN_IN_REPR = 3  # complaints
MAX_REPR = 160  # characters of what is wrong: pytest cuts what is longer than 240 in the middle


class Verdict(VerdictData, frozen=True, kw_only=True):
    """What each machine did about each event, and what was wrong with it."""

    @property
    def ok(self) -> bool:
        return not self.wrong

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
        return rendering.render(self)

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
            shown += f": {self.wrong[0].message}"
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
