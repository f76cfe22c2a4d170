"""The measured process, for its memory: a node on SQLite with the metadata endpoint, idle.

The first time it applies a fleet; then it finds it in its file, as after a restart. What is
counted is what the fleet adds to a node without one.

python -m bench.platform.idle MACHINES DIRECTORY TRACED
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from pathlib import Path

import msgspec
import structlog
import uvloop

from bench.platform import apply, world
from bench.platform.asking import Weight
from bench.platform.meter import resident
from forewarn.core import Refused
from forewarn.core.commands import Enable
from forewarn.node import Config, Node
from forewarn.node.config import Address

LISTENING = 10  # one group of so many has asked for its document
SOURCE = Path(__file__).parents[2] / "src"


async def serve(machines: int, directory: Path, traced: bool) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    if traced:
        tracemalloc.start(1)
    async with _node(directory / "empty.db"):
        pass  # so that everything is imported that will be
    before = _weight(traced)
    new = not (directory / "state.db").exists()
    async with _node(directory / "state.db") as node:
        if new:
            await _apply(node, machines)
        world.settle()
        _say({"url": node.metadata_url})
        while await asyncio.to_thread(sys.stdin.readline):
            after = _weight(traced)
            lines = {
                line: size - before.lines.get(line, 0)
                for line, size in after.lines.items()
                if size - before.lines.get(line, 0) > machines
            }
            _say(Weight(after.resident - before.resident, after.traced - before.traced, lines))


def _node(state: Path) -> Node:
    return Node(Config(state=state, metadata=Address("127.0.0.1", 0)))


async def _apply(node: Node, machines: int) -> None:
    done = await node.fleet_apply.text(apply.fleet(machines, world.address), by="bench")
    if isinstance(done, Refused):
        raise SystemExit(done.message)
    for name in list(node.store.groups)[::LISTENING]:
        await node.writer.submit(name, Enable())


def _weight(traced: bool) -> Weight:
    gc.collect()
    if not traced:
        return Weight(resident())
    found = tracemalloc.take_snapshot().statistics("lineno")
    lines = {_place(one.traceback[0]): one.size for one in found}
    return Weight(resident(), sum(lines.values()), lines)


def _place(frame: tracemalloc.Frame) -> str:
    path = Path(frame.filename)
    name = path.relative_to(SOURCE) if path.is_relative_to(SOURCE) else Path(*path.parts[-2:])
    return f"{name}:{frame.lineno}"


def _say(what: object) -> None:
    sys.stdout.write(msgspec.json.encode(what).decode() + "\n")
    sys.stdout.flush()


def main(machines: str, directory: str, traced: str) -> None:
    uvloop.run(serve(int(machines), Path(directory), traced == "True"))


if __name__ == "__main__":
    main(*sys.argv[1:])
