"""What went wrong with responses in a recording, as faults such as `gone`, five times in a row.

What became of events is `event_lives.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from forewarn.testing.recording.documents import recorded_document
from forewarn.testing.recording.event_lives import document_of
from forewarn.traces.exchanges import Exchange, Stamp, exchange
from forewarn.traces.lines import time_of

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
    """One fault, so many times in a row."""

    kind: str
    at: float
    machine: str = ""
    method: str = "GET"
    times: int = 1
    seconds: float | None = None
    status: int | None = None


def answer_faults(lines: Iterable[Mapping[str, Any]]) -> list[AnswerFault]:
    """Return the faults in trace lines, which are in the order of time. A row of the same fault is
    counted for each machine and method."""
    faults: list[AnswerFault] = []
    running: dict[tuple[str, str], int] = {}  # where the current row of each is
    highest: dict[str, int] = {}
    for line in lines:
        t = time_of(line)
        if t is None or line.get("kind") != "exchange":
            continue
        read = exchange(line, Stamp(t))
        if not read.about_events or read.method not in ("GET", "POST"):
            continue
        fault = _fault(read, t) or _restarted(read, t, highest)
        key = read.machine, read.method
        if fault is None:
            running.pop(key, None)
            continue
        last = running.get(key)
        if last is not None and _alike(faults[last], fault):
            row = faults[last]
            faults[last] = msgspec.structs.replace(row, times=row.times + fault.times)
        else:
            running[key] = len(faults)
            faults.append(fault)
    return faults


def _alike(row: AnswerFault, fault: AnswerFault) -> bool:
    same = (row.kind, row.status) == (fault.kind, fault.status)
    return same and fault.kind not in ("slow", "incarnation")


def _fault(read: Exchange, t: float) -> AnswerFault | None:
    line, status = read.line, read.status

    def fault(kind: str, **more: Any) -> AnswerFault:
        return AnswerFault(
            kind=kind, at=t, machine=read.machine, method=read.method, times=1 + read.same, **more
        )

    if read.fault:
        is_error = read.fault == "error" and status is not None and 500 <= status <= 599
        more = {"status": status} if is_error else {}
        return fault(read.fault, **more) if read.fault in _OF_REQUESTS else None
    if status is None:
        # A request without a response was dropped; how, only its recorder knows.
        kinds = {"cut": "truncated", "stalled": "stalled", "late": "stalled"}
        return fault(kinds.get(str(line.get("trouble")), "reset"))
    if status in _BY_STATUS:
        return fault(_BY_STATUS[status])
    if 500 <= status <= 599:
        return fault("error", status=status)
    if status != 200 or read.method != "GET":
        return None
    if document_of(read) is not None:
        asked = read.asked.t
        if t - asked > SLOW:
            seconds = min(round(t - asked, 1), MAX_SLOW)
            return AnswerFault(kind="slow", at=asked, machine=read.machine, seconds=seconds)
        return fault("plain") if _called_plain(line) else None
    return fault(_not_a_document(line))


def _not_a_document(line: Mapping[str, Any]) -> str:
    answer = line.get("answer")
    if answer == "":
        return "empty"
    if not isinstance(answer, str):
        return "truncated"
    if recorded_document(_CONTROL.sub(" ", answer)) is not None:
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


def _restarted(read: Exchange, t: float, highest: dict[str, int]) -> AnswerFault | None:
    """Return a fault if the incarnation is lower than it was."""
    document = document_of(read)
    if document is None or document.incarnation is None:
        return None
    before = highest.get(read.machine)
    highest[read.machine] = document.incarnation
    if before is None or document.incarnation >= before:
        return None
    return AnswerFault(kind="incarnation", at=t, machine=read.machine)
