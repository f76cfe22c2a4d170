"""A worker in this very loop, with and without a control process to follow."""

from __future__ import annotations

import asyncio
from pathlib import Path

from forewarn.core import Durations
from forewarn.node import Address, Config, Node
from forewarn.node.listening.sockets import open_socket
from forewarn.node.processes.worker import Worker
from forewarn.service.fleet.read import parse
from forewarn.support import guard

FLEET = """
groups:
  - name: web
    kind: scale-set
    machines: [{name: web_0, address: 127.1.0.1}, {name: web_1, address: 127.1.0.2}]
"""
POLL = (
    b"GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\n"
    b"Host: 169.254.169.254\r\nMetadata: true\r\nConnection: close\r\n\r\n"
)


def test_a_worker_that_has_never_been_told_anything_does_not_accept(tmp_path: Path) -> None:
    config = Config(
        fleet=parse(FLEET),
        rules=Durations(silence=None),
        workers=1,
        upstream=tmp_path / "line",
        metadata=Address("127.0.0.1", 0),
    )

    async def life() -> None:
        listener = open_socket(Address("127.0.0.1", 0))
        place = listener.getsockname()
        worker, tasks = Worker(config, 0, [listener]), guard.Tasks()
        entering = tasks.start(worker.__aenter__(), "entering")
        reader, writer = await asyncio.open_connection(*place, local_addr=("127.1.0.2", 0))
        writer.write(POLL)
        for _ in range(10):  # it looks for control again and again
            await guard.pause(0.01)
            assert not entering.done()
            assert worker.front is None
        async with Node(config):
            await entering
            answer = await reader.read()  # whoever came too early was kept by the kernel
            assert answer.startswith(b"HTTP/1.1 200 OK")
            assert answer.endswith(b'{"DocumentIncarnation":1,"Events":[]}')
        writer.close()
        await worker.__aexit__(None, None, None)
        await tasks.end()

    async def guarded() -> None:
        async with asyncio.timeout(30):
            await life()

    asyncio.run(guarded())
