"""`Client` and `AsyncClient` in one shape, so that a test is written once; and somebody between a
client and its service who can be reached to misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, Protocol

from forewarn.client import AsyncClient, Change, Client, EndpointStatus, Event
from forewarn.client.identity import Identity
from helpers.waiting import LIMIT

INTERVAL = 0.05  # seconds between two polls


class ClientVariant(Protocol):
    def events(self) -> tuple[Event, ...]: ...
    def approve(self, *events: str) -> None: ...
    def identity(self) -> Identity: ...
    def next(self) -> Change: ...
    def close(self) -> None: ...
    @property
    def client(self) -> Client | AsyncClient: ...
    @property
    def status(self) -> EndpointStatus: ...


class Blocking:
    def __init__(self, url: str | None, **settings: Any) -> None:
        self.client = Client(url, **{"interval": INTERVAL, **settings})
        self._watch: Generator[Change, None, None] = self.client.watch()

    def events(self) -> tuple[Event, ...]:
        return self.client.events()

    def approve(self, *events: str) -> None:
        self.client.approve(*events)

    def identity(self) -> Identity:
        return self.client.identity()

    def next(self) -> Change:
        return next(self._watch)

    @property
    def status(self) -> EndpointStatus:
        return self.client.status

    def close(self) -> None:
        self.client.close()
        self._watch.close()


class Looping:
    def __init__(self, url: str | None, **settings: Any) -> None:
        self.client = AsyncClient(url, **{"interval": INTERVAL, **settings})
        self._watch: AsyncGenerator[Change, None] = self.client.watch()
        self._runner = asyncio.Runner()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def events(self) -> tuple[Event, ...]:
        return tuple(self._run(self.client.events()))

    def approve(self, *events: str) -> None:
        self._run(self.client.approve(*events))

    def identity(self) -> Identity:
        found: Identity = self._run(self.client.identity())
        return found

    def next(self) -> Change:
        async def following() -> Change:
            return await anext(self._watch)

        change: Change = self._run(following())
        return change

    @property
    def status(self) -> EndpointStatus:
        return self.client.status

    def close(self) -> None:
        async def closed() -> None:
            await self.client.close()
            await self._watch.aclose()

        self._run(closed())
        self._runner.close()


FACES: dict[str, Callable[..., ClientVariant]] = {"Client": Blocking, "AsyncClient": Looping}


class CuttingProxy:
    """Takes connections and passes them on to `target`; or, while there are any, lets the next of
    `plays` loose on each."""

    def __init__(self, target: tuple[str, int] | None = None) -> None:
        self.target = target
        self.plays: list[bytes | None] = []  # what to say to a request; None: nothing, for ever
        self.played = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(LIMIT)

    def cut(self) -> None:
        """All connections."""
        for line in list(self._open):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._one, args=(near,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _one(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError):
            self._open.add(near)
            if self.plays:
                output = self.plays.pop(0)
                near.recv(65_536)
                self.played += 1
                if output is None:
                    near.recv(1)  # until the other side gives up
                else:
                    near.sendall(output)
            elif self.target is not None:
                with socket.create_connection(self.target) as far:
                    self._open.add(far)
                    back = threading.Thread(target=_passed, args=(far, near), daemon=True)
                    back.start()
                    _passed(near, far)
                    back.join(LIMIT)
                    self._open.discard(far)
        self._open.discard(near)


def _passed(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    for line in (source, target):
        with contextlib.suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)
