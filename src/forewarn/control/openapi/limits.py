"""Enforcement of the limits that the document states for bodies: numbers, lengths and counts.

Every body is checked when it is read, so that a limit holds whatever else is true of the request,
also where there is nothing to do. What is not checked here: types and unknown fields are checked by
msgspec, enumerations and the contents of texts by the handlers, which can suggest what was meant.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from litestar import Request

from forewarn.control.http.errors import ProblemError
from forewarn.control.openapi.values import resolved
from forewarn.core.time import MINUTE, SECOND
from forewarn.support.convert import decode_json
from forewarn.support.instants import NoZone, parse_datetime
from forewarn.support.text import counted, in_words

MAX_SHOWN = 40  # characters of a value in a message

# Of each keyword: whether a value keeps it, and what a value must be.
_NUMBERS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (lambda value, limit: value >= limit, "at least {}"),
    "exclusiveMinimum": (lambda value, limit: value > limit, "more than {}"),
    "maximum": (lambda value, limit: value <= limit, "at most {}"),
}
_TEXTS = {"minLength": _NUMBERS["minimum"], "maxLength": _NUMBERS["maximum"]}
_LISTS = {"minItems": _NUMBERS["minimum"], "maxItems": _NUMBERS["maximum"]}


async def refuse_beyond_limits(request: Request[Any, Any, Any]) -> None:
    """Raise a problem for a body with a value beyond a limit. Its types have been checked."""
    field = request.route_handler.parsed_fn_signature.parameters.get("data")
    if field is None:
        return
    content = await request.body()
    if not content and field.is_optional:
        return
    schema = _schema(field.annotation)
    body = decode_json(content)
    if problem := next(_problems(schema, schema.get("$defs", {}), body, ""), ""):
        raise ProblemError("invalid", problem)


@functools.cache
def _schema(body_type: Any) -> dict[str, Any]:
    schema: dict[str, Any] = resolved(msgspec.json.schema(body_type))
    return schema


def _problems(schema: Any, definitions: Any, value: Any, where: str) -> Iterator[str]:
    """Yield what is wrong with a value. A union's members other than null are checked as one: in
    bodies there are no others that have limits."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    for member in schema.get("anyOf", ()) if value is not None else ():
        described = {"description": schema.get("description", ""), **member}
        yield from _problems(described, definitions, value, where)
    if isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name, item in value.items():
            if inner := properties.get(name) or (isinstance(others, dict) and others):
                yield from _problems(inner, definitions, item, f"{where}.{name}".lstrip("."))
    elif isinstance(value, list):
        yield from _beyond(schema, _LISTS, len(value), f"{where} has {counted(len(value), 'item')}")
        if schema.get("uniqueItems") and (repeated := _repeated(value)):
            yield f"{where} has {repeated} twice; this operation allows each item once"
        for index, item in enumerate(value):
            yield from _problems(schema.get("items", {}), definitions, item, f"{where}[{index}]")
    elif isinstance(value, str):
        characters = counted(len(value), "character")
        yield from _beyond(schema, _TEXTS, len(value), f"{where} has {characters}")
        if schema.get("format") == "date-time" and (problem := _zone_problem(value)):
            yield f"{where}: {problem}"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _beyond(schema, _NUMBERS, value, f"{where} is {str(value)[:MAX_SHOWN]}")


def _repeated(items: list[Any]) -> str:
    """Return the first item that comes again, or ""."""
    seen: set[str] = set()
    for item in map(repr, items):
        if item in seen:
            return item[:MAX_SHOWN]
        seen.add(item)
    return ""


def _zone_problem(text: str) -> str:
    """Return that a time has no zone, or ""."""
    try:
        parse_datetime(text)
    except NoZone as error:
        return str(error)
    except ValueError:  # msgspec has accepted it
        pass
    return ""


def _beyond(
    schema: Any, keywords: dict[str, tuple[Callable[[Any, Any], bool], str]], size: Any, found: str
) -> Iterator[str]:
    for keyword, (keeps, expected) in keywords.items():
        if keyword in schema and not keeps(size, schema[keyword]):
            allowed = expected.format(_shown(schema, schema[keyword]))
            yield f"{found}; this operation allows {allowed}"


def _shown(schema: Any, limit: float) -> str:
    if limit > MINUTE // SECOND and schema.get("description", "").startswith("Seconds"):
        return f"{limit} seconds ({in_words(round(limit * SECOND))})"
    return str(limit)
