"""Following the clock of a service in another process, for a program under `FakeTime`.

The service is asked again and again, so a program sees a move a moment after the service does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

FOLLOW_EVERY = 0.02  # seconds between two looks at the service's clock


class FollowedClock:
    """While it lasts, `tell` is called with every time that `look` has not returned before.

    `look` returns None where there is nothing to be had: the service may be away for a while."""

    def __init__(self, look: Callable[[], int | None], tell: Callable[[int], None]) -> None:
        self._look, self._tell = look, tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="clock", daemon=True)

    def _follow(self) -> None:
        told = None
        while not self._over.wait(FOLLOW_EVERY):
            at = self._look()
            if at is not None and at != told:
                self._tell(at)
                told = at

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
