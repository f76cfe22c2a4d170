"""What a route declares about itself beyond its path, parameters and types.

An `Operation` is declared in the decorator of its handler (`@get(path, **Operation(…).options)`).
The layers that need to know something about the operation being called (authorization, idempotency
keys, preconditions, bodies) read it from the matched handler, and `openapi.document` describes the
API from the same declarations.
"""

from __future__ import annotations

import enum
from typing import Any, TypedDict

import msgspec
from litestar.handlers import BaseRouteHandler

from forewarn.core.access import Role

REPEATABLE = "it can be repeated safely"
CHANGES_NOTHING = "it changes nothing"

_OPTION = "operation"  # in a handler's `opt`


class KeyedResponse(enum.Enum):
    """What the response to a request with an Idempotency-Key contains, so that it can be rebuilt
    when the request is repeated."""

    OUTCOME = "outcome"
    OUTCOMES = "outcomes"
    ROLLOUT = "rollout"
    GROUP = "group"
    MACHINE = "machine"


class Link(msgspec.Struct, frozen=True):
    """An OpenAPI link: another operation, with one path parameter taken from this response."""

    to: str
    parameter: str
    place: str  # OpenAPI runtime expression


class Options(TypedDict):
    """Keyword arguments of Litestar's route decorators."""

    operation_id: str
    summary: str
    tags: list[str]
    status_code: int
    opt: dict[str, Any]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """The declaration of one operation of the API."""

    id: str
    tag: str
    summary: str
    status: int = 200
    role: Role | None = None  # None: viewer to read, operator for everything else
    public: bool = False  # needs no token
    respects_limits: bool = False  # the handler checks the limit of the caller's token
    keyed_response: KeyedResponse | None = None  # accepts an Idempotency-Key
    why_no_key: str = CHANGES_NOTHING  # otherwise, why it needs no key
    tagged: bool = False  # the response has an ETag
    conditional: bool = False  # accepts If-Match
    paged: bool = False  # the response may have a Link to the next page
    fleet_text: str = ""  # "fleet", "group", "host", … if the body is one, as YAML or JSON
    ignores: frozenset[str] = frozenset()  # fields of such a body that only GET shows
    also: tuple[int, ...] = ()  # further statuses with a response of the same type
    refuses: tuple[int, ...] = ()  # statuses of errors that do not follow from the other fields
    links: tuple[Link, ...] = ()
    commands: tuple[str, ...] = ()  # commands of the command line that call this operation
    command_example: str = ""  # such a command with its arguments
    example: Any = None  # of the body

    @property
    def keyed(self) -> bool:
        return self.keyed_response is not None

    @property
    def options(self) -> Options:
        return {
            "operation_id": self.id,
            "summary": self.summary,
            "tags": [self.tag],
            "status_code": self.status,
            "opt": {_OPTION: self},
        }


_UNDECLARED = Operation(id="", tag="", summary="")


def operation_of(handler: BaseRouteHandler) -> Operation:
    """Return the declaration of a handler, or defaults for Litestar's own handlers (OPTIONS)."""
    operation = handler.opt.get(_OPTION)
    return operation if isinstance(operation, Operation) else _UNDECLARED


def links_to(*operations: str, parameter: str, place: str) -> tuple[Link, ...]:
    return tuple(Link(name, parameter, f"$response.body#/{place}") for name in operations)


EVENT_LINKS = links_to(
    *("getEvent", "explainEvent", "approveEvent", "cancelEvent", "retryEvent", "finishEvent"),
    "abandonEvent",
    parameter="id",
    place="id",
)
FIRST_EVENT_LINKS = links_to(
    *("getEvent", "explainEvent", "cancelEvent", "approveEvent"),
    parameter="id",
    place="events/0/id",
)
