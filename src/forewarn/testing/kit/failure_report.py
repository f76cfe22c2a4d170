"""What happened in a test, line by line, for whoever reads why it failed.

Heard from the service's trace. Polls that showed a machine nothing new are counted, not told; of a
long story the end is kept.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from forewarn.support.text import in_words, visible

MAX_LINES = 200  # that are kept; the end of a story is what a failed test is about
SHOWN_ID = 8  # characters of an event's id
MAX_SAID = 120  # characters of an answer


class FailureReport:
    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._told = 0
        self._begun: float | None = None
        self._shown: dict[str, tuple[int, str]] = {}  # by machine: the last status and document
        self._polls: dict[str, int] = {}  # and how often it has asked since

    def add(self, line: dict[str, Any]) -> None:
        if self._begun is None:
            self._begun = line["t"]
        match line["kind"]:
            case "event":
                self._event(line)
            case "exchange":
                self._exchange(line)
            case "approval":
                self._tell(line["t"], f"{line['by']} approves {short(line['event'])}")
            case "impact":
                on = ", ".join(line["machines"])
                self._tell(line["t"], f"{line['type']} is carried out on {on}")
            case "unannounced":
                on = ", ".join(line["machines"])
                what = f"{line.get('type', '')} {short(line['event'])}".lstrip()
                self._tell(line["t"], f"{what} of {on} begins, unannounced")
            case "disabled":
                self._tell(line["t"], f"group {line['group']} is told of nothing any more")
            case "step":
                self._tell(line["t"], f"the clock is stepped by {line['seconds']:g} s")

    def text(self) -> str:
        """All of it that is kept, and how often each machine has asked since it was last told."""
        left_out = self._told - len(self._lines)
        head = [f"… {left_out} lines before"] if left_out else []
        tail = [
            f"since then {machine} has asked {count} more time{'s' * (count > 1)}"
            for machine, count in self._polls.items()
            if count
        ]
        return "\n".join([*head, *self._lines, *tail]) or "nothing has happened"

    def _event(self, line: dict[str, Any]) -> None:
        on = ", ".join(line["machines"])
        unseen = "" if line["listed"] else " (nobody is shown it)"
        words = {"raise": "is announced", "list": "is shown", "strike": "strikes"}.get(line["move"])
        what = words or f"is {line['status']}"
        if line["move"] == "start" and line.get("approved_by"):
            what += f", as {line['approved_by']} has approved it"
        self._tell(line["t"], f"{line['type']} {short(line['event'])} of {on} {what}{unseen}")

    def _exchange(self, line: dict[str, Any]) -> None:
        machine = line["machine"] or line["from"]
        status, said = line["status"], line.get("answer", "")
        fault = f" (fault {line['fault']})" if line.get("fault") else ""
        if line["method"] == "GET" and status in (200, 304) and not fault:
            if status == 304 or self._shown.get(machine) == (status, said):
                self._polls[machine] = self._polls.get(machine, 0) + 1
                return
            self._shown[machine] = (status, said)
            self._polls[machine] = 0
            self._tell(line["t"], f"{machine} is shown {_document(said)}")
            return
        if line["method"] == "POST" and status == 200:
            self._tell(
                line["t"], f"{machine} has approved {_approved(line.get('body', ''))}{fault}"
            )
            return
        what = f"{line['method']} {line['target']}"
        answer = "nothing" if status is None else f"{status} {said}"
        answered = visible(answer[:MAX_SAID])
        self._tell(line["t"], f"{machine}: {visible(what[:MAX_SAID])} → {answered}{fault}")

    def _tell(self, at: float, says: str) -> None:
        after = in_words(round((at - (self._begun or at)) * 1_000_000))
        self._told += 1
        self._lines.append(f"+{after:<12} {says}")


def short(id: str) -> str:
    return id[:SHOWN_ID]


def _document(said: str) -> str:
    try:
        found = msgspec.json.decode(said)
        events = [
            f"{event['EventType']} {short(event['EventId'])} {event['EventStatus']}"
            for event in found["Events"]
        ]
        return f"document {found['DocumentIncarnation']}: {', '.join(events) or 'no events'}"
    except (msgspec.DecodeError, KeyError, TypeError):
        return visible(said[:MAX_SAID])


def _approved(body: str) -> str:
    try:
        asked = msgspec.json.decode(body)["StartRequests"]
        return ", ".join(short(one["EventId"]) for one in asked)
    except (msgspec.DecodeError, KeyError, TypeError):
        return visible(body[:MAX_SAID])
