"""Questions to the endpoint that take their time: one of each at a time, and again after a pause if
it came to nothing. They are forgotten with the process; whoever plans asks for them anew."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from forewarn.support.guard import Tasks, monotonic

ERRAND_PAUSE = 1.0  # seconds before an errand is run again, doubled with every failure
MAX_ERRAND_PAUSE = 30.0

Key = tuple[str, str]


class RetriedCalls:
    def __init__(self, tasks: Tasks, done: Callable[[str], None]) -> None:
        self._tasks = tasks
        self._done = done
        self._under_way: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._not_before: dict[Key, float] = {}

    def run(self, key: Key, errand: Callable[[], Awaitable[None]]) -> None:
        """Unless it is under way, or is to wait."""
        if key in self._under_way or monotonic() < self._not_before.get(key, 0.0):
            return
        self._under_way.add(key)
        self._not_before.pop(key, None)
        self._tasks.start(self._run(key, errand), f"{key[1]} {key[0]}")

    def later(self, key: Key) -> None:
        """It is to be run again, but not at once."""
        self._not_before[key] = monotonic() + ERRAND_PAUSE

    def due(self) -> set[str]:
        """Return the cases with an errand that has waited long enough."""
        now = monotonic()
        keys = [key for key, at in self._not_before.items() if at <= now]
        for key in keys:
            del self._not_before[key]
        return {key[0] for key in keys}

    def next(self) -> float | None:
        """When the first of those that wait may be run."""
        return min(self._not_before.values(), default=None)

    def forget(self, case: str) -> None:
        """What is under way ends by itself."""
        for about in (self._failures, self._not_before):
            for key in [key for key in about if key[0] == case]:
                del about[key]

    async def _run(self, key: Key, errand: Callable[[], Awaitable[None]]) -> None:
        try:
            await errand()
        except Exception:  # whoever runs the errand has said what was wrong
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            pause = min(MAX_ERRAND_PAUSE, ERRAND_PAUSE * 2.0 ** min(failures - 1, 10))
            self._not_before[key] = monotonic() + pause
        else:
            self._failures.pop(key, None)
        finally:
            self._under_way.discard(key)
            self._done(key[0])
