"""Every call of the control API as a whole: measured, traced, and told in the log if it was meant
to change something, or if we have failed at it. It stands outside of everything else.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from forewarn.control.http.context import Context
from forewarn.control.http.token_attempts import network_of
from forewarn.service.access.secret import hidden
from forewarn.service.engine import otel
from forewarn.support import guard
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger

LOOKS = ("GET", "HEAD", "OPTIONS")
LASTING = ("/v1/feed", "/v1/changes")  # how long they last says nothing
MAX_LOGGED_PATH = 200  # characters
MAX_TOLD = 4_096  # addresses of strangers that are remembered; the longest silent are forgotten

log = logger("forewarn.control")


class AccessLog:
    """An ASGI application before another."""

    def __init__(self, app: Any, desk: Context) -> None:
        self._app = app
        self._metrics = desk.metrics
        self._strangers = UnauthenticatedCalls()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = guard.monotonic(), 0

        async def sent(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        method = scope["method"]
        with _span(scope, method) as span:
            try:
                await self._app(scope, receive, sent)
            finally:
                seconds = guard.monotonic() - began
                lasting = scope["path"] in LASTING
                self._metrics.called(method, status, None if lasting else seconds)
                otel.answered(span, status, _by(scope), f"{method} {_route(scope)}")
                if method not in LOOKS or status >= 500:
                    by = _by(scope)
                    times = 1 if by else self._strangers.again(scope, status)
                    if times:
                        _tell(scope, by, status, seconds, times)


class UnauthenticatedCalls:
    """Whoever is not let in may try as often as it likes; the log has a line a minute of it."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, bool], LogThrottle] = OrderedDict()

    def again(self, scope: Any, status: int) -> int:
        """How often this was to be told since it was told last; 0: it is not to be told now."""
        address = (scope.get("client") or ("",))[0]
        key = network_of(address), status >= 500  # a fault is not hidden by refusals
        seldom = self._seen.setdefault(key, LogThrottle())
        self._seen.move_to_end(key)
        while len(self._seen) > MAX_TOLD:
            self._seen.popitem(last=False)
        return seldom.again()


def _span(scope: Any, method: str) -> Any:
    if not otel.active():
        return otel.span("")
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    return otel.call(method, headers, **{"http.request.method": method})


def _route(scope: Any) -> str:
    """As it is declared, so that no name or id is in it."""
    return str(scope.get("path_template") or "unknown path")


def _by(scope: Any) -> str:
    caller = scope.get("state", {}).get("caller")
    return caller.name if caller is not None else ""


def _tell(scope: Any, by: str, status: int, seconds: float, times: int) -> None:
    tell = log.error if status >= 500 else log.info
    said = "carried out" if 0 < status < 400 else "refused" if 0 < status < 500 else "failed"
    tell(
        f"a call was {said}" if said != "failed" else "a call failed",
        by=by or "nobody known",
        method=scope["method"],
        path=hidden(scope["path"][:MAX_LOGGED_PATH]),
        status=status,
        seconds=round(seconds, 4),
        request_id=scope.get("state", {}).get("request_id", ""),
        **({"times": times} if times > 1 else {}),
    )
