"""`Verdict`: the result, with methods to filter it, to check it in a test, and to print it.

Its data are in `values.py`, its text in `rendering.py`, and its JUnit XML in `junit.py`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from forewarn.verdict import rendering
from forewarn.verdict.rules import check_rules
from forewarn.verdict.values import Complaint, Conduct, Course, VerdictData

SHOWN_IN_REPR = 3  # complaints
MAX_REPR = 160  # characters of complaints: pytest abbreviates what is longer than 240


class Verdict(VerdictData, frozen=True, kw_only=True):
    """What each machine did about each event, and which rules it broke."""

    @property
    def ok(self) -> bool:
        return not self.wrong

    def check(self, *, strict: bool = False) -> Verdict:
        """Return the verdict; raise AssertionError if it is not ok or, with `strict`, has notes."""
        __tracebackhide__ = True  # pytest shows the line of the caller
        if not self.ok or (strict and self.notes):
            raise AssertionError(str(self))
        return self

    def of(self, machine: Any) -> Verdict:
        """Return the part of the verdict that is about one machine."""
        name = _name(machine)
        filtered = self._filter(lambda item: item.machine == name)
        unannounced = tuple(item for item in self.unannounced if name in item.machines)
        return msgspec.structs.replace(filtered, unannounced=unannounced)

    def about(self, event: Any) -> Verdict:
        """Return the part about one event; the first characters of its id are enough."""
        id = _id(event)
        machines = {item.machine for item in self.courses if item.event.startswith(id)}
        filtered = self._filter(lambda item: item.event.startswith(id))
        conducts = tuple(item for item in self.conducts if item.machine in machines)
        unannounced = tuple(item for item in self.unannounced if item.event.startswith(id))
        return msgspec.structs.replace(filtered, conducts=conducts, unannounced=unannounced)

    def without(self, *rules: str) -> Verdict:
        """Return the verdict without the complaints of these rules.

        Raise ValueError if one of them is not a rule.
        """
        check_rules(*rules)
        complaints = tuple(item for item in self.complaints if item.rule not in rules)
        return msgspec.structs.replace(self, complaints=complaints)

    def by(self, rule: str) -> tuple[Complaint, ...]:
        """Return the complaints of one rule; raise ValueError if there is no such rule."""
        check_rules(rule)
        return tuple(item for item in self.complaints if item.rule == rule)

    def course(self, machine: Any, event: Any) -> Course:
        """Return the course of one event on one machine; raise LookupError if there is none."""
        name, id = _name(machine), _id(event)
        for item in self.courses:
            if item.machine == name and item.event.startswith(id):
                return item
        raise LookupError(f"there is no event {id} of machine '{name}' in this verdict")

    def conduct(self, machine: Any) -> Conduct:
        """Return how one machine polled; raise LookupError if it sent no requests."""
        name = _name(machine)
        for item in self.conducts:
            if item.machine == name:
                return item
        raise LookupError(f"machine '{name}' has sent no requests")

    def knows(self, machine: Any) -> bool:
        """Return whether a machine has sent requests or had an event."""
        name = _name(machine)
        names = {item.machine for item in self.conducts} | {item.machine for item in self.courses}
        return name in names

    def render(self) -> str:
        return rendering.render(self)

    def _filter(self, matches: Any) -> Verdict:
        return Verdict(
            at=self.at,
            courses=tuple(filter(matches, self.courses)),
            conducts=tuple(item for item in self.conducts if matches(_MachineOnly(item.machine))),
            complaints=tuple(filter(matches, self.complaints)),
            remarks=self.remarks,
        )

    def __str__(self) -> str:
        return self.render()

    def __repr__(self) -> str:
        """Return a short summary for assertion messages; `check()` reports everything."""
        broken = [f"{item.rule} by {item.machine}" for item in self.wrong]
        summary = ", ".join(broken[:SHOWN_IN_REPR]) + (", …" if len(broken) > SHOWN_IN_REPR else "")
        events = len(
            {item.event for item in self.courses} | {item.event for item in self.unannounced}
        )
        totals = f"{_count(len(self.conducts), 'machine')}, {_count(events, 'event')}"
        if not broken:
            return f"<Verdict: nothing wrong; {totals}>"
        if len(broken) == 1:
            summary += f": {self.wrong[0].message}"
        text = summary if len(summary) <= MAX_REPR else summary[: MAX_REPR - 1] + "…"
        return f"<Verdict: {len(broken)} wrong: {text}; {totals}; .check() reports all>"


class _MachineOnly(msgspec.Struct, frozen=True):
    """A machine without an event, for filters that look at both."""

    machine: str
    event: str = ""


def _name(machine: Any) -> str:
    return str(getattr(machine, "name", machine))


def _id(event: Any) -> str:
    return str(getattr(event, "id", event)).upper()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
