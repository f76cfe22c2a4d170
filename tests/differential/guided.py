"""What a fuzzer needs beside cases: which lines of the endpoint were run, other cases made of
known ones, and the smallest that still does what a large one did.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import forewarn
from differential.case import Case
from differential.cases import APPROVAL, LAST, PATH, POLL, TAG, chunked, head, post
from differential.connections import Received
from differential.histories import AWAKE

LARGEST = 6_000  # bytes of a case that is made here
_ROOT = Path(forewarn.__file__).parent
_WATCHED = (str(_ROOT / "metadata"), str(_ROOT / "wire" / "requests.py"))
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) [^\r]*\r\n((?:[^\r\n]+\r\n)*)")
_NAME = re.compile(rb"([^:\r\n]+):[^\r\n]*\r\n")

WORDS = (
    *(
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\t",
        b":",
        b",",
        b"\x00",
        b"\xff",
        b"0",
        b"?",
        b"#",
    ),
    *(b"GET ", b"POST ", b"HEAD ", b"CONNECT ", b"BREW ", b" HTTP/1.1", b" HTTP/1.0", b"/", b"%65"),
    *(b"Content-Length: 0\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"),
    *(b"Connection: close\r\n", b"Connection: keep-alive\r\n", b"Connection: Upgrade\r\n"),
    *(b"Upgrade: h2c\r\n", b"Expect: 100-continue\r\n", b"X-Forwarded-For: a\r\n", b"X: y\r\n"),
    *(b"If-None-Match: " + TAG + b"\r\n", b"If-None-Match: *\r\n", b"Metadata: true\r\n"),
    *(b"api-version=2020-07-01", b"api-version=2017-03-01", b"&", PATH, APPROVAL, b"a" * 2_000),
    *(POLL, LAST, post(APPROVAL), chunked(POLL), head(verb=b"HEAD"), POLL[:-2], b"0\r\n\r\n"),
)


class Coverage:
    """Lines of the endpoint that have been run in the thread where `start` was called."""

    def __init__(self) -> None:
        self.lines: set[tuple[CodeType, int]] = set()
        self._left: dict[CodeType, set[int]] = {}  # lines that have not; nothing to be traced: none
        self._monitoring: Any = getattr(sys, "monitoring", None)

    def start(self) -> None:
        if self._monitoring is None:
            sys.settrace(self._called)
            return
        tool, events = self._monitoring.COVERAGE_ID, self._monitoring.events
        self._monitoring.use_tool_id(tool, "forewarn-fuzz")
        self._monitoring.register_callback(tool, events.LINE, self._ran)
        self._monitoring.set_events(tool, events.LINE)

    def stop(self) -> None:
        if self._monitoring is None:
            sys.settrace(None)
        else:
            self._monitoring.free_tool_id(self._monitoring.COVERAGE_ID)

    def forget(self, lines: set[tuple[CodeType, int]]) -> None:
        """As if these had not been run."""
        self.lines -= lines
        for code, line in lines:
            if code in self._left:
                self._left[code].add(line)
        if self._monitoring is not None:
            self._monitoring.restart_events()

    def _ran(self, code: CodeType, line: int) -> Any:
        if code.co_filename.startswith(_WATCHED):
            self.lines.add((code, line))
        return self._monitoring.DISABLE  # once is enough

    def _called(self, frame: FrameType, event: str, arg: object) -> Any:
        left = self._left.get(frame.f_code)
        if left is None:
            watched = frame.f_code.co_filename.startswith(_WATCHED)
            lines = {line for *_, line in frame.f_code.co_lines() if line} if watched else set()
            left = self._left[frame.f_code] = lines
        return self._traced if left else None

    def _traced(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            self.lines.add((frame.f_code, frame.f_lineno))
            self._left[frame.f_code].discard(frame.f_lineno)
        return self._traced


def signature(received: Received) -> set[tuple[object, ...]]:
    """What kind of answers these are: which follows on which, and what on the last."""
    kinds: set[tuple[object, ...]] = set()
    before = b""
    for status, lines in _STATUS.findall(received.whole):
        kinds.add((before, status, *_NAME.findall(lines)))
        before = status
    return kinds | {(before, received.closed)}


def mutated(case: Case, pool: Sequence[Case], dice: random.Random) -> Case:
    """Another case made of this one, and maybe of others."""
    segments, machine = list(case.segments) or [b""], case.machine
    for _ in range(dice.choice((1, 1, 1, 2, 2, 3, 5))):
        at = dice.randrange(len(segments))
        data = segments[at]
        here = dice.randrange(len(data) + 1)
        there = min(len(data), here + dice.choice((1, 1, 1, 2, 4, 16, 64)))
        match dice.randrange(12):
            case 0:
                data = data[:here] + dice.choice(WORDS) + data[here:]
            case 1:
                data = data[:here] + bytes([dice.randrange(256)]) + data[there:]
            case 2:
                data = data[:here] + data[there:]
            case 3:
                data = data[:there] + data[here:]
            case 4:
                other = dice.choice(pool).whole
                cut = dice.randrange(len(other) + 1)
                data = data[:here] + other[cut:]
            case 5:
                other = dice.choice(pool).whole
                data = data[:here] + other + data[here:]
            case 6 | 7:
                segments.insert(at, data[:here])
                at, data = at + 1, data[here:]
            case 8:
                if at:
                    data = segments.pop(at - 1) + data
                    at -= 1
            case 9:
                segments.insert(0, POLL)
                at += 1
            case 10:
                segments.append(dice.choice((POLL, LAST)))
            case 11:
                lines = data.split(b"\r\n")
                dice.shuffle(lines[1:-2])
                lines.insert(dice.randrange(len(lines)), dice.choice(lines))
                data = b"\r\n".join(lines)
        segments[at] = data
    if not dice.randrange(20):
        machine = dice.choice(AWAKE)
    left, kept = LARGEST, []
    for segment in segments[:12]:
        kept.append(segment[:left])
        left -= len(kept[-1])
    return Case(tuple(kept), machine)


def smallest(case: Case, still: Callable[[Case], bool]) -> Case:
    """Less and less of it, as long as `still` holds: whole segments first, then bytes."""
    while True:
        for less in _less(case):
            if still(less):
                case = less
                break
        else:
            return case


def _less(case: Case) -> Iterator[Case]:
    segments = case.segments
    for at in range(len(segments)):
        yield Case(segments[:at] + segments[at + 1 :], case.machine, case.hurried)
    for at in range(1, len(segments)):
        joined = segments[at - 1] + segments[at]
        yield Case((*segments[: at - 1], joined, *segments[at + 1 :]), case.machine, case.hurried)
    for at, data in enumerate(segments):
        size = len(data)
        while size:
            for start in range(0, len(data), size):
                shorter = data[:start] + data[start + size :]
                yield Case(
                    (*segments[:at], shorter, *segments[at + 1 :]), case.machine, case.hurried
                )
            size //= 2
