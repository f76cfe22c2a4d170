"""`Recorder`: polls an endpoint, and writes what it saw as lines of a trace.

A response like the one before, as most are, is written once a minute only. When to poll next and
when to stop is up to the caller; nothing here waits.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from forewarn.support import guard
from forewarn.testing.recording.documents import RecordedDocument, recorded_document
from forewarn.testing.recording.endpoint import Answered, Endpoint
from forewarn.wire.requests import EVENTS_PATH
from forewarn.wire.server_clock import ServerClock
from forewarn.wire.versions import NEWEST

HEARTBEAT = 60.0  # real seconds after which the same is written again
REPEATED = 60  # failures of one kind in a row that are all written; of more, some are left out
FIRST_ANSWER = 130.0  # real seconds: the first may take two minutes on the real service
DOUBT = 2.0  # seconds by which we may be wrong about the service's clock at first
INSTANT = 2e-6  # seconds, at least, between one answer and the next question
TIMEOUT = 10.0  # and later ones
NAME_TIMEOUT = 5.0  # of who we are, which may stay unknown
_NAME = "/metadata/instance/compute/name?api-version=2017-08-01&format=text"
_MAX_NAME = 80

Write = Callable[[Mapping[str, Any]], None]


class Recorder:
    def __init__(
        self,
        endpoint: Endpoint,
        write: Write,
        *,
        version: str = NEWEST.name,
        machine: str | None = None,
        everything: bool = False,
        timeout: float = TIMEOUT,
        after: float | None = None,
    ) -> None:
        """`after` is the time of the last line that another recorder has written."""
        self._endpoint = endpoint
        self._write = write
        self._target = f"{EVENTS_PATH}?api-version={version}"
        self._everything = everything
        self._timeout = timeout
        self._clock = ServerClock(guard.wall_us() / 1e6 - guard.monotonic())
        self._last_written: Answered | None = None
        self._left_out: dict[str, Any] | None = None  # the line of the last one since that was not
        self._same = 0  # how many were not
        self._row = 0  # answers of the same kind
        self._asked = self._last = float("-inf")  # the times of the last answer
        self._after = after
        self.machine = machine
        self.waiting = False  # and nothing is being written
        self.polls = 0
        self.documents = 0  # answers that were one
        self.current: RecordedDocument | None = None  # the last of them
        self.saw_events = False

    def begin(self) -> None:
        """Ask the instance for its name, and write the first line. Nothing else of the instance
        metadata is kept."""
        if self.machine is None:
            answer = self._endpoint.get(_NAME, NAME_TIMEOUT)
            self._learn(answer)
            name = answer.body.decode("utf-8", "replace").strip()
            if answer.status == 200 and 0 < len(name) <= _MAX_NAME and name.isprintable():
                self.machine = name
        now = self._now()
        if self._after is not None and 0 <= self._after - now <= DOUBT:
            self._last = now = self._after + INSTANT
        self._write({"kind": "partial", "t": round(now, 6)})

    def poll(self) -> Answered:
        """Poll once, and write a line if the response is news."""
        timeout = self._timeout if self.documents else max(self._timeout, FIRST_ANSWER)
        self.waiting = True
        try:
            answer = self._endpoint.get(self._target, timeout)
        finally:
            self.waiting = False
        self.polls += 1
        if step := self._learn(answer):
            self._catch_up()
            self._write({"kind": "step", "t": self._now(), "seconds": round(step, 3)})
            if step < 0:
                self._last = float("-inf")
        self._stamp(answer)
        document = recorded_document(answer.body) if answer.status == 200 else None
        if document is not None:
            self.documents += 1
            self.current = document
            self.saw_events |= bool(document.events)
        if not self._is_news(answer, document is not None):
            self._left_out = self._line(answer, self._same)
            self._same += 1
            return answer
        if self._row == 0:
            self._catch_up()
        self._last_written, same, self._same = answer, self._same, 0
        self._left_out = None
        self._write(self._line(answer, same))
        return answer

    def _catch_up(self) -> None:
        """Write the last response that was left out, so that the time of a change is known."""
        if self._left_out is not None:
            self._write(self._left_out)
            self._left_out, self._same = None, 0

    def end(self) -> None:
        self._catch_up()
        self._write({"kind": "end", "t": self._now()})

    def _learn(self, answer: Answered) -> float:
        date = next((value for name, value in answer.headers if name.lower() == "date"), None)
        return self._clock.learn(date, answer.sent_at, answer.received_at)

    def _now(self) -> float:
        return round(guard.monotonic() + self._clock.offset, 6)

    def _stamp(self, answer: Answered) -> None:
        """Take the times on the service's clock. That is known to a second at first, but responses
        that came after each other have times after each other."""
        offset = self._clock.offset
        asked = max(answer.sent_at + offset, self._last + INSTANT)
        t = max(answer.received_at + offset, asked)
        self._asked, self._last = round(asked, 6), round(t, 6)

    def _is_news(self, answer: Answered, good: bool) -> bool:
        last = self._last_written
        self._row = self._row + 1 if last is not None and _alike(last, answer) else 0
        if self._everything or last is None or self._row == 0:
            return True
        if not good and self._row < REPEATED:
            return True
        return answer.received_at - last.received_at >= HEARTBEAT

    def _line(self, answer: Answered, same: int) -> dict[str, Any]:
        return {
            "kind": "exchange",
            "t": self._last,
            "asked": self._asked,
            "real": answer.received_at,
            "real_asked": answer.sent_at,
            **({"machine": self.machine} if self.machine is not None else {}),
            **({"from": answer.source} if answer.source else {}),
            "method": "GET",
            "target": self._target,
            "headers": self._endpoint.headers(),
            "body": "",
            "status": answer.status,
            "answer_headers": answer.headers,
            **_content(answer.body),
            **({"trouble": answer.failure} if answer.failure else {}),
            **({"same": same} if same else {}),
        }


def _alike(first: Answered, second: Answered) -> bool:
    """Whether two responses are the same but for Date and request id."""
    return (first.status, first.failure, first.body, _compared(first)) == (
        *(second.status, second.failure, second.body),
        _compared(second),
    )


def _compared(answer: Answered) -> list[tuple[str, str]]:
    names = ("content-type", "etag")
    return [(n.lower(), value) for n, value in answer.headers if n.lower() in names]


def _content(data: bytes) -> dict[str, str]:
    try:
        return {"answer": data.decode()}
    except UnicodeDecodeError:
        return {"answer_base64": base64.b64encode(data).decode()}


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """When to stop recording without being interrupted."""

    after: float | None = None  # real seconds
    when_quiet: bool = False  # there was an event, and none is left

    def reached(self, recorder: Recorder, begun: float) -> bool:
        if self.after is not None and guard.monotonic() - begun >= self.after:
            return True
        current = recorder.current
        quiet = recorder.saw_events and current is not None and not current.events
        return self.when_quiet and quiet
