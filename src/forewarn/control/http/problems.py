"""The kinds of refusal that the control API knows (RFC 9457): what each is called, which status it
has, and what whoever meets it can do. The page at /docs and docs/reference/api.md are made of
these words.
"""

from __future__ import annotations

import re
from contextvars import ContextVar

import msgspec

from forewarn.control.schema import core as s

PAGE = "/docs"  # which lists the kinds; a problem's type is a place on it
DOCUMENT_PATH = "/schema/openapi.json"
MEDIA_TYPE = "application/problem+json"

# Of the request that is being answered: for its log lines, and for whoever asks about it.
request_id: ContextVar[str] = ContextVar("request_id", default="")


class Kind(msgspec.Struct, frozen=True):
    name: str
    status: int
    title: str
    says: str  # when it is met, and what to do

    @property
    def type(self) -> str:
        return f"{PAGE}#problem-{self.name}"


KINDS = (
    Kind(
        "invalid",
        400,
        "The request makes no sense",
        "A value, a parameter or the body cannot be meant so. `detail` says what would have been"
        " right, `errors` where it is, `line` on which line of a fleet. Mend it and ask again.",
    ),
    Kind(
        "unauthorised",
        401,
        "A token is needed",
        "There is no token in the request, or one that is not valid (any more).",
    ),
    Kind(
        "forbidden",
        403,
        "That is not allowed",
        "Whoever asks may not do this, or not to this; or a browser asks for a page of another"
        " site.",
    ),
    Kind(
        "unknown",
        404,
        "There is no such thing",
        "A name or an id that nothing has. `did_you_mean` may have a better one.",
    ),
    Kind(
        "method",
        405,
        "Not in this way",
        "The path exists, but not with this method; `Allow` names those that do.",
    ),
    Kind(
        "conflict",
        409,
        "Not as things stand",
        "The request makes sense, but not now; `detail` says what is in the way.",
    ),
    Kind(
        "under-way",
        409,
        "The same request is under way",
        "A request with this Idempotency-Key has not been answered yet. Ask again in a moment.",
    ),
    Kind(
        "gone",
        410,
        "No longer kept",
        "What is asked for has been forgotten with the rest of the history. Begin anew.",
    ),
    Kind(
        "stale",
        412,
        "It has changed meanwhile",
        "If-Match names another state than the one there is; nothing has been done. Look at it"
        " again and decide anew.",
    ),
    Kind("too-large", 413, "Too large", "The body is larger than this call takes."),
    Kind(
        "media-type",
        415,
        "Not in this form",
        "The body is not of a media type that this call reads; `Content-Type` says which it is.",
    ),
    Kind(
        "misdirected",
        421,
        "Asked under another name",
        "The Host header is not a name of this service.",
    ),
    Kind(
        "key-reused",
        422,
        "The key belongs to another request",
        "This Idempotency-Key has been used for a request that was not the same. Take a new key.",
    ),
    Kind(
        "busy",
        429,
        "Too much at once",
        "A limit of the service is reached; `Retry-After` says when to come again.",
    ),
    Kind(
        "failed",
        500,
        "Internal error",
        "A fault of the service. Its log says more, under the request's id.",
    ),
    Kind(
        "not-stored",
        503,
        "Not stored",
        "It could not be made durable and has not happened. Look at the disk and at /readyz.",
    ),
    Kind(
        "unavailable",
        503,
        "Not now",
        "The service is stopping, or is not ready yet. Ask again in a moment.",
    ),
)
BY_NAME = {kind.name: kind for kind in KINDS}
BY_STATUS: dict[int, Kind] = {}
for _kind in KINDS:
    BY_STATUS.setdefault(_kind.status, _kind)

_MEANT = re.compile(r"did you mean '([^']+)'\?")
_LINE = re.compile(r"line (\d+): ")
_PLACE = re.compile(r"at `\$?([^`]*)`")


def described(
    kind: Kind, detail: str, errors: list[s.Mistake] | None = None, status: int | None = None
) -> s.Problem:
    """With what programs may want to know of the sentence for people."""
    meant, line, place = _MEANT.search(detail), _LINE.match(detail), _PLACE.search(detail)
    if not errors and kind.status == 400 and place:
        errors = [s.Mistake(pointer=pointer(place[1]), detail=detail)]
    about = request_id.get()
    return s.Problem(
        type=kind.type,
        title=kind.title,
        status=status or kind.status,
        detail=detail,
        instance=f"urn:uuid:{about}" if about else "",
        did_you_mean=meant[1] if meant else "",
        line=int(line[1]) if line else None,
        errors=errors or [],
    )


def pointer(place: str) -> str:
    """A place in a body as msgspec names it, `.machines[0].name`, as a JSON Pointer."""
    parts = re.findall(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]", place)
    return "".join(f"/{name or index}" for name, index in parts)
