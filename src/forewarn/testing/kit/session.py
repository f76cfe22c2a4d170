"""The life of a service inside a test: a node in a thread and loop of its own, once.

What it is asked to do is elsewhere. Here is when it may be asked at all: from which thread, in
which process, and not before it has started or after it has stopped.
"""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from forewarn.node import Node
from forewarn.support import guard
from forewarn.testing.kit.clock import one_voice
from forewarn.testing.kit.errors import RefusedByService

P = ParamSpec("P")
T = TypeVar("T")

NOT_YET = "this service has not started; use it inside 'with Service() as service:'"
OVER = "this service has stopped; what a test asks of it belongs inside its 'with' block"
ONCE = "a service lives once; make another with Service()"
FORKED = (
    "this process is a fork of the one that the service lives in; ask over its sockets"
    " (take machine.url before the fork)"
)
STOP_WITHIN = 15.0  # seconds that its thread is given to end, which takes it a millisecond
OWN_THREAD = "this is the service's own thread, which cannot wait for itself; ask from the test's"


class Session:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop  # from the start on
        self._process = os.getpid()
        self._over = False
        self._handing = threading.Lock()  # nothing is handed to a loop after it was told to stop

    @property
    def node(self) -> Node:
        """All the parts of the real thing, for whoever wants more than the kit offers."""
        if self._thread is None:
            raise RefusedByService(NOT_YET)
        return self._node

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise RefusedByService(ONCE)
        self._process = os.getpid()
        loop = self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_live, args=(loop,), name="forewarn", daemon=True)
        self._thread.start()
        try:
            self.run(self._node.__aenter__())
            self._started()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if self._over or os.getpid() != self._process:  # it goes on where it lives
            return
        try:
            self.run(self._node.__aexit__(kind, value, tb))
        finally:
            self._end()

    async def __aenter__(self) -> Self:
        return await self.aio(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.aio(self.__exit__, kind, value, tb)

    def __del__(self) -> None:
        loop = self.__dict__.get("_loop")
        if loop is None or self._over or os.getpid() != self._process:
            return
        warnings.warn(f"{self!r} was never stopped", ResourceWarning, stacklevel=1, source=self)
        asyncio.run_coroutine_threadsafe(_leave(self._node, loop), loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the service's loop and wait for it."""
        future = self.submit(work)
        try:
            return future.result()
        except CancelledError:
            if self._over:  # meanwhile
                raise RefusedByService(OVER) from None
            raise
        except BaseException:  # also Ctrl-C: nobody waits for it any more
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run something in the service's loop, and do not wait for it."""
        wrong = self._wrong()
        if not wrong:
            with self._handing:
                if not self._over:
                    return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise RefusedByService(wrong or OVER)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call something in the service's loop, where nothing changes meanwhile."""

        async def called() -> T:
            return function(*args, **kwargs)

        return self.run(called())

    async def aio(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Any verb of the kit, awaited: the test's own loop goes on meanwhile, and with it the
        client under test. `await service.aio(service.clock.play, "15m")`."""
        with one_voice():
            return await asyncio.to_thread(verb, *args, **kwargs)

    def settle(self) -> None:
        """Until everything that was set going has happened."""
        self.run(self.node.ledger.idle())

    def _started(self) -> None:
        """For whoever wants to know of everything from the start."""

    def _wrong(self) -> str:
        if self._thread is None:
            return NOT_YET
        if self._over:
            return OVER
        if os.getpid() != self._process:
            return FORKED
        if threading.current_thread() is self._thread:
            return OWN_THREAD
        return ""

    def _end(self) -> None:
        assert self._thread is not None
        with self._handing:
            self._over = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_WITHIN)
        if self._thread.is_alive():  # better told than waited for: it is in nobody's way
            warnings.warn(f"{self!r} does not come to its end", ResourceWarning, stacklevel=3)


def _live(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        loop.run_until_complete(_nobody_waits())
    finally:
        loop.close()


async def _nobody_waits() -> None:
    """Whoever still waits for something, in whatever thread, is told that it will not come; and
    whoever waits for what has just been done is told that."""
    while left := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in left:
            task.cancel()
        await asyncio.wait(left)
    await guard.pause(0)


async def _leave(node: Node, loop: asyncio.AbstractEventLoop) -> None:
    """For one that was forgotten: nobody waits for it."""
    try:
        await node.__aexit__(None, None, None)
    finally:
        loop.stop()
