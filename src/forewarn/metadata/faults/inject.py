"""Fault injection: an ASGI application between the recorder and the endpoint.

Consults `service/faults/registry.py` about every well-formed request for the document, including
long-polls, and every approval; all others pass. A caller that got a corrupted document has not
seen it: nothing is recorded but, where it was answered 200, a sign of life. The scope of the answer
names the fault, for the recorder.
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
from forewarn.service.faults.kinds import MAX_DELAY, FaultKind
from forewarn.service.faults.model import Fault
from forewarn.service.faults.registry import Faults
from forewarn.wire import errors, extensions, fault_bodies, requests

FaultableRequest: TypeAlias = requests.GetDocument | extensions.Wait | requests.PostApproval

CORRECT_ANSWERS = frozenset({FaultKind.SLOW, FaultKind.INCARNATION})  # the answer itself is correct


class FaultInjection:
    def __init__(
        self, app: MetadataApp, faults: Faults, event_faults: EventFaults, delayed: DelayedAnswers
    ) -> None:
        self._app = app
        self._faults = faults
        self._event_faults = event_faults
        self._delayed = delayed
        faults.on_change(self._detour)

    def _detour(self) -> None:
        """Send machines that a fault may affect to the slow path, which passes through here."""
        self._app.detours = self._faults.detours(self._event_faults.watched)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._faults.meets_requests:
            await self._app(scope, receive, send)
            return
        caller = _caller(self._app.callers, scope)
        ask = requests.read_request(
            scope["method"], scope["path"], scope["query_string"], scope["headers"]
        )
        if caller is None or not isinstance(ask, FaultableRequest):
            await self._app(scope, receive, send)
            return
        fault = self._fault(caller, ask)
        if fault is None:
            await self._app(scope, receive, send)
            return
        try:
            await self._inject(fault, caller, ask, scope, receive, send)
        except Gone:
            _cut(scope)

    def _fault(self, caller: Caller, ask: FaultableRequest) -> Fault | None:
        def suits(kind: FaultKind) -> bool:
            """Return whether the answer contains what this fault corrupts."""
            if kind is FaultKind.INCARNATION:
                return caller.document.enabled
            if kind is FaultKind.CONTROL_CHARACTERS:
                return caller.document.enabled and bool(caller.document.render(ask.version).events)
            return True

        method = "POST" if isinstance(ask, requests.PostApproval) else "GET"
        return self._faults.for_request(caller.name, caller.group, method, suits)

    async def _inject(
        self,
        fault: Fault,
        caller: Caller,
        ask: FaultableRequest,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        is_get = not isinstance(ask, requests.PostApproval)
        if fault.kind not in CORRECT_ANSWERS:
            scope[FAULT] = fault.kind.value
        if fault.kind is FaultKind.INCARNATION:
            await self._event_faults.start_over(fault, caller.group)
            await self._app(scope, receive, send)
        elif fault.kind is FaultKind.SLOW and isinstance(ask, requests.GetDocument):
            async with self._delayed.until(fault.seconds or 0, scope, receive):
                await self._app(scope, receive, send)
        elif fault.kind is FaultKind.SLOW:
            answer = await self._collect_answer(scope, receive)
            async with self._delayed.until(fault.seconds or 0, scope, receive):
                for message in answer:
                    await send(message)
        elif is_get:
            await self._corrupt(fault, caller, ask, scope, receive, send)
        else:
            if fault.takes_effect:
                await self._collect_answer(scope, receive)
            await self._refuse(fault, scope, receive, send)

    async def _collect_answer(
        self, scope: Scope, receive: Receive
    ) -> list[MutableMapping[str, Any]]:
        """Carry out the request, and return the answer instead of sending it."""
        answer: list[MutableMapping[str, Any]] = []

        async def collect(message: MutableMapping[str, Any]) -> None:
            answer.append(message)

        await self._app(scope, receive, collect)
        return answer

    async def _corrupt(
        self,
        fault: Fault,
        caller: Caller,
        ask: FaultableRequest,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Answer a GET with something other than the correct response."""
        if fault.kind in (FaultKind.THROTTLED, FaultKind.GONE, FaultKind.ERROR, FaultKind.RESET):
            if fault.kind is FaultKind.THROTTLED and caller.document.enabled:
                self._app.sign_of_life(caller)
            await self._refuse(fault, scope, receive, send)
            return
        try:
            body = await self._app.document_body(caller, ask.version)
        except NotDurable:  # there is no document: answer with that error
            del scope[FAULT]
            await self._app(scope, receive, send)
            return
        match fault.kind:
            case FaultKind.EMPTY:
                await self._answer(send, Reply(200))
            case FaultKind.NO_EVENTS:
                await self._answer(send, Reply(200, fault_bodies.without_events(body)))
            case FaultKind.PLAIN:
                text = body if fault.body is None else fault.body.encode()
                await self._answer(send, Reply(200, text, fault_bodies.PLAIN))
            case FaultKind.CONTROL_CHARACTERS:
                await self._answer(send, Reply(200, fault_bodies.with_control_characters(body)))
            case FaultKind.TRUNCATED:
                await self._answer(send, Reply(200, body), half=True)
                _cut(scope)
            case _:
                await self._answer(send, Reply(200, body), half=True)
                await self._stall(fault, scope, receive)

    async def _refuse(self, fault: Fault, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with an error, or not at all."""
        match fault.kind:
            case FaultKind.THROTTLED:
                await self._answer(send, Reply(429, errors.THROTTLED.body))
            case FaultKind.GONE:
                await self._answer(send, Reply(410, fault_bodies.GONE))
            case FaultKind.STALLED:
                await self._stall(fault, scope, receive)
            case FaultKind.RESET:
                _cut(scope, hard=True)
            case _:
                body = fault_bodies.ERROR if fault.body is None else fault.body.encode()
                await self._answer(send, Reply(fault.status or 500, body))

    async def _stall(self, fault: Fault, scope: Scope, receive: Receive) -> None:
        """Send nothing until the caller gives up or the time is over, and close. In process, where
        no caller gives up, close at once."""
        if IN_PROCESS not in scope:
            seconds = MAX_DELAY if fault.seconds is None else fault.seconds
            async with self._delayed.until(seconds, scope, receive):
                pass
        _cut(scope)

    async def _answer(self, send: Send, reply: Reply, half: bool = False) -> None:
        head = self._app.head(reply)
        await send({"type": "http.response.start", "status": reply.status, "headers": head})
        body = reply.body[: len(reply.body) // 2] if half else reply.body
        await send({"type": "http.response.body", "body": body, "more_body": half})


class DisappearingEvents:
    """Makes events that a machine was shown disappear, as faults want it, after the answer that
    showed them was recorded. The outermost application."""

    def __init__(
        self, app: ASGIApp, callers: Callers, faults: Faults, event_faults: EventFaults
    ) -> None:
        self._app = app
        self._callers = callers
        self._faults = faults
        self._event_faults = event_faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
        if not self._event_faults.watched:
            return
        caller = _caller(self._callers, scope)
        if caller is not None and await self._event_faults.shown(caller.name, caller.group):
            self._faults.notify()


def _caller(callers: Callers, scope: Scope) -> Caller | None:
    return callers.find((scope.get("client") or ("", 0))[0], (scope.get("server") or ("", 0))[0])


def _cut(scope: Scope, hard: bool = False) -> None:
    """Close the connection, whatever was sent; if `hard`, with a reset."""
    scope[CUT](hard)
