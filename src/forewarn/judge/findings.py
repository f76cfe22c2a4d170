"""What the judge returns: findings, and the judgement that holds them.

`Findings` collects them. The same message about the same thing is kept once, at its first
occurrence, and counted.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from .reading.order import Sighting
from .rules import RULES


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise. `times` counts repetitions; the other values are of the first one."""

    rule: str
    message: str
    t: float | None = None
    event: str | None = None
    group: str | None = None
    machine: str | None = None
    times: int = 1

    def as_dict(self) -> dict[str, object]:
        return {
            "rule": self.rule,
            "message": self.message,
            "t": self.t,
            "event": self.event,
            "group": self.group,
            "machine": self.machine,
            "times": self.times,
        }

    def render(self) -> str:
        lines = [f"{self.rule}: {_printable(self.message)}"]
        details = [
            f"{name} {_printable(str(value))}"
            for name, value in (
                ("at", None if self.t is None else _clock(self.t)),
                ("group", self.group),
                ("machine", self.machine),
                ("event", self.event),
                ("times", self.times if self.times > 1 else None),
            )
            if value is not None
        ]
        if details:
            lines.append("    " + ", ".join(details))
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was read, and all findings."""

    findings: tuple[Finding, ...]
    exchanges: int
    events: int
    machines: int
    impacts: int
    unreadable: int

    @property
    def ok(self) -> bool:
        return not self.findings

    def render(self) -> str:
        result = "no promise broken" if self.ok else _count(len(self.findings), "finding")
        totals = ", ".join(
            _count(number, noun)
            for number, noun in (
                (self.exchanges, "exchange"),
                (self.machines, "machine"),
                (self.events, "event"),
                (self.impacts, "impact"),
            )
        )
        unreadable = f"; {_count(self.unreadable, 'unreadable line')}" if self.unreadable else ""
        lines = [
            f"{result} ({totals}{unreadable})",
            *(finding.render() for finding in self.findings),
        ]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, object]:
        return {
            "ok": self.ok,
            "exchanges": self.exchanges,
            "machines": self.machines,
            "events": self.events,
            "impacts": self.impacts,
            "unreadable": self.unreadable,
            "findings": [finding.as_dict() for finding in self.findings],
        }


class Findings:
    """Collects findings, each once."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str, str | None, str | None, str | None], list[float | None]]
        self._times = {}

    def add(
        self,
        rule: str,
        message: str,
        *,
        t: float | None = None,
        event: str | None = None,
        group: str | None = None,
        machine: str | None = None,
    ) -> None:
        if rule not in RULES:
            raise KeyError(rule)
        self._times.setdefault((rule, message, event, group, machine), []).append(t)

    def add_seen(
        self,
        rule: str,
        message: str,
        sighting: Sighting,
        event: str | None = None,
        *,
        t: float | None = None,
    ) -> None:
        """Add a finding that a document shows, by default at the time of its response."""
        self.add(
            rule,
            message,
            t=sighting.exchange.t if t is None else t,
            event=event,
            group=sighting.caller.group,
            machine=sighting.caller.machine,
        )

    def all(self) -> tuple[Finding, ...]:
        findings = [
            Finding(rule, message, _first(times), event, group, machine, len(times))
            for (rule, message, event, group, machine), times in self._times.items()
        ]
        return tuple(sorted(findings, key=lambda finding: (finding.t is None, finding.t or 0.0)))


def _printable(text: str) -> str:
    """Escape control characters and line ends: the recording may be untrusted."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _first(times: list[float | None]) -> float | None:
    known_times = [t for t in times if t is not None]
    return min(known_times) if known_times else None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _clock(t: float) -> str:
    try:
        moment = datetime.fromtimestamp(t, UTC)
    except (ValueError, OverflowError, OSError):
        return str(t)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
