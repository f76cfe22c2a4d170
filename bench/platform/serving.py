"""The measured process: a node of a certain size that does what it is asked, line by line.

python -m bench.platform.serving STORE MACHINES EACH DIRECTORY LISTENING
"""

from __future__ import annotations

import asyncio
import statistics
import sys
from pathlib import Path

import msgspec
import uvloop

from bench.platform import asking as a
from bench.platform import disk, world
from bench.platform.decisions import Callers
from bench.platform.meter import stopwatch
from bench.poll.processes import Failed
from forewarn.core import EventType, Refused
from forewarn.node import Node
from forewarn.support import guard

_decode = msgspec.json.Decoder(a.Ask).decode


class Serving:
    def __init__(self, node: Node, callers: Callers, each: int, directory: Path) -> None:
        self._node = node
        self._callers = callers
        self._each = each
        self._directory = directory
        self._tasks = guard.Tasks()
        self._pace: asyncio.Task[float] | None = None
        self._going = False

    async def answer(self, ask: a.Ask) -> object:
        match ask:
            case a.Run(callers=callers, seconds=seconds, event=event):
                return await self._callers.run(callers, seconds, EventType(event))
            case a.Peer(sizes=sizes, seconds=seconds):
                return disk.least(self._directory, sizes, seconds)
            case a.Syncs(seconds=seconds):
                found = [disk.syncs(self._directory, seconds / 3) for _ in range(3)]
                return statistics.median(found)
            case a.Occupy():
                return await self._occupy()
            case a.Background(rate=rate):
                return await self._background(rate)
            case a.Raise(machine=machine):
                return await self._raise(machine)
            case a.Weigh():
                raise Failed("this one is not weighed")

    async def _occupy(self) -> str:
        for name in list(self._node.store.groups):
            await self._schedule(f"{name}_{self._each - 1}")
        return self._node.metadata_url

    async def _background(self, rate: float) -> float:
        self._going = rate > 0
        if self._going:
            self._pace = self._tasks.start(self._keep_pace(rate), "pace")
            return 0.0
        return await self._pace if self._pace is not None else 0.0

    async def _keep_pace(self, rate: float) -> float:
        """Each event is three decisions."""
        groups = list(self._node.store.groups)
        second_half = groups[len(groups) // 2 :]
        began, events = stopwatch(), 0
        while self._going:
            machine = f"{second_half[events % len(second_half)]}_0"
            self._tasks.start(self._callers.event(machine), "background")
            events += 1
            await guard.pause(max(0.0, began + events * 3 / rate - stopwatch()))
        return events * 3 / (stopwatch() - began)

    async def _raise(self, machine: str) -> a.Raised:
        submitted = stopwatch()
        event = await self._schedule(machine)
        acknowledged = stopwatch()
        return a.Raised(event, submitted, self._callers.raised.pop(event), acknowledged)

    async def _schedule(self, machine: str) -> str:
        done = await self._node.platform.schedule(
            type=EventType.FREEZE, machines=(machine,), by="bench"
        )
        if isinstance(done, Refused):
            raise Failed(done.message)
        return done.event.id


async def serve(kind: str, machines: int, each: int, directory: Path, listening: bool) -> None:
    store = world.store(kind, directory)
    async with world.running(machines, each, store, listening=listening) as node:
        serving = Serving(node, Callers(node), each, directory)
        while line := await asyncio.to_thread(sys.stdin.readline):
            reply = msgspec.json.encode(await serving.answer(_decode(line)))
            sys.stdout.write(reply.decode() + "\n")
            sys.stdout.flush()


def main(kind: str, machines: str, each: str, directory: str, listening: str) -> None:
    uvloop.run(serve(kind, int(machines), int(each), Path(directory), listening == "True"))


if __name__ == "__main__":
    main(*sys.argv[1:])
