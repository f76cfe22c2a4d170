"""HTTP servers inside a running loop: uvicorn without its signal handling and its logs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import uvicorn

from forewarn.support import guard

# Something that accepts connections, given the sockets and what makes protocols; it can be closed.
Open: TypeAlias = Callable[[Sequence[socket.socket], Callable[[], Any]], Any]

GRACE = 3  # seconds that requests under way are given when the node stops


class InnerServer(uvicorn.Server):
    """A server that says when it is ready and leaves signals to whoever runs the loop."""

    def __init__(self, config: uvicorn.Config, door: Open | None = None) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._door = door

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def make_protocol(self) -> Any:
        """For a connection that somebody else has accepted."""
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state={}
        )

    async def main_loop(self) -> None:
        """Until it is told to stop. uvicorn looks ten times a second; a test has no time for it."""
        await self.on_tick(0)
        await self._stopping.wait()

    def stop(self) -> None:
        self.should_exit = True
        self._stopping.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, which waits for a tenth of a second even if nobody is there; and whoever
        has not taken its answer at the end will not."""
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await guard.pause(0)
        try:
            async with asyncio.timeout(GRACE):
                await self._wait_tasks_to_complete()
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel()
        if tasks := list(self.server_state.tasks):  # told to end: they have a last word
            await asyncio.wait(tasks, timeout=1)
        for connection in list(self.server_state.connections):
            if transport := getattr(connection, "transport", None):
                transport.abort()
        await guard.pause(0)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """With a door, that accepts what comes to the sockets, and uvicorn itself nothing."""
        if self._door is None:
            await super().startup(sockets)
        else:
            await super().startup([])
            self.servers.append(self._door(sockets or [], self.make_protocol))
        self.ready.set()


def server(app: Any, *, http: Any = "httptools", door: Open | None = None) -> InnerServer:
    return InnerServer(
        uvicorn.Config(
            app,
            http=http,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # who asks is decided by the connection, never by a header
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=GRACE,
        ),
        door,
    )
