"""An event in a test's hands, and its course: to its start, while it is Started, to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from forewarn.drivers.port import Observed, Performed, Task, Unknown
from forewarn.drivers.simulated import ImpactJournal, SimulatedDriver
from forewarn.testing import Event, Group, RefusedError, Service


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        yield service


@pytest.fixture
def web(service: Service) -> Group:
    return service.scale_set("web", 3, update_domains=2)


def test_an_event_shows_its_current_state(service: Service, web: Group) -> None:
    event = web[0].restart()
    assert (event.status, event.over, event.started_at, event.approved_by) == (
        *("Scheduled", False),
        *(None, None),
    )
    assert "notice has not" in event.explain()
    service.clock.advance("15m")
    assert (event.status, event.started_at) == ("Started", event.not_before)
    service.clock.advance("10m")
    assert (event.status, event.over) == ("Finished", True)
    assert event.ended_at == service.clock.now
    assert event.explain().startswith("it is over")


def test_an_event_is_approved_by_an_operator_or_by_a_machine(service: Service, web: Group) -> None:
    first, second = web[0].restart(), service.machine("jumpbox").restart()
    assert first.approve().approved_by == "operator"
    with pytest.raises(RefusedError, match="machine 'web_1' was answered 400"):
        second.approve(by=web[1])
    assert second.approve(by="jumpbox").approved_by == "jumpbox"
    assert {first.status, second.status} == {"Started"}


def test_an_event_is_cancelled_before_it_starts_and_finished_after(web: Group) -> None:
    event = web[0].restart()
    assert event.cancel("not today").status == "Withdrawn"
    with pytest.raises(RefusedError, match="is over"):
        event.cancel()
    struck = web[0].fail()
    assert struck.finish("it was quick").status == "Finished"


def test_the_same_event_from_different_calls_is_equal(service: Service, web: Group) -> None:
    event = web[0].restart()
    assert web[0].restart() == event, "a second restart is the same event"
    assert {event, *web.events, *service.events} == {event}
    assert event != web[1].restart()
    assert str(event) == event.id
    assert repr(event) == f"<Reboot {event.id} of web_0: Scheduled>"
    with pytest.raises(AttributeError):
        event.domain  # type: ignore[attr-defined]  # noqa: B018


def test_during_an_event_it_is_started_and_afterwards_over(service: Service, web: Group) -> None:
    begun = service.clock.now
    with service.during(web[0].restart()) as event:
        assert service.clock.now == begun + timedelta(minutes=15)
        assert web[1].document()["Events"][0]["EventStatus"] == "Started"
    assert event.status == "Finished"
    assert web[1].document()["Events"] == []
    assert service.clock.now == begun + timedelta(minutes=25)


def test_during_with_approve_does_not_wait_for_not_before(service: Service, web: Group) -> None:
    begun = service.clock.now
    with service.during(web[0].restart(), approve=True) as event:
        assert (service.clock.now, event.approved_by) == (begun, "operator")
        with service.during(event):
            assert event.status == "Started", "which it was already"
    assert event.over


def test_a_failing_during_block_leaves_the_event_started(service: Service, web: Group) -> None:
    event = web[0].restart()
    with pytest.raises(ZeroDivisionError), service.during(event):
        1 / 0  # noqa: B018
    assert event.status == "Started"


def test_an_event_that_does_not_start_is_refused_with_what_holds_it(
    service: Service, web: Group
) -> None:
    blocking, waiting = web[0].freeze(), web[1].freeze()
    blocking.approve()
    with (
        pytest.raises(RefusedError, match=r"does not start: .*domain 0"),
        service.during(waiting, approve=True),
    ):
        pytest.fail("it cannot have started")
    blocking.until_over()
    assert waiting.status == "Started", "it was approved, and now nothing holds it"


def test_an_event_that_is_over_cannot_be_started(service: Service, web: Group) -> None:
    event = web[0].restart().cancel()
    with pytest.raises(RefusedError, match="it is over"):
        event.until_started()
    event.until_over()


CONSOLE = "the console is dark"


class Stubborn(SimulatedDriver):
    """Never knows whether it is done."""

    repeatable = False

    async def perform(self, task: Task) -> Performed:
        return Unknown(CONSOLE)

    async def observe(self, task: Task) -> Observed:
        return Unknown(CONSOLE)


def test_an_event_that_does_not_end_is_refused_with_what_it_waits_for() -> None:
    with Service(driver=Stubborn(ImpactJournal(), lambda length: length)) as service:
        event = service.machine("jumpbox").restart()
        with (
            pytest.raises(RefusedError, match=f"does not end: .*{CONSOLE}"),
            service.during(event),
        ):
            assert event.status == "Started"
        assert event.finish("it is done").over


def test_during_without_an_event_is_refused(service: Service) -> None:
    with pytest.raises(RefusedError, match="no event given"):
        service.during()


def test_during_in_real_time_is_refused() -> None:
    with Service(real_time=True) as service:
        event = service.machine("jumpbox").restart()
        with pytest.raises(RefusedError, match="real"), service.during(event):
            pytest.fail("nobody waited fifteen minutes")


def test_an_async_test_awaits_the_same_verbs() -> None:
    async def story() -> Event:
        async with Service() as service:
            web = await service.to_thread(service.scale_set, "web", 2)
            event = web[0].restart()
            async with service.during(event):
                assert event.status == "Started"
            assert await service.to_thread(web[1].document) == {
                "DocumentIncarnation": 4,
                "Events": [],
            }
            return event

    assert asyncio.run(story()).type == "Reboot"
