"""Guard time: real, monotonic time for sockets, subprocesses and rates, never for decisions.

Also the one place where tasks are started, so that each has an owner that ends it. asyncio is
imported only where there is an event loop: a blocking client has none.
"""

from __future__ import annotations

import time  # noqa: TID251 - one of the two owners of time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine


_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)  # Linux has it


def monotonic() -> float:
    return time.monotonic()


def monotonic_us() -> int:
    return time.monotonic_ns() // 1_000


def processor_us() -> int:
    """Return the processor time of this thread, which does not pass while others are running."""
    return time.thread_time_ns() // 1_000


def boottime() -> float:
    """Return seconds of a monotonic clock that also counts time in which the computer is suspended,
    where the system has one."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


def boottime_us() -> int:
    """The same, in microseconds."""
    return monotonic_us() if _BOOTTIME is None else time.clock_gettime_ns(_BOOTTIME) // 1_000


def wall_us() -> int:
    return time.time_ns() // 1_000


async def pause(seconds: float) -> None:
    import asyncio

    await asyncio.sleep(seconds)  # noqa: TID251 - the owner


class Tasks:
    """Tasks with one owner. An exception ends only its own task and is passed to `on_error`."""

    def __init__(self, on_error: Any = None) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._on_error = on_error

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        import asyncio

        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) and self._on_error:
            self._on_error(task.get_name(), error)

    async def end(self) -> None:
        """Cancel the tasks that still run, and wait for them. Each of them has begun by then: what
        one was given, such as a connection, it closes itself."""
        import asyncio

        await asyncio.sleep(0)  # noqa: TID251 - the owner
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
