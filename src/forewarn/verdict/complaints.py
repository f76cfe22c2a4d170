"""Collects complaints: each one once, with a count, up to a limit."""

from __future__ import annotations

from forewarn.verdict.rules import RULES, WRONG
from forewarn.verdict.values import Complaint

MAX_COMPLAINTS = 20  # of one rule about one machine, by event; the others are counted
MAX_COMPLAINTS_IN_ALL = 10_000  # of all rules and machines together


class _Entry:
    __slots__ = ("at", "group", "message", "severity", "times")

    def __init__(self, at: float, group: str, message: str, severity: str) -> None:
        self.at, self.group, self.message, self.severity = at, group, message, severity
        self.times = 0


class Complaints:
    def __init__(self) -> None:
        self._by_rule: dict[tuple[str, str], dict[str, _Entry]] = {}
        self._count = 0
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
        of_rule = self._by_rule.setdefault((rule, machine), {})
        entry = of_rule.get(event)
        if entry is None:
            if len(of_rule) >= MAX_COMPLAINTS or self._count >= MAX_COMPLAINTS_IN_ALL:
                self.left_out += 1
                return
            self._count += 1
            entry = of_rule[event] = _Entry(at, group, message, RULES[rule].severity)
        entry.times += 1

    def all(self) -> list[Complaint]:
        return [
            Complaint(
                rule=rule,
                severity=entry.severity,
                machine=machine,
                group=entry.group,
                event=event,
                at=entry.at,
                times=entry.times,
                message=entry.message,
            )
            for (rule, machine), of_rule in self._by_rule.items()
            for event, entry in of_rule.items()
        ]


def in_order(complaints: list[Complaint]) -> tuple[Complaint, ...]:
    """Sort complaints: those about what is wrong first, and then by time."""

    def key(complaint: Complaint) -> tuple[bool, float, str, str]:
        return complaint.severity != WRONG, complaint.at, complaint.machine, complaint.rule

    return tuple(sorted(complaints, key=key))
