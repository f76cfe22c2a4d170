"""The outermost middleware: gives every request an id, measures and traces it, and logs it if it
could change something or if the service failed. A response also says if the service does not run in
real time.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from typing import Any

import msgspec

from forewarn.control.http import problems
from forewarn.control.http.access.token_attempts import network_of
from forewarn.control.http.context import Context
from forewarn.control.schema.core import CLOCK_HEADER, ClockHeader
from forewarn.service.access.secret import hidden
from forewarn.service.engine import otel
from forewarn.support import guard
from forewarn.support.instants import to_datetime
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger

REQUEST_ID = b"x-request-id"
READ_METHODS = ("GET", "HEAD", "OPTIONS")
UNTIMED_PATHS = ("/v1/feed", "/v1/changes")  # they wait for changes: their duration means nothing
MAX_LOGGED_PATH = 200  # characters
MAX_THROTTLED = 4_096  # networks whose log lines are throttled; the least recent are dropped

log = logger("forewarn.control")


class AccessLog:
    """ASGI middleware around all others."""

    def __init__(self, app: Any, context: Context) -> None:
        self._app = app
        self._metrics = context.metrics
        self._context = context
        self._unauthenticated = UnauthenticatedCalls()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id = str(uuid.uuid4())
        scope.setdefault("state", {})["request_id"] = id
        started, status = guard.monotonic(), 0

        async def send_with_id(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message["headers"], (REQUEST_ID, id.encode())]
                if _by(scope):  # others are told nothing about the service
                    headers += _clock_header(self._context)
                message = {**message, "headers": headers}
            await send(message)

        reset = problems.request_id.set(id)
        with _span(scope, scope["method"]) as span:
            try:
                await self._app(scope, receive, send_with_id)
            finally:
                self._record(scope, span, status, guard.monotonic() - started)
                problems.request_id.reset(reset)

    def _record(self, scope: Any, span: Any, status: int, seconds: float) -> None:
        method, by = scope["method"], _by(scope)
        timed = scope["path"] not in UNTIMED_PATHS
        self._metrics.called(method, status, seconds if timed else None)
        otel.answered(span, status, by, f"{method} {_route(scope)}")
        failed = status >= 500 and not (status == 503 and self._follows())
        if method in READ_METHODS and not failed:
            return
        times = 1 if by else self._unauthenticated.record(scope, failed=failed)
        if times:
            _log(scope, by, status, seconds, times, failed=failed)

    def _follows(self) -> bool:
        """Return whether another control node decides, so that 503 is an ordinary answer here."""
        context = self._context
        return context.store.leadership is not None and not context.health.deciding


class UnauthenticatedCalls:
    """Throttles the log lines about callers without a valid token: one a minute per network."""

    def __init__(self) -> None:
        self._throttles: OrderedDict[tuple[str, bool], LogThrottle] = OrderedDict()

    def record(self, scope: Any, *, failed: bool) -> int:
        """Count a call. Return how many calls a log line now stands for; 0: do not log."""
        address = (scope.get("client") or ("",))[0]
        key = network_of(address), failed  # refusals do not hide a failure
        throttle = self._throttles.setdefault(key, LogThrottle())
        self._throttles.move_to_end(key)
        while len(self._throttles) > MAX_THROTTLED:
            self._throttles.popitem(last=False)
        return throttle.record()


def _clock_header(context: Context) -> list[tuple[bytes, bytes]]:
    """Return the header about the clock, if it is virtual or durations are divided."""
    writer, virtual = context.platform.writer, context.virtual_time is not None
    speed = writer.rules.speed
    if not virtual and speed == 1:
        return []
    header = ClockHeader(now=to_datetime(writer.now().at), virtual=virtual, speed=speed)
    return [(CLOCK_HEADER.lower().encode(), msgspec.json.encode(header))]


def _span(scope: Any, method: str) -> Any:
    if not otel.active():
        return otel.span("")
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    return otel.call(method, headers, **{"http.request.method": method})


def _route(scope: Any) -> str:
    """Return the path template, without names and ids."""
    return str(scope.get("path_template") or "unknown path")


def _by(scope: Any) -> str:
    caller = scope.get("state", {}).get("caller")
    return caller.name if caller is not None else ""


def _log(scope: Any, by: str, status: int, seconds: float, times: int, *, failed: bool) -> None:
    result = "carried out" if status < 400 else "refused"
    (log.error if failed else log.info)(
        f"a call was {result}" if status and not failed else "a call failed",
        by=by or "unauthenticated",
        method=scope["method"],
        path=hidden(scope["path"][:MAX_LOGGED_PATH]),
        status=status,
        seconds=round(seconds, 4),
        request_id=scope.get("state", {}).get("request_id", ""),
        **({"times": times} if times > 1 else {}),
    )
