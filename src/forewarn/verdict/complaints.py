"""Complaints as they come up: each once, counted, and never more than there is room for."""

from __future__ import annotations

from forewarn.verdict.rules import RULES, WRONG
from forewarn.verdict.values import Complaint

MAX_COMPLAINTS = 20  # of one rule about one machine, by event; the others are counted
MAX_COMPLAINED = 10_000  # of all rules and machines together


class _Found:
    __slots__ = ("at", "group", "says", "severity", "times")

    def __init__(self, at: float, group: str, says: str, severity: str) -> None:
        self.at, self.group, self.says, self.severity = at, group, says, severity
        self.times = 0


class Complaints:
    def __init__(self) -> None:
        self._found: dict[tuple[str, str], dict[str, _Found]] = {}
        self._kept = 0
        self.left_out = 0

    def add(
        self,
        rule: str,
        says: str,
        *,
        at: float,
        machine: str,
        group: str = "",
        event: str = "",
    ) -> None:
        of_rule = self._found.setdefault((rule, machine), {})
        found = of_rule.get(event)
        if found is None:
            if len(of_rule) >= MAX_COMPLAINTS or self._kept >= MAX_COMPLAINED:
                self.left_out += 1
                return
            self._kept += 1
            found = of_rule[event] = _Found(at, group, says, RULES[rule].severity)
        found.times += 1

    def complaints(self) -> list[Complaint]:
        return [
            Complaint(
                rule=rule,
                severity=found.severity,
                machine=machine,
                group=found.group,
                event=event,
                at=found.at,
                times=found.times,
                says=found.says,
            )
            for (rule, machine), of_rule in self._found.items()
            for event, found in of_rule.items()
        ]


def in_order(complaints: list[Complaint]) -> tuple[Complaint, ...]:
    """What is wrong first, then by time."""
    return tuple(
        sorted(complaints, key=lambda one: (one.severity != WRONG, one.at, one.machine, one.rule))
    )
