"""Beside the wire: waiting for another document, and readiness by machine.

A caller that waits is nothing but its request, suspended, and a deadline in a set; whatever
happens to it (its group's board changes, its time is up, the service stops) lets the deadline come
at once, and it looks for itself how things stand. What is asked and answered is `wire.beside`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from forewarn.metadata.endpoint import to_wire
from forewarn.metadata.endpoint.callers import Caller, Callers
from forewarn.metadata.endpoint.documents import GroupDocument, RenderedDocument
from forewarn.metadata.endpoint.reply import HALF_CLOSED, Gone, Receive, Reply, Scope, refused
from forewarn.metadata.upstream import GroupNews, Prepared, TooOften, Upstream
from forewarn.support import guard
from forewarn.wire import errors, extensions
from forewarn.wire.errors import Problem
from forewarn.wire.headers import ANY, parse_tags, tag_matches
from forewarn.wire.versions import Version

WAKE_SLICE = 64  # callers that wait and are woken before the loop gets its turn
AT_ONCE = 0.0  # an instant of the loop's time that has long passed

Show: TypeAlias = Callable[[Caller, Version, frozenset[str]], tuple[RenderedDocument, bool]]


class Waits:
    """Who waits, by group. They are woken as soon as it changes, but not all in one turn of the
    loop: each has an answer to write, and others want to be heard meanwhile."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Timeout]] = {}
        self._waking: set[asyncio.Timeout] = set()

    def __len__(self) -> int:
        return len(self._waking) + sum(map(len, self._waiting.values()))

    async def until(self, group: str, end: float, receive: Receive) -> bool:
        """Until the group is said to have changed, or guard time reaches `end`. False if it would
        be pointless to go on: the caller says that it will say no more."""
        try:
            async with asyncio.timeout(end - guard.monotonic()) as deadline:
                self._waiting.setdefault(group, set()).add(deadline)
                try:
                    message = await receive()
                finally:
                    self._forget(group, deadline)
        except TimeoutError:
            return True
        if message["type"] == "http.disconnect":
            raise Gone
        return False

    def wake(self, group: str) -> None:
        if waiting := self._waiting.pop(group, None):
            busy = bool(self._waking)
            self._waking |= waiting
            if not busy:
                self._wake_some()

    def wake_all(self) -> None:
        for group in list(self._waiting):
            self.wake(group)

    def _wake_some(self) -> None:
        for _ in range(min(WAKE_SLICE, len(self._waking))):
            deadline = self._waking.pop()
            if not deadline.expired():  # else it is about to look anyway
                deadline.reschedule(AT_ONCE)
        if self._waking:
            asyncio.get_running_loop().call_soon(self._wake_some)

    def _forget(self, group: str, deadline: asyncio.Timeout) -> None:
        self._waking.discard(deadline)
        waiting = self._waiting.get(group)
        if waiting is not None:
            waiting.discard(deadline)
            if not waiting:
                del self._waiting[group]


class Extensions:
    """`show` gives a machine its page, and notes that it has seen it."""

    def __init__(self, upstream: Upstream, seats: Callers, show: Show) -> None:
        self._upstream = upstream
        self._seats = seats
        self._show = show
        self._known: dict[str, tuple[object, object]] = {}  # what a group last looked like
        self._stopping = False
        self._patient: Counter[str] = Counter()  # machines that wait, and how many times over
        self.waits = Waits()

    def told(self, news: GroupNews, board: GroupDocument) -> None:
        """Wake those who wait if they could see a difference: in the document, or because they
        are no longer there. Not for readiness, or an approval that has to wait."""
        group = news.view.name
        view, machines = self._known.get(group, (None, None))
        if view is not board.view or machines is not news.machines:
            self._known[group] = board.view, news.machines
            self.waits.wake(group)

    def waits_now(self, machine: str) -> bool:
        return machine in self._patient

    def stop(self) -> None:
        """Nobody waits any longer."""
        if not self._stopping:
            self._stopping = True
            self.waits.wake_all()

    async def wait(
        self, seat: Caller, ask: extensions.Wait, scope: Scope, receive: Receive
    ) -> Reply:
        """The document as soon as it is none that the caller knows; 304 when its time is up."""
        end = guard.monotonic() + ask.timeout
        tags, patient, begun = ask.tags, True, False
        while True:
            found = self._still(seat, scope)
            if found is None:
                return refused(errors.NOT_FOUND)
            seat = found
            if not seat.board.enabled:
                await self._upstream.enable(seat.group)
                continue
            page = seat.board.page(ask.version)
            if ANY in tags:  # whatever it is, it knows it
                tags = parse_tags(page.etag)
            changed = not tag_matches(tags, page.etag)
            if changed or guard.monotonic() >= end or not patient or HALF_CLOSED in scope:
                return self._answer(seat, ask.version, tags)
            if self._stopping:
                return refused(errors.STOPPING)
            with self._waiting(seat.name):
                if not begun:
                    begun = True
                    self._sign_of_life(seat, ask.version, page)
                patient = await self.waits.until(seat.group, end, receive)

    async def prepare(self, seat: Caller, ask: extensions.PutReadiness, body: bytes) -> Reply:
        word = to_wire.read_readiness(body)
        if isinstance(word, Problem):
            return refused(word)
        say = self._upstream.prepare(seat.name, seat.group, ask.event, word.ready, word.note)
        try:
            return _told_of(await say)
        except TooOften:
            return refused(to_wire.changed_too_often())

    async def readiness(self, seat: Caller, ask: extensions.GetReadiness) -> Reply:
        return _told_of(await self._upstream.prepared(seat.group, ask.event))

    @contextmanager
    def _waiting(self, machine: str) -> Iterator[None]:
        self._patient[machine] += 1
        try:
            yield
        finally:
            self._patient[machine] -= 1
            if not self._patient[machine]:
                del self._patient[machine]

    def _still(self, seat: Caller, scope: Scope) -> Caller | None:
        """Where the machine is by now, if it is still there and nobody else has its address."""
        source, asked = scope.get("client") or ("", 0), scope.get("server") or ("", 0)
        found = self._seats.who(source[0], asked[0])
        return found if found is not None and found.name == seat.name else None

    def _answer(self, seat: Caller, version: Version, tags: frozenset[str]) -> Reply:
        page, unchanged = self._show(seat, version, tags)
        headers = (("ETag", page.etag),)
        return Reply(304, headers=headers) if unchanged else Reply(200, page.body, headers=headers)

    def _sign_of_life(self, seat: Caller, version: Version, page: RenderedDocument) -> None:
        """It has this page; it is answered, and counted as answered, only later."""
        self._upstream.witness(
            seat.name,
            seat.group,
            version.name,
            seat.board.incarnation,
            page.events,
            self._upstream.now(),
        )


def _told_of(prepared: Prepared | None) -> Reply:
    if prepared is None:
        return refused(errors.NOT_FOUND)
    return Reply(200, extensions.render(to_wire.readiness(prepared.event, prepared.alive)))
