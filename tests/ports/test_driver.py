"""What a driver promises, whichever it is: the simulated one with each kind of world, and an
operator's program that pretends likewise. What is particular to one comes at the end, or in a
file of its own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psycopg
import pytest

from forewarn.core import EventType
from forewarn.core.time import MINUTE, SECOND
from forewarn.drivers.command.driver import CommandDriver
from forewarn.drivers.command.options import Program
from forewarn.drivers.port import (
    Again,
    Done,
    Driver,
    Happened,
    Impact,
    NotYet,
)
from forewarn.drivers.simulated import (
    KEPT_IMPACTS,
    FileImpactJournal,
    ImpactJournal,
    LateCall,
    SharedImpactJournal,
    SimulatedDriver,
)
from forewarn.store.postgres import database
from forewarn.store.postgres.impacts import Impacts
from forewarn.testing.drivers import START, DriverContract, DriverPlace, task
from helpers import postgres
from helpers.paths import HELPERS

PRETENDING = HELPERS / "driver_program.py"


class Place(DriverPlace):
    """Where things happen to pretended machines, and a driver for it."""

    def __init__(self, kind: str, directory: Path) -> None:
        self._kind = kind
        self._file = directory / "impacts"
        self._world: ImpactJournal | None = None
        self._url = ""
        self._shared: list[Impacts] = []
        if kind == "postgres":
            postgres.needed()
            self._url = postgres.shared_server().new_state()
            database.prepare(self._url)

    def driver(self) -> Driver:
        """Another each time, with the same past: as after a crash."""
        if self._kind == "program":
            words = (sys.executable, str(PRETENDING), str(self._file))
            return CommandDriver(Program(words=words), self._file.with_name("papers"))
        if self._kind == "file" and self._world is not None:
            self._world.close()
        if self._kind == "postgres":
            self._shared.append(Impacts(self._url))  # another control node
            self._world = SharedImpactJournal(self._shared[-1])
        elif self._kind == "file":
            self._world = FileImpactJournal(self._file)
        elif self._world is None:
            self._world = ImpactJournal()
        return SimulatedDriver(self._world, lambda duration: duration)

    def impacts(self) -> int:
        if self._kind == "memory":
            return int(self._world is not None and self._world.impact(task().event) is not None)
        if self._kind == "postgres":
            with psycopg.connect(self._url) as connection:
                rows = connection.execute("SELECT 1 FROM impacts WHERE impact IS NOT NULL")
                return len(rows.fetchall())
        return len(self._file.read_text().splitlines()) if self._file.exists() else 0

    def close(self) -> None:
        for shared in self._shared:
            shared.close()
        if self._world is not None and not self._shared:
            self._world.close()


@pytest.fixture(params=["memory", "file", "postgres", "program"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    place = Place(request.param, tmp_path)
    yield place
    place.close()


class TestEveryDriver(DriverContract):
    """With the places above."""


@pytest.mark.parametrize(
    ("place", "type", "lasts"),
    [
        ("memory", EventType.FREEZE, 5 * MINUTE),
        ("memory", EventType.REBOOT, 10 * MINUTE),
        ("memory", EventType.REDEPLOY, 10 * MINUTE),
        ("memory", EventType.PREEMPT, 30 * SECOND),
        ("memory", EventType.TERMINATE, 30 * SECOND),
        ("file", EventType.REBOOT, 10 * MINUTE),
        ("postgres", EventType.REBOOT, 10 * MINUTE),
        ("program", EventType.REBOOT, 10 * MINUTE),
    ],
    indirect=["place"],
)
def test_an_event_has_its_impact_at_once_and_is_done_after_its_duration(
    place: Place, type: EventType, lasts: int
) -> None:
    async def body() -> None:
        driver = place.driver()
        begun = await driver.perform(task(type))
        assert isinstance(begun, Again)
        assert begun.at == START + lasts
        assert place.impacts() == 1
        assert isinstance(await driver.perform(task(type, after=lasts, attempt=2)), Done)
        assert place.impacts() == 1

    asyncio.run(body())


@pytest.mark.parametrize("place", ["memory", "file", "postgres"], indirect=True)
@pytest.mark.parametrize(
    ("type", "duration", "away"),
    [
        (EventType.FREEZE, -1, {"web_0": 5.0}),
        (EventType.REBOOT, -1, {"web_0": 9.0}),
        (EventType.REBOOT, 70, {"web_0": 70.0}),
        (EventType.REBOOT, 3600, {"web_0": 600.0}),  # it is back when the event is over
        (EventType.PREEMPT, 5, {}),  # for good
    ],
)
def test_simulated_machines_stand_still_for_as_long_as_their_event_says(
    place: Place, type: EventType, duration: int, away: dict[str, float]
) -> None:
    async def body() -> None:
        driver, begun = place.driver(), msgspec.structs.replace(task(type), duration=duration)
        await driver.perform(begun)
        over = msgspec.structs.replace(begun, now=begun.now + 10 * MINUTE)
        seen, done = await driver.observe(over), await driver.perform(over)
        assert isinstance(seen, Happened)
        assert isinstance(done, Done)
        assert done.away == seen.away == away

    asyncio.run(body())


def test_observe_knows_whether_a_task_was_carried_out(place: Place) -> None:
    async def body() -> None:
        driver = place.driver()
        assert await driver.observe(task()) == NotYet()
        assert place.impacts() == 0
        await driver.perform(task())
        assert await place.driver().observe(task(after=MINUTE)) == NotYet()
        assert isinstance(await driver.observe(task(after=10 * MINUTE)), Happened)
        assert place.impacts() == 1

    asyncio.run(body())


@pytest.mark.parametrize("place", ["memory", "file", "postgres"], indirect=True)
def test_simulated_machines_refuse_a_call_that_is_late(place: Place) -> None:
    async def body() -> None:
        driver = place.driver()
        assert await driver.observe(task(fence=7)) == NotYet()
        with pytest.raises(LateCall, match="number 6, and one with 7 came before"):
            await driver.perform(task(fence=6))
        assert place.impacts() == 0
        await driver.perform(task(fence=7))
        await driver.perform(task(fence=9))
        with pytest.raises(LateCall, match="one with 9"):
            await driver.observe(task(fence=8, after=10 * MINUTE))
        assert place.impacts() == 1

    asyncio.run(body())


def test_a_redeploy_moves_the_machine_to_another_host(place: Place) -> None:
    async def body() -> None:
        driver = place.driver()
        await driver.perform(task(EventType.REDEPLOY))
        over = task(EventType.REDEPLOY, after=10 * MINUTE)
        done, seen = await driver.perform(over), await driver.observe(over)
        assert isinstance(done, Done)
        assert isinstance(seen, Happened)
        assert done.moved == seen.moved == {"web_0": "b"}

    asyncio.run(body())


def test_a_world_remembers_what_was_done_to_whom_and_when_it_was_done_first(tmp_path: Path) -> None:
    async def body() -> None:
        for after, attempt in ((0, 1), (MINUTE, 2)):
            world = FileImpactJournal(tmp_path / "impacts")
            await SimulatedDriver(world, lambda duration: duration).perform(
                task(after=after, attempt=attempt)
            )
            impact = world.impact(task().event)
            assert impact is not None
            assert (impact.machines, impact.type) == (("web_0",), "Reboot")
            assert impact.t == START / SECOND
            world.close()

    asyncio.run(body())


def test_a_line_torn_by_a_crash_did_not_count(tmp_path: Path) -> None:
    path = tmp_path / "impacts"
    whole = FileImpactJournal(path)
    whole.add(Impact(1.0, "E1", "Reboot", ("web_0",)))
    whole.close()
    with path.open("ab") as file:
        file.write(b'{"kind":"impact","t":2.0,"event":"E2","ty')
    again = FileImpactJournal(path)
    assert again.impact("E1") is not None
    assert again.impact("E2") is None
    again.add(Impact(3.0, "E3", "Reboot", ("web_0",)))
    again.close()
    third = FileImpactJournal(path)
    assert third.impact("E3") is not None
    third.close()


def test_the_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "impacts"
    line = msgspec.json.encode(Impact(1.0, "E", "Reboot", ("web_0",))) + b"\n"
    path.write_bytes(line * (KEPT_IMPACTS + 5))
    FileImpactJournal(path).close()
    assert path.read_bytes().count(b"\n") == KEPT_IMPACTS
