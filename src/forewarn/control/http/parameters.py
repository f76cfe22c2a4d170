"""Input of requests: their parameters, and checks of every parameter and body before a handler
reads it.

Nothing that a caller sends is silently ignored: a misspelt `plan` must not carry a plan out.
Unknown and repeated parameters are refused, and so is a body where the operation takes none, one
that is not UTF-8, or one with a value that is not exactly of its type. So is text that cannot be
stored, wherever it is.

A handler gets the parameters as the type of `schema.queries` that its operation declares.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from litestar import Request, Response
from litestar.di import NamedDependency
from litestar.exceptions import ClientException, ValidationException
from litestar.params import PathParameter

from forewarn.control.http.body_problem import body_problem
from forewarn.control.http.enumerations import ID, resolved
from forewarn.control.http.errors import ProblemError, parse_name, problem_for_status
from forewarn.control.http.operation import operation_of
from forewarn.control.schema import core as s
from forewarn.support.suggest import nearest
from forewarn.support.text import unstorable

T = TypeVar("T")

MAX_SHOWN_PARAMETER = 40  # characters of an unknown parameter

_NUL = "\\u0000"
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # not after a backslash that is text
# What the values of a parameter are, in refusals; its name, of others.
_KINDS = {"type": "event type", "kind": "kind of group"}

Name: TypeAlias = Annotated[str, PathParameter(schema_extra={"minLength": 1})]
Id: TypeAlias = Annotated[str, PathParameter(schema_extra={"pattern": ID})]
Parameters: TypeAlias = NamedDependency[
    T
]  # the parameters of a request, as a type of `schema.queries`


def read_parameters(request: Request[Any, Any, Any]) -> Any:
    """Return the parameters of a request, as its operation declares them; of enumerations, the
    values as they are written there."""
    shape, values = operation_of(request.route_handler).query, dict(request.query_params)
    try:
        given = msgspec.convert(values, shape, strict=False)
    except msgspec.ValidationError as error:
        message, _, place = str(error).rpartition(" - at `$.")
        name = place.removesuffix("`")
        raise ValidationException(
            f"the parameter '{name}' is '{values[name][:MAX_SHOWN_PARAMETER]}'",
            extra=[{"message": message, "key": name, "source": "query"}],
        ) from error
    for name, known in _enumerated(shape):
        if (text := getattr(given, name)) is not None:
            setattr(given, name, parse_name(known, _KINDS.get(name, name), text))
    return given


@cache
def _enumerated(shape: Any) -> list[tuple[str, list[str]]]:
    """Return the parameters that have one of some values, and these."""
    properties = query_schema(shape).items()
    return [(name, schema["enum"]) for name, schema in properties if "enum" in schema]


@cache
def query_schema(shape: Any) -> dict[str, dict[str, Any]]:
    """Return the schema of each parameter, without null, which a query cannot express."""
    if shape is None:
        return {}
    schema = resolved(msgspec.json.schema(shape))["$defs"][shape.__name__]
    return {name: _not_null(field) for name, field in schema["properties"].items()}


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    others = {key: value for key, value in schema.items() if key != "anyOf"}
    if others.get("default", "") is None:
        del others["default"]
    (kind,) = (s for s in schema.get("anyOf", [{}]) if s.get("type") != "null")
    return {**kind, **others}


def refuse_unknown_parameters(request: Request[Any, Any, Any]) -> Response[s.Problem] | None:
    """Return a 400 problem for a parameter that is not declared, is repeated or is null, and for
    text that cannot be stored."""
    if character := unstorable(request.url.path):
        return problem_for_status(400, _unstorable_text("the path", character))
    names = list(request.query_params)
    if not names or not request.url.path.startswith("/v1/"):
        return None
    declared = list(query_schema(operation_of(request.route_handler).query))
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
