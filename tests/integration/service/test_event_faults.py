"""Events that do not go as promised, on purpose, and what is told of them; and a run that is full
of faults, in which the service itself is accused of nothing."""

from __future__ import annotations

import http.client
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from forewarn.core import EventType
from forewarn.core.history import Record
from forewarn.drivers.port import Checked, Task, Veto
from forewarn.drivers.simulated import ImpactJournal, SimulatedDriver
from forewarn.judge import judge, judge_files
from forewarn.service.platform.platform import Outcome
from forewarn.service.upkeep.history import HistoryPage
from forewarn.store.port import HistoryQuery
from forewarn.testing import DocumentEvent, FaultKind, RefusedError, Service
from forewarn.testing.kit.events import Event
from forewarn.wire.requests import write_approval


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        service.hosts("h1")
        service.scale_set("web", 3, spot=False, terminate_notice="5m")
        service.scale_set("spot", 2, spot=True)
        service.machine("jump", hosts=["h1"])
        service.machine("lamp", hosts=["h1"])
        for machine in ("web_0", "spot_0", "jump", "lamp"):
            service.document(machine)
        yield service


def shown(service: Service, event: Event, machine: str = "web_0") -> DocumentEvent | None:
    events = service.document(machine)["Events"]
    return next((one for one in events if one["EventId"] == event.id), None)


def seconds_of_notice(service: Service, event: Event) -> float:
    return (event.not_before - service.clock.now).total_seconds()


def recorded(service: Service, event: Event) -> list[Record]:
    page = service._session.run(service._session.node.history.page(HistoryQuery(event=event.id)))
    assert isinstance(page, HistoryPage)
    return list(page.records)


def test_an_event_appears_as_started_without_having_been_scheduled(service: Service) -> None:
    fault = service.faults.add("sudden", machine="web_0", times=1)
    other = service.schedule("Reboot", "web_1")
    assert (other.status, fault.matches) == ("Scheduled", 0)
    event = service.schedule("Reboot", "web_0", description="a short circuit")
    seen = shown(service, event)
    assert seen is not None
    assert (seen["EventStatus"], seen["NotBefore"]) == ("Started", "")
    assert seen["Description"] == "a short circuit"
    assert (fault.consumed, fault.by_machine) == (1, {"web_0": 1})
    assert recorded(service, event)[0].by == f"test (fault {fault.id})"
    assert service.schedule("Freeze", "web_0").status == "Scheduled", "the next is in order"


@pytest.mark.parametrize("verb", ["restart", "redeploy", "evict", "delete", "freeze"])
def test_a_sudden_event_is_started_at_once_whatever_raises_it(service: Service, verb: str) -> None:
    machine = service["spot_0" if verb == "evict" else "web_0"]
    service.faults.add("sudden", times=1)
    event = getattr(machine, verb)()
    seen = shown(service, event, machine.name)
    assert seen is not None
    assert seen["EventStatus"] == "Started"
    event.until_over()
    assert shown(service, event, "spot_1" if verb == "evict" else "web_1") is None


def test_an_event_vanishes_once_it_was_seen(service: Service) -> None:
    fault = service.faults.add("vanish", group="web", times=1)
    event = service.restart("web_0")
    service.clock.advance("5m")
    assert event.status == "Scheduled", "nobody has seen it yet"
    seen = shown(service, event, "web_2")
    assert seen is not None
    assert seen["EventStatus"] == "Scheduled"
    assert shown(service, event, "web_1") is None
    assert event.status == "Withdrawn"
    assert recorded(service, event)[-1].by == f"fault {fault.id}"
    again = service.restart("web_0")
    assert shown(service, again) is not None
    assert shown(service, again) is not None, "it was one that was to vanish"


def test_an_event_in_a_spoiled_document_was_not_seen_and_stays(service: Service) -> None:
    service.faults.add("vanish", times=1)
    event = service.restart("web_0")
    service.faults.add("empty", machine="web_0", times=1)
    assert service.get("web_0").body == b""
    assert event.status == "Scheduled"
    service.get("web_0")
    assert event.status == "Withdrawn"


def test_an_event_vanishes_after_some_time(service: Service) -> None:
    service.faults.add("vanish", seconds=90, times=1)
    event = service.restart("web_0")
    assert shown(service, event) is not None
    service.clock.advance("89s")
    assert shown(service, event) is not None
    service.clock.advance("1s")
    assert shown(service, event) is None
    assert event.status == "Withdrawn"


def test_an_event_that_has_started_does_not_vanish(service: Service) -> None:
    service.faults.add("vanish", seconds=90, times=1)
    event = service.restart("web_0")
    event.approve("web_1")
    service.clock.advance("90s")
    assert event.status == "Started"


def test_an_event_first_seen_as_started_does_not_vanish(service: Service) -> None:
    service.faults.add("vanish", times=1)
    event = service["web_0"].restart()
    event.approve()
    assert service.get("web_0").json()["Events"][0]["EventStatus"] == "Started"
    assert service.get("web_0").json()["Events"][0]["EventId"] == event.id


def test_a_fault_that_is_cleared_lets_nothing_vanish_any_more(service: Service) -> None:
    timed = service.faults.add("vanish", seconds=60, times=1)
    first = service.restart("web_0")
    timed.clear()
    seen = service.faults.add("vanish", times=1)
    second = service.restart("web_1")
    seen.clear()
    service.document("web_0")
    service.clock.advance("1m")
    assert (first.status, second.status) == ("Scheduled", "Scheduled")


def test_a_whole_maintenance_vanishes_together(service: Service) -> None:
    service.faults.add("vanish", machine="jump", times=1)
    events = service.host("h1").maintain()
    assert len(events) == 2
    service.document("lamp")
    assert {event.status for event in events} == {"Scheduled"}
    service.document("jump")
    assert {event.status for event in events} == {"Withdrawn"}


def test_joint_events_are_neither_sudden_nor_of_short_notice(service: Service) -> None:
    faults = [service.faults.add(kind) for kind in ("sudden", "short-notice")]
    events = service.host("h1").maintain()
    assert {event.status for event in events} == {"Scheduled"}
    assert {seconds_of_notice(service, event) for event in events} == {900}
    assert [fault.matches for fault in faults] == [0, 0]


@pytest.mark.parametrize("verb", ["restart", "redeploy", "evict", "delete", "freeze"])
def test_the_notice_is_much_shorter_than_promised(service: Service, verb: str) -> None:
    machine = service["spot_0" if verb == "evict" else "web_0"]
    fault = service.faults.add("short-notice", times=1)
    event = getattr(machine, verb)()
    assert (event.status, seconds_of_notice(service, event)) == ("Scheduled", 5)
    assert event.source == ("User" if verb in ("restart", "redeploy") else "Platform")
    assert fault.consumed == 1
    service.clock.advance("4s")
    assert event.status == "Scheduled"
    service.clock.advance("1s")
    assert event.status == "Started"


def test_the_notice_is_as_short_as_the_fault_says(service: Service) -> None:
    service.faults.add("short-notice", seconds=0, times=1)
    assert service.restart("web_0").status == "Started"
    service.faults.add("short-notice", seconds=45, times=1)
    assert seconds_of_notice(service, service.restart("web_1")) == 45


def test_an_event_that_starts_at_once_consumes_no_short_notice(service: Service) -> None:
    service.disable("web")
    fault = service.faults.add("short-notice")
    assert service.restart("web_0").status == "Started", "nobody listens"
    assert fault.matches == 0


def test_the_outcome_of_an_event_notes_the_fault_that_changed_it(service: Service) -> None:
    fault = service.faults.add("sudden")
    done = service._session.run(
        service._session.node.platform.user_maintenance("web_0", EventType.REBOOT, "test")
    )
    assert isinstance(done, Outcome)
    assert f"fault {fault.id} (sudden): " in done.notes[0]


class Unwilling(SimulatedDriver):
    """Does not carry out what it is asked for."""

    def __init__(self) -> None:
        super().__init__(ImpactJournal(), lambda duration: duration)

    async def check(self, task: Task) -> Checked:
        return Veto("no Sunday")


def test_a_refused_event_consumes_no_fault() -> None:
    with Service(driver=Unwilling()) as service:
        service.scale_set("web", 1)
        service.document("web_0")
        fault = service.faults.add("short-notice", times=1)
        with pytest.raises(RefusedError, match="no Sunday"):
            service.restart("web_0")
        assert (fault.consumed, fault.left, fault.by_machine) == (0, 1, {})


def test_a_fault_can_meet_every_second_event(service: Service) -> None:
    fault = service.faults.add("short-notice", skip=1, times=1, group="web")
    events = [service.schedule("Freeze", f"web_{n}") for n in range(3)]
    assert [seconds_of_notice(service, event) for event in events] == [900, 5, 900]
    assert (fault.matches, fault.consumed) == (2, 1)


# What is told of it.


def test_a_vanishing_event_is_shown_before_it_is_withdrawn_in_the_trace(service: Service) -> None:
    lines: list[dict[str, Any]] = []
    assert service._session.node.trace is not None
    service._session.node.trace.add_sink(lines.append)
    service.faults.add("vanish", times=1)
    service.restart("web_0")
    service.get("web_0")
    reported = [
        line.get("move", line["kind"]) for line in lines if line["kind"] in ("event", "exchange")
    ]
    assert reported == ["raise", "exchange", "withdraw"]


def test_the_trace_has_the_bytes_on_the_wire_and_the_fault(
    service: Service,
) -> None:
    lines: list[dict[str, Any]] = []
    assert service._session.node.trace is not None
    service._session.node.trace.add_sink(lines.append)
    marks: list[FaultKind] = ["gone", "plain", "truncated", "reset"]
    for kind in marks:
        service.faults.add(kind, machine="web_0", times=1)
    service.faults.add("slow", machine="web_0", seconds=0, times=1)
    for _ in range(6):
        with suppress(ConnectionResetError, http.client.IncompleteRead):
            service.get("web_0")
    exchanges = [line for line in lines if line["kind"] == "exchange"]
    assert [line.get("fault") for line in exchanges] == [*marks, None, None]
    gone, plain, truncated, reset, slow, whole = exchanges
    assert (gone["status"], plain["answer"]) == (410, whole["answer"])
    assert whole["answer"].startswith(truncated["answer"])
    assert len(truncated["answer"]) == len(whole["answer"]) // 2
    assert (reset["status"], reset["answer"]) == (None, "")
    assert (slow["status"], slow["answer"]) == (200, whole["answer"])


def test_the_judge_ignores_injected_faults(tmp_path: Path) -> None:
    """Three clients that poll and approve for hours on the worst of days."""
    trace = tmp_path / "trace.jsonl"
    dice = random.Random(5)
    with Service(record=trace) as service:
        web = service.scale_set("web", 3, terminate_notice="5m")
        for kind in ("throttled", "gone", "error", "empty", "no-events", "plain", "truncated"):
            service.faults.add(kind, probability=0.05)
        service.faults.add("control-characters", probability=0.1)
        service.faults.add("reset", probability=0.05)
        service.faults.add("stalled", probability=0.05)
        service.faults.add("error", method="POST", probability=0.3, takes_effect=True)
        service.faults.add("incarnation", probability=0.02)
        service.faults.add("slow", seconds=0, probability=0.05)
        kinds: tuple[FaultKind, ...] = ("sudden", "vanish", "short-notice")
        for kind in kinds:
            service.faults.add(kind, probability=0.25)
        for _ in range(250):
            if dice.random() < 0.1:
                with suppress(RefusedError):
                    getattr(dice.choice(web), dice.choice(["restart", "redeploy", "freeze"]))()
            _poll(service, dice.choice(web.names), dice)
            service.clock.advance(dice.choice([1, 5, 60]))
        met = {fault.kind for fault in service.faults if fault.consumed}
        assert len(met) >= 13, met
    judgement = judge_files([trace])
    assert judgement.findings == ()


def _poll(service: Service, machine: str, dice: random.Random) -> None:
    with suppress(ConnectionResetError, http.client.IncompleteRead, TimeoutError, ValueError):
        for event in service.get(machine).json().get("Events", []):
            if event["EventStatus"] == "Scheduled" and dice.random() < 0.3:
                service.post(machine, write_approval([event["EventId"]]))


def test_the_judge_reports_a_fault_that_is_not_marked(service: Service) -> None:
    """The test above could fail."""
    lines: list[dict[str, Any]] = []
    assert service._session.node.trace is not None
    service._session.node.trace.add_sink(lines.append)
    service._session.node.trace.fleet(
        service._session.node.store, service._session.node.writer.now().at
    )
    service.faults.add("no-events", machine="web_0", times=1)
    service.get("web_0")
    assert judge(lines).findings == ()
    for line in lines:
        line.pop("fault", None)
    assert "not-a-document" in {finding.rule for finding in judge(lines).findings}
