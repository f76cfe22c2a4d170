"""The measured service: a large fleet, with sockets for guests and operators. For each `Storm` that
it reads, it announces events at an even pace, one commit each, and says how fast that went.

python -m bench.portal.serving MACHINES HOSTS DIRECTORY
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
import uvloop

from bench.platform import world
from bench.platform.meter import stopwatch
from bench.poll.processes import Failed
from forewarn.core import EventType, Machine, Refused
from forewarn.core.commands import Define
from forewarn.core.fleet import GroupKind, Host
from forewarn.node import Config, Node
from forewarn.node.config import Address
from forewarn.service.fleet.build import Fleet
from forewarn.support import guard

GROUP = 100  # machines
DOMAINS = 5
HOUR = 3_600_000_000


class Ready(msgspec.Struct, frozen=True):
    control: str
    metadata: str


class Storm(msgspec.Struct, frozen=True):
    """Announce so many events in so many seconds: answered with the commits per second that were
    reached. 0 events: cancel all of them."""

    events: int
    seconds: float


def fleet(machines: int, hosts: int) -> Fleet:
    """Scale sets of a hundred machines, each over as many hosts as it can."""
    return Fleet(
        {
            f"set{first // GROUP}": Define(
                kind=GroupKind.SCALE_SET,
                machines=tuple(
                    Machine(
                        name=f"set{first // GROUP}_{n - first}",
                        addresses=(world.address(n),),
                        host=f"host-{n % hosts}",
                        update_domain=(n - first + n // hosts) % DOMAINS,
                    )
                    for n in range(first, min(first + GROUP, machines))
                ),
            )
            for first in range(0, machines, GROUP)
        },
        tuple(Host(name=f"host-{n}", labels={"rack": f"r{n % 40}"}) for n in range(hosts)),
    )


async def storm(node: Node, events: int, seconds: float) -> float:
    tasks, began, before = guard.Tasks(), stopwatch(), node.store.seq
    under_way = []
    names = list(node.store.groups)
    for n in range(events):
        machine = f"{names[n % len(names)]}_{n // len(names)}"
        under_way.append(tasks.start(_announce(node, machine), "storm"))
        await guard.pause(max(0.0, began + (n + 1) * seconds / events - stopwatch()))
    await asyncio.gather(*under_way)
    return (node.store.seq - before) / (stopwatch() - began)


async def _announce(node: Node, machine: str) -> None:
    done = await node.platform.schedule(
        type=EventType.FREEZE, machines=(machine,), notice=HOUR, by="bench"
    )
    if isinstance(done, Refused):
        raise Failed(done.message)


async def cancel_all(node: Node) -> None:
    for group in list(node.store.groups.values()):
        for event in group.events:
            await node.platform.cancel(event.id, by="bench")


async def serve(machines: int, hosts: int, directory: Path) -> None:
    here = Address("127.0.0.1", 0)
    config = Config(fleet=fleet(machines, hosts), metadata=here, control=here)
    async with world.started(config, world.store(world.SQLITE, directory)) as node:
        _say(Ready(control=node.control_url, metadata=node.metadata_url))
        while line := await asyncio.to_thread(sys.stdin.readline):
            wanted = msgspec.json.decode(line, type=Storm)
            if wanted.events:
                _say(await storm(node, wanted.events, wanted.seconds))
            else:
                await cancel_all(node)
                _say(0.0)


def _say(value: object) -> None:
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
