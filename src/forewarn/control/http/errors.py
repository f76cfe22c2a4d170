"""What handlers share: exceptions and their problems (RFC 9457), and reading values of requests.

The kinds of problems are in `problems.py`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, InternalServerException

from forewarn.control.http import problems
from forewarn.control.http.problems import BY_NAME, BY_STATUS, MEDIA_TYPE, Kind
from forewarn.control.schema import core as s
from forewarn.control.views import core
from forewarn.core import Duration, Refused, Time
from forewarn.core.labels import Selector, SelectorError, parse
from forewarn.core.refusal import Reason, invalid
from forewarn.core.time import LAST, SECOND
from forewarn.service.platform.platform import Outcome
from forewarn.store.port import StoreFailed, StoreUnreadable
from forewarn.support.logs import logger
from forewarn.support.text import listing, parse_duration

MAX_BODY = 1024 * 1024  # bytes, unless a call sets another limit; a body is read on the event loop
SHOWN_VALUE = 40  # characters of an invalid value that a problem repeats

_DISCONNECTED = "client disconnected prematurely"  # Litestar's own words

_ID = re.compile(r"[0-9A-Fa-f-]{1,36}", re.ASCII)

log = logger("forewarn.control")


class RefusedError(Exception):
    """A refusal by the platform."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(str(refused))
        self.refused = refused


class ProblemError(Exception):
    """A refusal by the API itself, of a kind that the platform does not know."""

    def __init__(self, kind: str, says: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(says)
        self.kind = BY_NAME[kind]
        self.headers = dict(headers or {})


def outcome(result: Outcome | Refused) -> s.Outcome:
    return core.outcome(allowed(result))


def allowed(result: Any) -> Any:
    """Return the result of a verb, or raise if the platform refused it."""
    if isinstance(result, Refused):
        raise RefusedError(result)
    return result


def named(enum: Any, what: str, text: str) -> Any:
    """Return the member of an enumeration with this value, in any letter case."""
    for member in enum:
        if member.value.lower() == text.lower():
            return member
    raise RefusedError(
        invalid(f"'{text}' is no {what}; there are {listing([m.value for m in enum])}")
    )


def id_of(key: str, text: str) -> str:
    """Return an id as it is stored, in upper case."""
    if _ID.fullmatch(text) is None:
        raise RefusedError(invalid(f"{key}: '{text[:SHOWN_VALUE]}' is no id"))
    return text.upper()


def instant(time: Any) -> Time:
    try:
        return s.instant_of(time)
    except ValueError as error:
        raise RefusedError(invalid(str(error))) from error


def when(key: str, text: str | None, now: Time) -> Time | None:
    """Read a time, or how long ago."""
    if text is None:
        return None
    try:
        return instant(datetime.fromisoformat(text))
    except ValueError:
        pass
    try:
        return now - parse_duration(text)  # which is never longer than any time there is
    except ValueError as error:
        raise RefusedError(
            invalid(
                f"{key}: '{text[:SHOWN_VALUE]}' is neither a time nor how long ago;"
                " write for example 2027-01-15T08:00:00Z or 2h"
            )
        ) from error


def length(what: str, seconds: float) -> Duration:
    if not abs(seconds) * SECOND < LAST:  # not a number fails this as well
        raise RefusedError(invalid(f"{what} of {seconds} s is no length of time"))
    return round(seconds * SECOND)


def selector(text: str | None) -> Selector | None:
    """Read a label selector of a query."""
    try:
        return None if text is None else parse(text)
    except SelectorError as error:
        raise RefusedError(invalid(str(error))) from error


async def in_thread(build: Callable[[], object]) -> Response[bytes]:
    """Build and encode a response that may be large in a thread, from immutable values, so that
    guests are answered meanwhile."""
    encoded = await asyncio.to_thread(lambda: msgspec.json.encode(build()))
    return Response(encoded, media_type="application/json")


def refused(_request: object, error: RefusedError) -> Response[s.Problem]:
    made = problems.of_refusal(_KINDS[error.refused.reason], error.refused)
    return Response(made, status_code=made.status, media_type=MEDIA_TYPE)


def refused_here(_request: object, error: ProblemError) -> Response[s.Problem]:
    return answer(error.kind, str(error), headers=error.headers)


def not_stored(_request: object, error: StoreFailed) -> Response[s.Problem]:
    if isinstance(error, StoreUnreadable):
        return answer(BY_NAME["unavailable"], f"the state could not be read: {error}")
    says = f"it could not be stored and did not happen: {error}"
    return answer(BY_NAME["not-stored"], says)


def http_problem(_request: object, error: HTTPException) -> Response[s.Problem]:
    detail = error.detail
    mistakes: list[s.Mistake] = []
    if isinstance(error.extra, list):
        mistakes = [_mistake(extra) for extra in error.extra]
        detail = f"{detail}: {'; '.join(f'{f.pointer} {f.detail}'.strip() for f in mistakes)}"
    status = error.status_code
    if status == 413 and "bytes" not in detail:
        detail = f"the body is too large; this call takes at most {MAX_BODY:,} bytes"
    if isinstance(error, InternalServerException) and detail == _DISCONNECTED:
        says = "the connection ended before all of the body had been received"
        return answer(BY_NAME["invalid"], says)  # for the log: nobody is there to read it
    if status >= 500:
        return answer(BY_NAME["failed"], detail, status=status)
    kind = BY_STATUS.get(status, BY_NAME["invalid"])
    return answer(kind, detail, mistakes, status=status, headers=error.headers)


def _mistake(extra: Mapping[str, Any]) -> s.Mistake:
    message, key = str(extra.get("message", "")), str(extra.get("key", ""))
    if extra.get("source") == "body":
        key = problems.pointer(f".{key.removeprefix('data.').removeprefix('data')}")
    return s.Mistake(pointer=key, detail=message)


def surprise(request: Request[Any, Any, Any], error: Exception) -> Response[s.Problem]:
    """Answer an unexpected exception: the details go to the log, not to the caller."""
    if isinstance(error, RecursionError) and _while_decoding(error):
        return answer(BY_NAME["invalid"], "the body is nested too deeply")
    log.error(
        "a request could not be answered",
        method=request.method,
        path=request.url.path,
        request_id=problems.request_id.get(),
        exc_info=error,
    )
    return answer(BY_NAME["failed"], "the service has failed at this; its log says why")


def _while_decoding(error: Exception) -> bool:
    """Whether the error was raised while reading a body, not while doing something with it."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    module = traceback.tb_frame.f_globals.get("__name__", "") if traceback is not None else ""
    return str(module).startswith("litestar.serialization")


def answer(
    kind: Kind,
    detail: str,
    errors: list[s.Mistake] | None = None,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    suggestion: str = "",
) -> Response[s.Problem]:
    problem = problems.described(kind, detail, errors, status, suggestion=suggestion)
    return Response(problem, status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)


def problem(
    status: int, detail: str, headers: Mapping[str, str] | None = None, *, suggestion: str = ""
) -> Response[s.Problem]:
    """Answer with the kind of problem that this status stands for."""
    kind = BY_STATUS.get(status, BY_NAME["failed" if status >= 500 else "invalid"])
    return answer(kind, detail, status=status, headers=headers, suggestion=suggestion)


_KINDS = {
    Reason.INVALID: BY_NAME["invalid"],
    Reason.UNKNOWN: BY_NAME["unknown"],
    Reason.CONFLICT: BY_NAME["conflict"],
    Reason.STALE: BY_NAME["stale"],
}
