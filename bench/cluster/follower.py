"""A control node that follows, until it is ended.

python -m bench.cluster.follower URL NAME
"""

from __future__ import annotations

import asyncio
import sys

from forewarn.store.port import Member
from forewarn.store.postgres.engine import PostgresStore


async def follow(url: str, name: str) -> None:
    store = PostgresStore(url, Member(name=name, machine=name, address=""))
    await store.open()
    store.leadership.follow()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(follow(sys.argv[1], sys.argv[2]))
