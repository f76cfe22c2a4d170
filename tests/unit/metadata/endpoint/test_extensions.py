"""Those who wait: woken in slices, forgotten when they go, and never twice in the way."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, MutableMapping
from typing import Any

import pytest

from forewarn.metadata.endpoint.extensions import WAKE_SLICE, Waits
from forewarn.metadata.endpoint.reply import Gone
from forewarn.support import guard

FOREVER = 1_000.0


class Caller:
    """Somebody who waits, and may speak up meanwhile."""

    def __init__(self, waits: Waits, tasks: guard.Tasks, group: str, patience: float) -> None:
        self._message: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        work = waits.until(group, guard.monotonic() + patience, self._receive)
        self.waiting = tasks.start(work, "caller")

    def say(self, type: str) -> None:
        self._message.set_result(type)

    async def _receive(self) -> MutableMapping[str, Any]:
        return {"type": await self._message}


class Room:
    def __init__(self) -> None:
        self.waits = Waits()
        self._tasks = guard.Tasks()

    async def enter(self, group: str = "web", patience: float = FOREVER) -> Caller:
        caller = Caller(self.waits, self._tasks, group, patience)
        await guard.pause(0)
        return caller


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_a_woken_request_may_look_again() -> None:
    async def work() -> None:
        room = Room()
        one, other = await room.enter("web"), await room.enter("sql")
        room.waits.wake("web")
        assert await one.waiting
        assert not other.waiting.done()
        assert len(room.waits) == 1
        room.waits.wake_all()
        assert await other.waiting
        assert len(room.waits) == 0

    run(work())


def test_many_requests_are_woken_in_slices() -> None:
    async def work() -> None:
        room = Room()
        callers = [await room.enter() for _ in range(3 * WAKE_SLICE + 1)]
        room.waits.wake("web")
        left = []
        while len(room.waits):
            left.append(len(room.waits))
            await guard.pause(0)
        assert left[0] == 2 * WAKE_SLICE + 1
        assert all(before - after <= WAKE_SLICE for before, after in itertools.pairwise(left))
        assert all(await asyncio.gather(*(caller.waiting for caller in callers)))

    run(work())


def test_a_second_change_during_a_wake_up_wakes_all() -> None:
    async def work() -> None:
        room = Room()
        callers = [await room.enter() for _ in range(2 * WAKE_SLICE)]
        room.waits.wake("web")
        callers.append(await room.enter())
        callers.append(await room.enter("sql"))
        room.waits.wake("web")
        room.waits.wake("sql")
        assert all(await asyncio.gather(*(caller.waiting for caller in callers)))
        assert len(room.waits) == 0

    run(work())


def test_disconnected_requests_are_forgotten_even_during_a_wake_up() -> None:
    async def work() -> None:
        room = Room()
        callers = [await room.enter() for _ in range(3 * WAKE_SLICE)]
        room.waits.wake("web")
        for caller in callers:
            caller.say("http.disconnect")
        response = await asyncio.gather(*(c.waiting for c in callers), return_exceptions=True)
        assert all(answer is True or isinstance(answer, Gone) for answer in response)
        assert any(isinstance(answer, Gone) for answer in response)
        assert len(room.waits) == 0

    run(work())


@pytest.mark.parametrize("turns", range(4))
def test_a_request_whose_timeout_coincides_with_a_change_is_woken_once(turns: int) -> None:
    async def work() -> None:
        room = Room()
        caller = await room.enter(patience=0)
        for _ in range(turns):
            await guard.pause(0)
        room.waits.wake("web")
        assert await caller.waiting
        assert len(room.waits) == 0

    run(work())


def test_a_request_that_sends_more_bytes_stops_waiting() -> None:
    async def work() -> None:
        room = Room()
        caller = await room.enter()
        caller.say("http.request")
        assert not await caller.waiting
        assert len(room.waits) == 0

    run(work())


@pytest.mark.parametrize("woken", [True, False])
def test_a_cancelled_request_does_not_look_again(woken: bool) -> None:
    async def work() -> None:
        room = Room()
        caller = await room.enter()
        if woken:
            room.waits.wake("web")
        caller.waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller.waiting
        assert len(room.waits) == 0

    run(work())
