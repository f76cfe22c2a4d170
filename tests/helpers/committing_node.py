"""A control node reduced to its store: commits one host after the other while it decides, and
writes into a file which commits were acknowledged. Ends as the service does when it has to.

It commits often for some seconds after a file `often` beside that one was touched."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from forewarn.core.fleet import Host
from forewarn.core.registry import HostPut
from forewarn.core.time import SECOND
from forewarn.store import Batch, OutcomeUnknown, StoreFailed
from forewarn.store.port import Member
from forewarn.store.postgres.engine import PostgresStore
from forewarn.support import guard

LEASE = 3.0  # seconds
OFTEN, SELDOM = 0.01, 0.1  # seconds between two commits
FOR = 3.0  # seconds


async def main(url: str, name: str, acknowledged: Path) -> None:
    store = PostgresStore(url, Member(name=name, machine=name, address=name), lease=LEASE)
    store.on_unknown_outcome(end)
    await store.open()
    await store.leadership.take()
    life, often = os.getpid(), acknowledged.with_name("often")
    with acknowledged.open("a", buffering=1) as file:
        for number in range(sys.maxsize):
            host = f"{name}-{life}-{number}"
            try:
                commit = await store.transact(
                    lambda _, host=host: Batch(1, 0, puts=(HostPut(Host(name=host)),))  # type: ignore[misc]
                )
            except StoreFailed:
                await guard.pause(0.1)  # it did not happen
            else:
                assert commit is not None
                file.write(f"{commit.seq} {host}\n")
            since = guard.wall_us() / SECOND - often.stat().st_mtime
            await guard.pause(OFTEN if since < FOR else SELDOM)


def end(error: OutcomeUnknown) -> None:
    sys.stderr.write(f"{error}\n")
    sys.stderr.flush()
    os._exit(74)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
