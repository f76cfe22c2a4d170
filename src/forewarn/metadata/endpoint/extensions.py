"""Extensions of Azure's protocol: waiting for another document, readiness, and postponing.

A caller that waits is a suspended request and a deadline in a set. Whatever happens (its group's
document changes, its time is up, the service stops) makes the deadline due, and the request then
finds out what has changed. Requests and answers are parsed and rendered in `wire.extensions`.
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
from forewarn.metadata.upstream import GroupNews, NotPostponed, Prepared, TooOften, Upstream
from forewarn.support import guard
from forewarn.wire import errors, extensions
from forewarn.wire.errors import Problem
from forewarn.wire.headers import ANY, parse_tags, tag_matches
from forewarn.wire.versions import Version

WAKE_SLICE = 64  # requests that are woken in one iteration of the event loop
WAIT_IF_DISTURBED = 15.0  # seconds that a machine waits at most whose own event has started
PAST = 0.0  # a time of the event loop that has long passed

Show: TypeAlias = Callable[[Caller, Version, frozenset[str]], tuple[RenderedDocument, bool]]


class Waits:
    """The waiting requests of each group. They are woken when it changes, but not all in one
    iteration of the event loop, since each has an answer to write."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Timeout]] = {}
        self._waking: set[asyncio.Timeout] = set()

    def __len__(self) -> int:
        return len(self._waking) + sum(map(len, self._waiting.values()))

    async def until(self, group: str, end: float, receive: Receive) -> bool:
        """Wait until the group has changed, or guard time reaches `end`. Return False if the caller
        has half-closed the connection, so that waiting longer would be pointless."""
        try:
            async with asyncio.timeout(end - guard.monotonic()) as deadline:
                self._waiting.setdefault(group, set()).add(deadline)
                try:
                    message = await receive()
                finally:
                    self._remove(group, deadline)
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
            if not deadline.expired():  # else it is awake already
                deadline.reschedule(PAST)
        if self._waking:
            asyncio.get_running_loop().call_soon(self._wake_some)

    def _remove(self, group: str, deadline: asyncio.Timeout) -> None:
        self._waking.discard(deadline)
        waiting = self._waiting.get(group)
        if waiting is not None:
            waiting.discard(deadline)
            if not waiting:
                del self._waiting[group]


class Extensions:
    """`show` returns the document for a caller, and records that the caller has seen it."""

    def __init__(self, upstream: Upstream, callers: Callers, show: Show) -> None:
        self._upstream = upstream
        self._callers = callers
        self._show = show
        self._last_news: dict[
            str, tuple[object, object]
        ] = {}  # by group: its last view and machines
        self._stopping = False
        self._patient: Counter[str] = Counter()  # by machine: how many of its requests wait
        self._ended: Counter[str] = Counter()  # by machine: how often `end_waits` was called
        self.waits = Waits()

    def update(self, news: GroupNews, document: GroupDocument) -> None:
        """Wake the waiting requests of a group if its document or its machines have changed, which
        they have not by readiness, or by an approval that has no effect yet."""
        group = news.view.name
        view, machines = self._last_news.get(group, (None, None))
        if view is not document.view or machines is not news.machines:
            self._last_news[group] = document.view, news.machines
            self.waits.wake(group)

    def waits_now(self, machine: str) -> bool:
        return machine in self._patient

    def end_waits(self, machine: str, group: str) -> None:
        """Answer the waiting requests of a machine as if their time were up."""
        if machine in self._patient:
            self._ended[machine] += 1
            self.waits.wake(group)

    def stop(self) -> None:
        """Wake all waiting requests, and let none wait from now on."""
        if not self._stopping:
            self._stopping = True
            self.waits.wake_all()

    async def wait(
        self, caller: Caller, ask: extensions.Wait, scope: Scope, receive: Receive
    ) -> Reply:
        """Answer once the document is not one that the caller has; with 304 when its time is up."""
        timeout = ask.timeout
        if to_wire.is_disturbed(caller.document.view, caller.name):
            timeout = min(timeout, WAIT_IF_DISTURBED)  # control waits for a sign of life
        end, ended = guard.monotonic() + timeout, self._ended[caller.name]
        tags, patient, recorded = ask.tags, True, False
        while True:
            current = self._current(caller, scope)
            if current is None:
                return refused(errors.NOT_FOUND)
            caller = current
            if not caller.document.enabled:
                await self._upstream.enable(caller.group)
                continue
            rendered = caller.document.render(ask.version)
            if ANY in tags:  # the caller has whatever there is now
                tags = parse_tags(rendered.etag)
            changed = not tag_matches(tags, rendered.etag)
            time_is_up = guard.monotonic() >= end or self._ended[caller.name] > ended
            if changed or time_is_up or not patient or HALF_CLOSED in scope:
                return self._answer(caller, ask.version, tags)
            if self._stopping:
                return refused(errors.STOPPING)
            with self._waiting(caller.name):
                if not recorded:
                    recorded = True
                    self._sign_of_life(caller, ask.version, rendered)
                patient = await self.waits.until(caller.group, end, receive)

    async def prepare(self, caller: Caller, ask: extensions.PutReadiness, body: bytes) -> Reply:
        report = to_wire.read_readiness(body)
        if isinstance(report, Problem):
            return refused(report)
        call = self._upstream.prepare(
            caller.name, caller.group, ask.event, report.ready, report.note
        )
        try:
            return _readiness_reply(await call)
        except TooOften:
            return refused(to_wire.changed_too_often())

    async def readiness(self, caller: Caller, ask: extensions.GetReadiness) -> Reply:
        return _readiness_reply(await self._upstream.prepared(caller.group, ask.event))

    async def postpone(self, caller: Caller, ask: extensions.PutPostponement, body: bytes) -> Reply:
        until = to_wire.read_postponement(body)
        if isinstance(until, Problem):
            return refused(until)
        try:
            not_before = await self._upstream.postpone(caller.name, caller.group, ask.event, until)
        except NotPostponed as reason:
            return refused(errors.not_postponed(str(reason)))
        if not_before is None:
            return refused(errors.NOT_FOUND)
        return Reply(200, extensions.render(to_wire.postponed(ask.event, not_before)))

    @contextmanager
    def _waiting(self, machine: str) -> Iterator[None]:
        self._patient[machine] += 1
        try:
            yield
        finally:
            self._patient[machine] -= 1
            if not self._patient[machine]:
                del self._patient[machine]

    def _current(self, caller: Caller, scope: Scope) -> Caller | None:
        """Return the caller as it is now, or None if its machine is gone or has another address."""
        client, server = scope.get("client") or ("", 0), scope.get("server") or ("", 0)
        current = self._callers.find(client[0], server[0])
        return current if current is not None and current.name == caller.name else None

    def _answer(self, caller: Caller, version: Version, tags: frozenset[str]) -> Reply:
        rendered, unchanged = self._show(caller, version, tags)
        headers = (("ETag", rendered.etag),)
        return (
            Reply(304, headers=headers) if unchanged else Reply(200, rendered.body, headers=headers)
        )

    def _sign_of_life(self, caller: Caller, version: Version, rendered: RenderedDocument) -> None:
        """Record that the caller has this document; the answer is counted only when it is sent."""
        self._upstream.record_poll(
            caller.name,
            caller.group,
            version.name,
            caller.document.incarnation,
            rendered.events,
            self._upstream.now(),
        )


def _readiness_reply(prepared: Prepared | None) -> Reply:
    if prepared is None:
        return refused(errors.NOT_FOUND)
    return Reply(200, extensions.render(to_wire.readiness(prepared.event, prepared.alive)))
