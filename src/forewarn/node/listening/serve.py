"""Serving on sockets, inside a running loop: the guests' endpoint with Front before it, or any
other application. Whatever is started here is stopped by the stack it is given.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from forewarn.metadata.endpoint.app import MetadataApp
from forewarn.node.config import Address, Config
from forewarn.node.heap import trim_after_use
from forewarn.support import guard
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger

if TYPE_CHECKING:  # what serves on sockets is imported when something does
    from forewarn.metadata.http.front import Front
    from forewarn.node.listening.server import InnerServer, Open

SWEEP_SLICE = 64  # connections that are looked at before the loop gets its turn
SWEEP_EVERY = 1.0  # seconds of guard time between two looks for callers that are too slow

log = logger("forewarn")


async def serve_guests(
    config: Config,
    app: Any,
    endpoint: MetadataApp,
    sockets: Sequence[socket.socket],
    tasks: guard.Tasks,
    stack: AsyncExitStack,
    *,
    outlived: Callable[[], bool] = lambda: False,
) -> Front | None:
    """`outlived`: will somebody else answer on these sockets when we have stopped?"""
    from forewarn.metadata.http import front
    from forewarn.metadata.http.protocol import protocol

    told = config.record is not None or config.observe  # of every exchange
    fronted = config.front and front.possible(config.limits) and not told
    bound = protocol(endpoint, lingers=outlived)
    inner = await serve(app, [] if fronted else sockets, tasks, stack, bound)
    connections: set[Any] = inner.server_state.connections
    made = None
    if fronted:
        make = inner.make_protocol
        made = front.Front(endpoint, sockets, make, connections, tasks, outlived=outlived)
    tasks.start(_sweeping(connections, endpoint), "sweeper")
    return made


async def serve(
    app: Any,
    sockets: Sequence[socket.socket],
    tasks: guard.Tasks,
    stack: AsyncExitStack,
    http: Any = "httptools",
    door: Open | None = None,
) -> InnerServer:
    from forewarn.node.listening.server import server

    inner = server(app, http=http, door=door)
    running = tasks.start(inner.serve(list(sockets)), "server")

    async def stop() -> None:
        inner.stop()
        await asyncio.wait([running])

    stack.push_async_callback(stop)
    await inner.ready.wait()
    return inner


def url(host: str, listener: socket.socket, scheme: str = "http") -> str:
    return f"{scheme}://{Address(host, listener.getsockname()[1])}"


async def _sweeping(connections: Collection[Any], endpoint: MetadataApp) -> None:
    """All who are late may be late at once: nobody else is kept waiting for their sake."""
    failed = LogThrottle()
    while True:
        await guard.pause(SWEEP_EVERY)
        now, looked = guard.monotonic(), 0
        for connection in list(connections):
            try:
                for _ in connection.sweep(now):
                    looked += 1
                    if looked % SWEEP_SLICE == 0:
                        await guard.pause(0)
            except Exception as error:  # the others are to be looked after all the same
                if times := failed.record():
                    log.error("a connection could not be looked after", times=times, exc_info=error)
        endpoint.counts.log_hits(now)
        trim_after_use(endpoint.buffered)
