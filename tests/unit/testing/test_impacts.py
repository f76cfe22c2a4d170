"""What happens to a machine happens to the program of the test, by callbacks."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest

from forewarn.drivers.port import (
    Checked,
    Done,
    Driver,
    Happened,
    Observed,
    Ok,
    Performed,
    Task,
)
from forewarn.testing import EventType, Impact, RefusedError, Service


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        service.scale_set("web", 3, spot=True, hosts=["rack-1"], update_domains=1)
        yield service


class Calls:
    """Remembers the callbacks as (machine, type, phase)."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.made: list[tuple[str, str, str]] = []
        self.times: list[float] = []

    def __call__(self, impact: Impact) -> None:
        self.made.append((impact.machine, impact.type, impact.phase))
        self.times.append(self._service.clock.now.timestamp())


class Worker:
    """A client in a thread that has jobs. It approves when it sees its event: drained or not."""

    def __init__(self, url: str, machine: str, *, drains: bool) -> None:
        self._url = f"{url}/metadata/scheduledevents?api-version=2020-07-01"
        self._machine = machine
        self._drains = drains
        self.jobs = 2
        self.starts = 0
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def start(self) -> None:
        self.starts += 1
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=[self._stop], daemon=True)
        self._thread.start()

    def kill(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def on_impact(self, impact: Impact) -> str | None:
        if impact.phase == "ends":
            self.start()
            return None
        jobs = self.jobs
        self.kill()
        return f"{jobs} jobs are running" if jobs else ""

    def _run(self, stop: threading.Event) -> None:
        approved: set[str] = set()
        while not stop.is_set():
            for event in json.loads(self._ask())["Events"]:
                if event["EventStatus"] != "Scheduled" or self._machine not in event["Resources"]:
                    continue
                if self._drains:
                    self.jobs = 0
                if event["EventId"] not in approved:
                    approved.add(event["EventId"])
                    self._ask({"StartRequests": [{"EventId": event["EventId"]}]})
            stop.wait(0.005)

    def _ask(self, body: Any = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        with urlopen(Request(self._url, data, {"Metadata": "true"})) as answer:
            content: bytes = answer.read()
        return content


def test_an_impact_begins_with_its_event_and_ends_when_the_machine_is_back(
    service: Service,
) -> None:
    calls = Calls(service)
    service.on_impact(calls)
    service.schedule("Reboot", "web_0", duration=9)
    service.clock.advance("14m59s")
    assert calls.made == []
    service.clock.advance("1s")
    assert calls.made == [("web_0", "Reboot", "begins")]
    service.clock.advance("1h")
    assert calls.made[1:] == [("web_0", "Reboot", "ends")]
    assert calls.times[1] - calls.times[0] == 9


def test_without_a_known_duration_a_machine_is_back_when_its_event_ends(
    service: Service,
) -> None:
    calls = Calls(service)
    service.on_impact(calls)
    event = service.restart("web_0")
    service.clock.advance("1h")
    assert calls.made == [("web_0", "Reboot", "begins"), ("web_0", "Reboot", "ends")]
    assert event.ended_at is not None
    assert calls.times[1] == event.ended_at.timestamp()


@pytest.mark.parametrize("type", ["Preempt", "Terminate"])
def test_a_machine_that_is_deleted_is_not_back(service: Service, type: EventType) -> None:
    calls = Calls(service)
    service.on_impact(calls)
    service.schedule(type, "web_0")
    service.clock.advance("1h")
    assert calls.made == [("web_0", type, "begins")]


def test_a_machine_is_back_when_an_operator_ends_its_event(service: Service) -> None:
    calls = Calls(service)
    service.on_impact(calls)
    event = service.restart("web_0")
    event.until_started()
    event.finish()
    service.clock.advance("1s")
    assert calls.made == [("web_0", "Reboot", "begins"), ("web_0", "Reboot", "ends")]
    service.clock.advance("1h")
    assert len(calls.made) == 2


def test_one_machine_has_callbacks_of_its_own(service: Service) -> None:
    own, every = Calls(service), Calls(service)
    service["web_1"].on_impact(own)
    service.on_impact(every)
    service.host("rack-1").maintain("Reboot")
    service.clock.advance("1h")
    assert own.made == [("web_1", "Reboot", "begins"), ("web_1", "Reboot", "ends")]
    assert sorted(every.made) == [
        (machine, "Reboot", phase)
        for machine in ("web_0", "web_1", "web_2")
        for phase in ("begins", "ends")
    ]


def test_without_callbacks_nothing_changes(service: Service) -> None:
    with_callbacks = Service()
    histories = []
    for each in (service, with_callbacks):
        if each is with_callbacks:
            each.__enter__()
            each.scale_set("web", 3, spot=True, hosts=["rack-1"], update_domains=1)
            each["web_2"].on_impact(lambda _: None)
        event = each.restart("web_0")
        each.clock.advance("1h")
        histories.append((event.status, event.started_at, event.ended_at))
    with_callbacks.__exit__(None, None, None)
    assert histories[0] == histories[1]


def test_a_client_that_approves_while_busy_is_reported() -> None:
    with Service() as service:
        web = service.scale_set("web", 2)
        worker = Worker(web[0].url, "web_0", drains=False)
        web[0].on_impact(worker.on_impact)
        worker.start()
        web[0].wait_for_poll()
        event = web[0].restart()
        service.clock.play("30m", timeout=30)
        worker.kill()
        [complaint] = service.verdict().by("approved-too-early")
    assert (complaint.machine, complaint.event) == ("web_0", event.id)
    assert ": 2 jobs are running;" in complaint.message
    assert complaint.severity == "wrong"
    assert worker.starts == 2


def test_a_client_that_drains_first_is_not_reported() -> None:
    with Service() as service:
        web = service.scale_set("web", 2)
        worker = Worker(web[0].url, "web_0", drains=True)
        web[0].on_impact(worker.on_impact)
        worker.start()
        web[0].wait_for_poll()
        first = web[0].restart()
        service.clock.play("30m", timeout=30)
        second = web[0].schedule("Reboot")
        service.clock.play("30m", timeout=30)
        worker.kill()
        verdict = service.verdict()
        assert (first.approved_by, second.approved_by) == ("web_0", "web_0")
    assert verdict.ok, str(verdict)
    assert worker.starts == 3


def test_a_machine_that_is_busy_at_not_before_has_not_approved_too_early(
    service: Service,
) -> None:
    service.document("web_0")
    service.on_impact(lambda _: "still draining")
    service.restart("web_0")
    service.clock.advance("1h")
    assert service.verdict().by("approved-too-early") == ()


def test_a_machine_that_approves_for_a_busy_machine_is_reported(service: Service) -> None:
    service.document("web_1")
    service["web_0"].on_impact(lambda _: "2 jobs")
    event = service.restart("web_0")
    service.approve("web_1", event)
    [complaint] = service.verdict().by("approved-too-early")
    assert complaint.machine == "web_1"
    assert re.search("web_0 .*busy .*: 2 jobs", complaint.message)


def test_an_approval_by_an_operator_is_not_held_against_clients(service: Service) -> None:
    service.document("web_0")
    service["web_0"].on_impact(lambda _: "2 jobs")
    service.restart("web_0").approve()
    assert service.verdict().by("approved-too-early") == ()


def test_a_failed_assertion_in_a_callback_names_the_impact(service: Service) -> None:
    @service.on_impact
    def check(impact: Impact) -> None:
        jobs = 2 if impact.phase == "begins" else 0
        assert not jobs, f"{jobs} jobs are running"

    service.document("web_0")
    event = service.restart("web_0")
    service.approve("web_0", event)
    service.clock.advance("1h")
    [complaint] = service.verdict().by("approved-too-early")
    assert "2 jobs are running" in complaint.message


def test_an_error_of_a_callback_reaches_the_test_and_the_event_goes_on(service: Service) -> None:
    def fail(impact: Impact) -> None:
        raise ValueError(f"cannot handle that {impact}")

    service.on_impact(fail)
    event = service.restart("web_0")
    words = f"the impact of Reboot {event.id[:8]} on web_0 begins"
    with pytest.raises(ValueError, match=words):
        service.clock.advance("20m")
    with pytest.raises(ValueError, match="ends"):
        service.clock.advance("20m")
    assert event.status == "Finished"


def test_an_error_of_a_callback_is_not_lost_when_the_service_stops() -> None:
    done = threading.Event()

    def fail(impact: Impact) -> None:
        done.set()
        raise ValueError("too late")

    def test() -> None:
        with Service() as service:
            service.scale_set("web", 1)
            service.on_impact(fail)
            service.approve("web_0", service.restart("web_0"))
            assert done.wait(60)

    with pytest.raises(ValueError, match="too late"):
        test()


def test_a_callback_may_use_the_service_but_not_its_clock(service: Service) -> None:
    statuses: list[str] = []
    refusals: list[str] = []

    @service.on_impact
    def look(impact: Impact) -> None:
        [event] = service.document("web_1")["Events"]
        statuses.append(event["EventStatus"])
        service.verdict()
        with pytest.raises(RefusedError) as refused:
            service.clock.advance("1s")
        refusals.append(str(refused.value))

    service.restart("web_0")
    service.clock.advance("1h")
    assert statuses == ["Started", "Started"]
    assert all("callback" in text for text in refusals)


def test_impacts_end_in_real_time() -> None:
    back = threading.Event()
    with Service(real_time=True, speed=1000.0) as service:
        web = service.scale_set("web", 1)
        web[0].on_impact(lambda impact: back.set() if impact.phase == "ends" else None)
        web[0].approve(web[0].schedule("Reboot", duration=30))
        assert back.wait(60)


class OtherDriver(Driver):
    repeatable = True

    async def check(self, task: Task) -> Checked:
        return Ok()

    async def observe(self, task: Task) -> Observed:
        return Happened()

    async def perform(self, task: Task) -> Performed:
        return Done()


def test_impacts_of_machines_that_are_not_simulated_are_refused() -> None:
    with Service(driver=OtherDriver()) as service, pytest.raises(RefusedError) as refused:
        service.on_impact(lambda _: None)
    assert "simulated machines" in str(refused.value)


def test_a_client_that_reports_ready_after_approving_approved_too_early(service: Service) -> None:
    web = service["web_0"]
    web.document()
    event = web.schedule("Reboot")
    service.schedule("Freeze", "web_1")
    web.approve(event)
    web.report_ready(event)
    [complaint] = service.verdict().by("approved-too-early")
    assert f"ready for Reboot {event.id[:8]}" in complaint.message


def test_a_client_that_reports_ready_before_approving_is_not_reported(service: Service) -> None:
    web = service["web_0"]
    web.document()
    event = web.schedule("Reboot")
    web.report_ready(event)
    web.approve(event)
    web.report_ready(event)
    assert service.verdict().by("approved-too-early") == ()


def test_readiness_of_another_machine_is_not_held_against_the_approver(service: Service) -> None:
    service.document("web_0")
    event = service.schedule("Reboot", "web_0", "web_1")
    service.approve("web_0", event)
    service["web_1"].report_ready(event)
    assert service.verdict().by("approved-too-early") == ()
