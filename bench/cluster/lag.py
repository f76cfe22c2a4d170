"""How far a follower is behind: the time from the moment at which the leader knows of a commit to
that at which a follower does, and how long the commit itself took.

python -m bench.cluster.lag URL COMMITS
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from bench.platform.meter import stopwatch
from forewarn.core.fleet import Host
from forewarn.core.registry import HostPut
from forewarn.store import Batch
from forewarn.store.port import Member
from forewarn.store.postgres.engine import PostgresStore
from forewarn.support import guard

PACE = 0.005  # seconds between two commits


class Lag(msgspec.Struct, frozen=True):
    commits: list[float]  # seconds that each took
    behind: list[float]  # seconds until the follower had it


async def measure(url: str, commits: int) -> Lag:
    first, second = (
        PostgresStore(url, Member(name=name, machine=name, address=""), lease=60.0)
        for name in ("c1", "c2")
    )
    known: dict[int, float] = {}
    took: list[float] = []
    behind: list[float] = []
    first.on_commit(lambda commit, _: known.update({commit.seq: stopwatch()}))
    second.on_commit(lambda commit, _: behind.append(stopwatch() - known[commit.seq]))
    await first.open()
    await first.leadership.take()
    await second.open()
    second.leadership.follow()
    for number in range(commits):
        began = stopwatch()
        put = HostPut(Host(name=f"h{number}"))
        await first.transact(lambda _, put=put: Batch(number, 0, puts=(put,)))  # type: ignore[misc]  # noqa: B023
        took.append(stopwatch() - began)
        await guard.pause(PACE)
    while second.seq < first.seq:
        await guard.pause(PACE)
    await second.close()
    await first.close()
    return Lag(took, behind)


if __name__ == "__main__":
    found = asyncio.run(measure(sys.argv[1], int(sys.argv[2])))
    sys.stdout.write(msgspec.json.encode(found).decode())
