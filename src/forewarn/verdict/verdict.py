"""`Verdict`: the result, with methods to filter it, to check it in a test, and to print it.

Its data are in `values.py`, its text in `rendering.py`, and its JUnit XML in `junit.py`.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from forewarn.support.handles import EventRef, MachineRef, id_of, name_of
from forewarn.support.suggest import instead_of, shortened
from forewarn.support.text import counted
from forewarn.verdict import rendering
from forewarn.verdict.rules import RuleName, check_rules
from forewarn.verdict.values import Complaint, Conduct, Course, VerdictData

SHOWN_IN_REPR = 3  # complaints
MAX_REPR = 160  # characters of complaints: pytest abbreviates what is longer than 240


class Verdict(VerdictData, frozen=True, kw_only=True):
    """What each machine did about each event, and which rules it broke."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong. Notes do not count."""
        return not self.wrong

    @property
    def machines(self) -> tuple[str, ...]:
        """The names of the machines that have sent requests or had an event."""
        names = {item.machine for item in self.conducts} | {item.machine for item in self.courses}
        return tuple(sorted(names.union(*(item.machines for item in self.unannounced))))

    @property
    def events(self) -> tuple[str, ...]:
        """The ids of the events, in the order in which they became visible."""
        ids = [item.event for item in self.courses] + [item.event for item in self.unannounced]
        return tuple(dict.fromkeys(ids))

    def check(self, *, strict: bool = False) -> Verdict:
        """Return the verdict if nothing is wrong, and print how many notes were passed over.

        Args:
            strict: Count notes as well.

        Raises:
            AssertionError: Something is wrong; the message is the whole verdict.
        """
        __tracebackhide__ = True  # pytest shows the line of the caller
        if not self.ok or (strict and self.notes):
            raise AssertionError(str(self))
        if self.notes:
            rules = ", ".join(dict.fromkeys(item.rule for item in self.notes))
            passed = counted(len(self.notes), "note")
            sys.stdout.write(
                f"verdict: nothing wrong, {passed} ({rules}); check(strict=True) counts notes\n"
            )
        return self

    def of(self, machine: MachineRef) -> Verdict:
        """Return the part of the verdict that is about one machine.

        Args:
            machine: The machine, or its name.

        Raises:
            LookupError: It has sent no requests and had no event.
        """
        name = self._known_machine(machine)
        filtered = self._filter(lambda item: item.machine == name)
        unannounced = tuple(item for item in self.unannounced if name in item.machines)
        return msgspec.structs.replace(filtered, unannounced=unannounced)

    def about(self, event: EventRef) -> Verdict:
        """Return the part of the verdict that is about one event.

        Args:
            event: The event, or its id, of which the first characters are enough.

        Raises:
            LookupError: There is no such event.
        """
        id = self._known_event(event)
        machines = {item.machine for item in self.courses if item.event.startswith(id)}
        filtered = self._filter(lambda item: item.event.startswith(id))
        conducts = tuple(item for item in self.conducts if item.machine in machines)
        unannounced = tuple(item for item in self.unannounced if item.event.startswith(id))
        return msgspec.structs.replace(filtered, conducts=conducts, unannounced=unannounced)

    def without(self, *rules: RuleName) -> Verdict:
        """Return the verdict without the complaints of these rules.

        Args:
            rules: The names of the rules.

        Raises:
            ValueError: One of them is not a rule.
        """
        check_rules(*rules)
        complaints = tuple(item for item in self.complaints if item.rule not in rules)
        return msgspec.structs.replace(self, complaints=complaints)

    def by(self, rule: RuleName) -> tuple[Complaint, ...]:
        """Return the complaints of one rule.

        Args:
            rule: The name of the rule.

        Raises:
            ValueError: There is no such rule.
        """
        check_rules(rule)
        return tuple(item for item in self.complaints if item.rule == rule)

    def course(self, machine: MachineRef, event: EventRef) -> Course:
        """Return the course of one event on one machine.

        Args:
            machine: The machine, or its name.
            event: The event, or its id, of which the first characters are enough.

        Raises:
            LookupError: There is no such machine or event, or the machine's document has not
                listed it.
        """
        name, id = self._known_machine(machine), self._known_event(event)
        for item in self.courses:
            if item.machine == name and item.event.startswith(id):
                return item
        events = [item.event for item in self.courses if item.machine == name]
        raise LookupError(
            f"the document of machine '{name}' has not listed event {shortened(id)};"
            f" {instead_of(id, events)}"
        )

    def conduct(self, machine: MachineRef) -> Conduct:
        """Return how one machine polled.

        Args:
            machine: The machine, or its name.

        Raises:
            LookupError: It has sent no requests.
        """
        name = name_of(machine)
        for item in self.conducts:
            if item.machine == name:
                return item
        others = instead_of(name, [item.machine for item in self.conducts])
        raise LookupError(f"machine '{shortened(name)}' has sent no requests; {others}")

    def render(self) -> str:
        """Return the verdict as text, as `forewarn verdict` prints it."""
        return rendering.render(self)

    def _known_machine(self, machine: MachineRef) -> str:
        name = name_of(machine)
        if name not in self.machines:
            raise LookupError(
                f"machine '{shortened(name)}' has sent no requests and had no event;"
                f" {instead_of(name, self.machines)}"
            )
        return name

    def _known_event(self, event: EventRef) -> str:
        id = id_of(event).upper()
        if not id or not any(known.startswith(id) for known in self.events):
            raise LookupError(
                f"there is no event '{shortened(id)}' in this verdict;"
                f" {instead_of(id, self.events)}"
            )
        return id

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
        totals = f"{counted(len(self.conducts), 'machine')}, {counted(events, 'event')}"
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
