"""Waiting until guests are shown what was committed.

In a service of one process they are at once. With several processes, the one that publishes changes
to the others knows: `metadata.publishing.publisher`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class Publisher(Protocol):
    async def shown(self, groups: Collection[str]) -> None:
        """Return when all that was committed for these groups is shown."""
        ...


class Publishing:
    """Whoever waits asks here, because the publisher is there only while this process decides."""

    def __init__(self) -> None:
        self.publisher: Publisher | None = None

    async def shown(self, groups: Collection[str]) -> None:
        if self.publisher is not None:
            await self.publisher.shown(groups)
