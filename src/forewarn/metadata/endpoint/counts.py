"""What the endpoint counts about itself, for whoever watches it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from forewarn.metadata.endpoint.limits import OPEN_FILES, Limits
from forewarn.support.logs import logger
from forewarn.wire.versions import VERSIONS

ROWS = {version.name: 2 * n for n, version in enumerate(VERSIONS)}
NAMES = (*(field.name for field in msgspec.structs.fields(Limits)), OPEN_FILES)
STATUSES = (400, 404, 405, 408, 413, 429, 500, 503)  # of refusals: all that there are
TELL_EVERY = 60.0  # seconds of guard time between two lines in the log about the same limit

log = logger("forewarn")


class EndpointCounts:
    def __init__(self) -> None:
        self.polls = [0, 0] * len(VERSIONS)  # answered 200 and 304, from its version's row on
        self.hits = Counter(dict.fromkeys(NAMES, 0))  # by the name of the limit that was reached
        self.refused = Counter(dict.fromkeys(STATUSES, 0))  # requests, by the status they got
        self._last: dict[str, str] = {}
        self._told: dict[str, tuple[float, int]] = {}

    def by_version_and_status(self) -> Iterator[tuple[str, int, int]]:
        for version, row in ROWS.items():
            yield version, 200, self.polls[row]
            yield version, 304, self.polls[row + 1]

    def hit(self, limit: str, who: str) -> None:
        self.hits[limit] += 1
        self._last[limit] = who

    def tell(self, now: float) -> None:
        """Say which limits were reached since they were last spoken of, but not too often."""
        for limit, who in list(self._last.items()):
            told_at, told = self._told.get(limit, (-TELL_EVERY, 0))
            if now - told_at >= TELL_EVERY:
                times = self.hits[limit] - told
                log.warning("a limit was reached", limit=limit, times=times, last=who)
                self._told[limit] = now, self.hits[limit]
                del self._last[limit]
