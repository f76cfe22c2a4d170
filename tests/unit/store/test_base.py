from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from forewarn.core import Group
from forewarn.core.fleet import Host
from forewarn.core.registry import HostPut
from forewarn.store import Batch, Commit, MemoryStore
from forewarn.store.base import CHANGE_LIMIT
from forewarn.support import guard

LATER = 10.0  # seconds


@pytest.mark.parametrize("changes", [1, 5_000, 100_000])
def test_the_time_that_the_size_of_a_batch_explains_does_not_count_as_waiting(
    changes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = guard.monotonic()
    monkeypatch.setattr(guard, "monotonic", lambda: now)
    waited: list[float] = []

    class Slow(MemoryStore):
        async def _persist(
            self, commits: Sequence[Commit], before: Mapping[str, Group], after: Mapping[str, Group]
        ) -> None:
            nonlocal now
            now += LATER
            waited.append(self.waited())
            assert self.busy() == (not self.waited())
            await super()._persist(commits, before, after)

    async def body() -> None:
        store = Slow()
        await store.open()
        puts = tuple(HostPut(Host(name=f"h{i}")) for i in range(changes))
        await store.transact(lambda _: Batch(1, 0, puts=puts))
        await store.close()

    asyncio.run(body())
    assert waited == [pytest.approx(max(0.0, LATER - changes * CHANGE_LIMIT))]
