"""The kinds of refusal that the control API knows (RFC 9457): what each is called, which status it
has, and what whoever meets it can do. The page at /docs and docs/reference/api.md are made of
these words.
"""

from __future__ import annotations

import re
from contextvars import ContextVar

import msgspec

from forewarn.control.schema import core as s
from forewarn.core.refusal import Hint, Refused

PAGE = "/docs"  # which lists the kinds; a problem's type is a place on it
DOCUMENT_PATH = "/schema/openapi.json"
MEDIA_TYPE = "application/problem+json"

# Of the request that is being answered: for its log lines, and for whoever asks about it.
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
        " right, `errors` where it is, `line` on which line of a fleet file. Correct the"
        " request and send it again.",
    ),
    Kind(
        "unauthorised",
        401,
        "Unauthorized",
        "The request has no token, or one that is not valid or no longer valid.",
    ),
    Kind(
        "forbidden",
        403,
        "Forbidden",
        "The token may not do this, or not to this; or a browser sent the request for a page"
        " of another site.",
    ),
    Kind(
        "unknown",
        404,
        "Not found",
        "Nothing has this name or id. `did_you_mean` may suggest a better one.",
    ),
    Kind(
        "method",
        405,
        "Method not allowed",
        "The path exists, but not with this method; `Allow` lists those that do.",
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
        "What was asked for has been deleted with the rest of the old history. Read"
        " everything again and start from there.",
    ),
    Kind(
        "stale",
        412,
        "Precondition failed",
        "If-Match names another state than the current one; nothing has been done. Read it"
        " again and decide anew.",
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
        "The body is not of a media type that this operation reads; declare it in `Content- Type`.",
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
        "The service failed. Its log says more, under the request id.",
    ),
    Kind(
        "not-stored",
        503,
        "Service unavailable: not stored",
        "The change could not be made durable and has not happened. Check the disk and /readyz.",
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

# What a hint of the core means to a caller of this API.
HINTS: dict[Hint, str] = {
    Hint.FORCE: "set force to true to override",
    Hint.SHORT_NOTICE: 'set "short_notice" to true to override',
    Hint.SELECT: 'name "groups", "labels" or "hosts"',
    Hint.EVACUATE: 'POST /v1/machines/{about}/redeploy first, or set "evacuate" to true',
    Hint.ACCEPT_CLOCK: "if the wall clock is right, POST /v1/clock/accept",
    Hint.SCHEDULE_PREEMPT: "to evict it all the same, POST a Preempt for it to /v1/events",
    Hint.EXPLAIN_HOST: "GET /v1/hosts/{about}/explain names that event",
    Hint.REPAIR_HOST: "POST /v1/hosts/{about}/repair",
    Hint.CREATE_TOKEN: "POST /v1/tokens",
    Hint.CREATE_ADMIN_TOKEN: 'POST it with "role": "admin"',
    Hint.REVOKE_TOKEN: "POST /v1/tokens/{about}/revoke",
    Hint.CLEAR_FAULTS: "DELETE /v1/faults",
    Hint.LIST_EVENTS: "GET /v1/events?past=true lists those that are over, too",
    Hint.CONFIGURE_GATES: "gate commands are named in the service's settings",
}
_PLACE = re.compile(r"at `\$?([^`]*)`")


def described(
    kind: Kind,
    detail: str,
    errors: list[s.Mistake] | None = None,
    status: int | None = None,
    *,
    suggestion: str = "",
) -> s.Problem:
    about = request_id.get()
    return s.Problem(
        type=kind.type,
        title=kind.title,
        status=status or kind.status,
        detail=detail,
        instance=f"urn:uuid:{about}" if about else "",
        did_you_mean=suggestion,
        errors=errors or library_mistakes(kind, detail),
    )


def of_refusal(kind: Kind, refused: Refused) -> s.Problem:
    """Return the problem document of a refusal of the core, with all its values."""
    detail = f"{refused.field}: {refused.message}" if refused.field else refused.message
    made = described(kind, detail, suggestion=refused.suggestion)
    made.line = refused.line
    if refused.hint is not None:
        words = HINTS[refused.hint].format(about=refused.about)
        made.hint = s.ProblemHint(kind=refused.hint.value, about=refused.about, detail=words)
    return made


def library_mistakes(kind: Kind, detail: str) -> list[s.Mistake]:
    """Return the place of which msgspec's error speaks; it has no other way of telling it."""
    place = _PLACE.search(detail) if kind.status == 400 else None
    return [s.Mistake(pointer=pointer(place[1]), detail=detail)] if place else []


def pointer(place: str) -> str:
    """A place in a body as msgspec names it, `.machines[0].name`, as a JSON Pointer."""
    parts = re.findall(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]", place)
    return "".join(f"/{name or index}" for name, index in parts)
