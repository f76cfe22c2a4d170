"""Serves applications on sockets, inside a running event loop: the guests' endpoint, with Front
before it, and the control API. Everything started here is stopped by the exit stack it is given.
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

if TYPE_CHECKING:  # a test without sockets does not import uvicorn
    from forewarn.metadata.http.front import Front
    from forewarn.node.listening.server import EmbeddedServer, MakeAcceptor

SWEEP_SLICE = 64  # connections that are swept before the event loop gets its turn
SWEEP_EVERY = 1.0  # seconds of guard time between two sweeps for callers that are too slow

log = logger("forewarn")


class GuestServer:
    """The endpoint as it is served, and the sockets that are opened and closed meanwhile."""

    def __init__(self, server: EmbeddedServer, front: Front | None, tasks: guard.Tasks) -> None:
        self.front = front
        self._server = server
        self._tasks = tasks
        self._listening: dict[socket.socket, asyncio.Task[asyncio.Server | None]] = {}

    def listen(self, listener: socket.socket) -> None:
        """Accept the connections of one more socket. Those made before that wait in the system."""
        if self.front is not None:
            self.front.listen(listener)
        else:
            self._listening[listener] = self._tasks.start(
                self._server.listen(listener), "listening"
            )

    def stop_listening(self, listener: socket.socket) -> None:
        """Close a socket. Connections that it has accepted stay."""
        if self.front is not None:
            self.front.stop_listening(listener)
        else:
            self._tasks.start(self._close(self._listening.pop(listener)), "closing a socket")

    async def _close(self, listening: asyncio.Task[asyncio.Server | None]) -> None:
        if (server := await listening) is not None:
            self._server.servers.remove(server)
            server.close()


async def serve_guests(
    config: Config,
    app: Any,
    endpoint: MetadataApp,
    sockets: Sequence[socket.socket],
    tasks: guard.Tasks,
    stack: AsyncExitStack,
    *,
    outlived: Callable[[], bool] = lambda: False,
) -> GuestServer:
    """Serve the endpoint.

    `outlived` says whether another process will answer on these sockets after this one has
    stopped."""
    from forewarn.metadata.http import front
    from forewarn.metadata.http.protocol import protocol

    recorded = config.record is not None or config.observe
    with_front = config.front and front.possible(config.limits) and not recorded
    http = protocol(endpoint, lingers=outlived)
    server = await serve(app, [] if with_front else sockets, tasks, stack, http)
    connections: set[Any] = server.server_state.connections
    guest_front = None
    if with_front:
        make = server.make_protocol
        guest_front = front.Front(endpoint, sockets, make, connections, tasks, outlived=outlived)
    tasks.start(_keep_sweeping(connections, endpoint), "sweeper")
    return GuestServer(server, guest_front, tasks)


async def serve(
    app: Any,
    sockets: Sequence[socket.socket],
    tasks: guard.Tasks,
    stack: AsyncExitStack,
    http: Any = "httptools",
    make_acceptor: MakeAcceptor | None = None,
) -> EmbeddedServer:
    """Serve an application on sockets, and return when it accepts connections."""
    from forewarn.node.listening.server import make_server

    server = make_server(app, http=http, make_acceptor=make_acceptor)
    running = tasks.start(server.serve(list(sockets)), "server")

    async def stop() -> None:
        server.stop()
        await asyncio.wait([running])

    stack.push_async_callback(stop)
    await server.ready.wait()
    return server


def url(host: str, listener: socket.socket, scheme: str = "http") -> str:
    return f"{scheme}://{Address(host, listener.getsockname()[1])}"


async def _keep_sweeping(connections: Collection[Any], endpoint: MetadataApp) -> None:
    """Close connections whose time is up, a few at a time, so that other callers do not wait."""
    throttle = LogThrottle()
    while True:
        await guard.pause(SWEEP_EVERY)
        now, swept = guard.monotonic(), 0
        for connection in list(connections):
            try:
                for _ in connection.sweep(now):
                    swept += 1
                    if swept % SWEEP_SLICE == 0:
                        await guard.pause(0)
            except Exception as error:  # must not keep the other connections from being swept
                if times := throttle.record():
                    log.error("a connection could not be swept", times=times, exc_info=error)
        endpoint.counts.log_hits(now)
        trim_after_use(endpoint.buffered)
