"""HTTP servers inside a running event loop: uvicorn without its signal handling and its logs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import uvicorn

from forewarn.support import guard

# Makes an object that accepts connections, from the sockets and a factory of protocols. The object
# has a method `close`.
MakeAcceptor: TypeAlias = Callable[[Sequence[socket.socket], Callable[[], Any]], Any]

GRACE = 3  # seconds that requests in progress are given when the node stops


class EmbeddedServer(uvicorn.Server):
    """A uvicorn server that reports when it is ready and does not handle signals."""

    def __init__(self, config: uvicorn.Config, make_acceptor: MakeAcceptor | None = None) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._make_acceptor = make_acceptor

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def make_protocol(self) -> Any:
        """Return a protocol for a connection that was accepted elsewhere."""
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state={}
        )

    async def listen(self, listener: socket.socket) -> asyncio.Server | None:
        """Accept the connections of one more socket; None if the server is stopping."""
        if self.should_exit:
            listener.close()
            return None
        loop = asyncio.get_running_loop()
        backlog = self.config.backlog
        server = await loop.create_server(self.make_protocol, sock=listener, backlog=backlog)
        self.servers.append(server)
        return server

    async def main_loop(self) -> None:
        """Wait until the server is stopped. (uvicorn polls ten times a second, which would slow
        tests down.)"""
        await self.on_tick(0)
        await self._stopping.wait()

    def stop(self) -> None:
        self.should_exit = True
        self._stopping.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop as uvicorn does, but without its delay of a tenth of a second when there are no
        connections, and abort those that have not received their answer in time."""
        for server in self.servers:
            server.close()
            if self._make_acceptor is not None:
                await server.wait_closed()  # for its listeners, not for its connections
        for listener in sockets or []:
            listener.close()
        for connection in list(self.server_state.connections):
            if not _is_closing(connection):  # closed twice, TLS cannot be aborted
                connection.shutdown()
        await guard.pause(0)
        try:
            async with asyncio.timeout(GRACE):
                await self._wait_tasks_to_complete()
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel()
        if tasks := list(self.server_state.tasks):  # let them handle the cancellation
            await asyncio.wait(tasks, timeout=1)
        for connection in list(self.server_state.connections):
            if transport := getattr(connection, "transport", None):
                transport.abort()
        await guard.pause(0)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, with the acceptor in place of uvicorn if there is one."""
        if self._make_acceptor is None:
            await super().startup(sockets)
        else:
            await super().startup([])
            self.servers.append(self._make_acceptor(sockets or [], self.make_protocol))
        self.ready.set()


def _is_closing(connection: Any) -> bool:
    transport = getattr(connection, "transport", None)
    return transport is not None and transport.is_closing()


def make_server(
    app: Any, *, http: Any = "httptools", make_acceptor: MakeAcceptor | None = None
) -> EmbeddedServer:
    return EmbeddedServer(
        uvicorn.Config(
            app,
            http=http,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # a caller is identified by its connection, never by a header
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=GRACE,
        ),
        make_acceptor,
    )
