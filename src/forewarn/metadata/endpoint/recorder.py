"""Records every exchange at the endpoint into a trace, without changing any."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import quote

from forewarn.metadata.endpoint.callers import Callers
from forewarn.metadata.endpoint.reply import FAULT, ASGIApp, Receive, Scope, Send
from forewarn.metadata.upstream import Upstream
from forewarn.service.telemetry.event_trace import EventTrace
from forewarn.support import guard
from forewarn.wire.requests import asks_for_token, without_token


class Recorder:
    def __init__(
        self,
        app: ASGIApp,
        callers: Callers,
        upstream: Upstream,
        trace: EventTrace,
    ) -> None:
        self._app = app
        self._callers = callers
        self._upstream = upstream
        self._trace = trace
        self._unanswered: defaultdict[str, list[tuple[Scope, float]]] = defaultdict(list)

    def has_unanswered(self, machine: str) -> bool:
        """Return whether a request of this machine is waiting for its answer."""
        return machine in self._unanswered

    def fault_of_unanswered(self, machine: str, seconds: float) -> str:
        """Return the kind of the fault for which such a request has been waiting for so many real
        seconds or more, or nothing."""
        latest = guard.boottime() - seconds
        for scope, asked in self._unanswered.get(machine, ()):
            if FAULT in scope and asked <= latest:
                return str(scope[FAULT])
        return ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked, real_asked = self._upstream.now().at, guard.boottime()
        source, server = scope.get("client") or ("", 0), scope.get("server") or ("", 0)
        caller = self._callers.find(source[0], server[0])
        request_body, response_body = bytearray(), bytearray()
        start: MutableMapping[str, Any] = {"status": None, "headers": []}
        remarks: dict[str, Any] = {}

        async def receive_recorded() -> MutableMapping[str, Any]:
            message = await receive()
            if message["type"] == "http.disconnect":
                remarks["gave_up"] = True
            request_body.extend(message.get("body", b""))
            return message

        async def send_recorded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            response_body.extend(message.get("body", b""))
            await send(message)

        machine = caller.name if caller else ""
        self._unanswered[machine].append((scope, real_asked))
        try:
            await self._app(scope, receive_recorded, send_recorded)
        finally:
            unanswered = self._unanswered[machine]
            del unanswered[next(i for i, (other, _) in enumerate(unanswered) if other is scope)]
            if not unanswered:
                del self._unanswered[machine]
            if FAULT in scope:
                remarks["fault"] = scope[FAULT]
            if asks_for_token(scope["path"]):
                response_body[:] = without_token(response_body)
            # It may have become known meanwhile.
            caller = caller or self._callers.find(source[0], server[0])
            self._trace.write(
                "exchange",
                self._upstream.now().at,
                asked=asked / 1e6,
                real=guard.boottime(),
                real_asked=real_asked,
                machine=caller.name if caller else None,
                **{"from": source[0]},
                method=scope["method"],
                target=_target(scope),
                headers=_texts(scope["headers"]),
                status=start["status"],
                answer_headers=_texts(start["headers"]),
                **_content("body", request_body),
                **_content("answer", response_body),
                **remarks,
            )


def _target(scope: Scope) -> str:
    """Return the target as it was sent: in a decoded path, %3F would look like a question mark.
    ASGI servers need not provide the raw path; without it, the path is encoded again."""
    raw = scope.get("raw_path")
    path = quote(scope["path"]) if raw is None else raw.partition(b"?")[0].decode("latin-1")
    query = scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


def _texts(headers: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def _content(key: str, data: bytearray) -> dict[str, str]:
    try:
        return {key: data.decode()}
    except UnicodeDecodeError:
        return {f"{key}_base64": base64.b64encode(data).decode()}
