"""Calls of nodes, carried out for them, and their poll reports, recorded as if seen here."""

from __future__ import annotations

from itertools import islice
from typing import Protocol

import msgspec

from forewarn.metadata.publishing.messages import (
    Answer,
    Approve,
    AskPrepared,
    AskToken,
    Call,
    Enable,
    Postpone,
    Prepare,
    Report,
    ToControl,
)
from forewarn.metadata.publishing.publisher import Publisher
from forewarn.metadata.upstream import LocalUpstream, NotDurable, NotPostponed, TooOften
from forewarn.support import guard
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger
from forewarn.support.message_stream import MessageStream

MAX_CALLS = 4_096  # calls of one node that are carried out at a time
MAX_ENDED = 64  # events in a report about a machine that are not active, as they have just ended

log = logger("forewarn")


class Caller(Protocol):
    """A node that calls for guests."""

    host: str
    stream: MessageStream[ToControl]
    joined: bool
    calls: int  # that are under way


class Calls:
    def __init__(self, upstream: LocalUpstream, publisher: Publisher, tasks: guard.Tasks) -> None:
        self._upstream = upstream
        self._publisher = publisher
        self._tasks = tasks
        self._failed = LogThrottle()

    def take(self, member: Caller, call: Call) -> None:
        if not member.joined or member.calls >= MAX_CALLS:
            member.stream.send(Answer(call.id, failed="too many requests are under way; try again"))
            return
        member.calls += 1
        self._tasks.start(self._carry_out(member, call), "a node's call")

    async def _carry_out(self, member: Caller, call: Call) -> None:
        try:
            answer = await self._answer(call)
            await self._publisher.shown((call.group,))
        except NotDurable as failure:
            answer = Answer(call.id, failed=str(failure) or "it could not be stored")
        except Exception as error:  # a guest may be able to cause this as often as it likes
            if times := self._failed.record():
                log.exception("a node's call failed", host=member.host, times=times)
            answer = Answer(call.id, failed=repr(error))
        finally:
            member.calls -= 1
        member.stream.send(answer)

    async def _answer(self, call: Call) -> Answer:
        upstream, id = self._upstream, call.id
        match call:
            case Enable(group=group):
                await upstream.enable(group)
                return Answer(id)
            case Approve(machine=machine, group=group, ids=ids):
                return Answer(id, yes=await upstream.approve(machine, group, ids))
            case Prepare(machine=machine, group=group, event=event, ready=ready, note=note):
                try:
                    prepared = await upstream.prepare(machine, group, event, ready, note)
                except TooOften:
                    return Answer(id, yes=False)
                return Answer(id, prepared=prepared)
            case Postpone(machine=machine, group=group, event=event, until=until):
                try:
                    not_before = await upstream.postpone(machine, group, event, until)
                except NotPostponed as refused:
                    return Answer(id, refused=str(refused))
                return Answer(id, not_before=not_before)
            case AskToken(machine=machine, group=group, resource=resource):
                return Answer(id, token=await upstream.token(machine, group, resource))
            case AskPrepared(group=group, event=event):
                return Answer(id, prepared=await upstream.prepared(group, event))

    def record(self, report: Report) -> None:
        """Record the polls of a report, none of them earlier than the end of the last outage."""
        now = self._upstream.now()
        earliest = now.steady_since or 0
        for polled in report.polled:
            if self._upstream.group_of(polled.machine) != polled.group:
                continue  # it has moved since, or is gone
            active = self._upstream.active(polled.group)
            events = tuple(id for id in polled.events if id in active)
            for id in events:
                at = min(max(polled.first, active[id]), now.at)
                self._upstream.record_shown(polled.machine, polled.group, id, at)
            before = self._upstream.last_poll(polled.machine)
            if polled.count:
                poll = polled.machine, polled.group, polled.version, polled.incarnation, events
                at = min(max(polled.last, earliest), now.at)
                self._upstream.record_poll(*poll, msgspec.structs.replace(now, at=at))
            if len(events) < len(polled.events):
                # They have just ended, or were made up by whoever has taken over the host.
                others = (id for id in polled.events if id not in active)
                at = min(max(polled.first, earliest), now.at)
                self._upstream.record_ended(
                    polled.machine, polled.group, islice(others, MAX_ENDED), at
                )
            if polled.count:
                self._upstream.record_repeated(polled.machine, polled.count - 1, before)
        for group in report.alive:
            if self._upstream.knows(group):
                self._upstream.sign_of_life(group)
        for calls in report.unknown:
            self._upstream.unknown_calls(calls)
