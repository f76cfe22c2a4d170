"""Input of requests: parameters that several operations share, and checks of every parameter and
body before a handler reads it.

Nothing that a caller sends is silently ignored: a misspelt `plan` must not carry a plan out.
Unknown and repeated parameters are refused, and so is a body where the operation takes none, one
that is not UTF-8, or one with a value that is not exactly of its type. So is text that cannot be
stored, wherever it is.

The values of parameters are checked by the handlers; the patterns and enumerations here are for the
OpenAPI document, and schemathesis compares the two. An enumeration is named, as in `schema.types`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeAlias

import msgspec
from litestar import Request, Response
from litestar.exceptions import ClientException
from litestar.params import PathParameter, QueryParameter

from forewarn.control.http.body_problem import body_problem
from forewarn.control.http.errors import ProblemError, problem_for_status
from forewarn.control.http.operation import operation_of
from forewarn.control.schema import core as s
from forewarn.core.history import RecordKind
from forewarn.core.labels import MAX_TERMS
from forewarn.support.suggest import nearest
from forewarn.support.text import unstorable

MAX_REMOVE = 10_000_000  # machines
MAX_SHOWN_PARAMETER = 40  # characters of an unknown parameter

_NAME = r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?"
_VALUE = r"([A-Za-z0-9]([A-Za-z0-9._/:@+-]{0,61}[A-Za-z0-9])?)?"
_TERM = rf"({_NAME}\s*!?=\s*{_VALUE}|!?\s*{_NAME})"
_SELECTOR = rf"^\s*({_TERM}(\s*,\s*{_TERM}){{0,{MAX_TERMS - 1}}})?\s*$"
_ID = r"^[0-9A-Fa-f-]{1,36}$"
_DAYS = r"(000[1-9]|[1-9][0-9]{3})-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
_TIME = rf"{_DAYS}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,6}})?Z"
_WHEN = rf"^({_TIME}|([0-9]{{1,4}}[dhms]){{1,5}}|[0-9]{{1,9}}(\.[0-9]{{1,9}})?)$"
_WHAT = "|".join(what.value for what in RecordKind)
_NUL = "\\u0000"
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # not after a backslash that is text
_WHATS = rf"^(({_WHAT})(,({_WHAT})){{0,20}})?$"


def query(description: str, *, name: str | None = None, **schema: Any) -> QueryParameter:
    """Describe a parameter; `name` is needed if it is not that of the handler's argument."""
    return QueryParameter(name=name, description=description, schema_extra=schema or None)


def query_id(description: str) -> QueryParameter:
    return query(description, pattern=_ID)


def query_time(description: str, name: str | None = None) -> QueryParameter:
    return query(description, name=name, pattern=_WHEN)


Name: TypeAlias = Annotated[str, PathParameter(schema_extra={"minLength": 1})]
Id: TypeAlias = Annotated[str, PathParameter(schema_extra={"pattern": _ID})]

ByGroup: TypeAlias = Annotated[str | None, query("Name of a group; only what belongs to it.")]
ByMachine: TypeAlias = Annotated[str | None, query("Name of a machine; only what affects it.")]
ByHost: TypeAlias = Annotated[
    str | None, query("Name of a host; only what is on it or affects it.")
]
ByEvent: TypeAlias = Annotated[
    str | None, query_id("Id of an event, or the beginning of one; only what is about this event.")
]
ByLabel: TypeAlias = Annotated[
    str | None,
    query(
        "Label selector: terms `k=v`, `k!=v`, `k` or `!k`, separated by commas; all must match.",
        pattern=_SELECTOR,
    ),
]
ByHostLabel: TypeAlias = Annotated[
    str | None, query("Label selector; only machines on hosts that match.", pattern=_SELECTOR)
]
ByHealth: TypeAlias = Annotated[
    str | None,
    query("Health of the host; only hosts with it, or machines on such hosts.", enum="Health"),
]
ByWhat: TypeAlias = Annotated[
    str | None,
    query("Kinds of change to include, separated by commas.", pattern=_WHATS),
]
Since: TypeAlias = Annotated[
    str | None, query_time("Only records at or after this time: a time, or an age such as `2h`.")
]
Until: TypeAlias = Annotated[
    str | None, query_time("Only records before this time: a time, or an age.")
]
Remove: TypeAlias = Annotated[
    int | None,
    QueryParameter(
        ge=0,
        le=MAX_REMOVE,
        description="How many machines are meant to be removed; a change that removes another"
        " number of them is refused. Required for more than the setting `max_removals` allows.",
    ),
]
Force: TypeAlias = Annotated[bool, query("Also remove what has active events.")]


def refuse_unknown_parameters(request: Request[Any, Any, Any]) -> Response[s.Problem] | None:
    """Return a 400 problem for a parameter that is not declared, is repeated or is null, and for
    text that cannot be stored."""
    if character := unstorable(request.url.path):
        return problem_for_status(400, _unstorable_text("the path", character))
    names = list(request.query_params)
    if not names or not request.url.path.startswith("/v1/"):
        return None
    declared = _declared_parameters(request.route_handler)
    if value_problem := _value_problem(request, declared):
        return problem_for_status(400, value_problem)
    for name in names:
        if name not in declared:
            shown = name[:MAX_SHOWN_PARAMETER]
            suggestion = nearest(shown, declared) or ""
            detail = _unknown_parameter(shown, declared, suggestion)
            return problem_for_status(400, detail, suggestion=suggestion)
    return None


def _value_problem(request: Request[Any, Any, Any], declared: list[str]) -> str:
    for name, value in request.query_params.items():
        if name not in declared:
            continue
        if len(request.query_params.getall(name)) > 1:
            return f"the parameter '{name}' is given more than once"
        if value == "null":
            return f"the parameter '{name}' is null; leave it out instead"
        if character := unstorable(value):
            return _unstorable_text(f"the parameter '{name}'", character)
    return ""


def _unknown_parameter(name: str, declared: list[str], suggestion: str) -> str:
    if not declared:
        return f"no parameter '{name}': this operation takes none"
    existing = "there are" if len(declared) > 1 else "there is only"
    hint = f"did you mean '{suggestion}'?" if suggestion else f"{existing} {', '.join(declared)}"
    return f"no parameter '{name}'; {hint}"


def _declared_parameters(handler: Any) -> list[str]:
    """Return the names of the query parameters that a handler declares."""
    return [
        field.kwarg_definition.name or name
        for name, field in handler.parsed_fn_signature.parameters.items()
        if isinstance(field.kwarg_definition, QueryParameter)
    ]


async def refuse_unread_body(request: Request[Any, Any, Any]) -> Response[s.Problem] | None:
    """Return a 400 problem for a body that this operation cannot read, or None."""
    if operation_of(request.route_handler).fleet_text:
        return None  # the parser of fleet files refuses it, with the line
    if "data" not in request.route_handler.parsed_fn_signature.parameters:
        if await _has_body(request):
            return problem_for_status(
                400, f"{request.method} {request.url.path} takes no body; send none"
            )
        return None
    try:
        text = (await request.body()).decode("utf-8")
    except UnicodeDecodeError as error:
        return problem_for_status(
            400,
            f"the body is not valid UTF-8: unexpected byte 0x{error.object[error.start]:02x} at"
            f" position {error.start}; encode JSON as UTF-8",
        )
    if _NUL in text and _ESCAPED_NUL.search(text):  # halves of surrogate pairs are not decoded
        return problem_for_status(400, _unstorable_text("the body", unstorable("\0")))
    return None


def _unstorable_text(what: str, character: str) -> str:
    return f"{what} contains the character {character}, which cannot be stored; leave it out"


async def refuse_inexact_body(request: Request[Any, Any, Any]) -> None:
    """Decode the body strictly; Litestar would read 0 as false and "5" as a number."""
    field = request.route_handler.parsed_fn_signature.parameters.get("data")
    if field is None:
        return
    try:
        if (body := await request.body()) or not field.is_optional:
            msgspec.json.decode(body, type=field.annotation)
    except msgspec.MsgspecError as error:
        problem = body_problem(error, body, operation_of(request.route_handler).takes)
        raise ProblemError("invalid", problem) from error


async def _has_body(request: Request[Any, Any, Any]) -> bool:
    """Whether the request has a body. A chunked body may be empty, which counts as none."""
    if "transfer-encoding" in request.headers:
        try:
            return bool(await request.body())
        except ClientException:  # it is too large, so there is one
            return True
    return request.headers.get("content-length", "0").strip("0") != ""
