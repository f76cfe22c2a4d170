"""Counters of the endpoint, and the metrics that are made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Protocol

import msgspec

from forewarn.metadata.endpoint.limits import OPEN_FILES, Limits
from forewarn.service.telemetry.samples import Sample, counter, gauge
from forewarn.support.logs import logger
from forewarn.wire.versions import VERSIONS

ROWS = {version.name: 2 * n for n, version in enumerate(VERSIONS)}
NAMES = (*(field.name for field in msgspec.structs.fields(Limits)), OPEN_FILES)
STATUSES = (400, 404, 405, 408, 413, 429, 500, 503)  # of refusals: all that there are
LOG_EVERY = 60.0  # seconds of guard time between two log records about the same limit

log = logger("forewarn")


class FrontCounts(Protocol):
    """The counters of `Front`."""

    answered: int
    handed_over: int


class EndpointCounts:
    def __init__(self) -> None:
        self.polls = [0, 0] * len(VERSIONS)  # answered 200 and 304, from its version's row on
        self.unknown_callers = 0  # requests from addresses that no machine has
        self.hits = Counter(dict.fromkeys(NAMES, 0))  # by the name of the limit that was reached
        self.refused = Counter(dict.fromkeys(STATUSES, 0))  # requests, by the status they got
        self._last_caller: dict[
            str, str
        ] = {}  # by limit: the caller that last reached it, until logged
        self._logged: dict[str, tuple[float, int]] = {}  # when, and how many hits there were

    def by_version_and_status(self) -> Iterator[tuple[str, int, int]]:
        for version, row in ROWS.items():
            yield version, 200, self.polls[row]
            yield version, 304, self.polls[row + 1]

    def hit(self, limit: str, caller: str) -> None:
        self.hits[limit] += 1
        self._last_caller[limit] = caller

    def log_hits(self, now: float) -> None:
        """Log which limits were reached since the last call, each at most every LOG_EVERY."""
        for limit, caller in list(self._last_caller.items()):
            logged_at, logged = self._logged.get(limit, (-LOG_EVERY, 0))
            if now - logged_at >= LOG_EVERY:
                times = self.hits[limit] - logged
                log.warning("a limit was reached", limit=limit, times=times, last=caller)
                self._logged[limit] = now, self.hits[limit]
                del self._last_caller[limit]

    def readings(self, connections: int, front: FrontCounts | None) -> list[Sample]:
        """Return the metrics. `connections` is how many are open now."""
        polls: dict[tuple[str, ...], float] = {
            (version, str(status)): n for version, status, n in self.by_version_and_status()
        }
        refused: dict[tuple[str, ...], float] = {
            (str(status),): n for status, n in sorted(self.refused.items())
        }
        hits: dict[tuple[str, ...], float] = {(limit,): n for limit, n in sorted(self.hits.items())}
        return [
            counter(
                "forewarn_polls",
                "Documents answered, by api-version and status",
                polls,
                "api_version",
                "status",
            ),
            counter(
                "forewarn_refusals",
                "Guests' requests that were refused, by status",
                refused,
                "status",
            ),
            counter(
                "forewarn_unknown_caller_requests",
                "Requests from addresses that belong to no machine",
                {(): self.unknown_callers},
            ),
            counter(
                "forewarn_limit_hits",
                "How often a caller reached a limit, by the name of its setting",
                hits,
                "limit",
            ),
            gauge(
                "forewarn_connections", "Connections that are held for callers", {(): connections}
            ),
            counter(
                "forewarn_front_answers",
                "Polls that were answered on the fast path",
                {(): front.answered if front else 0},
            ),
            counter(
                "forewarn_front_handovers",
                "Connections that were handed over to the slow path",
                {(): front.handed_over if front else 0},
            ),
        ]
