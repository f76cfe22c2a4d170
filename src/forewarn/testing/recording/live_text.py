"""Describes, in sentences, what has changed from one answer to the next while recording."""

from __future__ import annotations

from forewarn.testing.recording.documents import RecordedDocument, recorded_document
from forewarn.testing.recording.endpoint import Response
from forewarn.traces.documents import ListedEvent
from forewarn.wire.times import rfc1123

_FAILURES = {
    "refused": "the connection was refused",
    "unreachable": "the endpoint cannot be reached",
    "reset": "the connection was closed without an answer",
    "late": "no answer in time",
    "stalled": "the answer stalled half-way",
    "cut": "the answer was cut off",
    "not-http": "the answer is not HTTP",
    "too-long": "the answer is longer than any document",
}


class LiveText:
    """Remembers the last answer, and returns a sentence for every difference."""

    def __init__(self) -> None:
        self._last_document: RecordedDocument | None = None
        self._last_problem = ""

    def changes(self, answer: Response) -> list[str]:
        document = recorded_document(answer.body) if answer.status == 200 else None
        if document is None:
            problem = _problem(answer)
            repeated, self._last_problem = problem == self._last_problem, problem
            return [] if repeated else [problem]
        sentences = ["the endpoint returns documents again"] if self._last_problem else []
        self._last_problem = ""
        last, self._last_document = self._last_document, document
        if last is None:
            sentences.append(f"document {document.incarnation}, {_count(len(document.events))}")
        return [*sentences, *_event_changes(last.events if last else (), document.events)]


def _problem(answer: Response) -> str:
    if answer.failure:
        return _FAILURES.get(answer.failure, answer.failure)
    if answer.status == 200:
        return "status 200, but the body is not a document"
    return f"status {answer.status} instead of a document"


def _event_changes(before: tuple[ListedEvent, ...], now: tuple[ListedEvent, ...]) -> list[str]:
    before_by_id = {event.id: event for event in before}
    now_ids = {event.id for event in now}
    sentences = []
    for event in now:
        if event.id not in before_by_id or before_by_id[event.id].status != event.status:
            due = f", not before {rfc1123(round(event.not_before))}" if event.not_before else ""
            sentences.append(f"{_describe(event)} is {event.status}{due}")
    sentences += [f"{_describe(event)} is gone" for event in before if event.id not in now_ids]
    return sentences


def _describe(event: ListedEvent) -> str:
    names = ", ".join(event.resources[:3])
    more = f" and {len(event.resources) - 3} more" if len(event.resources) > 3 else ""
    return f"{event.type} {event.id[:8]} of {names}{more}"


def _count(number: int) -> str:
    return "1 event" if number == 1 else f"{number or 'no'} events"
