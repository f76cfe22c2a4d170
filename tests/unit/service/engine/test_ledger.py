"""The ledger: idle means done and visible, and whoever hangs is named."""

from __future__ import annotations

import asyncio

import pytest

from forewarn.service.engine.ledger import Hung, Ledger


def test_a_ledger_is_idle_when_everything_taken_is_released() -> None:
    async def body() -> None:
        ledger = Ledger()
        await ledger.idle()
        ledger.take("a")
        ledger.take("a")
        waiting = asyncio.get_running_loop().create_task(ledger.idle())
        ledger.release("a")
        await asyncio.wait([waiting], timeout=0)
        assert not waiting.done()
        ledger.release("a")
        await waiting

    asyncio.run(body())


def test_an_entry_that_hangs_is_named() -> None:
    async def body() -> None:
        ledger = Ledger()
        with ledger.hold("driver call for Reboot X"), pytest.raises(Hung, match="Reboot X"):
            await ledger.idle(patience=0.01)
        await ledger.idle()

    asyncio.run(body())


def test_nothing_hangs_as_long_as_something_ends() -> None:
    async def body() -> None:
        ledger = Ledger()
        names = [f"driver call for Preempt {number}" for number in range(40)]
        for name in names:
            ledger.take(name)
        waiting = asyncio.get_running_loop().create_task(ledger.idle(patience=0))
        for name in names:
            await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop
            assert not waiting.done()
            ledger.release(name)
        await waiting

    asyncio.run(body())


def test_what_fails_is_released_as_well() -> None:
    async def body() -> None:
        ledger = Ledger()
        with pytest.raises(KeyError), ledger.hold("x"):
            raise KeyError
        await ledger.idle()

    asyncio.run(body())
