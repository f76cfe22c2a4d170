"""A client that acts on what it sees, while the clock is played: nothing is passed over."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from forewarn.testing import Group, RefusedError, Service
from forewarn.testing.kit.inprocess import exchange
from forewarn.wire.extensions import WAIT
from forewarn.wire.requests import write_approval
from helpers.counted_timeout import counted_timeout
from helpers.polling_threads import PATIENCE, Client, beside, guest
from helpers.waiting import until


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with counted_timeout(monkeypatch):
        yield


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as made:
        yield made


@pytest.fixture
def web(service: Service) -> Group:
    return service.scale_set("web", 3)


def test_play_stops_at_its_condition_if_a_client_brings_it_about(
    service: Service, web: Group
) -> None:
    event = web[0].restart()
    begun = service.clock.now
    with Client(service, "web_0", act=Client.approve) as client:
        assert service.clock.play("1h", until=lambda: event.status == "Started")
        assert (event.status, service.clock.now) == ("Started", begun)
        assert client.statuses[-1] == ["Started"]


def test_during_finds_the_event_started_if_a_client_approves_it_early(
    service: Service, web: Group
) -> None:
    event = web[0].restart()
    with Client(service, "web_0", act=Client.approve) as client:
        with service.during(event, play=True):
            assert event.status == "Started"
            assert client.statuses[-1] == ["Started"]
        assert event.over
        assert client.statuses[-1] == []


def test_a_correct_threaded_client_has_a_clean_verdict(service: Service, web: Group) -> None:
    event = web[0].restart()
    with Client(service, "web_0", act=Client.approve):
        service.clock.play("25m")
    course = service.verdict().check().course("web_0", event)
    assert course.statuses == ("Scheduled", "Started")
    assert (course.approved_by, course.started_by, course.in_time) == ("web_0", "approval", True)


def test_a_faulty_threaded_client_is_reported(service: Service, web: Group) -> None:
    with Client(service, "web_0", act=Client.approve):
        event = web[0].freeze()
        service.clock.play("25m")
    [complaint] = service.verdict().about(event).complaints
    assert (complaint.rule, complaint.machine) == ("approved-freeze", "web_0")


def test_a_long_polling_client_that_approves_late_is_in_time(service: Service, web: Group) -> None:
    """Being shown it was all that it was waited for once; it still had to do something."""
    enough = threading.Event()
    thought = threading.Event()

    def client() -> None:
        tag = '"none"'
        while not enough.is_set():
            target = f"{WAIT}?api-version=2020-07-01&timeout={PATIENCE:g}s"
            headers = {"Metadata": "true", "If-None-Match": tag}
            asked = web[0].address
            answer = service._session.run(
                exchange(service._session.node.app, asked, "GET", target, headers)
            )
            tag = answer.headers["etag"]
            for event in answer.json()["Events"]:
                if event["EventStatus"] == "Scheduled" and not enough.is_set():
                    thought.wait(0.1)
                    body = write_approval([event["EventId"]])
                    guest(service, "web_0", method="POST", body=body)

    guest(service, "web_0")
    with beside(client) as failed:
        until(lambda: service._session.node.endpoint.extensions.waits_now("web_0"))
        event = web[0].restart()
        service.clock.play("25m")
        enough.set()
        web[1].freeze()
    assert failed == []
    assert event.approved_by == "web_0"
    assert event.started_at is not None
    assert event.started_at < event.not_before


def test_play_does_not_block_the_event_loop_of_its_client(service: Service, web: Group) -> None:
    event = web[0].restart()

    async def test() -> None:
        with pytest.raises(RefusedError, match=r"use 'async with', or 'await service\.to_thread"):
            service.clock.play("5m")
        with pytest.raises(RefusedError, match="use 'async with'"):
            service.during(event, play=True).__enter__()
        async with service.during(event, play=True):
            assert event.status == "Started"

    asyncio.run(test())
    assert event.over


@pytest.mark.parametrize("real_time", [False, True])
def test_wait_for_poll_waits_for_the_first_poll_of_a_new_client(real_time: bool) -> None:
    with Service(real_time=real_time) as service:
        web = service.scale_set("web", 2)
        if not real_time:
            web[0].document()  # which is the test's own
        with pytest.raises(RefusedError, match="'web_0' within 0 s"):
            web[0].wait_for_poll(timeout=0)
        with beside(lambda: guest(service, "web_0")) as failed:
            assert web[0].wait_for_poll() is web[0]
        assert failed == []
        web[0].wait_for_poll(timeout=0)


def test_waiting_for_a_client_inside_an_event_loop_is_refused(service: Service) -> None:
    scenario = service.load_scenario("user-reboot")
    machine = scenario.machine

    async def test() -> None:
        for wait in (machine.wait_for_poll, scenario.play):
            with pytest.raises(RefusedError, match=r"event loop.*to_thread"):
                wait()
        client = asyncio.to_thread(guest, service, machine.name)
        _, found = await asyncio.gather(client, service.to_thread(machine.wait_for_poll))
        assert found is machine
        assert machine.wait_for_poll() is machine

    asyncio.run(test())


def test_during_refuses_events_that_are_never_started_together(
    service: Service, web: Group
) -> None:
    soon, late = web[0].restart(), web[1].schedule("Reboot", notice="2h")
    with (
        pytest.raises(RefusedError, match=f"{soon.id} was over.*{late.id}"),
        service.during(soon, late),
    ):
        pytest.fail("one of them is over")


def test_events_that_start_together_are_all_started(service: Service, web: Group) -> None:
    one, other = web[0].restart(), web[1].restart()
    with service.during(one, other):
        assert (one.status, other.status) == ("Started", "Started")
    assert one.over
    assert other.over
