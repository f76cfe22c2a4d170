"""Callers that are not known are asked for, a few at a time and not again and again."""

from __future__ import annotations

import asyncio

import pytest

from forewarn.metadata.endpoint.lookups import MAX_AT_ONCE, MAX_REMEMBERED, Lookups
from forewarn.metadata.upstream import NotDurable


def test_concurrent_lookups_of_an_address_are_one_request() -> None:
    async def play() -> None:
        asked: list[str] = []
        answer = asyncio.Event()

        async def find(address: str) -> None:
            asked.append(address)
            await answer.wait()

        lookups = Lookups(find)
        async with asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(lookups("10.0.0.1")) for _ in range(5)]
            others = [tasks.create_task(lookups(f"10.0.1.{n}")) for n in range(100)]
            await others[-1]  # more than a few are not asked for, and do not wait
            assert len(asked) == MAX_AT_ONCE
            assert not any(task.done() for task in waiting)
            answer.set()
        await lookups("10.0.0.1")
        assert asked.count("10.0.0.1") == 1
        for n in range(2 * MAX_REMEMBERED):
            await lookups(f"10.{n // 65536}.{n // 256 % 256}.{n % 256}")
        assert len(lookups._answered) <= MAX_REMEMBERED

    asyncio.run(play())


def test_what_cannot_be_found_out_is_not_answered_as_unknown() -> None:
    async def play() -> None:
        asked: list[str] = []

        async def find(address: str) -> None:
            asked.append(address)
            if len(asked) == 1:
                await asyncio.sleep(0)  # noqa: TID251
                raise NotDurable("control is away")

        lookups = Lookups(find)
        both = asyncio.gather(lookups("10.0.0.1"), lookups("10.0.0.1"), return_exceptions=True)
        assert [type(answer) for answer in await both] == [NotDurable, NotDurable]
        with pytest.raises(NotDurable):  # which is remembered for a moment
            await lookups("10.0.0.1")
        lookups._answered.clear()
        await lookups("10.0.0.1")
        assert len(asked) == 2

    asyncio.run(play())
