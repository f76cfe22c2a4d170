"""A control node that follows: it says when it knew of each commit, once its input ends.

python -m bench.cluster.follower URL NAME
"""

from __future__ import annotations

import asyncio
import sys

import msgspec
import structlog
import uvloop

from bench.platform.meter import stopwatch
from bench.platform.world import settle
from forewarn.core.time import SECOND
from forewarn.node import Config, Node
from forewarn.node.config import Address
from forewarn.support import guard

LEASE = 900 * SECOND  # of its own, were it to lead: it never does


class Known(msgspec.Struct, frozen=True):
    commits: dict[int, float]  # by number: when, on the clock that all processes share


async def follow(url: str, name: str) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    loopback = Address("127.0.0.1", 0)
    config = Config(state=url, name=name, lease=LEASE, metadata=loopback, control=loopback)
    known = Known({})
    async with Node(config) as node:
        node.store.on_commit(lambda commit, _: known.commits.update({commit.seq: stopwatch()}))
        leadership = node.store.leadership
        assert leadership is not None
        while leadership.leader() is None:
            await guard.pause(0.01)
        settle()
        _say(msgspec.json.encode("ready"))
        last = int(await asyncio.to_thread(sys.stdin.readline))
        while node.store.seq < last:
            await guard.pause(0.01)
        _say(msgspec.json.encode(known))


def _say(line: bytes) -> None:
    sys.stdout.write(f"{line.decode()}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(follow(*sys.argv[1:]))
