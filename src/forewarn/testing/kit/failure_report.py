"""What happened in a test, line by line, for the report of a failed test.

Made from the lines of the service's trace. Polls without news are only counted, a refusal that is
repeated is one line with a count, and only the last lines of a long report are kept.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from forewarn.support.text import counted, in_words, visible
from forewarn.traces.documents import read_document
from forewarn.traces.exchanges import Stamp, exchange

MAX_LINES = 200  # that are kept: the last ones matter for a failed test
SHOWN_ID = 8  # characters of an event's id
MAX_SHOWN = 120  # characters of a request or response


class ReportLine(msgspec.Struct):
    """One line: what happened, how often, and when first and last."""

    first: float
    last: float
    text: str
    times: int = 1


class FailureReport:
    def __init__(self) -> None:
        self._lines: deque[ReportLine] = deque(maxlen=MAX_LINES)
        self._repeatable: dict[str, ReportLine] = {}  # refusals since the last other line, by text
        self._count = 0
        self._started_at: float | None = None
        self._last_answers: dict[
            str, tuple[int, str]
        ] = {}  # the last status and document, by machine
        self._polls: dict[str, int] = {}  # since then, by machine

    def add(self, line: dict[str, Any]) -> None:
        if self._started_at is None:
            self._started_at = line["t"]
        match line["kind"]:
            case "event":
                self._event(line)
            case "exchange":
                self._exchange(line)
            case "approval":
                self._append(line["t"], f"{line['by']} approves {short(line['event'])}")
            case "impact":
                on = ", ".join(line["machines"])
                self._append(line["t"], f"{line['type']} is carried out on {on}")
            case "unannounced":
                on = ", ".join(line["machines"])
                event = f"{line.get('type', '')} {short(line['event'])}".lstrip()
                self._append(line["t"], f"{event} of {on} starts, unannounced")
            case "unresponsive" if line["by_itself"]:
                self._append(line["t"], f"{line['machine']} no longer polls; the clock moves on")
            case "disabled":
                self._append(line["t"], f"group {line['group']} is disabled")
            case "scenario":
                outcome = "passed" if line["ok"] else "failed"
                self._append(line["t"], f"scenario {line['scenario']} {outcome}")
            case "step":
                self._append(line["t"], f"the clock is stepped by {line['seconds']:g} s")

    def text(self) -> str:
        """Return the lines that are kept, and how often each machine has polled since."""
        left_out = self._count - len(self._lines)
        head = [f"… {counted(left_out, 'earlier line')}"] if left_out else []
        tail = [
            f"since then {machine} has polled {counted(count, 'more time')}"
            for machine, count in self._polls.items()
            if count
        ]
        return "\n".join([*head, *map(self._text, self._lines), *tail]) or "nothing has happened"

    def _event(self, line: dict[str, Any]) -> None:
        on = ", ".join(line["machines"])
        note = "" if line["listed"] else " (no document lists it)"
        change = {
            "raise": "is announced",
            "list": "is shown",
            "strike": "starts without notice",
        }.get(line["move"])
        text = change or f"is {line['status']}"
        if line["move"] == "start" and line.get("approved_by"):
            text += f", as {line['approved_by']} has approved it"
        self._append(line["t"], f"{line['type']} {short(line['event'])} of {on} {text}{note}")

    def _exchange(self, line: dict[str, Any]) -> None:
        traffic = exchange(line, Stamp(line["t"]))
        machine, status = traffic.machine or traffic.source, traffic.status
        answer = (traffic.answer() or b"").decode(errors="replace")
        fault = f" (fault {traffic.fault})" if traffic.fault else ""
        if traffic.method == "GET" and status in (200, 304) and not fault:
            if status == 304 or self._last_answers.get(machine) == (status, answer):
                self._polls[machine] = self._polls.get(machine, 0) + 1
                return
            self._last_answers[machine] = (status, answer)
            self._polls[machine] = 0
            self._append(line["t"], f"{machine} is shown {_document(answer)}")
            return
        if traffic.method == "POST" and status == 200:
            ids = ", ".join(map(short, traffic.approved_ids()))
            approved = ids or visible(str(line.get("body", ""))[:MAX_SHOWN])
            self._append(line["t"], f"{machine} has approved {approved}{fault}")
            return
        request = visible(f"{traffic.method} {line['target']}"[:MAX_SHOWN])
        response = "nothing" if status is None else f"{status} {answer}"
        self._append_or_count(
            line["t"], f"{machine}: {request} → {visible(response[:MAX_SHOWN])}{fault}"
        )

    def _append(self, at: float, text: str) -> None:
        self._repeatable.clear()
        self._add_line(ReportLine(at, at, text))

    def _append_or_count(self, at: float, text: str) -> None:
        """Append a refusal, or count it if nothing but refusals has happened since the same one."""
        if (same := self._repeatable.get(text)) is not None:
            same.times += 1
            same.last = at
            return
        self._repeatable[text] = ReportLine(at, at, text)
        self._add_line(self._repeatable[text])

    def _add_line(self, line: ReportLine) -> None:
        self._count += 1
        self._lines.append(line)

    def _text(self, line: ReportLine) -> str:
        text = f"{self._after(line.first):<13} {line.text}"
        if line.times > 1:
            text += f" ({line.times:,} times, last at {self._after(line.last)})"
        return text

    def _after(self, at: float) -> str:
        return f"+{in_words(round((at - (self._started_at or at)) * 1_000_000))}"


def short(id: str) -> str:
    return id[:SHOWN_ID]


def _document(answer: str) -> str:
    document = read_document(answer)
    if document is None:
        return visible(answer[:MAX_SHOWN])
    events = [f"{event.type} {short(event.id)} {event.status}" for event in document.events]
    return f"document {document.incarnation}: {', '.join(events) or 'no events'}"
