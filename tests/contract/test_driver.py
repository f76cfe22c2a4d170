"""What a driver promises, checked on the simulated one with both kinds of world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from forewarn.core import EventType, Source
from forewarn.core.time import MINUTE, SECOND
from forewarn.drivers.port import Again, Done, Happened, NotYet, Ok, Task, TaskMachine, Veto
from forewarn.drivers.simulated import KEPT_IMPACTS, FileWorld, Impact, Simulated, World

START = 1_800_000_000 * SECOND
REOPEN = Callable[[], World]


@pytest.fixture(params=["memory", "file"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> REOPEN:
    """The same world each time it is asked for, as after a crash."""
    if request.param == "memory":
        kept = World()
        return lambda: kept
    return lambda: FileWorld(tmp_path / "impacts")


def task(type: EventType = EventType.REBOOT, *, after: int = 0, attempt: int = 1) -> Task:
    return Task(
        event="E",
        group="web",
        type=type,
        source=Source.PLATFORM,
        machines=(TaskMachine("web_0", "a"),),
        hosts=("a", "b"),
        attempt=attempt,
        started_at=START,
        now=START + after,
    )


def driver(world: World) -> Simulated:
    return Simulated(world, lambda duration: duration)


@pytest.mark.parametrize(
    ("type", "lasts"),
    [
        (EventType.FREEZE, 5 * MINUTE),
        (EventType.REBOOT, 10 * MINUTE),
        (EventType.REDEPLOY, 10 * MINUTE),
        (EventType.PREEMPT, 30 * SECOND),
        (EventType.TERMINATE, 30 * SECOND),
    ],
)
def test_it_happens_at_once_and_is_done_when_its_time_has_passed(
    world: REOPEN, type: EventType, lasts: int
) -> None:
    async def body() -> None:
        here = world()
        assert await driver(here).perform(task(type)) == Again(START + lasts)
        impact = here.impact("E")
        assert impact is not None
        assert (impact.machines, impact.type) == (("web_0",), type.value)
        assert isinstance(await driver(here).perform(task(type, after=lasts, attempt=2)), Done)
        here.close()

    asyncio.run(body())


def test_asked_again_it_does_not_happen_again_not_even_after_a_crash(world: REOPEN) -> None:
    async def body() -> None:
        first = world()
        await driver(first).perform(task())
        first.close()
        second = world()
        await driver(second).perform(task(after=MINUTE, attempt=2))
        impact = second.impact("E")
        assert impact is not None
        assert impact.t == START / SECOND
        second.close()

    asyncio.run(body())


def test_it_knows_whether_it_happened(world: REOPEN) -> None:
    async def body() -> None:
        here = world()
        assert await driver(here).observe(task()) == NotYet()
        await driver(here).perform(task())
        assert await driver(here).observe(task(after=MINUTE)) == NotYet()
        assert await driver(here).observe(task(after=10 * MINUTE)) == Happened()
        here.close()

    asyncio.run(body())


def test_a_redeploy_moves_the_machine_to_another_host(world: REOPEN) -> None:
    async def body() -> None:
        here = world()
        await driver(here).perform(task(EventType.REDEPLOY))
        done = await driver(here).perform(task(EventType.REDEPLOY, after=10 * MINUTE))
        assert done == Done({"web_0": "b"})
        here.close()

    asyncio.run(body())


def test_it_would_not_carry_out_what_concerns_nobody(world: REOPEN) -> None:
    async def body() -> None:
        here = world()
        assert await driver(here).check(task()) == Ok()
        nobody = msgspec.structs.replace(task(), machines=())
        assert isinstance(await driver(here).check(nobody), Veto)
        here.close()

    asyncio.run(body())


def test_a_line_torn_by_a_crash_did_not_count(tmp_path: Path) -> None:
    path = tmp_path / "impacts"
    whole = FileWorld(path)
    whole.strike(Impact(1.0, "E1", "Reboot", ("web_0",)))
    whole.close()
    with path.open("ab") as file:
        file.write(b'{"kind":"impact","t":2.0,"event":"E2","ty')
    again = FileWorld(path)
    assert again.impact("E1") is not None
    assert again.impact("E2") is None
    again.strike(Impact(3.0, "E3", "Reboot", ("web_0",)))
    again.close()
    third = FileWorld(path)
    assert third.impact("E3") is not None
    third.close()


def test_the_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "impacts"
    line = msgspec.json.encode(Impact(1.0, "E", "Reboot", ("web_0",))) + b"\n"
    path.write_bytes(line * (KEPT_IMPACTS + 5))
    FileWorld(path).close()
    assert path.read_bytes().count(b"\n") == KEPT_IMPACTS
