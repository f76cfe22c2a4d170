"""The measured process: control with connections to nodes, or a service without nodes that answers
guests itself, with the same fleet. It does what it is asked, line by line.

python -m bench.cluster.control MACHINES HOSTS DIRECTORY CERTIFICATES PORT

PORT is where nodes connect to; 0: there are none. If the directory has a state, that is used.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path

import msgspec
import uvloop

from bench.cluster.hosts import ALONE, EACH, LOOPBACK, Certificates, Layout
from bench.platform import asking as a
from bench.platform import world
from bench.platform.asking import Weight
from bench.platform.decisions import Callers
from bench.platform.meter import resident, stopwatch
from bench.platform.serving import Serving
from forewarn.node import Config, Node
from forewarn.node.config import Address


class Began(msgspec.Struct, frozen=True, tag="began"):
    """An event for the group that is alone, without waiting for it: answered at once."""


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """Wait until that event is over: answered with when it could be seen, on the clock that all
    processes share."""


class Url(msgspec.Struct, frozen=True, tag="url"):
    """For guests, if they are answered here; empty if not."""


Ask = a.Run | a.Raise | a.Occupy | a.Weigh | Began | Ended | Url


class Control(Serving):
    async def do(self, ask: Ask) -> object:
        match ask:
            case Began():
                self._alone = self._tasks.start(self._event(), "alone")
                return None
            case Ended():
                return await self._alone
            case Url():
                return self._node.metadata_url
            case a.Weigh():
                gc.collect()
                return Weight(resident())
            case _:
                return await self.answer(ask)

    async def _event(self) -> float:
        raised = await self._raise(f"{ALONE}_0")
        await self._node.guests.approve(f"{ALONE}_0", ALONE, [raised.event])
        return raised.acknowledged


async def serve(layout: Layout, directory: Path, certificates: Certificates, port: int) -> None:
    began = stopwatch()
    new = not (directory / "state.db").exists()
    config = Config(
        fleet=layout.fleet() if new else None,
        nodes=certificates.lines(port) if port else None,
        metadata=None if port else Address(LOOPBACK, 0),
    )
    async with world.started(config, world.store(world.SQLITE, directory)) as node:
        control = Control(node, Callers(node, _machines(node, layout)), EACH, directory)
        _say(stopwatch() - began)
        decode = msgspec.json.Decoder(Ask).decode
        while line := await asyncio.to_thread(sys.stdin.readline):
            _say(await control.do(decode(line)))


def _machines(node: Node, layout: Layout) -> list[str]:
    groups = node.store.groups
    return [machine.name for name in layout.groups for machine in groups[name].machines]


def _say(answer: object) -> None:
    sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    sys.stdout.flush()


def main(machines: str, hosts: str, directory: str, certificates: str, port: str) -> None:
    layout = Layout(int(machines), int(hosts))
    uvloop.run(serve(layout, Path(directory), Certificates(Path(certificates)), int(port)))


if __name__ == "__main__":
    main(*sys.argv[1:])
