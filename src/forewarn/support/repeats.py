"""Count what happens again and again, and decide which occurrence is worth a line."""

from __future__ import annotations

MAX_KINDS = 1_000  # different things that are counted; further ones always get a line


class RepeatCounter:
    """Counts occurrences by their description. The first is worth a line, then the tenth, the
    hundredth and so on."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._next: dict[str, int] = {}

    def add(self, description: str, times: int = 1) -> tuple[int, bool]:
        """Count occurrences. Return how many there have been, and whether a line is due."""
        if description not in self._counts and len(self._counts) >= MAX_KINDS:
            return times, True
        count = self._counts[description] = self._counts.get(description, 0) + times
        if count < self._next.get(description, 1):
            return count, False
        self._next[description] = 10 ** len(str(count))
        return count, True
