"""The rules of asking: where, in which version, again when, and what an answer means.

One implementation, for clients that block and for those that do not: every method is a generator
of steps (`steps.py`). Nothing here waits, opens a socket or reads a clock but guard time's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

import msgspec

from forewarn import guard
from forewarn.client import identity as who
from forewarn.client import pace
from forewarn.client.changes import Following
from forewarn.client.errors import NoEndpoint, NotApproved, Unavailable
from forewarn.client.events import Document, Event, Look, moment
from forewarn.client.identity import Identity
from forewarn.client.reading import NotADocument, read
from forewarn.client.standing import Standing
from forewarn.client.steps import Answer, Ask, Place, Rest, Steps, Tell
from forewarn.wire import beside
from forewarn.wire.requests import EVENTS_PATH
from forewarn.wire.ticking import Ticking
from forewarn.wire.versions import VERSIONS

DOWNWARDS = tuple(version.name for version in reversed(VERSIONS))
NAMELESS = "answered without the name of this machine"
NOBODY = ("refused", "unreachable", "late")  # troubles of an endpoint that may be elsewhere


class Readiness(msgspec.Struct, frozen=True):
    """Who of an event's group has said to be ready, and who of the event's own has not."""

    ready: tuple[str, ...]
    waiting: tuple[str, ...]


class Rules:
    def __init__(
        self,
        said: Place | None,
        candidates: Callable[[], Iterable[Place]],
        *,
        wait: bool = True,
        interval: float = pace.INTERVAL,
        clock: Callable[[], float] = guard.monotonic,
    ) -> None:
        self._said = said
        self._candidates = candidates
        self._interval = interval
        self._clock = clock
        self._ticking = Ticking(guard.wall_us() / 1e6 - clock())
        self._place = said
        self._version = 0  # how far down
        self._newest_again = 0.0  # when to try the newest once more
        self._answered = False  # has this place ever given a document?
        self._patience = pace.FIRST_ANSWER  # for the next answer
        self._wait_at = 0.0 if wait else float("inf")  # from when on a long-poll is tried
        self._waits = False  # is it offered?
        self._lost_waits = 0
        self._tag = ""
        self._document: Document | None = None
        self._failures = 0  # in a row
        self._begun_to_fail = clock()
        self._good = clock()  # when an answer was last as it should be
        self._retry_after = ""
        self._trouble = "nothing has been asked yet"
        self._since = self.now()
        self._answers = self._troubles = 0
        self.following = Following()

    def now(self) -> datetime:
        return moment(self._clock() + self._ticking.offset)

    @property
    def standing(self) -> Standing:
        return Standing(
            endpoint=None if self._place is None else str(self._place),
            version=DOWNWARDS[self._version],
            long_poll=self._waits,
            trouble=self._trouble,
            since=self._since,
            answers=self._answers,
            troubles=self._troubles,
        )

    # What is asked for

    def looks(self, within: Callable[[], float] | None = None) -> Steps[None]:
        """For ever: every document that is answered, with what is new in it."""
        wanted = within or (lambda: float("inf"))
        while True:
            begun = self._clock()
            if self._place is None and (yield from self._found()) is None:
                yield Rest(pace.pause(self._failures))
                continue
            asked = yield from self._looked(wanted())
            if asked is None:
                self._give_up_on_the_place()
                yield Rest(pace.pause(self._failures, self._retry_after))
                continue
            document, rested = asked
            at = self.now()
            changes = self.following.look(document, at)
            yield Tell(Look(document=document, changes=changes, at=at))
            if not (rested and changes):  # a long-poll that told something is begun anew at once
                spent = self._clock() - begun
                rest = pace.jittered(self._interval) - spent
                if rest > 0 and not (rested and spent >= self._interval):
                    yield Rest(max(pace.LEAST_REST, min(rest, wanted())))

    def events(self, patience: float) -> Steps[tuple[Event, ...]]:
        until = self._clock() + patience
        while True:
            answer = yield from self._asked_somewhere(until)
            document = self._read(answer)
            if document is not None:
                return document.events
            yield self._again(until, answer)

    def approve(self, ids: Sequence[str], patience: float) -> Steps[None]:
        until = self._clock() + patience
        if not self._answered:  # which version it knows, and where it is
            yield from self.events(patience)
        body = msgspec.json.encode({"StartRequests": [{"EventId": id} for id in ids]})
        while True:
            answer = yield from self._asked(_events(self._version), until, "POST", body)
            if answer.status == 200:
                for id in ids:
                    self.following.approved(id)
                return
            if answer.status == 400:
                said = answer.body[:400].decode("utf-8", "replace")
                raise NotApproved(f"{self._place} does not approve {', '.join(ids)}: {said}")
            self._bad(_said(answer), answer)
            yield self._again(until, answer)

    def identity(self, patience: float) -> Steps[Identity]:
        until = self._clock() + patience
        if self._place is None:
            yield from self.events(patience)
        while True:
            for version in who.VERSIONS:
                answer = yield from self._asked(who.path(version), until)
                if answer.status != 400:
                    break
            found = who.read(answer.body) if answer.status == 200 else None
            if found is not None:
                return found
            self._bad(NAMELESS if answer.status == 200 else _said(answer), answer)
            yield self._again(until, answer)

    def readiness(
        self, id: str, patience: float, word: beside.Word | None = None
    ) -> Steps[Readiness | None]:
        """Of an event, after having said a word of one's own, if there is one. None where it is
        not offered, or the event not listed."""
        until = self._clock() + patience
        if self._place is None:
            yield from self.events(patience)
        target = f"{beside.READY}/{quote(id, safe='')}"
        body = None if word is None else msgspec.json.encode(word)
        while True:
            answer = yield from self._asked(target, until, "GET" if body is None else "PUT", body)
            if answer.status == 200:
                try:
                    said = msgspec.json.decode(answer.body, type=beside.Readiness)
                except msgspec.DecodeError:
                    return None
                return Readiness(tuple(one.machine for one in said.ready), said.waiting)
            if answer.status is not None and answer.status < 500 and answer.status != 429:
                return None
            self._bad(_said(answer), answer)
            yield self._again(until, answer)

    # How it is asked

    def _looked(self, wanted: float) -> Steps[tuple[Document, bool] | None]:
        """A document, and whether it was waited for; None if what came is none."""
        if self._may_wait(wanted):
            answer = yield from self._waited(min(pace.WAIT, wanted))
            document = self._read(answer) if answer.status in (200, 304) else None
            if document is not None:
                self._waits, self._lost_waits = True, 0
                return document, True
            self._wait_failed(answer)
        answer = yield from self._polled(self._tag, self._patience)
        document = self._read(answer)
        return None if document is None else (document, False)

    def _may_wait(self, wanted: float) -> bool:
        if self._document is None or not self._tag or wanted < pace.WAIT_LEAST:
            return False
        return self._clock() >= self._wait_at and not self._failures

    def _waited(self, seconds: float) -> Steps[Answer]:
        target = f"{beside.WAIT}?timeout={seconds:.3f}&api-version={DOWNWARDS[self._version]}"
        answer: Answer = yield self._ask(target, pace.ANSWER + seconds, tag=self._tag)
        self._learnt(answer)
        return answer

    def _wait_failed(self, answer: Answer) -> None:
        """Not offered: then not for a while. Offered, but lost on the way: a few times."""
        self._lost_waits += 1
        passing = answer.status is None or answer.status >= 500 or answer.status == 429
        if not passing or self._lost_waits >= pace.WAIT_TRIES:
            self._waits, self._lost_waits = False, 0
            self._wait_at = self._clock() + pace.WAIT_AGAIN

    def _polled(self, tag: str, patience: float) -> Steps[Answer]:
        """In the newest version that is known here, by our own table: what an error says about
        versions is about the whole of the metadata service."""
        if self._version and self._clock() >= self._newest_again:
            self._version, tag = 0, ""
        # Older versions show fewer events, so what has known a version is not lightly doubted.
        doubted = not self._answered or self._failures >= pace.DOUBT
        lowest = len(DOWNWARDS) if doubted else self._version + 1
        first: Answer | None = None
        for version in range(self._version, lowest):
            answer: Answer = yield self._ask(_events(version), patience, tag=tag)
            self._learnt(answer)
            if answer.status != 400:
                if version != self._version:
                    self._version, self._newest_again = version, self._clock() + pace.NEWEST_AGAIN
                return answer
            first, tag = first or answer, ""
        assert first is not None
        return first

    def _asked_somewhere(self, until: float) -> Steps[Answer]:
        """A poll that knows nothing of documents before, wherever the endpoint is."""
        if self._place is None:
            yield from self._found(until)
            if self._place is None:
                raise NoEndpoint(self._trouble)
        return (yield from self._polled("", min(self._patience, self._left(until))))

    def _asked(
        self, target: str, until: float, method: str = "GET", body: bytes | None = None
    ) -> Steps[Answer]:
        within = min(pace.ANSWER, self._left(until))
        answer: Answer = yield self._ask(target, within, method=method, body=body)
        self._learnt(answer)
        return answer

    def _ask(self, target: str, within: float, **more: Any) -> Ask:
        assert self._place is not None
        return Ask(place=self._place, target=target, connect=pace.CONNECT, answer=within, **more)

    def _found(self, until: float = float("inf")) -> Steps[Place | None]:
        """The first place that answers a document. One that takes the connection may take its
        time as well."""
        tried = []
        for place in self._candidates():
            self._place, self._version = place, 0
            left = min(pace.FIRST_ANSWER, self._left(until))
            answer = yield from self._polled("", left)
            if (document := _document(answer)) is not None:
                self._answered, self._patience = True, pace.ANSWER
                self._tag, self._document = "", document
                return place
            tried.append((str(place), _said(answer)))
        from forewarn.client.surroundings import unreachable  # few ever come so far

        self._place, self._version = None, 0
        self._bad(unreachable(tried))
        return None

    # What an answer means

    def _read(self, answer: Answer) -> Document | None:
        if answer.status == 304 and self._document is not None:
            self._well()
            return self._document
        document = _document(answer)
        if document is None:
            self._bad(_said(answer), answer)
            return None
        self._well()
        self._document, self._tag = document, answer.header("etag")
        return document

    def _learnt(self, answer: Answer) -> None:
        self._answers += answer.status is not None
        self._ticking.learn(answer.header("date"), answer.asked, answer.answered)

    def _well(self) -> None:
        self._answered, self._patience, self._failures = True, pace.ANSWER, 0
        self._good, self._retry_after = self._clock(), ""
        if self._trouble:
            self._trouble, self._since = "", self.now()

    def _bad(self, trouble: str, answer: Answer | None = None) -> None:
        if not self._failures:
            self._begun_to_fail, self._since = self._clock(), self.now()
        self._failures += 1
        self._troubles += 1
        self._trouble = trouble
        self._retry_after = "" if answer is None else answer.header("retry-after")
        if answer is not None and answer.trouble == "late":
            # Perhaps it is being switched on again, and would have answered a little later.
            self._patience = min(self._patience * 2, pace.FIRST_ANSWER)

    def _again(self, until: float, answer: Answer) -> Rest:
        """Unless there is no time left for another try. Where nobody listens at all one is there
        again soon, or not for long."""
        rest = pace.pause(max(1, self._failures), self._retry_after)
        if answer.trouble in ("refused", "unreachable"):
            until = min(until, self._begun_to_fail + pace.NOBODY_THERE)
        if self._clock() + rest >= until:
            raise Unavailable(f"{self._place} does not answer as it should: {self._trouble}")
        return Rest(rest)

    def _give_up_on_the_place(self) -> None:
        """An endpoint that was found and is gone may be elsewhere by now."""
        gone = self._trouble in NOBODY and self._clock() - self._good >= pace.LOST
        if self._said is None and gone:
            self._place, self._answered, self._tag = None, False, ""
            self._patience = pace.FIRST_ANSWER

    def _left(self, until: float) -> float:
        return max(0.0, until - self._clock())


def _events(version: int) -> str:
    return f"{EVENTS_PATH}?api-version={DOWNWARDS[version]}"


def _document(answer: Answer) -> Document | None:
    if answer.status != 200:
        return None
    try:
        return read(answer.body)
    except NotADocument:
        return None


def _said(answer: Answer) -> str:
    """What came instead of a document, in a few words."""
    if answer.status is None:
        return answer.trouble
    if answer.status != 200:
        return f"answered {answer.status}"
    try:
        read(answer.body)
    except NotADocument as error:
        return f"answered {error}"
    return "answered"


def ids(events: Iterable[Event | str]) -> Iterator[str]:
    for event in events:
        yield event if isinstance(event, str) else event.id
