"""Exceptions that handlers raise, the problem responses (RFC 9457) that they become, and the
parsers of values that raise them.

The kinds of problems are in `problems.py`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, InternalServerException, NotFoundException

from forewarn.control.http import problems
from forewarn.control.http.problems import BY_NAME, BY_STATUS, MEDIA_TYPE, Kind
from forewarn.control.schema import core as s
from forewarn.control.views import core
from forewarn.core import Duration, Refused, Time
from forewarn.core.labels import Selector, SelectorError, parse
from forewarn.core.refusal import Reason, invalid
from forewarn.core.time import MAX_TIME, SECOND
from forewarn.service.platform.platform import Outcome
from forewarn.store.port import NotLeading, StoreFailed, StoreUnreadable
from forewarn.support.convert import decode_json
from forewarn.support.instants import NoZone, from_datetime, parse_datetime
from forewarn.support.logs import logger
from forewarn.support.text import listing, parse_duration

MAX_BODY = 1024 * 1024  # bytes, unless an operation sets another limit; read on the event loop
SHOWN_VALUE = 40  # characters of an invalid value that a problem repeats

_DISCONNECTED = "client disconnected prematurely"  # the detail of Litestar's exception

_ID = re.compile(r"[0-9A-Fa-f-]{1,36}", re.ASCII)

log = logger("forewarn.control")
T = TypeVar("T")


class RefusedError(Exception):
    """A refusal by the platform."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(str(refused))
        self.refused = refused


class ProblemError(Exception):
    """A refusal by the API itself, of a kind that the platform does not know."""

    def __init__(self, kind: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.kind = BY_NAME[kind]
        self.headers = dict(headers or {})


def outcome(result: Outcome | Refused) -> s.Outcome:
    return core.outcome(unwrap(result))


def unwrap(result: Any) -> Any:
    """Return the result of a call to the platform, or raise its refusal."""
    if isinstance(result, Refused):
        raise RefusedError(result)
    return result


def parse_enum(enum: Any, kind: str, text: str) -> Any:
    """Return the member of an enumeration with this value, in any letter case."""
    members = {member.value: member for member in enum}
    return members[parse_name(members, kind, text)]


def parse_name(names: Collection[str], kind: str, text: str) -> str:
    """Return the one of the names that this is, in any letter case."""
    for name in names:
        if name.lower() == text.lower():
            return name
    raise RefusedError(invalid(f"unknown {kind} '{text}'; expected one of {listing(list(names))}"))


def parse_id(key: str, text: str) -> str:
    """Return an id, or the beginning of one, as ids are stored: in upper case."""
    if _ID.fullmatch(text) is None:
        raise RefusedError(invalid(f"{key}: '{text[:SHOWN_VALUE]}' is not a valid id"))
    return text.upper()


def instant(time: Any) -> Time:
    """Convert a datetime, which must have a time zone."""
    try:
        return from_datetime(time)
    except ValueError as error:
        raise RefusedError(invalid(str(error))) from error


def parse_time_or_age(key: str, text: str | None, now: Time) -> Time | None:
    """Parse a time, or an age: how long before now."""
    return _parse_time_or(key, text, "an age", "2h", lambda age: now - age)  # never longer than now


def parse_time_or_delay(key: str, text: str | None, now: Time) -> Time | None:
    """Parse a time, or a delay: how long from now."""
    return _parse_time_or(key, text, "a delay from now", "24h", lambda delay: now + delay)


def _parse_time_or(
    key: str, text: str | None, kind: str, example: str, at: Callable[[Duration], Time]
) -> Time | None:
    if text is None:
        return None
    try:
        return from_datetime(parse_datetime(text))
    except NoZone as error:
        raise RefusedError(invalid(f"{key}: {error}")) from error
    except ValueError:
        pass
    try:
        return at(parse_duration(text))
    except ValueError as error:
        raise RefusedError(
            invalid(
                f"{key}: '{text[:SHOWN_VALUE]}' is neither a time nor {kind};"
                f" write for example 2027-01-15T08:00:00Z or {example}"
            )
        ) from error


def duration_of(name: str, seconds: float) -> Duration:
    """Convert seconds; `name` is the field that an error names."""
    if not abs(seconds) * SECOND < MAX_TIME:  # not a number fails this as well
        raise RefusedError(invalid(f"{name}: {seconds} s is not a valid duration"))
    return round(seconds * SECOND)


def parse_text(parse: Callable[[str], T], text: str) -> T:
    """Parse a text, and refuse the request with the message if it is not valid."""
    try:
        return parse(text)
    except ValueError as error:
        raise RefusedError(invalid(str(error))) from error


def each_once(field: str, items: Sequence[str]) -> tuple[str, ...]:
    """Return the items of a field, and refuse the request if one is repeated."""
    for index, item in enumerate(items):
        if item in items[:index]:
            raise ProblemError(
                "invalid",
                f"{field} has '{item}' twice; this operation allows each item once",
            )
    return tuple(items)


def parse_selector(text: str | None) -> Selector | None:
    """Parse a label selector; None stays None."""
    try:
        return None if text is None else parse(text)
    except SelectorError as error:
        raise RefusedError(invalid(str(error))) from error


async def encode_in_thread(build: Callable[[], object]) -> Response[bytes]:
    """Build and encode a large response in a thread, so that the event loop can answer guests
    meanwhile. `build` must only read immutable values."""
    encoded = await asyncio.to_thread(lambda: msgspec.json.encode(build()))
    return Response(encoded, media_type="application/json")


def on_refused(_request: object, error: RefusedError) -> Response[s.Problem]:
    problem = problems.from_refusal(_KINDS[error.refused.reason], error.refused)
    return Response(problem, status_code=problem.status, media_type=MEDIA_TYPE)


def on_problem(_request: object, error: ProblemError) -> Response[s.Problem]:
    return problem_response(error.kind, str(error), headers=error.headers)


def not_leading(error: NotLeading) -> ProblemError:
    headers = {s.LEADER_HEADER: error.leader.address} if error.leader else {}
    return ProblemError("not-leading", str(error), headers)


def on_store_failed(_request: object, error: StoreFailed) -> Response[s.Problem]:
    if isinstance(error, NotLeading):
        return on_problem(_request, not_leading(error))
    if isinstance(error, StoreUnreadable):
        return problem_response(BY_NAME["unavailable"], f"the state could not be read: {error}")
    detail = f"the change could not be stored and has not happened: {error}"
    return problem_response(BY_NAME["not-stored"], detail)


def on_http_exception(request: Request[Any, Any, Any], error: HTTPException) -> Response[s.Problem]:
    detail = error.detail
    if isinstance(error, NotFoundException):  # raised by the router alone
        path = request.url.path[:SHOWN_VALUE]
        detail = f"there is nothing at the path '{path}'; all operations are under /v1"
    mistakes: list[s.Mistake] = []
    if isinstance(error.extra, list):
        mistakes = [_mistake(extra) for extra in error.extra]
        detail = f"{detail}: {'; '.join(f'{f.pointer} {f.detail}'.strip() for f in mistakes)}"
    status = error.status_code
    if status == 413 and "bytes" not in detail:
        detail = f"the body is too large; this operation takes at most {MAX_BODY:,} bytes"
    if isinstance(error, InternalServerException) and detail == _DISCONNECTED:
        detail = "the connection ended before all of the body had been received"
        return problem_response(BY_NAME["invalid"], detail)  # only for the log: the caller is gone
    if status >= 500:
        return problem_response(BY_NAME["failed"], detail, status=status)
    kind = BY_STATUS.get(status, BY_NAME["invalid"])
    return problem_response(kind, detail, mistakes, status=status, headers=error.headers)


def _mistake(extra: Mapping[str, Any]) -> s.Mistake:
    message, key = str(extra.get("message", "")), str(extra.get("key", ""))
    if extra.get("source") == "body":
        key = problems.pointer(f".{key.removeprefix('data.').removeprefix('data')}")
    return s.Mistake(pointer=key, detail=message)


def on_unexpected(request: Request[Any, Any, Any], error: Exception) -> Response[s.Problem]:
    """Answer an unexpected exception: the details go to the log, not to the caller."""
    if isinstance(error, RecursionError) and _while_decoding(error):
        return problem_response(BY_NAME["invalid"], "the body is nested too deeply")
    log.error(
        "a request could not be answered",
        method=request.method,
        path=request.url.path,
        request_id=problems.request_id.get(),
        exc_info=error,
    )
    return problem_response(
        BY_NAME["failed"], "the service failed; its log has the details under the request id"
    )


def _while_decoding(error: Exception) -> bool:
    """Whether the error was raised while a body was decoded, and not by a handler."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    module = traceback.tb_frame.f_globals.get("__name__", "") if traceback is not None else ""
    return bool(module == decode_json.__module__)


def problem_response(
    kind: Kind,
    detail: str,
    errors: list[s.Mistake] | None = None,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    suggestion: str = "",
) -> Response[s.Problem]:
    problem = problems.problem_of(kind, detail, errors, status, suggestion=suggestion)
    return Response(problem, status_code=problem.status, media_type=MEDIA_TYPE, headers=headers)


def problem_for_status(
    status: int, detail: str, headers: Mapping[str, str] | None = None, *, suggestion: str = ""
) -> Response[s.Problem]:
    """Return the problem response of the kind that this status stands for."""
    kind = BY_STATUS.get(status, BY_NAME["failed" if status >= 500 else "invalid"])
    return problem_response(kind, detail, status=status, headers=headers, suggestion=suggestion)


_KINDS = {
    Reason.INVALID: BY_NAME["invalid"],
    Reason.UNKNOWN: BY_NAME["unknown"],
    Reason.CONFLICT: BY_NAME["conflict"],
    Reason.STALE: BY_NAME["stale"],
}
