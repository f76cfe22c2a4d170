"""A clock in a test's hands: how far it goes, what it refuses, and that it may run by itself."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from forewarn.service.engine.ledger import Hung
from forewarn.testing import SAMPLE, Clock, EventStatus, RefusedError, Service
from helpers.paths import ROOT
from helpers.polling_threads import Client, guest
from helpers.times import START
from helpers.waiting import until

CLOCK_PAGE = ROOT / "docs" / "test" / "clock.md"


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(SAMPLE) as made:
        yield made


@pytest.mark.parametrize("wind", [Clock.advance, Clock.play])
@pytest.mark.parametrize("by", ["15m", 900, 900.0, "PT15M", timedelta(minutes=15)])
def test_advance_moves_the_clock_by_the_duration(
    service: Service, wind: Callable[[Clock, str | float | timedelta], bool], by: str
) -> None:
    begun = service.clock.now
    assert begun.timestamp() == START / 1e6
    assert wind(service.clock, by) is True
    assert service.clock.now - begun == timedelta(minutes=15)
    wind(service.clock, "1ms")
    assert service.clock.now - begun == timedelta(minutes=15, milliseconds=1)
    wind(service.clock, 1e-5)
    assert service.clock.now - begun == timedelta(minutes=15, microseconds=1_010)


@pytest.mark.parametrize("wind", [Clock.advance, Clock.play])
def test_advance_stops_when_its_condition_is_met(
    service: Service, wind: Callable[..., bool]
) -> None:
    event = service.schedule("Reboot", "web_0")
    assert wind(service.clock, "1h", until=lambda: event.status == "Started")
    assert service.document("web_0")["Events"][0]["EventStatus"] == "Started"
    assert service.clock.now.timestamp() == event._record.not_before / 1e6
    assert wind(service.clock, "1h", until=lambda: service.document("web_0")["Events"] == [])
    begun = service.clock.now
    assert wind(service.clock, "1h", until=lambda: True)
    assert service.clock.now == begun
    assert not wind(service.clock, "1h", until=lambda: False)
    assert service.clock.now - begun == timedelta(hours=1)


@pytest.mark.parametrize(
    ("by", "says"),
    [
        ("soon", "'soon'.*90s, 15m, 1h30m"),
        (-1, "'-1'"),
        (timedelta(seconds=-1), "negative: -1 day, 23:59:59"),
    ],
)
def test_an_invalid_duration_is_refused_and_moves_nothing(
    service: Service, by: str, says: str
) -> None:
    begun = service.clock.now
    for verb in (service.clock.advance, service.clock.play, service.clock.interrupt):
        with pytest.raises(RefusedError, match=says):
            verb(by)
    assert service.clock.now == begun


def test_the_clock_does_not_move_beyond_the_last_date(service: Service) -> None:
    for verb in (service.clock.advance, service.clock.play, service.clock.interrupt):
        with pytest.raises(RefusedError, match="beyond the year 9000"):
            verb(timedelta(days=366 * 7_000))


def test_a_clock_in_real_time_cannot_be_moved() -> None:
    with Service(SAMPLE, real_time=True) as service:
        clock = service.clock
        assert service.document("web_0")["Events"] == []
        for verb in (
            lambda: clock.advance("1s"),
            lambda: clock.play("1s"),
            lambda: clock.interrupt("1s"),
            clock.resume,
            clock.pause,
            clock.patch,
            lambda: clock.speed,
        ):
            with pytest.raises(RefusedError, match="in real time"):
                verb()


def test_a_running_clock_shows_every_stage_to_clients_that_poll(service: Service) -> None:
    with Client(service, "web_0") as client:
        service.schedule("Reboot", "web_0")
        service.clock.resume(speed=36_000)
        assert service.clock.speed == 36_000
        until(lambda: len(client.statuses) == 4)
        service.clock.pause()
        assert client.statuses == [[], ["Scheduled"], ["Started"], []]
    assert service.clock.speed == 0


def test_a_clock_that_is_paused_stands_still(service: Service) -> None:
    begun = service.clock.now
    service.clock.pause()  # which it does already
    service.clock.resume(speed=1_000)
    service.clock.resume(speed=2_000)
    assert service.clock.speed == 2_000
    until(lambda: service.clock.now > begun)
    service.clock.pause()
    stood = service.clock.now
    service.clock.advance("1s")
    assert service.clock.now == stood + timedelta(seconds=1)


def test_pausing_does_not_wait_for_a_silent_client(service: Service) -> None:
    guest(service, "web_0")
    service.schedule("Reboot", "web_0")
    service.clock.resume(speed=1_000)
    virtual_time = service._session.node.virtual_time
    assert virtual_time is not None
    until(lambda: bool(virtual_time.catch_up._behind))
    begun = service.clock.now
    service.clock.pause()
    assert service.clock.now == begun
    service.clock.advance("15m")  # it is anybody's turn again
    assert service.document("web_0")["Events"][0]["EventStatus"] == "Started"


def test_a_running_clock_can_be_advanced(service: Service) -> None:
    begun = service.clock.now
    service.clock.resume(speed=100)
    service.clock.advance("1h")
    assert service.clock.now - begun >= timedelta(hours=1)
    assert service.clock.speed == 100


@pytest.mark.parametrize("speed", [0, -1, 86_401, float("inf"), float("nan")])
def test_an_invalid_speed_is_refused(service: Service, speed: float) -> None:
    service.clock.resume(speed=2)
    with pytest.raises(RefusedError, match="must be above 0 and at most 86400, not"):
        service.clock.resume(speed=speed)
    assert service.clock.speed == 2


HUNG = "nothing was done for 30 s: driver (1)"


def test_a_clock_that_cannot_go_on_says_why(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(*_: object) -> None:
        raise Hung(HUNG)

    with capture_logs() as lines, monkeypatch.context() as broken:
        broken.setattr(service._session.node.ledger, "idle", hangs)
        service.clock.resume()
        until(lambda: service.clock.speed == 0)
    assert [(line["log_level"], line["why"]) for line in lines] == [("error", HUNG)]


def test_a_service_stops_while_its_clock_runs() -> None:
    with Service(SAMPLE) as service:
        service.clock.resume(speed=60)
        virtual_time = service._session.node.virtual_time
    assert virtual_time is not None
    assert virtual_time.speed == 0


def test_a_client_in_the_event_loop_of_the_test_sees_every_stage() -> None:
    statuses: list[list[EventStatus]] = []
    done = asyncio.Event()

    async def client(service: Service) -> None:
        while not done.is_set():
            document = await service.to_thread(service.document, "web_0")
            found = [event["EventStatus"] for event in document["Events"]]
            if statuses[-1:] != [found]:
                statuses.append(found)

    async def test() -> None:
        async with Service(SAMPLE) as service:
            await service.to_thread(service.document, "web_0")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(client(service))
                while not statuses:
                    await service.to_thread(service._session.settle)
                service.schedule("Reboot", "web_0")
                await service.to_thread(service.clock.play, "25m")
                done.set()

    asyncio.run(test())
    assert statuses == [[], ["Scheduled"], ["Started"], []]


SNIPPETS = re.findall(r"```python\n(.*?)```", CLOCK_PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("code", SNIPPETS, ids=range(len(SNIPPETS)))
def test_the_tests_of_the_page_pass(code: str) -> None:
    names: dict[str, Any] = {}
    exec(code, names)
    (test,) = (value for name, value in names.items() if name.startswith("test_"))
    test()
