"""Complaints as they are found: each once, counted, and no more than a bound."""

from __future__ import annotations

from forewarn.verdict.rules import RULES, WRONG
from forewarn.verdict.values import Complaint

MAX_COMPLAINTS = 20  # of one rule about one machine, by event; the others are counted
MAX_COMPLAINED = 10_000  # of all rules and machines together


class _Kept:
    __slots__ = ("at", "group", "message", "severity", "times")

    def __init__(self, at: float, group: str, message: str, severity: str) -> None:
        self.at, self.group, self.message, self.severity = at, group, message, severity
        self.times = 0


class Complaints:
    def __init__(self) -> None:
        self._found: dict[tuple[str, str], dict[str, _Kept]] = {}
        self._kept = 0
        self.left_out = 0

    def add(
        self,
        rule: str,
        message: str,
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
            found = of_rule[event] = _Kept(at, group, message, RULES[rule].severity)
        found.times += 1

    def all(self) -> list[Complaint]:
        return [
            Complaint(
                rule=rule,
                severity=found.severity,
                machine=machine,
                group=found.group,
                event=event,
                at=found.at,
                times=found.times,
                message=found.message,
            )
            for (rule, machine), of_rule in self._found.items()
            for event, found in of_rule.items()
        ]


def in_order(complaints: list[Complaint]) -> tuple[Complaint, ...]:
    """Sort complaints: those about what is wrong first, and then by time."""

    def key(complaint: Complaint) -> tuple[bool, float, str, str]:
        return complaint.severity != WRONG, complaint.at, complaint.machine, complaint.rule

    return tuple(sorted(complaints, key=key))
