"""A client that stops polling is found, however the clock is moved, and one that polls is not."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Any
from urllib.request import Request, urlopen

import pytest

from forewarn.service.engine.catch_up import REPEATED_POLLS, CatchUp
from forewarn.support import guard
from forewarn.testing import Event, Group, Service
from forewarn.wire.requests import EVENTS_PATH
from helpers.counted_timeout import counted_timeout
from helpers.polling_threads import Client, beside, guest
from helpers.waiting import LIMIT, until

FAST = 20_000.0  # times as fast as real time: a restart takes a tenth of a second
METADATA = {"Metadata": "true"}
SHORT = 0.2  # real seconds for which a client is waited for that is known to have ended


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


class Died(Exception):
    """What a client fails with."""


def dies_at(status: str) -> Callable[[Client, Any], None]:
    """A client that approves, and whose thread ends when it is shown an event like this."""

    def act(client: Client, document: Any) -> None:
        for event in document["Events"]:
            if event["EventStatus"] == status:
                client.stop()
            elif event["EventStatus"] == "Scheduled" and client.machine in event["Resources"]:
                client.approve({"Events": [event]})

    return act


def parses_every_time(client: Client, document: Any) -> None:
    """The mistake that started it all: NotBefore of a Started event is empty."""
    client.approve(document)
    for event in document["Events"]:
        try:
            datetime.strptime(event["NotBefore"], "%a, %d %b %Y %H:%M:%S GMT")  # noqa: DTZ007
        except ValueError:
            client.stop()


def found(service: Service, timeout: float = SHORT) -> list[str]:
    return [complaint.rule for complaint in service.verdict(timeout=timeout).wrong]


def test_a_thread_that_died_of_an_empty_not_before_is_found(service: Service, web: Group) -> None:
    with Client(service, "web_0", act=parses_every_time) as client:
        web[0].wait_for_poll()
        web[0].restart()
        client.join()  # it has approved, and been shown the Started event
        service.clock.play("1h", timeout=SHORT)
        [complaint] = service.verdict(timeout=SHORT).wrong
    assert (complaint.rule, complaint.machine) == ("stopped-polling", "web_0")
    assert re.search(r"2027-01-15 08:00:00Z .* 0\.2 s .*start it again", complaint.message)


@pytest.mark.parametrize("move", ["play", "until_over", "during", "advance"])
def test_a_client_that_ends_is_found_however_the_clock_is_moved(
    service: Service, web: Group, move: str
) -> None:
    """It is the event of another machine, so that nothing excuses it."""
    with Client(service, "web_0", act=dies_at("Started")), Client(service, "web_1") as other:
        web[0].wait_for_poll()
        event = web[1].schedule("Freeze")
        move_on(service, event, move, SHORT, lambda: other.polls(2))
        assert found(service) == ["stopped-polling"]


@pytest.mark.parametrize("move", ["play", "until_over", "during", "advance"])
def test_a_client_that_polls_is_not_accused_however_the_clock_is_moved(
    service: Service, web: Group, move: str
) -> None:
    with Client(service, "web_0") as one, Client(service, "web_1"):
        event = web[0].freeze()
        move_on(service, event, move, 60, lambda: one.polls(2))
        verdict = service.verdict().check()
    assert verdict.course("web_0", event).in_time


@pytest.mark.parametrize("dies_before", [0, 1, None])
def test_a_client_that_ends_is_found_in_real_time(dies_before: int | None) -> None:
    """Also if only its second event comes when it has ended, and so soon after the first one that a
    machine need not poll again yet."""
    with Service(real_time=True, speed=FAST) as service:
        web = service.scale_set("web", 3)
        with Client(service, "web_0", act=Client.approve) as client:
            web[0].wait_for_poll()
            for n in range(2):
                if n == dies_before:
                    client.stop()
                    client.join()
                event = web[0].restart()
                until(lambda event=event: event.over)  # type: ignore[misc]
            timeout = SHORT if dies_before is not None else LIMIT
            rules = found(service, timeout)
    assert rules == ([] if dies_before is None else ["stopped-polling"])


def test_a_client_that_ends_is_found_in_a_scenario_in_real_time() -> None:
    with Service(real_time=True, speed=FAST) as service:
        scenario = service.load_scenario("live-migration")
        with Client(service, "web_0", act=lambda client, _: client.stop()):
            result = scenario.play(timeout=SHORT)
    assert [complaint.rule for complaint in result.verdict.wrong] == ["stopped-polling"]
    assert not result.ok


def test_the_test_that_sends_requests_of_its_own_has_not_stopped_in_real_time() -> None:
    with Service(real_time=True, speed=FAST) as service:
        web = service.scale_set("web", 3)
        for _ in range(2 * REPEATED_POLLS):
            service.document("web_0")
            with urlopen(
                Request(f"{web[0].url}{EVENTS_PATH}?api-version=2020-07-01", headers=METADATA)
            ) as answer:
                answer.read()
        event = web[1].restart()
        until(lambda: event.over)
        assert found(service) == []


def move_on(
    service: Service, event: Event, move: str, timeout: float, poll: Callable[[], object]
) -> None:
    match move:
        case "play":
            service.clock.play("1h", timeout=timeout)
        case "until_over":
            event.until_started(timeout=timeout)
            event.until_over(timeout=timeout)
        case "during":
            with service.during(event, timeout=timeout):
                assert event.status == "Started"
        case "advance":
            poll()
            service.clock.advance("15m")
            poll()
            service.clock.advance("1h")


def test_a_client_that_died_before_the_announcement_is_found_with_what_it_missed(
    service: Service, web: Group
) -> None:
    with Client(service, "web_0", act=dies_at("Scheduled")):
        other = web[1].restart()
        service.clock.play(0, timeout=SHORT)
        missed = web[0].restart()
        service.clock.play("1h", timeout=SHORT)
        verdict = service.verdict(timeout=SHORT)
    [complaint] = verdict.about(missed).wrong
    assert complaint.rule == "stopped-polling"
    assert "not seen Reboot" in complaint.message
    assert verdict.about(other).ok


def test_a_client_that_died_is_found_although_the_thread_that_plays_has_its_number(
    service: Service, web: Group
) -> None:
    target = f"{web[0].url}/metadata/scheduledevents?api-version=2020-07-01"

    def poll_and_die() -> None:
        with urlopen(Request(target, headers={"Metadata": "true"})) as answer:
            assert answer.status == 200

    with beside(poll_and_die):
        web[0].wait_for_poll()
    event = web[0].restart()
    with beside(lambda: service.clock.play("1h", timeout=SHORT)) as failed:
        pass
    assert failed == []
    assert event.over
    assert found(service) == ["stopped-polling"]


def test_a_slow_client_is_waited_for_and_not_accused(service: Service, web: Group) -> None:
    with Client(service, "web_0", pause=0.3) as client:
        web[0].wait_for_poll()
        web[1].freeze()
        service.verdict().check()
        assert client.statuses[-1] == ["Scheduled"]


def test_a_client_that_polls_again_after_it_was_given_up_is_not_accused(
    service: Service, web: Group
) -> None:
    held = threading.Event()

    def think(client: Client, document: Any) -> None:
        if document["Events"]:
            held.wait(60)

    with Client(service, "web_0", act=think) as client:
        web[0].wait_for_poll()
        web[1].freeze()
        service.clock.play("1m", timeout=SHORT)
        assert found(service) == ["stopped-polling"]
        held.set()
        client.polls(2)
        verdict = service.verdict(timeout=60)
    assert verdict.ok
    assert [note.rule for note in verdict.notes] == ["slow-poll"]


def test_the_test_that_sends_requests_of_its_own_is_not_a_client_that_stopped(
    service: Service, web: Group
) -> None:
    guest(service, "web_0")
    event = web[0].restart()
    guest(service, "web_0")
    service.clock.play(0, timeout=SHORT)
    service.approve("web_0", event)
    guest(service, "web_0")
    event.until_over(timeout=SHORT)
    service.verdict().check()
    service.document("web_0")
    event = web[0].freeze()
    service.document("web_0")
    event.until_over(timeout=SHORT)
    service.verdict().check()


def test_a_caller_that_polled_once_is_not_accused(service: Service, web: Group) -> None:
    with beside(lambda: service.document("web_1")):
        pass
    event = web[0].freeze()
    service.clock.play("1h", timeout=SHORT)
    service.verdict(timeout=SHORT).check()
    assert event.over


def test_a_machine_that_is_gone_need_not_poll(service: Service) -> None:
    spot = service.scale_set("spot", 2, spot=True)
    with Client(service, "spot_0", act=dies_at("Started")):
        spot[0].evict()
        service.clock.play("1h", timeout=SHORT)
        service.verdict(timeout=SHORT).check()


def test_a_machine_under_its_own_event_need_not_poll_until_that_is_over(
    service: Service, web: Group
) -> None:
    with Client(service, "web_0", act=dies_at("Started")):
        event = web[0].restart()
        service.clock.play(0, timeout=SHORT)
        assert event.status == "Started"
        service.verdict(timeout=SHORT).check()
    event.until_over(play=False)
    with Client(service, "web_0"):  # as a machine that has come back
        service.verdict().check()


def test_a_client_that_does_not_come_back_after_its_event_is_found(
    service: Service, web: Group
) -> None:
    with Client(service, "web_0", act=dies_at("Started")):
        event = web[0].restart()
        service.clock.play(0, timeout=SHORT)
        event.until_over(play=False)
        [complaint] = service.verdict(timeout=SHORT).wrong
    assert complaint.rule == "stopped-polling"
    assert "start it again" in complaint.message


def test_a_client_that_dies_of_an_error_is_found(service: Service, web: Group) -> None:
    died = threading.Event()

    def serve(client: Client) -> None:
        while not died.is_set():
            if guest(service, "web_0").status != 200:
                died.set()
            died.wait(0.005)

    with Client(service, "web_1") as other, beside(lambda: serve(other)):
        web[0].wait_for_poll()
        service.clock.play(0)
        service.faults.add("error", machine="web_0", times=1)
        assert died.wait(60)
        web[1].freeze()
        service.clock.play("1m", timeout=SHORT)
        [complaint] = service.verdict(timeout=SHORT).wrong
    assert (complaint.rule, complaint.machine) == ("gave-up", "web_0")
    assert "fault 'error'" in complaint.message


def test_advance_in_an_event_loop_does_not_wait_and_missed_events_are_reported(
    service: Service, web: Group
) -> None:
    event = web[0].freeze()

    async def client(polled: asyncio.Event, stop: asyncio.Event, stopped: asyncio.Event) -> None:
        while not stop.is_set():
            await asyncio.to_thread(guest, service, "web_0")
            polled.set()
            await guard.pause(0.005)
        stopped.set()

    async def test() -> None:
        polled, stop, stopped = asyncio.Event(), asyncio.Event(), asyncio.Event()
        tasks = guard.Tasks(lambda *_: None)
        tasks.start(client(polled, stop, stopped), "client")
        await polled.wait()
        later = await service.to_thread(web[0].freeze)
        await service.to_thread(event.until_over)
        await service.to_thread(later.until_over)
        assert (await service.to_thread(service.verdict)).ok
        await service.to_thread(service.clock.play, "1h")
        stop.set()
        await stopped.wait()  # a loop that is blocked polls no more than one that has ended
        await tasks.end()
        web[0].freeze().until_over()
        assert [one.rule for one in service.verdict().wrong] == ["clock-passed"]

    asyncio.run(test())


def test_a_client_called_step_by_step_is_not_waited_for(
    service: Service, web: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its requests come over a socket, and yet they are the test's own."""
    waits: list[bool] = []
    monkeypatch.setattr(CatchUp, "caught_up", _recorded(waits, CatchUp.caught_up))
    request = Request(
        f"{web[0].url}/metadata/scheduledevents?api-version=2020-07-01",
        headers={"Metadata": "true"},
    )

    def poll() -> None:
        with urlopen(request) as answer:
            assert answer.status == 200

    poll()
    event = web[0].freeze()
    poll()
    waits.clear()
    with service.during(event):
        poll()
    poll()
    service.verdict().check()
    assert waits
    assert not any(waits)


def _recorded(
    waits: list[bool], caught_up: Callable[..., Awaitable[bool]]
) -> Callable[..., Awaitable[bool]]:
    async def recorded(*args: Any, **kwargs: Any) -> bool:
        waits.append(await caught_up(*args, **kwargs))
        return waits[-1]

    return recorded
