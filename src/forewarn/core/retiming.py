"""Correction of stored times that lie in the future because the clock was wrong.

An operator has accepted a wall clock that is behind the time the service had reached. Everything
recorded as having happened after that instant was dated by the wrong clock, and is moved back by
the error, so that order and intervals stay as they were. Only NotBefore does not move, because it
was shown to guests and is never brought forward: before it, the event starts only
if it is approved.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar, overload

import msgspec

from forewarn.core.changes import Change, EnablingBegan, EventMoved
from forewarn.core.events import Attempt, Event, Status
from forewarn.core.group import Group
from forewarn.core.lifecycle import Move, move
from forewarn.core.registry import HaltPut, HostPut, Put, Registry, RolloutPut, TokenPut
from forewarn.core.rollouts.model import Work
from forewarn.core.time import Duration, Time

RETIMED = "retimed"

T = TypeVar("T", bound=msgspec.Struct)


class Correction(msgspec.Struct, frozen=True):
    """The correction of a clock that had been ahead by `error` and is right from `now` on."""

    now: Time
    error: Duration

    @overload
    def past(self, at: Time) -> Time: ...
    @overload
    def past(self, at: Time | None) -> Time | None: ...
    def past(self, at: Time | None) -> Time | None:
        """Correct an instant at which something is recorded as having happened."""
        return at if at is None or at <= self.now else at - self.error

    def coming(self, at: Time | None) -> Time | None:
        """Correct an instant at which something is to be done; never earlier than now."""
        return at if at is None or at <= self.now else max(self.now, at - self.error)

    def event(self, event: Event) -> Event:
        """Correct the times of an event, except NotBefore."""
        approved = event.approved
        if approved is not None:
            approved = self._replaced(approved, at=self.past(approved.at))
        return self._replaced(
            event,
            raised_at=self.past(event.raised_at),
            postponed=tuple(
                self._replaced(postponement, at=self.past(postponement.at))
                for postponement in event.postponed
            ),
            ready=tuple(self._replaced(ready, at=self.past(ready.at)) for ready in event.ready),
            approved=approved,
            started_at=self.past(event.started_at),
            attempt=self._attempt(event.attempt),
            waiting=event.waiting
            and self._replaced(event.waiting, since=self.past(event.waiting.since)),
            ended_at=self.past(event.ended_at),
        )

    def group(self, group: Group) -> tuple[Change, ...]:
        """Return the changes that correct the times of a group and its events."""
        items: list[Change] = []
        until = self.coming(group.enabling_until)
        if until is not None and until != group.enabling_until:
            items.append(EnablingBegan(until))
        for event in group.events:
            after = self.event(event)
            if after is not event:
                items.append(EventMoved(Move.RETIME, move(after, Move.RETIME)))
        return tuple(items)

    def registry(self, registry: Registry, by: str) -> Iterable[Put]:
        """Yield the changes that correct the times of hosts, rollouts, halts and tokens."""
        for host in registry.hosts.values():
            after = self._replaced(host, since=self.past(host.since))
            if after is not host:
                yield HostPut(after, by)
        for rollout in registry.rollouts.values():
            switches = {
                name: self._replaced(switch, at=self.past(switch.at))
                for name in ("paused", "resumed", "aborted")
                if (switch := getattr(rollout, name)) is not None
            }
            times = {name: self.past(getattr(rollout, name)) for name in ("created_at", "ended_at")}
            work = tuple(self._work(item) for item in rollout.work)
            changed = self._replaced(rollout, **times, **switches, work=work)
            if changed is not rollout:
                yield RolloutPut(changed, RETIMED, by)
        for halt in registry.halts.values():
            placed = self._replaced(halt, at=self.past(halt.at))
            if placed is not halt:
                yield HaltPut(placed, RETIMED, by)
        for token in registry.tokens.values():
            issued_wrongly = token.created_at > self.now
            expires = self.coming(token.expires_at) if issued_wrongly else token.expires_at
            renewed = self._replaced(
                token,
                created_at=self.past(token.created_at),
                expires_at=expires,
                revoked_at=self.past(token.revoked_at),
            )
            if renewed is not token:
                yield TokenPut(renewed, RETIMED, by)

    def _attempt(self, attempt: Attempt | None) -> Attempt | None:
        if attempt is None:
            return None
        next_at = self.coming(attempt.next_at)
        return self._replaced(attempt, at=self.past(attempt.at), next_at=next_at)

    def _work(self, work: Work) -> Work:
        return self._replaced(
            work,
            begun_at=self.past(work.begun_at),
            returned_at=self.past(work.returned_at),
            started_at=self.past(work.started_at),
            attempt=self._attempt(work.attempt),
        )

    @staticmethod
    def _replaced(value: T, **fields: Any) -> T:
        """Return the value with other fields, and the value itself if none of them differs."""
        if all(getattr(value, name) == field for name, field in fields.items()):
            return value
        return msgspec.structs.replace(value, **fields)


def announced_after(groups: Iterable[Group], now: Time) -> tuple[Event, ...]:
    """Return the Scheduled events that were raised later than `now`, by a clock that was ahead."""
    return tuple(
        event
        for group in groups
        for event in group.events
        if event.status is Status.SCHEDULED and event.raised_at > now
    )
