"""The books of the lab find what they are there to find."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from lab.books import Absence, Books, Raised

BEGIN = 1_800_000_000.0
NOT_BEFORE = BEGIN + 10


def poll(t: float, incarnation: int, status: str = "", machine: str = "web_0") -> dict[str, Any]:
    """A document with the event E in this status, or without it."""
    not_before = format_datetime(datetime.fromtimestamp(NOT_BEFORE, UTC), usegmt=True)
    event = {
        "EventId": "E",
        "EventStatus": status,
        "NotBefore": not_before if status == "Scheduled" else "",
    }
    document = {"DocumentIncarnation": incarnation, "Events": [event] if status else []}
    return _line(machine, "GET", t, answer=json.dumps(document))


def approval(t: float, status: int | None = 200) -> dict[str, Any]:
    body = json.dumps({"StartRequests": [{"EventId": "E"}]})
    return _line("web_0", "POST", t, status=status, body=body)


def _line(machine: str, method: str, t: float, **more: Any) -> dict[str, Any]:
    times = {"asked": BEGIN + t - 0.01, "t": BEGIN + t}
    return {"machine": machine, "method": method, "status": 200, "trouble": "late", **times, **more}


def found(
    *lines: dict[str, Any],
    impacts: tuple[float, ...] = (11.0,),
    finished: bool = True,
    approved: bool = True,
    absences: tuple[Absence, ...] = (),
) -> list[str]:
    """The first words of what is found. Impacts take a second."""
    books = Books({"web_0": "h1", "web_1": "h1"}, raised=[Raised("E", "web_0")])
    books.absences = list(absences)
    for line in lines:
        books.enter(line)
    books.impacts = [{"event": "E", "t": BEGIN + t, "machines": ["web_0"]} for t in impacts]
    books.ends = {"E": BEGIN + impacts[-1] + 1} if impacts else {}
    books.finished = {"E"} if finished else set()
    books.approved = {"E"} if approved else set()
    return [finding.partition(":")[0] for finding in books.findings()]


WELL = (poll(0, 1), poll(1, 2, "Scheduled"), poll(11.5, 3, "Started"), poll(13, 4))


def test_a_proper_course_has_no_findings() -> None:
    assert found(*WELL) == []
    assert found(WELL[0], WELL[1], approval(2), *WELL[2:], impacts=(11.0,)) == []


def test_an_event_without_an_impact_or_an_end_is_found_as_lost() -> None:
    assert found(*WELL, finished=False) == ["lost"]
    assert found(*WELL, impacts=()) == ["lost"]


def test_an_answered_approval_that_is_not_known_is_found_as_lost() -> None:
    assert found(*WELL, approval(2), approved=False) == ["lost"]
    assert found(*WELL, approval(2, 500), approved=False) == []


def test_an_event_that_was_carried_out_twice_is_found() -> None:
    assert found(*WELL, impacts=(11.0, 11.2)) == ["twice"]


def test_an_unapproved_start_before_not_before_is_found_as_early() -> None:
    early = (*WELL[:2], poll(3.5, 3, "Started"), poll(13, 4))
    assert found(*early, impacts=(3.0,)) == ["early"]
    assert found(*early, approval(3.2), impacts=(3.0,)) == ["early"]
    assert found(*early, approval(2), impacts=(3.0,)) == []


def test_a_machine_that_is_not_shown_what_happens_to_it_is_uninformed() -> None:
    assert found(*WELL[:2], poll(11.5, 3), poll(13, 4)) == ["uninformed"]
    assert found(*WELL[:2], poll(10.9, 3), poll(12.1, 4)) == []  # before and after


def test_a_document_that_goes_back_is_found() -> None:
    assert found(*WELL, poll(14, 3, "Started")) == ["backwards"]


def test_two_documents_with_one_number_are_found() -> None:
    assert found(*WELL, poll(14, 4, "Started", machine="web_1")) == ["unlike"]


def test_a_poll_without_an_answer_is_found_unless_its_node_was_away() -> None:
    late = {**poll(5, 2), "status": None}
    assert found(*WELL, late) == ["refused"]
    assert found(*WELL, {**poll(5, 2), "status": 500}) == ["refused"]
    assert found(*WELL, late, absences=(Absence("h1", BEGIN + 4, BEGIN + 6),)) == []
    assert found(*WELL, late, absences=(Absence("h2", BEGIN + 4, BEGIN + 6),)) == ["refused"]
