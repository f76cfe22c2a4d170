"""How a client stands with its endpoint: where that is, which version it knows, whether it lets one
wait, what its clock says. Shared by all questions of one client; each poll is asked here.

Generators of steps, like `rules.py`. Versions come from our own table alone, downwards: what an
error says about versions is about the whole of the metadata service.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from forewarn.client import pace
from forewarn.client.document import NotADocument, read
from forewarn.client.events import Document, moment
from forewarn.client.status import EndpointStatus
from forewarn.client.steps import TROUBLES, Answer, Ask, Location, Steps
from forewarn.support import guard
from forewarn.wire import extensions
from forewarn.wire.requests import EVENTS_PATH
from forewarn.wire.server_clock import ServerClock
from forewarn.wire.versions import NEWEST, VERSIONS

DOWNWARDS = tuple(reversed(VERSIONS))
MAX_TAG = 256  # characters of an ETag that is sent back
ELSEWHERE = ("refused", "unreachable", "late", "answered 404")  # it may have moved
NONE_FOUND = "none-found"  # a kind of trouble: nobody knows where to ask
NOT_OFFERED = (400, 403, 404, 405, 501)  # answers to a long-poll where there is none


class ClockOffset(msgspec.Struct, frozen=True, kw_only=True):
    """A document in hand, and what it was known by when it came."""

    document: Document
    place: Location
    version: int  # how far down
    tag: str = ""

    @property
    def hidden(self) -> frozenset[str]:
        """The types of event that its version does not list."""
        return frozenset(NEWEST.types) - frozenset(DOWNWARDS[self.version].types)


class EndpointState:
    def __init__(self, said: Location | None, *, wait: bool, clock: Callable[[], float]) -> None:
        self.place = said
        self.version = 0  # how far down
        self.patience = pace.FIRST_ANSWER  # for the next document
        self.known: Location | None = None  # where documents have come from
        self._movable = said is None
        self._clock = clock
        self._ticking = ServerClock(guard.wall_us() / 1e6 - clock())
        self._newest_again = 0.0  # when to try the newest once more
        self._refusals = 0  # of the version, in a row
        self._wait_at = 0.0 if wait else float("inf")  # from when on a long-poll is tried
        self._waits = False  # is it offered?
        self._lost_waits = 0
        self._failing: float | None = None  # since when
        self._trouble = "nothing has been asked yet"
        self._since = self.now()
        self._answers = self._troubles = 0
        self._kinds: dict[str, int] = {}

    def now(self) -> datetime:
        return moment(self._clock() + self._ticking.offset)

    @property
    def standing(self) -> EndpointStatus:
        return EndpointStatus(
            endpoint=None if self.place is None else str(self.place),
            version=DOWNWARDS[self.version].name,
            long_poll=self._waits,
            trouble=self._trouble,
            since=self._since,
            answers=self._answers,
            troubles=self._troubles,
            kinds=dict(self._kinds),
        )

    # How it is asked

    def ask(
        self,
        place: Location,
        target: str,
        within: float,
        *,
        method: str = "GET",
        body: bytes | None = None,
        tag: str = "",
        held: bool = False,
    ) -> Steps[Answer]:
        """`held`: what is answered is answered at the end of the time that it takes."""
        answer: Answer = yield Ask(
            place=place,
            target=target,
            method=method,
            body=body,
            tag=tag,
            connect=pace.CONNECT,
            answer=within,
        )
        self._answers += answer.status is not None
        asked = max(answer.asked, answer.answered - pace.ON_ITS_WAY) if held else answer.asked
        self._ticking.learn(answer.header("date"), asked, answer.answered)
        return answer

    def polled(
        self, place: Location, held: ClockOffset | None, within: float
    ) -> Steps[ClockOffset | Answer]:
        """The document; what came, if that is none. In the newest version that is known there."""
        refused: Answer | None = None
        versions = self._versions(place)
        for version in versions:
            same = held is not None and (held.place, held.version) == (place, version)
            tag = held.tag if held is not None and same else ""
            answer = yield from self.ask(place, events_target(version), within, tag=tag)
            if answer.status != 400:
                got = _read(answer, place, version, held if tag else None)
                if isinstance(got, ClockOffset):
                    self._knows(place, version, newest_tried=versions.start == 0)
                return got
            refused = refused or answer
        self._refusals += 1
        assert refused is not None
        return refused

    def waited(self, held: ClockOffset, seconds: float) -> Steps[ClockOffset | Answer]:
        """The document when it is another, or the same when the time is up."""
        version = DOWNWARDS[held.version].name
        target = f"{extensions.WAIT}?timeout={seconds:.3f}&api-version={version}"
        within = seconds + pace.WAIT_LATE
        answer = yield from self.ask(held.place, target, within, tag=held.tag, held=True)
        got = _read(answer, held.place, held.version, held)
        if isinstance(got, ClockOffset):
            self._waits, self._lost_waits = True, 0
        return got

    def _versions(self, place: Location) -> range:
        """Which to ask for, until one is known. Older ones show fewer events, so one that was known
        is not lightly doubted, and the newest is tried again after a while."""
        if place != self.known:
            return range(len(DOWNWARDS))
        again = self._clock() >= self._newest_again
        doubted = self._refusals >= pace.DOUBT
        return range(0 if again else self.version, len(DOWNWARDS) if doubted else self.version + 1)

    def _knows(self, place: Location, version: int, *, newest_tried: bool) -> None:
        if version and newest_tried:
            self._newest_again = self._clock() + pace.NEWEST_AGAIN
        self.known, self.version, self._refusals = place, version, 0

    # Whether it lets one wait

    def may_wait(self, held: ClockOffset | None, wanted: float) -> bool:
        if held is None or not held.tag or (held.place, held.version) != (self.place, self.version):
            return False
        if self.version and self._clock() >= self._newest_again:
            return False
        return wanted >= pace.WAIT_LEAST and self._clock() >= self._wait_at

    def wait_failed(self, answer: Answer) -> None:
        """While polls go well. Not offered: then not for a while. Lost on the way: a few times."""
        self._lost_waits += 1
        if answer.status in NOT_OFFERED or self._lost_waits >= pace.WAIT_TRIES:
            self._waits, self._lost_waits = False, 0
            self._wait_at = self._clock() + pace.WAIT_AGAIN

    # How it goes

    def well(self, place: Location) -> None:
        self.place, self.patience, self._failing = place, pace.ANSWER, None
        if self._trouble:
            self._trouble, self._since = "", self.now()

    def bad(self, trouble: str, kind: str = NONE_FOUND, *, late: bool = False) -> None:
        if self._failing is None:
            self._failing, self._since = self._clock(), self.now()
        self._troubles += 1
        self._kinds[kind] = self._kinds.get(kind, 0) + 1
        self._trouble = trouble
        if late:  # perhaps it is being switched on again, and would have answered a little later
            self.patience = min(self.patience * 2, pace.FIRST_ANSWER)

    def failed(self, place: Location, answer: Answer) -> None:
        """The endpoint has given no document. One that was found and is gone may be elsewhere by
        now."""
        code = said(answer)
        self.bad(TROUBLES.get(code, code), kind(answer), late=answer.trouble == "late")
        lost = self._failing is not None and self._clock() - self._failing >= pace.LOST
        if self._movable and lost and code in ELSEWHERE and self.place == place:
            self.place = self.known = None
            self.version, self.patience = 0, pace.FIRST_ANSWER


def events_target(version: int) -> str:
    return f"{EVENTS_PATH}?api-version={DOWNWARDS[version].name}"


def said(answer: Answer) -> str:
    """What came instead of a document, in a few words; or one of `TROUBLES`."""
    if answer.status is None:
        return answer.trouble
    if answer.status != 200:
        return f"answered {answer.status}"
    try:
        read(answer.body)
    except NotADocument as error:
        return f"answered {error}"
    return "answered"


def kind(answer: Answer) -> str:
    """The same in one of a few words, for counting: a status by its class."""
    if answer.status is None:
        return answer.trouble
    return "not-a-document" if answer.status == 200 else f"{answer.status // 100}xx"


def _read(
    answer: Answer, place: Location, version: int, held: ClockOffset | None
) -> ClockOffset | Answer:
    if answer.status == 304 and held is not None:
        return held
    if answer.status != 200:
        return answer
    try:
        document = read(answer.body)
    except NotADocument:
        return answer
    tag = answer.header("etag")
    tag = tag if len(tag) <= MAX_TAG else ""
    return ClockOffset(document=document, place=place, version=version, tag=tag)
