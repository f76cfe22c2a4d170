"""Calls of the endpoint that are retried: each call runs once at a time, and again after a pause if
it failed. They are forgotten with the process; planning then asks for them again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from forewarn.support.guard import Tasks, monotonic

CALL_PAUSE = 1.0  # seconds before a call is retried, doubled with every failure
MAX_CALL_PAUSE = 30.0

Key = tuple[str, str]  # the ID of a case, and the name of a call
Call = Callable[[], Awaitable[None]]


class RetriedCalls:
    def __init__(self, tasks: Tasks, on_done: Callable[[str], None]) -> None:
        """`on_done` is called with the ID of a case whenever a call for it has ended."""
        self._tasks = tasks
        self._on_done = on_done
        self._in_progress: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._not_before: dict[Key, float] = {}

    def run(self, key: Key, call: Call) -> None:
        """Start a call, unless it is in progress or has to wait."""
        if key in self._in_progress or monotonic() < self._not_before.get(key, 0.0):
            return
        self._in_progress.add(key)
        self._not_before.pop(key, None)
        self._tasks.start(self._run(key, call), f"{key[1]} {key[0]}")

    def repeat(self, key: Key) -> None:
        """Have a call that succeeded run again after a pause."""
        self._not_before[key] = monotonic() + CALL_PAUSE

    def due(self) -> set[str]:
        """Return the cases with a call that has waited long enough."""
        now = monotonic()
        keys = [key for key, at in self._not_before.items() if at <= now]
        for key in keys:
            del self._not_before[key]
        return {case for case, _ in keys}

    def next_retry(self) -> float | None:
        """Return when the first waiting call may run, in guard time."""
        return min(self._not_before.values(), default=None)

    def forget(self, case: str) -> None:
        """Forget the calls for a case. One that is in progress ends by itself."""
        for values in (self._failures, self._not_before):
            for key in [key for key in values if key[0] == case]:
                del values[key]

    async def _run(self, key: Key, call: Call) -> None:
        try:
            await call()
        except Exception:  # the call has reported what was wrong
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            pause = min(MAX_CALL_PAUSE, CALL_PAUSE * 2.0 ** min(failures - 1, 10))
            self._not_before[key] = monotonic() + pause
        else:
            self._failures.pop(key, None)
        finally:
            self._in_progress.discard(key)
            self._on_done(key[0])
