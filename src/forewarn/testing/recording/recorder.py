"""`Recorder`: polls an endpoint, and writes what it saw as lines of a trace.

Most responses are like the one before; these are written once a minute only. The caller decides
when to poll next and when to stop; nothing here waits.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from forewarn.support import guard
from forewarn.testing.recording.documents import RecordedDocument, recorded_document
from forewarn.testing.recording.endpoint import Endpoint, Response
from forewarn.wire.requests import EVENTS_PATH
from forewarn.wire.server_clock import ServerClock
from forewarn.wire.versions import NEWEST

HEARTBEAT = 60.0  # real seconds after which an unchanged response is written again
MAX_REPEATED = 60  # failures of one kind in a row that are all written; later ones every minute
FIRST_ANSWER = 130.0  # real seconds: on Azure, the first answer can take two minutes
MAX_CLOCK_ERROR = 2.0  # seconds by which our estimate of the service's clock can be wrong at first
MIN_GAP = 2e-6  # seconds between an answer and the next request
TIMEOUT = 10.0  # real seconds for later answers
NAME_TIMEOUT = 5.0  # real seconds for the name of the machine, which is optional
_NAME_TARGET = "/metadata/instance/compute/name?api-version=2017-08-01&format=text"
_MAX_NAME = 80

Write = Callable[[Mapping[str, Any]], None]


class Recorder:
    """Polls an endpoint and passes trace lines to `write`."""

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
        self._last_written: Response | None = None
        self._skipped_line: dict[str, Any] | None = (
            None  # of the last response, if it was not written
        )
        self._skipped = 0  # number of responses not written since the last line
        self._repetitions = 0  # of the last response
        self._asked = self._last = float("-inf")  # times of the last exchange
        self._after = after
        self.machine = machine
        self.waiting = False  # for a response; nothing is being written
        self.polls = 0
        self.documents = 0  # number of responses with a document
        self.current: RecordedDocument | None = None  # the last document
        self.saw_events = False

    def begin(self) -> None:
        """Ask the endpoint for the name of the machine, and write the first line."""
        if self.machine is None:
            answer = self._endpoint.get(_NAME_TARGET, NAME_TIMEOUT)
            self._learn_clock(answer)
            name = answer.body.decode("utf-8", "replace").strip()
            if answer.status == 200 and 0 < len(name) <= _MAX_NAME and name.isprintable():
                self.machine = name
        now = self._now()
        if self._after is not None and 0 <= self._after - now <= MAX_CLOCK_ERROR:
            self._last = now = self._after + MIN_GAP
        self._write({"kind": "partial", "t": round(now, 6)})

    def poll(self) -> Response:
        """Poll once, and write a line if the response is new."""
        timeout = self._timeout if self.documents else max(self._timeout, FIRST_ANSWER)
        self.waiting = True
        try:
            answer = self._endpoint.get(self._target, timeout)
        finally:
            self.waiting = False
        self.polls += 1
        if step := self._learn_clock(answer):
            self._write_skipped()
            self._write({"kind": "step", "t": self._now(), "seconds": round(step, 3)})
            if step < 0:
                self._last = float("-inf")
        self._stamp(answer)
        document = recorded_document(answer.body) if answer.status == 200 else None
        if document is not None:
            self.documents += 1
            self.current = document
            self.saw_events |= bool(document.events)
        if not self._is_new(answer, document is not None):
            self._skipped_line = self._line(answer, self._skipped)
            self._skipped += 1
            return answer
        if self._repetitions == 0:
            self._write_skipped()
        self._last_written, same, self._skipped = answer, self._skipped, 0
        self._skipped_line = None
        self._write(self._line(answer, same))
        return answer

    def _write_skipped(self) -> None:
        """Write the last response that was skipped, so that the time of a change is known."""
        if self._skipped_line is not None:
            self._write(self._skipped_line)
            self._skipped_line, self._skipped = None, 0

    def end(self) -> None:
        self._write_skipped()
        self._write({"kind": "end", "t": self._now()})

    def _learn_clock(self, answer: Response) -> float:
        date = next((value for name, value in answer.headers if name.lower() == "date"), None)
        return self._clock.learn(date, answer.sent_at, answer.received_at)

    def _now(self) -> float:
        return round(guard.monotonic() + self._clock.offset, 6)

    def _stamp(self, answer: Response) -> None:
        """Set the times of an exchange, on the service's clock.

        The clock is known to a second only at first, but times never go back.
        """
        offset = self._clock.offset
        asked = max(answer.sent_at + offset, self._last + MIN_GAP)
        t = max(answer.received_at + offset, asked)
        self._asked, self._last = round(asked, 6), round(t, 6)

    def _is_new(self, answer: Response, has_document: bool) -> bool:
        last = self._last_written
        self._repetitions = (
            self._repetitions + 1 if last is not None and _is_same(last, answer) else 0
        )
        if self._everything or last is None or self._repetitions == 0:
            return True
        if not has_document and self._repetitions < MAX_REPEATED:
            return True
        return answer.received_at - last.received_at >= HEARTBEAT

    def _line(self, answer: Response, same: int) -> dict[str, Any]:
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


def _is_same(first: Response, second: Response) -> bool:
    """Return whether two responses are the same except for Date and request id."""
    return (first.status, first.failure, first.body, _compared(first)) == (
        *(second.status, second.failure, second.body),
        _compared(second),
    )


def _compared(answer: Response) -> list[tuple[str, str]]:
    names = ("content-type", "etag")
    return [(name.lower(), value) for name, value in answer.headers if name.lower() in names]


def _content(data: bytes) -> dict[str, str]:
    try:
        return {"answer": data.decode()}
    except UnicodeDecodeError:
        return {"answer_base64": base64.b64encode(data).decode()}


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """When to stop recording without being interrupted."""

    after: float | None = None  # real seconds
    when_quiet: bool = False  # there were events, and now there are none

    def reached(self, recorder: Recorder, begun: float) -> bool:
        if self.after is not None and guard.monotonic() - begun >= self.after:
            return True
        current = recorder.current
        quiet = recorder.saw_events and current is not None and not current.events
        return self.when_quiet and quiet
