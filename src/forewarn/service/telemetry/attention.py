"""What somebody should look at. `GET /v1/status` lists it, and the command and the portal show that
list. Callers pass only what the reader may see."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from forewarn.core import Event, Time
from forewarn.core.fleet import Health, Host
from forewarn.core.halts import Halt
from forewarn.core.rollouts.model import BY_ITSELF, Rollout
from forewarn.core.time import DAY, MINUTE
from forewarn.support.text import counted, listing

TOO_LONG = 10 * MINUTE  # after the expected end of an event
EXPIRES_SOON = 14 * DAY
CERTIFICATE = "the certificate of the control API, or that for nodes,"


class ProblemKind(enum.Enum):
    """What a problem is about. The order is that of the list."""

    PART = "part"  # of the service
    WARNING = "warning"  # of the service, which is ready
    HELD = "held"  # an event waits for an operator
    OVERDUE = "overdue"  # an event should have been over
    ROLLOUT = "rollout"  # has paused itself
    NOT_BACK = "not-back"  # machines have not polled since an event
    HALT = "halt"
    CERTIFICATE = "certificate"
    TOKEN = "token"
    NOTIFICATION = "notification"
    HOST = "host"  # is not healthy


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    kind: ProblemKind
    message: str  # without its times
    subject: str = ""  # the id or name of what has it
    since: Time | None = None
    expires: Time | None = None  # of what works until then
    advice: str = ""  # what to do


_HEALTH = {Health.DEGRADED: "is degraded", Health.FAILED: "has failed"}


def of_parts(parts: Mapping[str, str]) -> Iterator[Problem]:
    """Yield the parts of the service that are not ready."""
    for part, text in parts.items():
        if text:
            yield Problem(kind=ProblemKind.PART, subject=part, message=f"{part}: {text}")


def of_warnings(warnings: Mapping[str, str]) -> Iterator[Problem]:
    for subject, text in warnings.items():
        yield Problem(kind=ProblemKind.WARNING, subject=subject, message=text)


def of_event(event: Event, now: Time) -> Problem | None:
    """Return what is wrong with an active event."""
    name = f"{event.type.value} {event.id[:8]} of {listing(event.resources)}"
    advice = f"see 'forewarn event explain {event.id}'"
    if event.attempt is not None and event.held:
        return Problem(
            kind=ProblemKind.HELD,
            subject=event.id,
            message=f"{name}: {event.attempt.note}",
            since=event.attempt.at,
            advice=advice,
        )
    if event.waiting is not None:
        return None  # for a limited time
    end = event.expected_end
    if end is None or now - end <= TOO_LONG:
        return None
    message = f"{name} should have ended"
    return Problem(
        kind=ProblemKind.OVERDUE, subject=event.id, message=message, since=end, advice=advice
    )


def of_rollouts(rollouts: Iterable[Rollout]) -> Iterator[Problem]:
    for rollout in rollouts:
        paused = rollout.paused
        goes_on = rollout.ended_at is None and rollout.aborted is None
        if goes_on and paused is not None and paused.by == BY_ITSELF:
            yield Problem(
                kind=ProblemKind.ROLLOUT,
                subject=rollout.id,
                message=f"rollout {rollout.id[:8]} has paused itself: {paused.why}",
                since=paused.at,
                advice=f"see 'forewarn rollout explain {rollout.id[:8]}'",
            )


def of_machines(not_back: int, since: Time | None) -> Iterator[Problem]:
    """Yield that machines are not back after an event."""
    if not_back:
        yield Problem(
            kind=ProblemKind.NOT_BACK,
            message=f"{counted(not_back, 'machine')} not back after an event",
            since=since,
            advice="see 'forewarn machine list --not-back'",
        )


def of_halt(halt: Halt, events: int) -> Problem:
    """Return a halt as a problem. `events`: how many cannot start because of it."""
    note = f": {halt.note}" if halt.note else ""
    return Problem(
        kind=ProblemKind.HALT,
        subject=halt.id,
        message=f"halted: {halt.scope}, by {halt.by}{note};"
        f" {counted(events, 'scheduled event')} cannot start",
        since=halt.at,
        advice=f"to release it, run 'forewarn halt release {halt.id[:8]}'",
    )


def of_certificate(expires: Time | None, wall: Time) -> Iterator[Problem]:
    """Yield that a certificate has expired, or expires soon: by the wall clock, which is not that
    of the service if time is virtual."""
    if expires is None or expires - wall > EXPIRES_SOON:
        return
    over = expires <= wall
    yield Problem(
        kind=ProblemKind.CERTIFICATE,
        message=f"{CERTIFICATE} {'has expired or cannot be used' if over else 'expires'}",
        expires=None if over else expires,
        advice="renew it",
    )


def of_token(expires: Time | None, now: Time) -> Iterator[Problem]:
    if expires is not None and expires - now <= EXPIRES_SOON:
        yield Problem(
            kind=ProblemKind.TOKEN,
            message="a token expires",
            expires=expires,
            advice="see 'forewarn token list'",
        )


def of_notification(name: str, error: str, since: Time | None) -> Problem:
    return Problem(
        kind=ProblemKind.NOTIFICATION,
        subject=name,
        message=f"notification {name}: {error}",
        since=since,
        advice="see 'forewarn notify list'",
    )


def of_hosts(hosts: Iterable[Host]) -> Iterator[Problem]:
    for host in hosts:
        if not host.healthy:
            note = f": {host.note}" if host.note else ""
            yield Problem(
                kind=ProblemKind.HOST,
                subject=host.name,
                message=f"host {host.name} {_HEALTH[host.health]}{note}",
                since=host.since,
                advice=f"see 'forewarn host explain {host.name}'",
            )
