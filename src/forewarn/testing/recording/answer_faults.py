"""Finds faults in the responses of a recording, such as `gone` five times in a row.

The events of a recording are in `event_lives.py`.
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

SLOW = 3.0  # seconds after which a correct answer counts as slow
MAX_SLOW = 120.0  # seconds by which an answer is delayed in a replay
_BY_STATUS = {429: "throttled", 410: "gone"}
_ANSWER_KINDS = frozenset(
    {
        *("slow", "throttled", "gone", "error", "empty", "no-events", "plain"),
        *("control-characters", "truncated", "stalled", "reset", "incarnation"),
    }
)
_CONTROL = re.compile(r"[\x00-\x1f]")


class AnswerFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that occurred `times` times in a row."""

    kind: str
    at: float
    machine: str = ""
    method: str = "GET"
    times: int = 1
    seconds: float | None = None
    status: int | None = None


def answer_faults(lines: Iterable[Mapping[str, Any]]) -> list[AnswerFault]:
    """Return the faults in trace lines, which are in the order of time.

    The same fault several times in a row is counted, for each machine and method.
    """
    faults: list[AnswerFault] = []
    current: dict[tuple[str, str], int] = {}  # index of the current fault, by machine and method
    highest: dict[str, int] = {}
    for line in lines:
        t = time_of(line)
        if t is None or line.get("kind") != "exchange":
            continue
        traffic = exchange(line, Stamp(t))
        if not traffic.about_events or traffic.method not in ("GET", "POST"):
            continue
        fault = _fault(traffic, t) or _incarnation_fault(traffic, t, highest)
        key = traffic.machine, traffic.method
        if fault is None:
            current.pop(key, None)
            continue
        last = current.get(key)
        if last is not None and _is_same(faults[last], fault):
            last_fault = faults[last]
            faults[last] = msgspec.structs.replace(last_fault, times=last_fault.times + fault.times)
        else:
            current[key] = len(faults)
            faults.append(fault)
    return faults


def _is_same(first: AnswerFault, second: AnswerFault) -> bool:
    same = (first.kind, first.status) == (second.kind, second.status)
    return same and second.kind not in ("slow", "incarnation")


def _fault(traffic: Exchange, t: float) -> AnswerFault | None:
    line, status = traffic.line, traffic.status

    def fault(kind: str, **more: Any) -> AnswerFault:
        return AnswerFault(
            kind=kind,
            at=t,
            machine=traffic.machine,
            method=traffic.method,
            times=1 + traffic.same,
            **more,
        )

    if traffic.fault:
        is_error = traffic.fault == "error" and status is not None and 500 <= status <= 599
        more = {"status": status} if is_error else {}
        return fault(traffic.fault, **more) if traffic.fault in _ANSWER_KINDS else None
    if status is None:
        # There was no response; only the recorder knows why.
        kinds = {"cut": "truncated", "stalled": "stalled", "late": "stalled"}
        return fault(kinds.get(str(line.get("trouble")), "reset"))
    if status in _BY_STATUS:
        return fault(_BY_STATUS[status])
    if 500 <= status <= 599:
        return fault("error", status=status)
    if status != 200 or traffic.method != "GET":
        return None
    if document_of(traffic) is not None:
        asked = traffic.asked.t
        if t - asked > SLOW:
            seconds = min(round(t - asked, 1), MAX_SLOW)
            return AnswerFault(kind="slow", at=asked, machine=traffic.machine, seconds=seconds)
        return fault("plain") if _is_plain_text(line) else None
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
        return "plain" if _is_plain_text(line) else "truncated"


def _is_plain_text(line: Mapping[str, Any]) -> bool:
    headers = line.get("answer_headers")
    if not isinstance(headers, list | tuple):
        return False
    for pair in headers:
        if isinstance(pair, list | tuple) and len(pair) == 2:
            name, value = pair
            if str(name).lower() == "content-type":
                return str(value).lower().startswith("text/plain")
    return False


def _incarnation_fault(traffic: Exchange, t: float, highest: dict[str, int]) -> AnswerFault | None:
    """Return a fault if the incarnation is lower than it was."""
    document = document_of(traffic)
    if document is None or document.incarnation is None:
        return None
    last = highest.get(traffic.machine)
    highest[traffic.machine] = document.incarnation
    if last is None or document.incarnation >= last:
        return None
    return AnswerFault(kind="incarnation", at=t, machine=traffic.machine)
