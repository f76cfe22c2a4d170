"""Python's own time made to follow a service's virtual clock.

`time_machine` patches it for the whole process. What measures durations is left alone:
`time.monotonic`, timeouts, event loops, and sleeping.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from forewarn.core.time import SECOND
from forewarn.service.engine.clock import VirtualClock
from forewarn.testing.errors import RefusedError

if TYPE_CHECKING:
    import time_machine

F = TypeVar("F", bound=Callable[..., Any])

_patched = threading.Lock()  # a process has one time


class TimePatch:
    """A block or a decorated function in which Python's time is the service's: `clock.patch()`."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # the clock moves in the service's thread
        self._at = clock.at
        self._travel: time_machine.travel | None = None
        self._traveller: time_machine.Traveller | None = None
        self._unfollow: Callable[[], None] = lambda: None

    def __enter__(self) -> TimePatch:
        """Make Python's time follow the clock."""
        travel = _travel()
        if not _patched.acquire(blocking=False):
            raise RefusedError(
                "Python's time follows a service's clock already; leave that patch() first"
            )
        try:
            with self._lock:
                self._unfollow = self._clock.on_move(self._moved)
                self._at = self._clock.at
                self._travel = travel(self._at // SECOND, tick=False)
                self._traveller = self._travel.start()
                self._traveller.shift(timedelta(microseconds=self._at % SECOND))
        except BaseException:
            self._unfollow()
            _patched.release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Give Python its own time back."""
        with self._lock:
            self._unfollow()
            self._traveller = None
        assert self._travel is not None
        self._travel.stop()
        _patched.release()

    def __call__(self, function: F) -> F:
        """Decorate a function or a coroutine function."""
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return cast(F, awaited)

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return cast(F, called)

    def _moved(self) -> None:
        with self._lock:
            if self._traveller is not None:
                self._traveller.shift(timedelta(microseconds=self._clock.at - self._at))
                self._at = self._clock.at


def _travel() -> type[time_machine.travel]:
    try:
        import time_machine
    except ImportError as error:
        raise RefusedError(
            "patch() moves Python's time with time-machine, which is not installed:"
            " pip install 'forewarn[test]'"
        ) from error
    return time_machine.travel
