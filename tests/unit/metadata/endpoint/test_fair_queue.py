"""The fair queue: callers in turn, little at a time, and each pays for its own work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from structlog.testing import capture_logs

from forewarn.metadata.endpoint.fair_queue import SHARE, TURN, FairQueue, timed
from forewarn.support import guard


class Clock:
    now = 0  # microseconds

    def pass_by(self, microseconds: int) -> None:
        self.now += microseconds


CLOCK = Clock()


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "processor_us", lambda: CLOCK.now)


class Turns:
    """Jobs that note in which turn of the event loop they were done, and for whom."""

    def __init__(self) -> None:
        self.turn = 0
        self.done: list[tuple[int, str]] = []

    def job(self, caller: str, cost: int, advance: int = 0) -> Callable[[], int]:
        """A job that takes so long, and leaves so much to others."""

        def do() -> int:
            self.done.append((self.turn, caller))
            CLOCK.pass_by(cost)
            return advance

        return do

    async def until_empty(self, queue: FairQueue) -> None:
        while len(queue):
            self.turn += 1
            await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop

    @property
    def order(self) -> str:
        return "".join(caller for _, caller in self.done)


def served(jobs: list[tuple[str, int]]) -> Turns:
    """These jobs, all added at once, by their callers and costs."""

    async def serve() -> Turns:
        queue, turns = FairQueue(), Turns()
        for caller, cost in jobs:
            queue.add(caller, turns.job(caller, cost))
        await turns.until_empty(queue)
        return turns

    return asyncio.run(serve())


def test_callers_are_served_round_robin() -> None:
    turns = served([("a", SHARE)] * 4 + [("b", SHARE)] * 2 + [("c", SHARE)])
    assert turns.order == "abcabaa"


def test_a_turn_of_the_event_loop_is_bounded() -> None:
    turns = served([(caller, SHARE) for caller in "abcdefgh" for _ in range(10)])
    by_turn = [[turn for turn, _ in turns.done].count(n) for n in range(1, turns.turn + 1)]
    assert max(by_turn) == TURN // SHARE
    assert sum(by_turn) == 80


def test_small_jobs_share_a_turn() -> None:
    turns = served([("a", SHARE // 4)] * 8 + [("b", SHARE)])
    assert turns.order == "aaaabaaaa"


def test_a_caller_that_exceeded_its_share_waits_for_the_others() -> None:
    turns = served([("a", 4 * SHARE)] * 2 + [("b", SHARE)] * 5)
    assert turns.order == "abbbbab"


def test_what_others_do_for_a_job_is_charged_in_advance() -> None:
    async def serve() -> str:
        queue, turns = FairQueue(), Turns()
        for caller, advance in [("a", 3 * SHARE), ("a", 0), ("b", 0), ("b", 0)]:
            queue.add(caller, turns.job(caller, SHARE, advance))
        await turns.until_empty(queue)
        return turns.order

    assert asyncio.run(serve()) == "abba"


def test_work_that_has_taken_longer_is_charged_afterwards() -> None:
    async def serve() -> Turns:
        queue, turns = FairQueue(), Turns()

        def dear() -> int:
            turns.job("a", SHARE)()
            asyncio.get_running_loop().call_soon(queue.charge, "a", 4 * TURN)
            return TURN

        queue.add("a", dear)
        queue.add("a", turns.job("a", SHARE))
        for _ in range(8):
            queue.add("b", turns.job("b", SHARE))
        await turns.until_empty(queue)
        return turns

    turns = asyncio.run(serve())
    assert turns.order == "abbbbbbbba", "it waits for the others"
    assert turns.done[-1][0] > 4, "and the event loop has as much time for others"


def test_a_coroutine_is_charged_for_its_steps_alone() -> None:
    charged: list[int] = []

    async def work(waits: asyncio.Event) -> None:
        CLOCK.pass_by(3)
        await waits.wait()
        CLOCK.pass_by(4)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            CLOCK.pass_by(5)
            raise

    async def run_timed(work: Coroutine[Any, Any, None]) -> None:
        await timed(work, charged.append)

    async def run() -> None:
        waits = asyncio.Event()
        task = guard.Tasks().start(run_timed(work(waits)), "timed")
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop
        CLOCK.pass_by(1_000)
        waits.set()
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert charged == [3, 4, 5]


def test_a_failing_job_does_not_stop_others_and_is_logged_once() -> None:
    def fails() -> int:
        raise RuntimeError("cannot")

    async def serve() -> Turns:
        queue, turns = FairQueue(), Turns()
        for _ in range(5):
            queue.add("a", fails)
        queue.add("a", turns.job("a", 1))
        queue.add("b", turns.job("b", 1))
        await turns.until_empty(queue)
        return turns

    with capture_logs() as lines:
        assert asyncio.run(serve()).order == "ba"
    assert [line["log_level"] for line in lines] == ["error"]


def test_jobs_may_be_added_by_a_job() -> None:
    async def serve() -> str:
        queue, turns = FairQueue(), Turns()

        def more() -> int:
            queue.add("a", turns.job("a", 1))
            return 1

        queue.add("a", more)
        await turns.until_empty(queue)
        return turns.order

    assert asyncio.run(serve()) == "a"
