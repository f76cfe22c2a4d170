"""A control node that decides at a pace: for each line of input, with a number of events, it says
how long the commits took and when each of them was known.

python -m bench.cluster.leader URL MACHINES
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence

import msgspec
import uvloop

from bench.platform import world
from bench.platform.decisions import Callers
from bench.platform.meter import stopwatch
from forewarn.core import Group
from forewarn.store.port import Commit, Member
from forewarn.store.postgres.engine import PostgresStore
from forewarn.support import guard

PACE = 0.005  # seconds between two events


class Decided(msgspec.Struct, frozen=True):
    took: list[float]  # seconds, by commit
    known: dict[int, float]  # by number: when, on the clock that all processes share


class Timed(PostgresStore):
    def __init__(self, url: str) -> None:
        super().__init__(url, Member(name="bench", machine="bench", address=""))
        self.took: list[float] = []

    async def _persist(
        self, commits: Sequence[Commit], before: Mapping[str, Group], after: Mapping[str, Group]
    ) -> None:
        began = stopwatch()
        await super()._persist(commits, before, after)
        self.took.append(stopwatch() - began)


async def lead(url: str, machines: int) -> None:
    store = Timed(url)
    async with world.running(machines, world.per_group(machines), store) as node:
        callers = Callers(node)
        names = [machine.name for group in store.groups.values() for machine in group.machines]
        known: dict[int, float] = {}
        store.on_commit(lambda commit, _: known.update({commit.seq: stopwatch()}))
        while line := await asyncio.to_thread(sys.stdin.readline):
            store.took.clear()
            known.clear()
            for number in range(int(line)):
                await callers.event(names[number % len(names)])
                await guard.pause(PACE)
            reply = msgspec.json.encode(Decided(store.took, known))
            sys.stdout.write(reply.decode() + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(lead(sys.argv[1], int(sys.argv[2])))
