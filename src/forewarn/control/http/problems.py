"""The kinds of problems (RFC 9457) that the control API answers with: the name, status and title of
each, when it occurs and what the caller can do. The page at /docs and the reference of the control
API contain these texts.
"""

from __future__ import annotations

import re
from contextvars import ContextVar

import msgspec

from forewarn.control.schema import core as s
from forewarn.core.refusal import Hint, Refused

PAGE = "/docs"  # lists the kinds; the type of a problem is an anchor on it
DOCUMENT_PATH = "/schema/openapi.json"
CALENDAR_PATH = "/v1/calendar.ics"  # accepts HTTP Basic, since calendar programs can do no better
MEDIA_TYPE = "application/problem+json"

# Id of the request that is being answered, for log lines and problems.
request_id: ContextVar[str] = ContextVar("request_id", default="")


class Kind(msgspec.Struct, frozen=True):
    name: str
    status: int
    title: str
    description: str  # when it occurs, and what to do

    @property
    def type(self) -> str:
        return f"{PAGE}#problem-{self.name}"


KINDS = (
    Kind(
        "invalid",
        400,
        "Bad request",
        "A value, a parameter or the body is not valid. `detail` says what would have been"
        " valid, `errors` lists the invalid fields, and `line` is the line in a fleet file."
        " Correct the request and send it again.",
    ),
    Kind(
        "unauthorised",
        401,
        "Unauthorized",
        "The request has no token, or the token is unknown, expired or revoked.",
    ),
    Kind(
        "forbidden",
        403,
        "Forbidden",
        "The token does not allow this operation, or not on this resource; or a browser sent"
        " the request on behalf of a page of another site.",
    ),
    Kind(
        "unknown",
        404,
        "Not found",
        "No resource has this name or id. `did_you_mean` may suggest a similar name.",
    ),
    Kind(
        "method",
        405,
        "Method not allowed",
        "The path does not support this method; `Allow` lists those that it supports.",
    ),
    Kind(
        "conflict",
        409,
        "Conflict",
        "The request is valid, but cannot be carried out in the current state; `detail` says"
        " what prevents it.",
    ),
    Kind(
        "under-way",
        409,
        "Conflict: the same request is under way",
        "A request with this Idempotency-Key has not been answered yet. Try again in a moment.",
    ),
    Kind(
        "gone",
        410,
        "Gone",
        "The requested changes have been deleted with the old history. Read the current state"
        " and follow the feed from there.",
    ),
    Kind(
        "stale",
        412,
        "Precondition failed",
        "The resource is not in the state that If-Match or If-None-Match requires; nothing has"
        " been changed. Read it again and decide whether to repeat the request.",
    ),
    Kind(
        "too-large",
        413,
        "Content too large",
        "The body is larger than this operation accepts.",
    ),
    Kind(
        "media-type",
        415,
        "Unsupported media type",
        "The body is not of a media type that this operation reads; set `Content-Type`.",
    ),
    Kind(
        "misdirected",
        421,
        "Misdirected request",
        "The Host header is not a name of this service.",
    ),
    Kind(
        "key-reused",
        422,
        "Unprocessable content: the key belongs to another request",
        "This Idempotency-Key has been used for a different request. Use a new key.",
    ),
    Kind(
        "busy",
        429,
        "Too many requests",
        "A limit of the service is reached; `Retry-After` says when to try again.",
    ),
    Kind(
        "failed",
        500,
        "Internal server error",
        "The service failed. Its log has the details under the request id.",
    ),
    Kind(
        "not-stored",
        503,
        "Service unavailable: not stored",
        "The change could not be stored and has not happened. Check the disk and /readyz.",
    ),
    Kind(
        "not-leading",
        503,
        "Service unavailable: another control node decides",
        "Nothing was changed. Send the request to the control node that `Forewarn-Leader` names.",
    ),
    Kind(
        "unavailable",
        503,
        "Service unavailable",
        "The service is stopping, or is not ready yet. Try again in a moment.",
    ),
)
BY_NAME = {kind.name: kind for kind in KINDS}
BY_STATUS: dict[int, Kind] = {}
for _kind in KINDS:
    BY_STATUS.setdefault(_kind.status, _kind)

# The hints of the core, in the terms of this API.
HINTS: dict[Hint, str] = {
    Hint.REMOVE: "if that is intended, repeat the request with remove={about}",
    Hint.FORCE: "set force to true to override",
    Hint.SHORT_NOTICE: 'set "short_notice" to true to override',
    Hint.IGNORE_WINDOWS: 'set "ignore_windows" to true to override',
    Hint.SELECT: 'name "groups", "labels", "machines", "hosts" or "host_labels"',
    Hint.CONFLICTS: 'set "conflicts" to "split", "skip" or "evacuate"; POST /v1/rollouts/plan'
    " lists them",
    Hint.LASTS: 'give "windows" and "lasts"',
    Hint.ALLOW_OVERLAP: 'set "allow_overlap" to true to start it anyway',
    Hint.EVACUATE: 'POST /v1/machines/{about}/redeploy first, or set "evacuate" to true',
    Hint.ACCEPT_CLOCK: "if the wall clock is right, POST /v1/clock/accept",
    Hint.SCHEDULE_PREEMPT: "to evict it anyway, POST a Preempt for it to /v1/events",
    Hint.EXPLAIN_HOST: "GET /v1/hosts/{about}/explain names that event",
    Hint.REPAIR_HOST: "POST /v1/hosts/{about}/repair",
    Hint.RECORD_MOVE: "POST /v1/machines/{about}/moved with the host that it is on",
    Hint.CREATE_TOKEN: "POST /v1/tokens",
    Hint.CREATE_ADMIN_TOKEN: 'POST it with "role": "admin"',
    Hint.REVOKE_TOKEN: "POST /v1/tokens/{about}/revoke",
    Hint.CLEAR_FAULTS: "DELETE /v1/faults",
    Hint.LIST_EVENTS: "GET /v1/events?past=true also lists those that are over",
    Hint.CONFIGURE_GATES: "gate commands are named in the service's settings",
    Hint.ENROLL_AGAIN: 'set "again" to true to allow it',
}
_PLACE = re.compile(r"at `\$?([^`]*)`")


def problem_of(
    kind: Kind,
    detail: str,
    errors: list[s.Mistake] | None = None,
    status: int | None = None,
    *,
    suggestion: str = "",
) -> s.Problem:
    id = request_id.get()
    return s.Problem(
        type=kind.type,
        title=kind.title,
        status=status or kind.status,
        detail=detail,
        instance=f"urn:uuid:{id}" if id else "",
        did_you_mean=suggestion,
        errors=errors or _msgspec_mistakes(kind, detail),
    )


def from_refusal(kind: Kind, refused: Refused) -> s.Problem:
    """Return the problem that a refusal of the core becomes."""
    problem = problem_of(kind, _detail(refused), suggestion=refused.suggestion)
    problem.line = refused.line
    problem.errors += [
        s.Mistake(pointer=pointer(f".{other.field}"), detail=_detail(other), line=other.line)
        for other in refused.others
    ]
    if refused.hint is not None:
        text = HINTS[refused.hint].format(about=refused.about)
        problem.hint = s.ProblemHint(kind=refused.hint.value, about=refused.about, detail=text)
    return problem


def _detail(refused: Refused) -> str:
    return f"{refused.field}: {refused.message}" if refused.field else refused.message


def _msgspec_mistakes(kind: Kind, detail: str) -> list[s.Mistake]:
    """Return the invalid field that an error of msgspec mentions; only its text has it."""
    place = _PLACE.search(detail) if kind.status == 400 else None
    return [s.Mistake(pointer=pointer(place[1]), detail=detail)] if place else []


def pointer(place: str) -> str:
    """Convert a path of msgspec, such as `.machines[0].name`, to a JSON Pointer."""
    parts = re.findall(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]", place)
    return "".join(f"/{name or index}" for name, index in parts)
