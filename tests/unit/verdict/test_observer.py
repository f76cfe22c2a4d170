"""No line is too strange to be heard, and no life too long to be remembered."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.traces import exchanges
from forewarn.verdict import clients, complaints, documents, observed
from forewarn.verdict.observer import Observer
from helpers.examples import examples
from helpers.verdict_model import World, rules

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
KINDS = ("exchange", "event", "fleet", "approval", "impact", "disabled", "up", "step", "new")
KEYS = (
    *("machine", "from", "method", "target", "headers", "status", "answer", "body", "fault"),
    *("answer_headers", "asked", "real", "real_asked", "event", "move", "group", "machines"),
    *("not_before", "seconds", "listed", "type", "source", "by", "body_base64"),
)
LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "method": st.sampled_from(["GET", "POST", "PUT", "X"]),
    "target": st.sampled_from(
        [
            "/metadata/scheduledevents?api-version=2020-07-01",
            "/forewarn/v1/ready/A",
            "/",
            "?",
            "a%FF",
        ]
    ),
    "headers": st.just([["Metadata", "true"]]),
    "machine": st.sampled_from(["a", "b", ""]),
    "status": st.sampled_from([200, 304, 400, 429, None]),
    "event": st.sampled_from(["A", "B"]),
    "answer": st.builds(lambda x: json.dumps({"Events": [x]}), anything),
    "body": st.builds(lambda x: json.dumps({"StartRequests": [x]}), anything),
    "move": st.sampled_from(["raise", "list", "start", "finish", "withdraw", "strike"]),
}


@st.composite
def lines(draw: st.DrawFn) -> dict[str, Any]:
    line: dict[str, Any] = {
        "kind": draw(st.sampled_from(KINDS)),
        "t": draw(st.floats() | st.just(5)),
    }
    for key in draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=16)):
        line[key] = draw(LIKELY.get(key, anything) | anything)
    return line


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(lines(), max_size=8))
def test_any_lines_give_a_verdict(output: list[dict[str, Any]]) -> None:
    observer = Observer()
    for line in output:
        observer.add(line)
    verdict = observer.verdict()
    assert str(verdict)
    assert repr(verdict)


def test_memory_for_hostile_requests_is_bounded() -> None:
    world = World()
    for n in range(300):
        world.ask(
            "web_0",
            "GET",
            target=f"/metadata/scheduledevents?api-version={'9' * 500}{n}",
            headers=(("Metadata", "true"), ("User-Agent", "x" * 10_000)),
            status=400,
        )
        world.ask(
            "web_0",
            "POST",
            body=json.dumps({"StartRequests": [{"EventId": f"{n}" + "\x1b" * 500}]}),
            status=400,
        )
    verdict = world.verdict()
    conduct = verdict.conduct("web_0")
    assert len(conduct.versions) <= clients.MAX_VERSIONS + 1
    assert len(conduct.headers["user-agent"]) < 100
    assert len(verdict.by("unknown-approval")) == complaints.MAX_COMPLAINTS
    dropped = 300 - complaints.MAX_COMPLAINTS
    assert any(remark.startswith(f"{dropped} more complaints") for remark in verdict.remarks)
    assert "\x1b" not in str(verdict)


def test_a_too_large_body_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchanges, "MAX_BODY", 100)
    world = World()
    world.raise_("Reboot", "web_0")
    world.poll(answer=world.document() + " " * 1_000)
    assert world.verdict().courses[0].seen is None
    assert rules(world.verdict()) == set()


def test_the_oldest_finished_events_are_forgotten_first_with_a_remark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observed, "MAX_COURSES", 10)
    world = World()
    standing = world.raise_("Reboot", "web_0", notice=1_000_000)
    for _ in range(50):
        world.raise_("Freeze", "web_1", notice=1)
        world.wait(1)
        world.wait(60)
    verdict = world.verdict()
    assert len(verdict.courses) <= 10
    assert verdict.course("web_0", standing).over is None
    [remark] = verdict.remarks
    assert re.match("41 courses .* 10 ", remark)


def test_courses_of_affected_machines_replace_those_of_onlookers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observed, "MAX_COURSES", 10)
    world = World()
    events = [world.raise_("Reboot", "web_0") for _ in range(4)]
    world.poll("web_1")
    world.poll("web_2")
    last = world.raise_("Preempt", "web_1")
    verdict = world.verdict()
    assert sum(not one.concerned for one in verdict.courses) == 5
    assert all(verdict.course("web_0", event).concerned for event in events)
    assert verdict.course("web_1", last).concerned


def test_an_approval_by_a_machine_beyond_the_limit_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(observed, "MAX_COURSES", 1)
    world = World()
    event = world.raise_("Reboot", "web_0")
    world.approve("web_1", event)
    (course,) = world.verdict().courses
    assert (course.machine, course.approved_by) == ("web_0", "web_1")


def test_events_beyond_the_limit_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed, "MAX_EVENTS", 5)
    world = World()
    for _ in range(50):
        world.raise_("Reboot", "web_0")
    assert len(world.verdict().courses) == 5


def test_requests_of_machines_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed, "MAX_CLIENTS", 3)
    world = World()
    for n in range(10):
        world.poll(f"m{n}")
    verdict = world.verdict()
    assert len(verdict.conducts) == 3
    [remark] = verdict.remarks
    assert re.match("7 requests .* 3 machines", remark)


def test_a_hundred_documents_are_not_all_remembered() -> None:
    seen = documents.Documents()
    for n in range(documents.MAX_REMEMBERED * 2):
        assert seen.of("2020-07-01", b'{"Events":[],"n":%d}' % n, f'"{n}"') is not None
    assert len(seen._by_body) == len(seen._by_tag) == documents.MAX_REMEMBERED
    assert seen.unchanged("2020-07-01", '"0"') is None


def test_unknown_callers_are_counted_and_machines_identified_by_address() -> None:
    world = World()
    for address in ("10.0.0.1", "192.0.2.1"):
        output: dict[str, Any] = {"from": address}
        world.poll("", **output)
    verdict = world.verdict()
    assert [one.machine for one in verdict.conducts] == ["web_1"]
    [remark] = verdict.remarks
    assert re.match("1 request .*no machine", remark)


def test_forgetting_keeps_active_events_and_drops_complaints() -> None:
    world = World()
    over = world.raise_("Freeze", "web_0", notice=1)
    world.poll()
    world.wait(1)
    world.wait(60)
    standing = world.raise_("Reboot", "web_0")
    world.poll()
    world.ask("web_0", "GET", headers=(), status=400)
    assert not world.verdict().ok
    world.observer.forget()
    verdict = world.verdict()
    assert verdict.complaints == ()
    assert verdict.course("web_0", standing).statuses == ("Scheduled",)
    assert over not in verdict.events
    assert verdict.conduct("web_0").polls == 0
    world.poll()
    assert world.verdict().conduct("web_0").polls == 1
