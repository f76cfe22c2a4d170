"""Which driver process is asked about what, and what the answers of several mean."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from forewarn.core import EventType
from forewarn.core.time import MINUTE
from forewarn.drivers.hosts.driver import WAIT
from forewarn.drivers.hosts.messages import Verb
from forewarn.drivers.port import (
    Again,
    Done,
    Failed,
    Happened,
    Later,
    NotYet,
    Ok,
    Part,
    Running,
    Unknown,
    Veto,
)
from helpers.driver_processes import EVENT, START, Fleet, machine, play, task
from helpers.waiting import until_async

BOTH = task(machine("web_0", "h1"), machine("web_1", "h2"))
MOVE = task(machine("web_0", "h1", "h2"), type=EventType.REDEPLOY)
AFTER_FAILURE = task(machine("web_0", "h1", "h2", failed=True), type=EventType.REDEPLOY)


def test_a_task_goes_to_the_process_of_the_host_that_it_is_about(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        async with control.process("h1") as h1, control.process("h2") as h2:
            asked = task(machine("web_0", "h1"), fence=7)
            assert await control.driver.check(asked) == Ok()
            assert await control.driver.observe(asked) == NotYet()
            assert await control.driver.perform(asked) == Done()
            assert await control.driver.observe(asked) == Happened()
            verbs = (Verb.CHECK, Verb.OBSERVE, Verb.PERFORM, Verb.OBSERVE)
            assert h1.calls == [(verb, ("web_0",), 7) for verb in verbs]
            assert h2.calls == []

    play(tmp_path, body)


def test_a_task_on_several_hosts_is_done_when_all_parts_are(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        async with control.process("h1") as h1, control.process("h2") as h2:
            h2.answers[Verb.PERFORM] = Running(MINUTE, "half")
            assert await control.driver.perform(BOTH) == Running(MINUTE, "half")
            assert await control.driver.observe(BOTH) == NotYet()
            del h2.answers[Verb.PERFORM]
            assert await control.driver.perform(BOTH) == Done()
            assert h1.performed() == [("web_0",)]  # once
            assert h2.performed() == [("web_1",)] * 2
            assert await control.driver.observe(BOTH) == Happened()

    play(tmp_path, body)


def test_one_process_of_several_hosts_gets_their_machines_in_one_task(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        async with control.process("h1", "h2") as both, control.process("h3") as h3:
            three = task(*BOTH.machines, machine("web_2", "h3"))
            assert await control.driver.perform(three) == Done()
            assert both.performed() == [("web_0", "web_1")]
            assert h3.performed() == [("web_2",)]

    play(tmp_path, body)


def test_a_part_has_only_what_concerns_its_machines(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        async with control.process("h1") as h1, control.process("h2"):
            seen = []
            asked = h1.perform

            async def perform(part):  # type: ignore[no-untyped-def]
                seen.append(part)
                return await asked(part)

            h1.perform = perform  # type: ignore[method-assign]
            parts = (Part("A", "web", ("web_0", "web_1")), Part("B", "db", ("web_1",)))
            labels = {"h1": {"rack": "7"}, "h2": {"rack": "8"}}
            whole = msgspec.structs.replace(BOTH, parts=parts, host_labels=labels)
            await control.driver.perform(whole)
            (part,) = seen
            assert part.parts == (Part("A", "web", ("web_0",)),)
            assert part.host_labels == {"h1": {"rack": "7"}}
            assert part.known_hosts == {"h1"}

    play(tmp_path, body)


@pytest.mark.parametrize(
    ("of_h2", "expected"),
    [
        (Failed("no", unsuitable=()), Failed("no")),
        (Unknown("who knows"), Unknown("who knows")),
        (Again(START + MINUTE), Again(START + MINUTE)),
    ],
)
def test_what_is_left_of_a_task_decides_about_it(
    tmp_path: Path, of_h2: Failed | Unknown | Again, expected: object
) -> None:
    async def body(control: Fleet) -> None:
        async with control.process("h1") as h1, control.process("h2") as h2:
            h2.answers[Verb.PERFORM] = of_h2
            assert await control.driver.perform(BOTH) == expected
            assert await control.driver.perform(BOTH) == expected
            assert h1.performed() == [("web_0",)]

    play(tmp_path, body)


def test_a_move_is_asked_for_at_its_source_and_seen_at_its_target(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        async with control.process("h1") as h1, control.process("h2") as h2:
            h1.answers[Verb.OBSERVE] = NotYet()  # it is not there any more
            assert await control.driver.observe(MOVE) == NotYet()
            assert await control.driver.perform(MOVE) == Done({"web_0": "h2"})
            assert h2.performed() == []
            h2.done = h1.done  # it is there now
            assert await control.driver.observe(MOVE) == Happened({"web_0": "h2"})
            h2.answers[Verb.OBSERVE] = Unknown("it runs twice")
            assert await control.driver.observe(MOVE) == Unknown("it runs twice")

    play(tmp_path, body)


def test_what_a_failed_host_cannot_do_is_asked_of_the_target(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        async with control.process("h2") as h2:
            assert await control.driver.observe(AFTER_FAILURE) == NotYet()
            assert await control.driver.perform(AFTER_FAILURE) == Done({"web_0": "h2"})
            assert await control.driver.observe(AFTER_FAILURE) == Happened({"web_0": "h2"})
            assert h2.performed() == [("web_0",)]

    play(tmp_path, body)


def test_work_on_an_empty_host_goes_to_its_process(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        async with control.process("h1") as h1, control.process("h2"):
            work = task(work=True, host="h1")
            assert await control.driver.check(work) == Ok()
            assert await control.driver.perform(work) == Done()
            assert h1.performed() == [()]

    play(tmp_path, body)


def test_nothing_is_announced_for_a_host_without_a_driver_process(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        async with control.process("h1"):
            veto = Veto("the driver process of host 'h2' is not connected")
            assert await control.driver.check(BOTH) == veto
            nowhere = await control.driver.check(task(machine("web_0", "")))
            assert isinstance(nowhere, Veto)
            assert "no host is known of web_0" in nowhere.why

    play(tmp_path, body)


def test_a_started_event_waits_for_the_process_and_goes_on_when_it_is_there(
    tmp_path: Path,
) -> None:
    async def body(control: Fleet) -> None:
        async with control.process("h1") as h1:
            absent = "the driver process of host 'h2' is not connected"
            assert await control.driver.observe(BOTH) == Later(None, absent)
            assert await control.driver.perform(BOTH) == Running(WAIT, absent)
            assert control.woken == []
            async with control.process("h2") as h2:
                assert control.woken == [EVENT]
                assert await control.driver.perform(BOTH) == Done()
                assert h1.performed() == [("web_0",)]
                assert h2.performed() == [("web_1",)]

    play(tmp_path, body)


def test_what_was_under_way_on_a_lost_connection_is_observed_on_the_next(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        async with control.process("h1") as h1:
            asked = task(machine("web_0", "h1"))
            h1.go.clear()
            performing = control.tasks.start(control.driver.perform(asked), "performing")
            await until_async(lambda: h1.at_work)
            connection = control.connections.of("h1")
            assert connection is not None
            connection.stream.cut()
            lost = await performing
            assert isinstance(lost, Unknown)
            assert "the connection to the driver process of host h1 was lost" in lost.why
            await until_async(lambda: control.connections.of("h1") not in (None, connection))
            observing = control.tasks.start(control.driver.observe(asked), "observing")
            await asyncio.wait([observing], timeout=0.05)  # it has its turn when that has ended
            assert len(h1.calls) == 1
            h1.go.set()
            assert await observing == Happened()
            assert h1.performed() == [("web_0",)]

    play(tmp_path, body)


def test_what_a_repeatable_driver_does_not_know_counts_as_not_done(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        async with control.process("h1") as h1:
            h1.answers[Verb.OBSERVE] = Unknown("no record")
            assert isinstance(await control.driver.observe(BOTH), Later)  # of h2
            alone = task(machine("web_0", "h1"))
            assert await control.driver.observe(alone) == Unknown("no record")
        h1.repeatable = True
        async with control.process("h1", driver=h1):
            assert await control.driver.observe(alone) == NotYet()

    play(tmp_path, body)


def test_an_error_of_the_driver_is_what_it_would_be_at_control(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        async with control.process("h1") as h1:
            asked = task(machine("web_0", "h1"))
            for verb in Verb:
                h1.answers[verb] = ValueError("no such thing")
            why = "the driver of host h1: ValueError: no such thing"
            assert await control.driver.check(asked) == Veto(f"the check on host h1 failed: {why}")
            assert await control.driver.perform(asked) == Unknown(why)
            assert await control.driver.observe(asked) == Later(None, why)
            h1.answers[Verb.PERFORM] = Ok()
            wrong = await control.driver.perform(asked)
            assert isinstance(wrong, Unknown)
            assert "perform answered Ok()" in wrong.why

    play(tmp_path, body)


@pytest.mark.parametrize(
    "answer",
    [
        Done({"web_9": "h2"}),  # a machine of somebody else
        Done({"web_0": "h3"}),  # a host that it was not to move to
        Failed("no", unsuitable=("h3",)),
        Failed("no", moved={"web_1": "h2"}),
        Running(-1),
        Again(2**62),
    ],
    ids=repr,
)
def test_a_process_can_report_only_what_it_was_asked_about(
    tmp_path: Path, answer: Done | Failed | Running | Again
) -> None:
    async def body(control: Fleet) -> None:
        async with control.process("h1") as h1:
            h1.answers[Verb.PERFORM] = answer
            refused = await control.driver.perform(MOVE)
            assert isinstance(refused, Unknown)
            assert "cannot be used" in refused.why

    play(tmp_path, body)


def test_measurements_of_other_machines_are_left_out_and_long_texts_are_cut(
    tmp_path: Path,
) -> None:
    async def body(control: Fleet) -> None:
        async with control.process("h1") as h1:
            answer = Done(output="x" * 10_000, answer="y" * 10_000, away={"web_0": 1.0, "db": 9.0})
            h1.answers[Verb.PERFORM] = answer
            done = await control.driver.perform(task(machine("web_0", "h1")))
            assert done == Done(output="x" * 4_096, away={"web_0": 1.0})

    play(tmp_path, body)


def test_a_process_that_is_not_for_the_machine_refuses_it(tmp_path: Path) -> None:
    async def body(control: Fleet) -> None:
        async with control.process("h1") as h1:
            connection = control.connections.of("h1")
            assert connection is not None
            other = task(machine("web_1", "h2"))
            problem = "machine 'web_1' is on host 'h2', and this is the driver process of h1"
            for verb, answer in {
                Verb.CHECK: Veto(problem),
                Verb.PERFORM: Failed(problem),
                Verb.OBSERVE: Later(None, problem),
            }.items():
                assert await control.connections.ask(connection, verb, other) == answer
            assert h1.calls == []

    play(tmp_path, body)
