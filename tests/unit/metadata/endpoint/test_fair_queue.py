"""The fair queue: callers in turn, little at a time, and each pays for its own work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from structlog.testing import capture_logs

from forewarn.metadata.endpoint.fair_queue import SHARE, TURN, FairQueue


class Turns:
    """Jobs that note in which turn of the event loop they were done, and for whom."""

    def __init__(self) -> None:
        self.turn = 0
        self.done: list[tuple[int, str]] = []

    def job(self, caller: str, cost: int) -> Callable[[], int]:
        def do() -> int:
            self.done.append((self.turn, caller))
            return cost

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
