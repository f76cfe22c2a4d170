"""The client on one machine: how often and how it polled, and what it was answered.

Only counts and the last few of everything are kept, so that a client that polls for a year takes
no more memory than one that polls for a minute.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable

from forewarn.traces.exchanges import Exchange, Stamp, apart, passed
from forewarn.traces.lines import printable
from forewarn.verdict.documents import ShownDocument
from forewarn.verdict.rules import CHANCE, HAMMERED, HAMMERING, LEAST_INTERVALS
from forewarn.verdict.values import Conduct

KEPT_INTERVALS = 64  # of which the median is taken
MAX_VERSIONS = 16  # that are told apart; of what else a machine makes up, only the number
MAX_KINDS = 64  # kinds that are told apart
LONG_REQUESTS = 16  # requests that took long, and so may have kept a client from asking again
OTHERS = "others"
RECORDED_HEADERS = (
    "metadata",
    "user-agent",
    "if-none-match",
    "connection",
    "content-type",
    "accept",
)


class Client:
    """`polls` counts requests for the document, however they were answered."""

    def __init__(self, machine: str, group: str) -> None:
        self.machine, self.group = machine, group
        self.polls = self.waits = self.approvals = 0
        self.first: Stamp | None = None
        self.asked: Stamp | None = None  # when it last did
        self.done: Stamp | None = None  # and was answered
        self.trouble = ""  # with the last answer, if it was of no use
        self.documents: dict[str, ShownDocument] = {}  # what it was shown last, by version
        self.long: deque[tuple[Stamp, Stamp]] = deque(maxlen=LONG_REQUESTS)
        self.refused = 0  # in a row, for asking too often
        self.refused_since: Stamp | None = None
        self.hammered = 0.0  # polls a second, the most
        self.hammered_at = 0.0
        self.paused = False  # the service or its machine was away, and it has not asked since
        self._burst: Stamp | None = None
        self._burst_asks = 0
        self._longest: float | None = None
        self._real: deque[float] = deque(maxlen=KEPT_INTERVALS)
        self._on_clock: deque[float] = deque(maxlen=KEPT_INTERVALS)
        self._gaps: deque[float] = deque(maxlen=KEPT_INTERVALS)  # as far as they can be held to it
        self._versions: dict[str, int] = {}
        self._approval_versions: dict[str, int] = {}
        self._headers: dict[str, str] = {}
        self._statuses: dict[str, int] = {}
        self._faults: dict[str, int] = {}

    def add(self, request: Exchange) -> None:
        """Whatever it asked for."""
        for name in RECORDED_HEADERS:
            value = request.headers.get(name)
            if value is not None and self._headers.get(name) != value:
                self._headers[name] = printable(value)
        _more(self._statuses, "none" if request.status is None else str(request.status), MAX_KINDS)
        if request.fault:
            _more(self._faults, request.fault, MAX_KINDS)
        if request.took >= CHANCE:
            self.long.append((request.asked, request.done))

    def polled(self, request: Exchange, *, waited: bool) -> None:
        """It asked for the document."""
        self.polls += 1 + request.same
        self.waits += waited
        _more(self._versions, request.version or "none", MAX_VERSIONS, 1 + request.same)
        if self.asked is not None and self.done is not None and not self.paused:
            self._spaced(self.asked, self.done, request.asked, 1 + request.same)
        self.first = self.first or request.asked
        self.asked, self.done, self.paused = request.asked, request.done, False
        self._hurry(request.asked, 1 + request.same)

    def approved(self, request: Exchange) -> None:
        self.approvals += 1
        _more(self._approval_versions, request.version or "none", MAX_VERSIONS)

    def pause(self, now: Stamp) -> None:
        """The service was away, or its clock was stepped: what lies in between says nothing."""
        self.paused, self._burst = True, None
        if self.done is not None:
            self.done = now

    @property
    def gap(self) -> float | None:
        """How long it lets pass between two polls, as far as it can be held to that."""
        return statistics.median(self._gaps) if len(self._gaps) >= LEAST_INTERVALS else None

    @property
    def usual(self) -> float:
        """Real seconds from one poll to the next."""
        return statistics.median(self._real) if self._real else 0.0

    def conduct(self) -> Conduct:
        return Conduct(
            machine=self.machine,
            group=self.group,
            polls=self.polls,
            waits=self.waits,
            approvals=self.approvals,
            every=_median(self._real),
            longest=None if self._longest is None else round(self._longest, 3),
            on_clock=_median(self._on_clock),
            first=self.first.t if self.first else None,
            last=self.asked.t if self.asked else None,
            versions=dict(self._versions),
            approval_versions=dict(self._approval_versions),
            headers=dict(self._headers),
            statuses=dict(self._statuses),
            faults=dict(self._faults),
        )

    def _spaced(self, asked: Stamp, done: Stamp, now: Stamp, polls: int) -> None:
        """So many polls, spread evenly as far as anybody knows."""
        on_clock = real = now.t - asked.t
        if asked.real is not None and now.real is not None:
            real = now.real - asked.real
        if real < 0 or on_clock < 0:  # several at once, whose answers came in another order
            return
        real, on_clock = real / polls, on_clock / polls
        self._real.append(real)
        self._on_clock.append(on_clock)
        if not self.trouble:  # after which one may wait a little
            self._gaps.append(apart(done, now) / polls)
        self._longest = max(real, self._longest or 0.0)

    def _hurry(self, now: Stamp, polls: int) -> None:
        if self._burst is None:
            self._burst, self._burst_asks = now, 0
        self._burst_asks += polls
        lasted = passed(self._burst, now)
        if lasted >= HAMMERED:
            rate = self._burst_asks / lasted
            if rate > max(HAMMERING, self.hammered):
                self.hammered, self.hammered_at = rate, self._burst.t
            self._burst = None


def _more(counts: dict[str, int], key: str, most: int, times: int = 1) -> None:
    if key not in counts and len(counts) >= most:
        key = OTHERS
    counts[key] = counts.get(key, 0) + times


def _median(lengths: Iterable[float]) -> float | None:
    known = list(lengths)
    return round(statistics.median(known), 3) if known else None
