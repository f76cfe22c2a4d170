"""What handlers share: from what the platform says to answers, and from what callers say to values.

Problems are RFC 9457.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException

from forewarn.control import schema as s
from forewarn.control import views
from forewarn.core import Duration, Refused, Time
from forewarn.core.refusal import Reason, invalid
from forewarn.core.selection import Selector, SelectorError, parse
from forewarn.core.time import LAST, SECOND
from forewarn.core.words import listing
from forewarn.service.platform import Outcome
from forewarn.store.port import StoreFailed

STATUS = {Reason.INVALID: 400, Reason.UNKNOWN: 404, Reason.CONFLICT: 409}
TITLES = {400: "Bad request", 404: "Not found", 409: "Conflict", 503: "Not stored"}

log = structlog.get_logger("forewarn.control")


class RefusedError(Exception):
    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.says)
        self.refused = refused


def outcome(done: Outcome | Refused) -> s.Outcome:
    return views.outcome(allowed(done))


def allowed(done: Any) -> Any:
    if isinstance(done, Refused):
        raise RefusedError(done)
    return done


def named(enum: Any, what: str, said: str) -> Any:
    """An enum member by its name in any letter case."""
    for member in enum:
        if member.value.lower() == said.lower():
            return member
    raise RefusedError(
        invalid(f"'{said}' is no {what}; there are {listing([m.value for m in enum])}")
    )


def instant(time: Any) -> Time:
    try:
        return s.instant_of(time)
    except ValueError as error:
        raise RefusedError(invalid(str(error))) from error


def length(what: str, seconds: float) -> Duration:
    if not abs(seconds) * SECOND < LAST:  # not a number fails this as well
        raise RefusedError(invalid(f"{what} of {seconds} s is no length of time"))
    return round(seconds * SECOND)


def selector(text: str | None) -> Selector | None:
    """Labels to select by, as a query says them."""
    try:
        return None if text is None else parse(text)
    except SelectorError as error:
        raise RefusedError(invalid(str(error))) from error


async def aside(build: Callable[[], object]) -> Response[bytes]:
    """An answer that may be large, made and encoded in a thread, of values that cannot change:
    guests are answered meanwhile."""
    encoded = await asyncio.to_thread(lambda: msgspec.json.encode(build()))
    return Response(encoded, media_type="application/json")


def refused(_request: object, error: RefusedError) -> Response[s.Problem]:
    status = STATUS[error.refused.reason]
    return problem(status, TITLES[status], error.refused.says)


def not_stored(_request: object, error: StoreFailed) -> Response[s.Problem]:
    return problem(503, TITLES[503], f"it could not be stored and did not happen: {error}")


def http_problem(_request: object, error: HTTPException) -> Response[s.Problem]:
    detail = error.detail
    if isinstance(error.extra, list) and error.extra:
        said = [f"{e.get('key', '')} {e.get('message', '')}".strip() for e in error.extra]
        detail = f"{detail}: {'; '.join(said)}"
    return problem(error.status_code, "Request not understood", detail)


def surprise(request: Request[Any, Any, Any], error: Exception) -> Response[s.Problem]:
    """A fault of ours: all of it is for the log, and whoever asked is told only that."""
    if isinstance(error, RecursionError) and _while_decoding(error):
        return problem(400, TITLES[400], "the body is nested too deeply")
    log.error(
        "a request could not be answered",
        method=request.method,
        path=request.url.path,
        exc_info=error,
    )
    says = "the service has failed at this; its log says why"
    return problem(500, "Internal error", says)


def _while_decoding(error: Exception) -> bool:
    """Was it raised by what reads a body, not by what does something with it?"""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = place.tb_frame.f_globals.get("__name__", "") if place is not None else ""
    return str(where).startswith("litestar.serialization")


def problem(status: int, title: str, detail: str) -> Response[s.Problem]:
    return Response(
        s.Problem(title=title, status=status, detail=detail),
        status_code=status,
        media_type="application/problem+json",
    )
