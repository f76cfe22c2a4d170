"""Answers that go wrong on purpose: between what records them and the endpoint.

Asks `service/faults/registry.py` about every request for the document, a long-poll too, and every
approval whose head is well formed; all others pass. A caller that got a spoiled document has not
seen it: nothing is noted but, where it was answered 200, a sign of life. What is spoiled is marked
for whoever records.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, TypeAlias

from forewarn.metadata.endpoint.app import MetadataApp
from forewarn.metadata.endpoint.callers import Caller, Callers
from forewarn.metadata.endpoint.reply import (
    CUT,
    FAULT,
    IN_PROCESS,
    ASGIApp,
    Gone,
    Receive,
    Reply,
    Scope,
    Send,
)
from forewarn.metadata.faults.delay import DelayedAnswers
from forewarn.metadata.upstream import NotDurable
from forewarn.service.faults.event_faults import EventFaults
from forewarn.service.faults.kinds import MAX_HELD, Kind
from forewarn.service.faults.model import Fault
from forewarn.service.faults.registry import Faults
from forewarn.wire import errors, extensions, fault_bodies, requests

Asked: TypeAlias = requests.GetDocument | extensions.Wait | requests.PostApproval

KEEP = frozenset({Kind.SLOW, Kind.INCARNATION})  # what is answered in the end is in order


class FaultInjection:
    def __init__(
        self, app: MetadataApp, faults: Faults, event_faults: EventFaults, holding: DelayedAnswers
    ) -> None:
        self._app = app
        self._faults = faults
        self._event_faults = event_faults
        self._holding = holding
        faults.on_change(self._detour)

    def _detour(self) -> None:
        """Whoever a fault may meet takes the long way, which comes by here."""
        self._app.detours = self._faults.detours(self._event_faults.watched)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._faults.meets_requests:
            await self._app(scope, receive, send)
            return
        seat = _seat(self._app.seats, scope)
        ask = requests.read_request(
            scope["method"], scope["path"], scope["query_string"], scope["headers"]
        )
        if seat is None or not isinstance(ask, Asked):
            await self._app(scope, receive, send)
            return
        fault = self._fault(seat, ask)
        if fault is None:
            await self._app(scope, receive, send)
            return
        try:
            await self._meet(fault, seat, ask, scope, receive, send)
        except Gone:
            _cut(scope)

    def _fault(self, seat: Caller, ask: Asked) -> Fault | None:
        def suits(kind: Kind) -> bool:
            """Is there something in the answer that could be spoiled so?"""
            if kind is Kind.INCARNATION:
                return seat.board.enabled
            if kind is Kind.CONTROL_CHARACTERS:
                return seat.board.enabled and bool(seat.board.page(ask.version).events)
            return True

        method = "POST" if isinstance(ask, requests.PostApproval) else "GET"
        return self._faults.for_request(seat.name, seat.group, method, suits)

    async def _meet(
        self,
        fault: Fault,
        seat: Caller,
        ask: Asked,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        asks = not isinstance(ask, requests.PostApproval)
        if fault.kind not in KEEP:
            scope[FAULT] = fault.kind.value
        if fault.kind is Kind.INCARNATION:
            await self._event_faults.start_over(fault, seat.group)
            await self._app(scope, receive, send)
        elif fault.kind is Kind.SLOW and isinstance(ask, requests.GetDocument):
            async with self._holding.until(fault.seconds or 0, scope, receive):
                await self._app(scope, receive, send)
        elif fault.kind is Kind.SLOW:
            answer = await self._carried_out(scope, receive)
            async with self._holding.until(fault.seconds or 0, scope, receive):
                for message in answer:
                    await send(message)
        elif asks:
            await self._spoil(fault, seat, ask, scope, receive, send)
        else:
            if fault.takes_effect:
                await self._carried_out(scope, receive)
            await self._refuse(fault, scope, receive, send)

    async def _carried_out(self, scope: Scope, receive: Receive) -> list[MutableMapping[str, Any]]:
        """What is asked for is done; what there is to say to it is kept back."""
        answer: list[MutableMapping[str, Any]] = []

        async def keep(message: MutableMapping[str, Any]) -> None:
            answer.append(message)

        await self._app(scope, receive, keep)
        return answer

    async def _spoil(
        self,
        fault: Fault,
        seat: Caller,
        ask: Asked,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """A GET, with an answer that is not what it should be."""
        if fault.kind in (Kind.THROTTLED, Kind.GONE, Kind.ERROR, Kind.RESET):
            if fault.kind is Kind.THROTTLED and seat.board.enabled:
                self._app.alive(seat)
            await self._refuse(fault, scope, receive, send)
            return
        try:
            body = await self._app.unseen(seat, ask.version)
        except NotDurable:  # there is no document to be spoiled: say so
            del scope[FAULT]
            await self._app(scope, receive, send)
            return
        match fault.kind:
            case Kind.EMPTY:
                await self._answer(send, Reply(200))
            case Kind.NO_EVENTS:
                await self._answer(send, Reply(200, fault_bodies.without_events(body)))
            case Kind.PLAIN:
                said = body if fault.body is None else fault.body.encode()
                await self._answer(send, Reply(200, said, fault_bodies.PLAIN))
            case Kind.CONTROL_CHARACTERS:
                await self._answer(send, Reply(200, fault_bodies.with_control_characters(body)))
            case Kind.TRUNCATED:
                await self._answer(send, Reply(200, body), half=True)
                _cut(scope)
            case _:
                await self._answer(send, Reply(200, body), half=True)
                await self._stall(fault, scope, receive)

    async def _refuse(self, fault: Fault, scope: Scope, receive: Receive, send: Send) -> None:
        """Without a document: an error, or no answer at all."""
        match fault.kind:
            case Kind.THROTTLED:
                await self._answer(send, Reply(429, errors.THROTTLED.body))
            case Kind.GONE:
                await self._answer(send, Reply(410, fault_bodies.GONE))
            case Kind.STALLED:
                await self._stall(fault, scope, receive)
            case Kind.RESET:
                _cut(scope, hard=True)
            case _:
                said = fault_bodies.ERROR if fault.body is None else fault.body.encode()
                await self._answer(send, Reply(fault.status or 500, said))

    async def _stall(self, fault: Fault, scope: Scope, receive: Receive) -> None:
        """Nothing more, until the caller gives up or the time is over. In process nobody gives
        up, so it is as if that had happened."""
        if IN_PROCESS not in scope:
            seconds = MAX_HELD if fault.seconds is None else fault.seconds
            async with self._holding.until(seconds, scope, receive):
                pass
        _cut(scope)

    async def _answer(self, send: Send, reply: Reply, half: bool = False) -> None:
        head = self._app.head(reply)
        await send({"type": "http.response.start", "status": reply.status, "headers": head})
        body = reply.body[: len(reply.body) // 2] if half else reply.body
        await send({"type": "http.response.body", "body": body, "more_body": half})


class ConnectionDrop:
    """Outside of all the others: what a machine has been shown may be gone when it looks again,
    but not before its answer was recorded."""

    def __init__(
        self, app: ASGIApp, seats: Callers, faults: Faults, event_faults: EventFaults
    ) -> None:
        self._app = app
        self._seats = seats
        self._faults = faults
        self._event_faults = event_faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
        if not self._event_faults.watched:
            return
        seat = _seat(self._seats, scope)
        if seat is not None and await self._event_faults.shown(seat.name, seat.group):
            self._faults.look_again()


def _seat(seats: Callers, scope: Scope) -> Caller | None:
    return seats.who((scope.get("client") or ("", 0))[0], (scope.get("server") or ("", 0))[0])


def _cut(scope: Scope, hard: bool = False) -> None:
    """Hang up, whatever has been said; if hard, as one who has fallen over."""
    scope[CUT](hard)
