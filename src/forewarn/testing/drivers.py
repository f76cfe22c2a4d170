"""What every driver promises, as tests that a package with a driver can run.

from forewarn.testing.drivers import DriverContract, DriverPlace

class TestRackDriver(DriverContract):
    @pytest.fixture
    def place(self, tmp_path):
        return RackPlace(tmp_path)
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

import msgspec

from forewarn.core import EventType, Source
from forewarn.core.time import SECOND, Duration
from forewarn.drivers.port import (
    Again,
    Done,
    Driver,
    Happened,
    NotYet,
    Ok,
    Performed,
    Running,
    Task,
    TaskMachine,
    Veto,
)

__all__ = ["DriverContract", "DriverPlace", "task"]

START = 1_800_000_000 * SECOND
CALLS = 1_000  # of `perform`, after which a task that is not done is given up


class DriverPlace(ABC):
    """Where a driver under test acts: pretended or real machines, which outlive a driver."""

    @abstractmethod
    def driver(self) -> Driver:
        """Return another driver each time, for the same machines: as after a crash of the service,
        which closes nothing."""

    @abstractmethod
    def impacts(self) -> int:
        """Return how often machines were disturbed so far."""

    async def pass_time(self, duration: Duration) -> None:  # noqa: B027 - most pretend
        """Wait until the driver is asked again, if what it does takes real time. The time of the
        task advances in any case."""


def task(
    type: EventType = EventType.REBOOT, *, after: int = 0, attempt: int = 1, fence: int = 0
) -> Task:
    """Return a task for machine `web_0` on host `a`, with `b` as its target, that has started
    `after` microseconds ago."""
    return Task(
        event="4C0A5A60-0000-4000-8000-000000000001",
        group="web",
        type=type,
        source=Source.PLATFORM,
        machines=(TaskMachine("web_0", "a", target="b"),),
        known_hosts=frozenset("ab"),
        attempt=attempt,
        fence=fence or attempt,
        started_at=START,
        now=START + after,
    )


async def _carry_out(place: DriverPlace, driver: Driver, task: Task) -> tuple[Done, Task]:
    """Call `perform` as the service does until the task is done. Return the last answer, and the
    task as it was then."""
    for _ in range(CALLS):
        performed: Performed = await driver.perform(task)
        match performed:
            case Done():
                return performed, task
            case Running(after=after):
                number, pause = task.attempt, max(after, 0)
            case Again(at=at):
                number, pause = task.attempt + 1, max(at - task.now, 0)
            case _:
                raise AssertionError(f"perform answered {performed}")
        await place.pass_time(pause)
        now = task.now + pause
        task = msgspec.structs.replace(task, now=now, attempt=number, fence=number)
    raise AssertionError(f"the task was not done after {CALLS} calls of perform")


class DriverContract:
    """Tests of a driver. A subclass, whose name begins with `Test`, has a pytest fixture `place`
    that returns a DriverPlace."""

    def test_a_task_is_carried_out_once(self, place: DriverPlace) -> None:
        """It is carried out when it is performed, and not when it is checked or observed."""

        async def body(driver: Driver) -> None:
            assert await driver.check(task()) == Ok()
            assert isinstance(await driver.observe(task()), NotYet)
            assert place.impacts() == 0
            await _carry_out(place, driver, task())
            assert place.impacts() == 1

        _opened(place, body)

    def test_a_driver_knows_after_a_crash_what_was_carried_out(self, place: DriverPlace) -> None:
        """Another driver, after the service was killed, sees what the first one has done."""

        async def body(driver: Driver) -> None:
            _, over = await _carry_out(place, driver, task())
            another = place.driver()
            await another.open()
            assert isinstance(await another.observe(over), Happened)
            assert place.impacts() == 1
            await another.aclose()

        _opened(place, body)

    def test_a_repeated_task_disturbs_nothing_a_second_time(self, place: DriverPlace) -> None:
        """The service calls `perform` again after an attempt that was not yet done."""

        async def body(driver: Driver) -> None:
            _, over = await _carry_out(place, driver, task())
            another = place.driver()
            await another.open()
            again = msgspec.structs.replace(over, attempt=over.attempt + 1, fence=over.fence + 1)
            await _carry_out(place, another, again)
            assert place.impacts() == 1
            await another.aclose()

        _opened(place, body)

    def test_a_machine_moves_to_its_target_or_the_driver_says_where_it_is(
        self, place: DriverPlace
    ) -> None:
        """A Redeploy reports known hosts only, and `observe` reports the same as `perform`."""

        async def body(driver: Driver) -> None:
            done, over = await _carry_out(place, driver, task(EventType.REDEPLOY))
            assert set(done.moved) <= {"web_0"}
            assert set(done.moved.values()) <= over.known_hosts
            seen = await driver.observe(over)
            assert isinstance(seen, Happened)
            assert seen.moved == done.moved

        _opened(place, body)

    def test_a_task_without_machines_is_refused(self, place: DriverPlace) -> None:
        """There is nothing to carry out when all machines of an event are gone."""

        async def body(driver: Driver) -> None:
            nobody = msgspec.structs.replace(task(), machines=())
            assert isinstance(await driver.check(nobody), Veto)
            assert place.impacts() == 0

        _opened(place, body)

    def test_a_driver_that_was_never_opened_can_be_closed(self, place: DriverPlace) -> None:
        """A control node that ends without ever having decided opens no driver."""
        asyncio.run(place.driver().aclose())
        assert place.impacts() == 0


def _opened(place: DriverPlace, body: Callable[[Driver], Awaitable[None]]) -> None:
    async def run() -> None:
        driver = place.driver()
        await driver.open()
        try:
            await body(driver)
        finally:
            await driver.aclose()

    asyncio.run(run())
