"""The rules of asking: what is asked for, again when, and what an answer means.

One implementation, for clients that block and for those that do not: every method is a generator
of steps (`steps.py`). Nothing here waits, opens a socket or reads a clock but guard time's. How
the endpoint stands, and in which version it is asked, is `endpoint_state.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import product
from urllib.parse import quote

import msgspec

from forewarn.client import identity as who
from forewarn.client import pace
from forewarn.client.changes import ChangeTracker
from forewarn.client.endpoint_state import ClockOffset, EndpointState, events_target, said
from forewarn.client.errors import NoEndpoint, NotApproved, Unavailable
from forewarn.client.events import Event, Look
from forewarn.client.identity import Identity
from forewarn.client.status import EndpointStatus
from forewarn.client.steps import TROUBLES, Answer, Do, Location, Sleep, Steps, Tell
from forewarn.client.tries import FOREVER, Retries, passes
from forewarn.support import guard, text
from forewarn.wire import extensions

NAMELESS = "answered without the name of this machine"
MAX_NOTE = 1_024  # characters of what a machine says beside being ready
MAX_QUOTED = 400  # characters of a refusal that are passed on
NOWHERE = Answer(trouble="unreachable", asked=0.0, answered=0.0)


class Readiness(msgspec.Struct, frozen=True):
    """Who of an event's group has said to be ready, and who of the event's own has not."""

    ready: tuple[str, ...]
    waiting: tuple[str, ...]


class ClientProtocol:
    def __init__(
        self,
        said: Location | None,
        candidates: Callable[[], Iterable[Location]],
        *,
        wait: bool = True,
        interval: float = pace.INTERVAL,
        clock: Callable[[], float] = guard.monotonic,
    ) -> None:
        self._candidates = candidates
        self._interval = interval
        self._clock = clock
        self._contact = EndpointState(said, wait=wait, clock=clock)
        self._followings: set[ChangeTracker] = set()  # one for each that watches

    def now(self) -> datetime:
        return self._contact.now()

    @property
    def standing(self) -> EndpointStatus:
        return self._contact.standing

    def looks(self, within: Callable[[], float] | None = None) -> Steps[None]:
        """For ever: every document that is answered, with what is new in it."""
        wanted = within or (lambda: FOREVER)
        following = ChangeTracker()
        self._followings.add(following)
        tries = Retries(self._clock)
        held: ClockOffset | None = None
        try:
            while True:
                begun = self._clock()
                got, waited = yield from self._looked(held, tries, wanted())
                if not isinstance(got, ClockOffset):
                    tries.failed(got)
                    yield Sleep(tries.rest() or pace.LEAST_REST)
                    continue
                held = got
                tries.well()
                at = self.now()
                changes = following.look(held.document, at, held.hidden)
                hidden = held.hidden
                yield Tell(Look(document=held.document, changes=changes, at=at, hidden=hidden))
                spent = self._clock() - begun
                # A long-poll is begun at once, unless the last was answered at once for nothing.
                told = bool(changes) or spent >= self._interval
                anew = told if waited else self._contact.may_wait(held, wanted())
                rest = 0.0 if anew else pace.jittered(self._interval) - spent
                rest = max(min(rest, wanted()), pace.LEAST_REST - spent)
                if rest > 0:
                    yield Sleep(rest)
        finally:
            self._followings.discard(following)

    def events(self, patience: float) -> Steps[tuple[Event, ...]]:
        held = yield from self._document(Retries(self._clock, patience))
        return held.document.events

    def approve(self, ids: Sequence[str], patience: float) -> Steps[None]:
        tries = Retries(self._clock, patience)
        if self._contact.known is None:  # which version it knows
            yield from self._document(tries)
        body = msgspec.json.encode({"StartRequests": [{"EventId": id} for id in ids]})
        for following, id in product(list(self._followings), ids):
            following.approved(id)
        while True:
            target = events_target(self._contact.version)
            answer = yield from self._asked(target, tries, "POST", body)
            if answer.status == 200:
                return
            if _refused(answer):
                for following, id in product(list(self._followings), ids):
                    following.not_approved(id)
                refusal = answer.body[:MAX_QUOTED].decode("utf-8", "replace")
                named = text.visible(f"{', '.join(ids)}: {refusal}")
                raise NotApproved(f"answered {answer.status} to the approval of {named}")
            yield self._again(tries, answer)

    def identity(self, patience: float) -> Steps[Identity]:
        tries = Retries(self._clock, patience)
        while True:
            for version in who.VERSIONS:
                answer = yield from self._asked(who.path(version), tries)
                if answer.status != 400:
                    break
            found = who.read(answer.body) if answer.status == 200 else None
            if found is not None:
                return found
            yield self._again(tries, answer, NAMELESS if answer.status == 200 else "")

    def readiness(
        self, id: str, patience: float, word: extensions.ReadinessReport | None = None
    ) -> Steps[Readiness | None]:
        """Of an event, after having said a word of one's own, if there is one. None where it is
        not offered, or the event not listed."""
        if word is not None and len(word.note) > MAX_NOTE:
            raise ValueError(f"a note has at most {MAX_NOTE:,} characters, not {len(word.note):,}")
        tries = Retries(self._clock, patience)
        target = f"{extensions.READY}/{quote(id, safe='')}"
        body = None if word is None else msgspec.json.encode(word)
        while True:
            method = "GET" if body is None else "PUT"
            answer = yield from self._asked(target, tries, method, body)
            if answer.status == 200:
                return _readiness(answer.body)
            if body is not None and answer.status == 429 and answer.body.startswith(b"{"):
                body = None  # it was changed too often and stays as it is; so how does it stand?
            elif answer.status is not None and not passes(answer):
                return None
            else:
                yield self._again(tries, answer)

    # How it is asked

    def _looked(
        self, held: ClockOffset | None, tries: Retries, wanted: float
    ) -> Steps[tuple[ClockOffset | Answer, bool]]:
        """A document, or what came instead; and whether it was waited for."""
        lost: Answer | None = None
        if held is not None and not tries.failures and self._contact.may_wait(held, wanted):
            got = yield from self._contact.waited(held, min(pace.WAIT, wanted))
            if isinstance(got, ClockOffset):
                self._contact.well(got.place)
                return got, True
            lost = got
        got = yield from self._polled(held, tries)
        if lost is not None and isinstance(got, ClockOffset):
            self._contact.wait_failed(lost)
        return got, False

    def _document(self, tries: Retries) -> Steps[ClockOffset]:
        """However many tries it takes."""
        while True:
            got = yield from self._polled(None, tries)
            if isinstance(got, ClockOffset):
                return got
            yield self._again(tries, got)

    def _polled(self, held: ClockOffset | None, tries: Retries) -> Steps[ClockOffset | Answer]:
        """A poll, wherever the endpoint is."""
        place = self._contact.place
        if place is None:
            return (yield from self._found(tries))
        within = min(self._contact.patience, max(pace.ANSWER_LEAST, tries.left))
        got = yield from self._contact.polled(place, held, within)
        if isinstance(got, ClockOffset):
            self._contact.well(place)
            return got
        self._contact.failed(place, got)
        # One that was found and is lost is somewhere else, or will be said to be nowhere.
        return got if self._contact.place else (yield from self._found(tries))

    def _found(self, tries: Retries) -> Steps[ClockOffset | Answer]:
        """From the first place that answers a document. One that takes the connection may take its
        time as well. If there is none: what gives most hope of what came."""
        tried: list[tuple[str, str]] = []
        hope = NOWHERE
        places = iter(self._candidates())
        place = next(places, None)  # which is known without looking
        while place is not None:
            within = min(pace.FIRST_ANSWER, max(pace.ANSWER_LEAST, tries.left))
            got = yield from self._contact.polled(place, None, within)
            if isinstance(got, ClockOffset):
                self._contact.well(place)
                return got
            tried.append((str(place), said(got)))
            hope = got if passes(got) else hope
            place = yield Do(lambda: next(places, None))
        self._contact.bad((yield Do(lambda: _unreachable(tried))))
        return hope

    def _asked(
        self, target: str, tries: Retries, method: str = "GET", body: bytes | None = None
    ) -> Steps[Answer]:
        """Anything but a document, once it is known where."""
        while (place := self._contact.place) is None:
            yield from self._document(tries)
        within = min(pace.ANSWER, max(pace.ANSWER_LEAST, tries.left))
        return (yield from self._contact.ask(place, target, within, method=method, body=body))

    def _again(self, tries: Retries, answer: Answer, trouble: str = "") -> Sleep:
        """Unless there is no time left for another try."""
        tries.failed(answer)
        rest = tries.rest()
        if rest is not None:
            return Sleep(rest)
        standing = self.standing
        if standing.endpoint is None:
            raise NoEndpoint(standing.trouble)
        trouble = trouble or said(answer)
        trouble = TROUBLES.get(trouble, trouble)
        raise Unavailable(f"{standing.endpoint} does not answer as it should: {trouble}")


def _unreachable(tried: list[tuple[str, str]]) -> str:
    from forewarn.client.discovery.diagnose import unreachable  # few ever come so far

    return unreachable(tried)


def _refused(answer: Answer) -> bool:
    """By somebody who has understood what was asked. 404 is whoever does not know this machine."""
    status = answer.status or 0
    return 400 <= status < 500 and status != 404 and not passes(answer)


def _readiness(body: bytes) -> Readiness | None:
    """None if it is something else: whoever answers knows nothing of readiness."""
    try:
        told = msgspec.json.decode(body, type=extensions.Readiness)
    except (msgspec.DecodeError, RecursionError):
        return None
    return Readiness(tuple(one.machine for one in told.ready), told.waiting)


def ids(events: Iterable[Event | str]) -> Iterator[str]:
    for event in events:
        yield event if isinstance(event, str) else event.id
