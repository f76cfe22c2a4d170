"""A driver process: one call at a time for an event, control nodes that take over, and machines."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from forewarn.drivers import watching
from forewarn.drivers.hosts.messages import Verb
from forewarn.drivers.port import Done, Failed, Happened, Later, Seen, Unknown
from helpers.driver_processes import (
    Fleet,
    PretendingDriver,
    WatchingDriver,
    machine,
    play,
    seen,
    task,
)
from helpers.waiting import until_async

WEB_0 = task(machine("web_0", "h1"), fence=7)


def test_calls_for_different_events_are_made_at_once_but_not_too_many(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        driver = PretendingDriver()
        async with control.process("h1", driver=driver, at_once=2):
            driver.go.clear()
            tasks = [task(machine(f"web_{n}", "h1"), event=f"E{n}") for n in range(4)]
            calls = [control.tasks.start(control.driver.perform(t), "call") for t in tasks]
            await until_async(lambda: driver.at_work == 2)
            driver.go.set()
            assert await asyncio.gather(*calls) == [Done()] * 4
            assert driver.most_at_work == 2

    play(tmp_path, body)


def test_one_call_at_a_time_for_an_event_whoever_makes_it(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        async with control.process("h1") as driver:
            driver.go.clear()
            calls = [control.tasks.start(control.driver.perform(WEB_0), "call") for _ in range(3)]
            await until_async(lambda: driver.at_work)
            driver.go.set()
            assert await asyncio.gather(*calls) == [Done()] * 3
            assert driver.most_at_work == 1

    play(tmp_path, body)


def test_a_late_call_is_refused_by_the_process_and_by_the_next_one(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        late = task(machine("web_0", "h1"), fence=6)
        async with control.process("h1") as driver:
            await control.driver.observe(WEB_0)
            refused = await control.driver.perform(late)
            assert isinstance(refused, Failed)
            assert "has the fence number 6, and one with 7 came before it" in refused.why
            assert driver.performed() == []
        async with control.process("h1") as driver:
            assert isinstance(await control.driver.perform(late), Failed)
            assert driver.performed() == []
            assert await control.driver.perform(WEB_0) == Done()
            assert await control.driver.observe(late) == Happened()  # it changes nothing

    play(tmp_path, body)


def test_a_call_that_is_late_because_another_came_while_it_waited_is_refused(
    tmp_path: Path,
) -> None:
    async def body(control: Fleet) -> None:
        async with control.process("h1", at_once=1) as driver:
            driver.go.clear()
            first = control.tasks.start(control.driver.observe(WEB_0), "first")
            await until_async(lambda: driver.at_work)
            later = task(machine("web_0", "h1"), event="E2", fence=6)
            second = control.tasks.start(control.driver.perform(later), "second")
            driver.go.set()
            await first
            assert isinstance(await second, Failed)
            assert driver.performed() == []

    play(tmp_path, body)


def test_a_number_that_cannot_be_stored_keeps_the_driver_from_acting(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        async with control.process("h1") as driver:
            (tmp_path / "h1" / ".fences.new").mkdir()
            refused = await control.driver.perform(WEB_0)
            assert isinstance(refused, Failed)
            assert "cannot be stored" in refused.why
            assert isinstance(await control.driver.observe(WEB_0), Later)
            assert driver.calls == []

    play(tmp_path, body)


def test_a_process_works_for_the_control_node_that_takes_over(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        control.term = 3
        async with control.process("h1") as driver:
            before, of_before = control.driver, control.connections
            control.start_control()
            control.term = 4
            driver.go.clear()
            performing = control.tasks.start(before.perform(WEB_0), "performing")
            await until_async(lambda: driver.at_work)
            of_before.close()
            assert isinstance(await performing, Unknown)
            await until_async(lambda: control.connections.of("h1"))
            driver.go.set()
            assert await control.driver.observe(WEB_0) == Happened()
            process = control.processes["h1"]
            control.connections.close()
            control.term = 3  # the earlier one is not worked for any more
            control.start_control()
            await until_async(lambda: "there was 4 before" in process.problem)
            control.connections._term = lambda: 4
            await until_async(lambda: control.connections.of("h1"))
            assert driver.performed() == [("web_0",)]

    play(tmp_path, body)


def test_progress_is_reported_while_a_task_is_carried_out(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        driver = PretendingDriver()
        async with control.process("h1", driver=driver) as h1:
            process = control.processes["h1"]
            driver.go.clear()
            performing = control.tasks.start(control.driver.perform(WEB_0), "performing")
            await until_async(lambda: h1.at_work)
            assert process.may_act()
            process.report(WEB_0.event, "63 %")
            await until_async(lambda: control.progress == [(WEB_0.event, "63 %")])
            driver.go.set()
            await performing
            process.report(WEB_0.event, "100 %")
            assert (await control.driver.check(WEB_0)) is not None
            assert len(control.progress) == 1
            assert Verb.CHECK in [verb for verb, *_ in h1.calls]

    play(tmp_path, body)


def test_machines_are_reported_to_whoever_decides_and_again_to_the_next(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        reported: list[Seen] = []
        driver = WatchingDriver()
        async with control.process("h1", driver=driver):
            driver.reports.put_nowait(seen("web_1", "web_0"))
            await until_async(lambda: control.driver._seen)
            watching = control.tasks.start(control.driver.watch(reported.append), "watch")
            await until_async(lambda: reported == [seen("web_0", "web_1")])
            driver.reports.put_nowait(seen("web_0", "web_1"))  # nothing new
            driver.reports.put_nowait(seen("web_2", whole=False, removed=("web_1",)))
            await until_async(lambda: len(reported) > 1)
            assert reported[1:] == [seen("web_2", whole=False, removed=("web_1",))]
            control.cut_off = {"h1"}
            connection = control.connections.of("h1")
            assert connection
            control.connections.cut(connection, "by the test")
            assert not control.driver._seen
            driver.reports.put_nowait(seen("web_3", whole=False, removed=("web_0",)))
            await until_async(lambda: driver.reports.empty())
            control.cut_off = set()
            await until_async(lambda: len(reported) > 2)
            assert reported[2:] == [seen("web_2", "web_3", removed=("web_1", "web_0"))]
            watching.cancel()

    play(tmp_path, body)


def test_a_driver_whose_watch_raises_an_error_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "WATCHED_AGAIN", 0.0)

    async def body(control: Fleet) -> None:
        driver = WatchingDriver()
        async with control.process("h1", driver=driver):
            for given in (OSError("no hypervisor"), seen("web_0", host="h2"), seen("x" * 300)):
                watches = driver.watches
                driver.reports.put_nowait(given)
                await until_async(lambda: driver.watches > watches)  # noqa: B023
            assert not control.driver._seen
            driver.reports.put_nowait(seen("web_0"))
            await until_async(lambda: control.driver._seen == {"h1": seen("web_0")})
            assert control.connections.of("h1")

    with capture_logs() as logs:
        play(tmp_path, body)
    assert [entry["why"].partition(":")[0] for entry in logs if "raised" in entry["event"]] == [
        "OSError",
        "ValueError",
        "ValidationError",
    ]
