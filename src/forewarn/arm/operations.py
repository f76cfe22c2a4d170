"""Long-running operations. The events that a call has raised carry its id as their cause, and what
has become of the operation is read off these events. So a client that asks again after a restart,
or at another control node, gets the same answer.

A call with an x-ms-client-request-id is committed under an idempotency key. Repeated under the same
id while the operation goes on, or until some minutes after its end, it does nothing more, and gets
the same operation: also if the call has joined events that had been announced before. Later, it is
a new request: there are clients that have one id for all that they ever ask.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode
from weakref import WeakValueDictionary

import msgspec

from forewarn.arm.errors import ArmError, error_body, unwrap
from forewarn.arm.request import Answer, Request
from forewarn.arm.times import moment
from forewarn.control.http.access.authorization import hide_other_groups
from forewarn.control.http.context import CallContext
from forewarn.control.http.idempotency import LOCAL_OWNER
from forewarn.control.views.azure import DEFAULT_LOCATION
from forewarn.core import Event, Refused, Status, Time
from forewarn.core.rollouts.model import BY_ITSELF
from forewarn.core.time import MINUTE, SECOND
from forewarn.service.access.secret import hidden
from forewarn.service.indexes.placement import REIMAGE
from forewarn.service.platform.explain import EventExplanation, summary
from forewarn.service.platform.platform import Outcome, Outcomes
from forewarn.store.port import Key, Store

CAUSE = "arm/"  # before the id of an operation, in the cause of its events
MAX_OTHERS = 100  # events, or operations, that are named in the URL of another operation
REPEATABLE = 5 * MINUTE  # after an operation has ended: longer than clients repeat a request
MAX_EXPLAINED = 5  # events of one operation
# A client is to ask again after a part of the time that is left until what it waits for.
ASKED_TIMES = 30
MAX_RETRY_AFTER = 15  # seconds: somebody may approve the event at any time
ROLLOUT_STATUS = {"done": "Succeeded", "aborted": "Canceled", "expired": "Failed"}
MAX_REMEMBERED = 10_000  # operations whose events are known without reading the state

_OPERATION = re.compile(re.escape(CAUSE) + r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)

Work: TypeAlias = Callable[[CallContext, str], Awaitable[Outcome | Outcomes | Refused]]


class Done(msgspec.Struct, frozen=True):
    """What a request has done before."""

    events: list[Event]
    at: Time

    def is_answer_at(self, now: Time) -> bool:
        """Is this the answer to a repeated request?"""
        if any(not event.status.over for event in self.events):
            return True
        return now - max([self.at, *(e.ended_at or 0 for e in self.events)]) <= REPEATABLE


class Operations:
    """The operations that are being started."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._about: dict[Key, tuple[Time, tuple[str, ...]]] = {}

    async def carry_out(self, request: Request, work: Work) -> tuple[str, list[Event]]:
        """Carry a request out, unless that was done before. `work` is given the platform, bound to
        the request, and the cause for its events; it also looks for the machines, which may be gone
        when the request is repeated. Returns the id of the operation, and the events that it is
        about."""
        call, context = request.call, request.context
        lock = self._locks.setdefault(request.operation_id(), asyncio.Lock())
        async with lock:
            id, done = await _latest(request)
            if done is not None:
                if request.condition is not None:
                    request.condition.checked = True  # by the request that this one repeats
                return id, done.events
            key = _key(request, id) if request.client_id else None
            bound = context.call(call.caller, {}, key, request.condition)
            outcome = unwrap(await work(bound, CAUSE + id))
            events = [outcome.event] if isinstance(outcome, Outcome) else list(outcome.events)
        return id, events

    async def about(self, store: Store, key: Key) -> tuple[Time, tuple[str, ...]] | None:
        """Return when a request was carried out under a key, and the ids of its events; None if
        that is not known. It never changes, and clients ask again and again."""
        if (known := self._about.get(key)) is not None:
            return known
        if (keyed := await store.keyed_request(key.owner, key.name)) is None:
            return None
        async for commit in store.commits(keyed.seq - 1):
            if commit.seq != keyed.seq:
                break
            if len(self._about) >= MAX_REMEMBERED:
                del self._about[next(iter(self._about))]
            self._about[key] = found = keyed.at, commit.about
            return found
        return keyed.at, ()

    async def start(self, request: Request, work: Work) -> Answer:
        """Carry a request out, and answer where its caller learns what becomes of it."""
        id, events = await self.carry_out(request, work)
        return accepted(request, id, events) if events else Answer()


def _key(request: Request, id: str) -> Key:
    """Return the idempotency key under which an operation of the caller is committed."""
    return Key(request.call.caller.token or LOCAL_OWNER, CAUSE + id, id)


async def _latest(request: Request) -> tuple[str, Done | None]:
    """Return the operation that a request gets, and what was done under its id; None: it is new.
    The operations under one id of a client are numbered without gaps, so that the last one is found
    in few steps."""
    if not request.client_id:
        return request.operation_id(), None

    async def done(number: int) -> Done | None:
        return await _done_before(request, _key(request, request.operation_id(number)))

    latest: Done | None = None
    last, free = -1, 0
    while (found := await done(free)) is not None:
        last, free, latest = free, 2 * free + 1, found
    while free - last > 1:
        middle = (last + free) // 2
        if (found := await done(middle)) is not None:
            last, latest = middle, found
        else:
            free = middle
    if latest is not None and latest.is_answer_at(request.now):
        return request.operation_id(last), latest
    return request.operation_id(free), None


async def _done_before(request: Request, key: Key) -> Done | None:
    """Return what was done for a request that has been carried out under this key."""
    context = request.context
    if (about := await request.operations.about(context.store, key)) is not None:
        at, ids = about
        return Done(list(await context.platform.events(ids)), at)
    if events := list(await context.store.events_by_cause(key.name)):
        return Done(events, min(event.raised_at for event in events))
    return None


def accepted(request: Request, id: str, events: Sequence[Event]) -> Answer:
    """Answer that an operation goes on. The events that it has raised are found by its id; those
    that had been announced before are named in its URL."""
    earlier = [event for event in events if event.cause != CAUSE + id]
    earlier.sort(key=lambda event: event.not_before, reverse=True)
    # Operations of others may be about more: they are named only if a URL is too short for events.
    whole = len(earlier) > MAX_OTHERS and not request.call.limited
    others = dict.fromkeys(
        e.cause if whole and _OPERATION.fullmatch(e.cause) else e.id for e in earlier
    )
    query = {"api-version": request.api_version}
    if others:  # of very many, those that start last
        query["also"] = ",".join(list(others)[:MAX_OTHERS])
    place = (
        f"{request.base_url}/subscriptions/{quote(request.names['subscription'])}"
        f"/providers/Microsoft.Compute/locations/{DEFAULT_LOCATION}"
    )
    return Answer(
        status=202,
        headers={
            "Azure-AsyncOperation": f"{place}/operations/{id}?{urlencode(query)}",
            "Location": f"{place}/operationResults/{id}?{urlencode(query)}",
            **retry_after(request, events),
        },
    )


def retry_after(request: Request, events: Iterable[Event]) -> dict[str, str]:
    """Return the header that says when to ask again. A virtual clock can move at any time."""
    waiting = [event.not_before for event in events if event.status is Status.SCHEDULED]
    left = max(waiting, default=0) - request.now if request.context.virtual_time is None else 0
    seconds = min(left // (ASKED_TIMES * SECOND), MAX_RETRY_AFTER)
    return {"Retry-After": str(max(seconds, 1))}


def rollout_id(id: str) -> str:
    """Return the id of the rollout that an operation is, if it reimages machines."""
    return REIMAGE + id.upper()


async def status_at(request: Request) -> tuple[dict[str, Any], dict[str, str]]:
    """Return an operation as its URL shows it, and the header that says when to ask again."""
    id, rollouts = request.names["operation"], request.call.rollouts
    if rollout_id(id) not in request.context.store.registry.rollouts or request.call.limited:
        events = await events_of(request, id)
        return status_of(request, id, events), retry_after(request, events)
    explained = unwrap(await rollouts.explain(rollout_id(id)))
    report, message = explained.report, explained.message
    status = ROLLOUT_STATUS.get(report.state, "InProgress")
    paused = report.rollout.paused if report.state == "paused" else None
    if paused is not None and paused.by == BY_ITSELF:
        status, message = "Failed", paused.why
    body: dict[str, Any] = {
        "name": id,
        "status": status,
        "startTime": moment(report.rollout.created_at),
        "properties": {"message": message},
    }
    if report.rollout.ended_at is not None:
        body["endTime"] = moment(report.rollout.ended_at)
    if status in ("Canceled", "Failed"):
        body["error"] = error_body(f"Operation{status}", message)
    return body, retry_after(request, ())


async def events_of(request: Request, id: str) -> list[Event]:
    """Return the events of an operation. Raises ArmError if there are none that the caller sees."""
    store = request.context.store
    events: dict[str, Event] = {}
    others = request.parameters.get("also", "").split(",")[:MAX_OTHERS]
    if _OPERATION.fullmatch(CAUSE + id):
        done = await _done_before(request, _key(request, id))
        events = {event.id: event for event in done.events} if done else {}
    for cause in others:
        if _OPERATION.fullmatch(cause):
            events |= {event.id: event for event in await store.events_by_cause(cause)}
    events |= {event.id: event for event in await request.events(others)}
    if not events or not all(request.call.sees(event.group) for event in events.values()):
        raise ArmError(
            404,
            "NotFound",
            f"The operation '{hidden(id)}' was not found. It may have ended long ago.",
        )
    return list(events.values())


def status_of(request: Request, id: str, events: Sequence[Event]) -> dict[str, Any]:
    """Return an operation as its Azure-AsyncOperation URL shows it."""
    status = "Succeeded"
    if any(not event.status.over for event in events):
        status = "InProgress"
    elif any(event.status is Status.WITHDRAWN for event in events):
        withdrawn = [event for event in events if event.status is Status.WITHDRAWN]
        status = "Canceled" if any(event.cancelled_by for event in withdrawn) else "Failed"
    body: dict[str, Any] = {
        "name": id,
        "status": status,
        "startTime": moment(min(event.raised_at for event in events)),
    }
    ends = [event.ended_at for event in events if event.ended_at is not None]
    if status != "InProgress":
        body["endTime"] = moment(max(ends))
    message = _message(request, events, status)
    if status in ("Canceled", "Failed"):
        code = "OperationCanceled" if status == "Canceled" else "OperationFailed"
        body["error"] = error_body(code, message)
    body["properties"] = {"message": message, "events": [event.id for event in events]}
    return body


def _message(request: Request, events: Sequence[Event], status: str) -> str:
    """Return what an operation waits for, or how it has ended, in sentences."""
    concerned = [event for event in events if not event.status.over]
    if status in ("Canceled", "Failed"):
        concerned = [event for event in events if event.status is Status.WITHDRAWN]
    texts = []
    for event in (concerned or list(events))[:MAX_EXPLAINED]:
        holds = request.context.platform.holds(event)
        explanation = EventExplanation(
            event=event, holds=holds, message=summary(event, holds), seen_by={}
        )
        shown = hide_other_groups(request.call, explanation)
        texts.append(f"{event.type.value} {event.id}: {shown.message}")
    more = len(concerned or events) - MAX_EXPLAINED
    return "; ".join(texts) + (f"; and {more} more" if more > 0 else "")
