"""The client on one machine: how often and how it polled, and the answers it got.

Only counts and the last few of everything are kept, so that a client that polls for a year takes
no more memory than one that polls for a minute.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from forewarn.traces.exchanges import Exchange, Stamp, before, passed, seconds_between
from forewarn.traces.lines import printable
from forewarn.verdict.documents import ShownDocument
from forewarn.verdict.rules import (
    HAMMERING_RATE,
    HAMMERING_SECONDS,
    MIN_CHANCE,
    MIN_INTERVALS,
    STALLED_SECONDS,
)
from forewarn.verdict.values import Conduct

MAX_INTERVALS = 64  # the last ones, of which the median is taken
MAX_VERSIONS = 16  # api-versions that are counted separately
MAX_KINDS = 64  # statuses and kinds of faults that are counted separately
MAX_LONG_REQUESTS = 16  # that took so long that they may have prevented a poll
MAX_CALLERS = 16  # programs that poll as one machine and are waited for separately
OTHERS = "others"
STALLED = "stalled"  # the fault of an answer that does not come, or only in part
RECORDED_HEADERS = (
    "metadata",
    "user-agent",
    "if-none-match",
    "connection",
    "content-type",
    "accept",
)


class Unresponsive(NamedTuple):
    """That a clock has waited in vain for a client, which had polled before."""

    at: Stamp
    seconds: float  # real seconds for which it was waited for
    last: float  # time of its last request
    by_itself: bool  # it has polled while a test was waiting, so that no test sent its requests
    excused: bool  # its machine was being disturbed
    unanswered: bool  # its request was waiting for an answer
    trouble: str  # what was wrong with its last answer
    fault: str = ""  # why it was waiting for an answer

    @property
    def counts(self) -> bool:
        """Whether it is held against the client."""
        return self.by_itself and not self.excused and not self.unanswered


class Stalled(NamedTuple):
    """That a client has waited for an answer that did not come."""

    at: float
    seconds: float  # at least


class Client:
    """How the client on one machine polled. `polls` counts all polls, whatever the answer was."""

    def __init__(self, machine: str, group: str) -> None:
        self.machine, self.group = machine, group
        self.polls = self.waits = self.approvals = 0
        self.first: Stamp | None = None
        self.asked: Stamp | None = None  # time of the last poll
        self.done: Stamp | None = None  # time of the last answer to a poll
        self.trouble = ""  # what was wrong with the last answer, if it was unusable
        self.faulty = False  # the last answer to a poll was changed by a fault
        self.idle = False  # the last answer to a poll showed nothing new, so nothing is to be done
        self.documents: dict[str, ShownDocument] = {}  # the last one, by version
        self.long_requests: deque[tuple[Stamp, Stamp]] = deque(maxlen=MAX_LONG_REQUESTS)
        self.refused = 0  # answers 429 in a row
        self.refused_since: Stamp | None = None
        self.requested: Stamp | None = None  # time of the last request of any kind
        self.unresponsive: dict[str, Unresponsive] = {}  # by the id of the program that polls
        self.slow: Unresponsive | None = None  # the first time that it was waited for in vain
        self.stalled: Stalled | None = None  # the first time that it did not give up a request
        self.correct = False  # one of its polls was as it should be
        self.mistaken = False  # one of its requests was refused, for which it is blamed
        self.hammered = 0.0  # highest rate, in polls a second
        self.hammered_at = 0.0
        self.paused = False  # the service or its machine was down, and it has not polled since
        self.away = False  # the same, where no event of its own says so
        self._burst: Stamp | None = None
        self._burst_asks = 0
        self._longest: float | None = None
        self._real: deque[float] = deque(maxlen=MAX_INTERVALS)
        self._on_clock: deque[float] = deque(maxlen=MAX_INTERVALS)
        # From an answer to the next poll, by the slower clock.
        self._gaps: deque[float] = deque(maxlen=MAX_INTERVALS)
        self._idle_gaps: deque[float] = deque(maxlen=MAX_INTERVALS)  # after answers without news
        self._versions: dict[str, int] = {}
        self._approval_versions: dict[str, int] = {}
        self._headers: dict[str, str] = {}
        self._statuses: dict[str, int] = {}
        self._faults: dict[str, int] = {}

    def add(self, request: Exchange) -> None:
        """Add any request."""
        self.requested = request.asked
        for name in RECORDED_HEADERS:
            value = request.headers.get(name)
            if value is not None and self._headers.get(name) != value:
                self._headers[name] = printable(value)
        _count(self._statuses, "none" if request.status is None else str(request.status), MAX_KINDS)
        if request.fault:
            _count(self._faults, request.fault, MAX_KINDS)
        if request.fault == STALLED:
            self._stalled(request)
        if request.took >= MIN_CHANCE:
            self.long_requests.append((request.asked, request.done))

    def polled(self, request: Exchange, *, waited: bool) -> None:
        """Add a poll."""
        self.polls += 1 + request.same
        self.waits += waited
        _count(self._versions, request.version or "none", MAX_VERSIONS, 1 + request.same)
        if self.asked is not None and self.done is not None and not self.paused:
            self._add_intervals(self.asked, self.done, request.asked, 1 + request.same)
        self.first = self.first or request.asked
        self.asked, self.done, self.paused, self.away = request.asked, request.done, False, False
        self.faulty = bool(request.fault)
        self._measure_rate(request.asked, 1 + request.same)

    def approved(self, request: Exchange) -> None:
        self.approvals += 1
        _count(self._approval_versions, request.version or "none", MAX_VERSIONS)

    def pause(self, now: Stamp) -> None:
        """Ignore the time until the next poll: the service was down, or its clock was stepped."""
        self.paused, self.away, self._burst = True, True, None
        if self.done is not None:
            self.done = now

    def stopped_responding(self, caller: str, silence: Unresponsive) -> None:
        """Note that a client was waited for in vain: since the first time, until it polls again,
        and excused only as long as that is."""
        if silence.fault == STALLED and silence.by_itself:
            self.stalled = self.stalled or Stalled(silence.at.t, silence.seconds)
        earlier = self.unresponsive.get(caller)
        if earlier is not None:
            if earlier.excused or earlier.unanswered:
                self.unresponsive[caller] = silence._replace(at=earlier.at)
        elif len(self.unresponsive) < MAX_CALLERS:
            self.unresponsive[caller] = silence

    def responds(self, caller: str) -> None:
        """Note that a client which was waited for in vain has polled again."""
        silence = self.unresponsive.pop(caller, None)
        if silence is not None and silence.counts:
            self.slow = self.slow or silence

    def hung(self, moment: Stamp) -> bool:
        """Return whether a request was waiting for its answer then."""
        return any(
            before(asked, moment) and before(moment, done) for asked, done in self.long_requests
        )

    def unresponsive_before(self, moment: Stamp) -> list[Unresponsive]:
        """Return how clients had been waited for in vain by then that have not polled since."""
        return [silence for silence in self.unresponsive.values() if before(silence.at, moment)]

    @property
    def always_refused(self) -> bool:
        """Whether it never got a document because of its own mistake, which is the only finding:
        whatever else it failed to do follows from that."""
        return self.mistaken and not self.correct

    @property
    def gap(self) -> float | None:
        """The time that it lets pass from an answer to the next poll; None if too few are known.

        It is the median, or more if it repeatedly lets more pass while there is nothing to do.
        """
        if len(self._gaps) < MIN_INTERVALS:
            return None
        while_idle = sorted(self._idle_gaps)[-MIN_INTERVALS:]
        repeated = while_idle[0] if len(while_idle) == MIN_INTERVALS else 0.0
        return max(statistics.median(self._gaps), repeated)

    @property
    def longest_gap(self) -> float | None:
        """The longest time from an answer to the next poll lately; None if too few are known."""
        return max(self._gaps) if len(self._gaps) >= MIN_INTERVALS else None

    @property
    def usual_interval(self) -> float:
        """The median interval between polls, in real seconds."""
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

    def _stalled(self, request: Exchange) -> None:
        """Note how a request ended that got no answer: by the client, or after a long while."""
        if request.gave_up:
            self.stalled = None
        elif request.took >= STALLED_SECONDS:
            self.stalled = self.stalled or Stalled(request.asked.t, request.took)

    def _add_intervals(self, asked: Stamp, done: Stamp, now: Stamp, polls: int) -> None:
        """Add the intervals of `polls` polls, which are assumed to be equally spaced."""
        on_clock = real = now.t - asked.t
        if asked.real is not None and now.real is not None:
            real = now.real - asked.real
        if real < 0 or on_clock < 0:  # concurrent requests, answered out of order
            return
        real, on_clock = real / polls, on_clock / polls
        self._real.append(real)
        self._on_clock.append(on_clock)
        if not self.trouble:  # after which a client may wait longer
            gap = seconds_between(done, now) / polls
            self._gaps.append(gap)
            if self.idle:
                self._idle_gaps.append(gap)
        self._longest = max(real, self._longest or 0.0)

    def _measure_rate(self, now: Stamp, polls: int) -> None:
        if self._burst is None:
            self._burst, self._burst_asks = now, 0
        self._burst_asks += polls
        lasted = passed(self._burst, now)
        if lasted >= HAMMERING_SECONDS:
            rate = self._burst_asks / lasted
            if rate > max(HAMMERING_RATE, self.hammered):
                self.hammered, self.hammered_at = rate, self._burst.t
            self._burst = None


def _count(counts: dict[str, int], key: str, max_keys: int, times: int = 1) -> None:
    if key not in counts and len(counts) >= max_keys:
        key = OTHERS
    counts[key] = counts.get(key, 0) + times


def _median(lengths: Iterable[float]) -> float | None:
    values = list(lengths)
    return round(statistics.median(values), 3) if values else None
