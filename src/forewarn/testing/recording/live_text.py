"""What has changed from one answer to the next, in sentences, for whoever watches a recording."""

from __future__ import annotations

from forewarn.testing.recording.documents import RecordedDocument, recorded_document
from forewarn.testing.recording.endpoint import Answered
from forewarn.traces.documents import ListedEvent
from forewarn.wire.times import rfc1123

_TROUBLES = {
    "refused": "the connection is refused",
    "unreachable": "nobody can be reached",
    "reset": "the connection breaks without an answer",
    "late": "no answer comes in time",
    "stalled": "the answer stalls half-way",
    "cut": "the answer is cut off",
    "not-http": "what answers does not speak HTTP",
    "too-long": "the answer is longer than any document",
}


class LiveText:
    def __init__(self) -> None:
        self._before: RecordedDocument | None = None
        self._wrong = ""

    def changes(self, answer: Answered) -> list[str]:
        found = recorded_document(answer.body) if answer.status == 200 else None
        if found is None:
            says = _wrong(answer)
            again, self._wrong = says == self._wrong, says
            return [] if again else [says]
        said = ["there is a document again"] if self._wrong else []
        self._wrong = ""
        before, self._before = self._before, found
        if before is None:
            said.append(f"document {found.incarnation}, {_count(len(found.events))}")
        return [*said, *_moved(before.events if before else (), found.events)]


def _wrong(answer: Answered) -> str:
    if answer.failure:
        return _TROUBLES.get(answer.failure, answer.failure)
    if answer.status == 200:
        return "200, but no document"
    return f"{answer.status} instead of a document"


def _moved(before: tuple[ListedEvent, ...], now: tuple[ListedEvent, ...]) -> list[str]:
    was = {event.id: event for event in before}
    there = {event.id for event in now}
    said = []
    for event in now:
        if event.id not in was or was[event.id].status != event.status:
            due = f", not before {rfc1123(round(event.not_before))}" if event.not_before else ""
            said.append(f"{_named(event)} is {event.status}{due}")
    said += [f"{_named(event)} is gone" for event in before if event.id not in there]
    return said


def _named(event: ListedEvent) -> str:
    names = ", ".join(event.resources[:3])
    more = f" and {len(event.resources) - 3} more" if len(event.resources) > 3 else ""
    return f"{event.type} {event.id[:8]} of {names}{more}"


def _count(number: int) -> str:
    return "1 event" if number == 1 else f"{number or 'no'} events"
