"""What went wrong with answers in a recording, in the words of faults: `gone` five times, from then
on. What became of events is `event_lives.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from forewarn.testing.recording.documents import sheet
from forewarn.testing.recording.event_lives import about_events, document_of, moment

SLOW = 3.0  # seconds after which a good answer counts as late
MAX_SLOW = 120.0  # that an answer is held in a replay
_BY_STATUS = {429: "throttled", 410: "gone"}
_OF_REQUESTS = frozenset(
    {
        *("slow", "throttled", "gone", "error", "empty", "no-events", "plain"),
        *("control-characters", "truncated", "stalled", "reset", "incarnation"),
    }
)
_CONTROL = re.compile(r"[\x00-\x1f]")


class AnswerFault(msgspec.Struct, frozen=True, kw_only=True):
    """The same thing, so many times in a row."""

    kind: str
    at: float
    machine: str = ""
    method: str = "GET"
    times: int = 1
    seconds: float | None = None
    status: int | None = None


def troubles(lines: Iterable[Mapping[str, Any]]) -> list[AnswerFault]:
    """`lines` in the order of time. Those in a row are for each machine and method."""
    found: list[AnswerFault] = []
    running: dict[tuple[str, str], int] = {}  # where the row of each stands
    highest: dict[str, int] = {}
    for line in lines:
        t = moment(line)
        if t is None or line.get("kind") != "exchange" or not about_events(line):
            continue
        machine = line.get("machine")
        who, method = machine if isinstance(machine, str) else "", str(line.get("method"))
        if method not in ("GET", "POST"):
            continue
        met = _met(line, t, who, method) or _started_over(line, t, who, highest)
        if met is None:
            running.pop((who, method), None)
            continue
        last = running.get((who, method))
        if last is not None and _alike(found[last], met):
            row = found[last]
            found[last] = msgspec.structs.replace(row, times=row.times + met.times)
        else:
            running[who, method] = len(found)
            found.append(met)
    return found


def _alike(row: AnswerFault, met: AnswerFault) -> bool:
    same = (row.kind, row.status) == (met.kind, met.status)
    return same and met.kind not in ("slow", "incarnation")


def _met(line: Mapping[str, Any], t: float, who: str, method: str) -> AnswerFault | None:
    status = line.get("status")
    left_out = line.get("same")
    times = 1 + (left_out if type(left_out) is int and left_out > 0 else 0)

    def met(kind: str, **more: Any) -> AnswerFault:
        return AnswerFault(kind=kind, at=t, machine=who, method=method, times=times, **more)

    if isinstance(mark := line.get("fault"), str):
        is_error = mark == "error" and type(status) is int and 500 <= status <= 599
        more = {"status": status} if is_error else {}
        return met(mark, **more) if mark in _OF_REQUESTS else None
    if status is None:
        # A request that nobody answered is one that was let fall; how, only its recorder knows.
        kinds = {"cut": "truncated", "stalled": "stalled", "late": "stalled"}
        return met(kinds.get(str(line.get("trouble")), "reset"))
    if status in _BY_STATUS:
        return met(_BY_STATUS[status])
    if type(status) is int and 500 <= status <= 599:
        return met("error", status=status)
    if status != 200 or method != "GET":
        return None
    if document_of(line) is not None:
        asked = line.get("asked")
        if isinstance(asked, int | float) and t - asked > SLOW:
            seconds = min(round(t - asked, 1), MAX_SLOW)
            return AnswerFault(kind="slow", at=float(asked), machine=who, seconds=seconds)
        return met("plain") if _called_plain(line) else None
    return met(_not_a_document(line))


def _not_a_document(line: Mapping[str, Any]) -> str:
    answer = line.get("answer")
    if answer == "":
        return "empty"
    if not isinstance(answer, str):
        return "truncated"
    if sheet(_CONTROL.sub(" ", answer)) is not None:
        return "control-characters"
    try:
        return "no-events" if isinstance(msgspec.json.decode(answer), dict) else "plain"
    except (msgspec.MsgspecError, RecursionError):
        return "plain" if _called_plain(line) else "truncated"


def _called_plain(line: Mapping[str, Any]) -> bool:
    headers = line.get("answer_headers")
    if not isinstance(headers, list | tuple):
        return False
    for pair in headers:
        if isinstance(pair, list | tuple) and len(pair) == 2:
            name, value = pair
            if str(name).lower() == "content-type":
                return str(value).lower().startswith("text/plain")
    return False


def _started_over(
    line: Mapping[str, Any], t: float, who: str, highest: dict[str, int]
) -> AnswerFault | None:
    """Is the incarnation lower than it was?"""
    document = document_of(line)
    if document is None or document.incarnation is None:
        return None
    before = highest.get(who)
    highest[who] = document.incarnation
    if before is None or document.incarnation >= before:
        return None
    return AnswerFault(kind="incarnation", at=t, machine=who)
