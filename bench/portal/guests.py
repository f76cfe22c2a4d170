"""Guests that poll at a steady pace, each on a kept connection, in a process of their own. Says how
long they had to wait.

python -m bench.portal.guests HOST PORT GUESTS SECONDS
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys

import msgspec
import uvloop

from bench.platform import world
from bench.platform.meter import stopwatch
from bench.poll.fleet import POLL
from forewarn.support import guard

PACE = 0.25  # seconds between two polls of a guest
GET = f"GET {POLL} HTTP/1.1\r\nHost: service\r\nMetadata: true\r\n\r\n".encode()
UNREACHABLE = 977  # between two machines that poll: they are in different groups


class Waited(msgspec.Struct, frozen=True):
    """Milliseconds."""

    polls: int
    p50: float
    p99: float


async def guest(host: str, port: int, number: int, end: float, waited: list[float]) -> None:
    source = (world.address(number * UNREACHABLE), 0)
    reader, writer = await asyncio.open_connection(host, port, local_addr=source)
    due = stopwatch() + PACE * (number % 16) / 16
    while due < end:
        await guard.pause(max(0.0, due - stopwatch()))
        sent = stopwatch()
        writer.write(GET)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        await reader.readexactly(length)
        waited.append((stopwatch() - sent) * 1e3)
        due += PACE
    writer.close()


async def poll(host: str, port: int, guests: int, seconds: float) -> Waited:
    waited: list[float] = []
    end = stopwatch() + seconds
    await asyncio.gather(*(guest(host, port, n, end, waited) for n in range(guests)))
    waited.sort()
    return Waited(len(waited), waited[len(waited) // 2], waited[len(waited) * 99 // 100])


if __name__ == "__main__":
    with contextlib.suppress(PermissionError):  # go before the browser, which shares the core
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    host, port, guests, seconds = sys.argv[1:]
    found = uvloop.run(poll(host, int(port), int(guests), float(seconds)))
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
