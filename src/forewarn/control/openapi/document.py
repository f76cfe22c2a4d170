"""The API's own description, OpenAPI 3.1: made from the handlers and the words of `operations.py`.

Parameters are those that the handlers declare, shapes are msgspec's own account of what it reads
and writes, refusals are the kinds of `http/problems.py`. So it cannot say what is not so for long.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.params import BodyKwarg, PathParameter, QueryParameter
from litestar.types import Empty

from forewarn import __version__
from forewarn.control.http.authorization import role_for
from forewarn.control.http.idempotency import HEADER, MAX_KEY, PATTERN
from forewarn.control.http.problems import BY_STATUS, PAGE
from forewarn.control.openapi.field_texts import FIELDS
from forewarn.control.openapi.operation import Operation
from forewarn.control.openapi.operations import OPERATIONS, TAGS
from forewarn.control.openapi.parameter_texts import SHAPES, of_path, of_query
from forewarn.control.openapi.responses import UNIONS, answer_of, refusal, responses
from forewarn.control.schema import core as s
from forewarn.core.access import Role
from forewarn.service.fleet import shapes as fleetentries

PATH = "/schema/openapi.json"
REFERENCE = "#/components/schemas/{name}"
TEXTS = ("application/json", "application/yaml")
BOUNDS = {"ge": "minimum", "le": "maximum", "max_length": "maxLength", "min_length": "minLength"}
INTRODUCTION = (
    "What operators and their programs ask of forewarn. Bodies are JSON, times RFC 3339, durations"
    f" seconds; every refusal is a problem (RFC 9457) of one of the kinds listed on {PAGE}."
)


def calls(app: Litestar) -> Iterator[tuple[str, str, HTTPRouteHandler]]:
    """Method, path and handler of all that is part of the API."""
    for route in app.routes:
        found: Mapping[str, Any] = getattr(route, "route_handler_map", {})
        for method, (handler, _model) in found.items():
            if method in ("HEAD", "OPTIONS") or not handler.resolve_include_in_schema():
                continue
            yield method, route.path_format, handler


def document(app: Litestar) -> dict[str, Any]:
    made: list[tuple[str, str, HTTPRouteHandler, Operation]] = []
    shapes: dict[Any, None] = {s.Problem: None}
    for method, path, handler in calls(app):
        operation = OPERATIONS.get(f"{method} {path}")
        if operation is None:
            operation = Operation(id=f"{method.lower()}{path}", tag="service", summary=path)
        made.append((method, path, handler, operation))
        shapes |= dict.fromkeys(t for t in (_body(handler), answer_of(handler)) if t is not None)
    schemas, components = msgspec.json.schema_components(list(shapes), ref_template=REFERENCE)
    known = dict(zip(map(repr, shapes), schemas, strict=True))
    for name, schema in fleetentries.schema()["$defs"].items():
        components[_file(name)] = _renamed(schema) | {"title": _file(name)}
    _refined(components)
    paths: dict[str, dict[str, Any]] = {}
    for method, path, handler, operation in sorted(made, key=lambda one: _order(one[1])):
        entry = _operation(method, handler, operation, known)
        paths.setdefault(path, {})[method.lower()] = entry
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "forewarn control API",
            "version": __version__,
            "description": INTRODUCTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": says} for name, says in TAGS.items()],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "responses": {kind.name: refusal(kind) for kind in BY_STATUS.values()},
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of this service. As long as none was ever made, local"
                    " programs may ask without.",
                }
            },
        },
    }


def _order(path: str) -> tuple[bool, str]:
    return not path.startswith("/v1/"), path


def _operation(
    method: str, handler: HTTPRouteHandler, operation: Operation, known: Mapping[str, Any]
) -> dict[str, Any]:
    body = _body(handler)
    entry: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.tag],
    }
    if says := _says(handler, operation):
        entry["description"] = says
    if parameters := list(_parameters(handler, operation, method)):
        entry["parameters"] = parameters
    if operation.text:
        place = {"$ref": REFERENCE.format(name=_TEXT_SHAPES[operation.text])}
        content = {kind: {"schema": place} for kind in TEXTS}
        entry["requestBody"] = {"required": True, "content": content}
    elif body is not None:
        content = {"application/json": {"schema": known[repr(body)]}}
        entry["requestBody"] = {"required": True, "content": content}
    if operation.example is not None:
        for kind in entry["requestBody"]["content"].values():
            kind["example"] = operation.example
    entry["responses"] = responses(handler, operation, known, bool(body) or bool(operation.text))
    role = role_for(handler)
    if role is None:
        entry["security"] = []
    else:
        entry["x-role"] = role.value
    return entry


_TEXT_SHAPES = {"fleet": "FleetFile", "group": "OneGroupFile", "host": "OneHostFile"}


def _says(handler: HTTPRouteHandler, operation: Operation) -> str:
    words = " ".join((handler.fn.__doc__ or "").split())
    if operation.text:
        words += (
            f" The body is a {operation.text} as YAML or JSON; a mistake in it is named with its"
            " line. See docs/operate/fleet.md."
        )
    role = role_for(handler)
    if role is Role.ADMIN:
        words += " Needs the role admin."
    return words.strip()


def _parameters(
    handler: HTTPRouteHandler, operation: Operation, method: str
) -> Iterator[dict[str, Any]]:
    for name, field in handler.parsed_fn_signature.parameters.items():
        kind = field.kwarg_definition
        if isinstance(kind, PathParameter):
            yield {
                "name": name,
                "in": "path",
                "required": True,
                "schema": _schema(field.annotation, kind) | of_path(name, operation.tag),
            }
        elif isinstance(kind, QueryParameter):
            called = kind.name or name
            schema = _schema(field.annotation, kind)
            if field.default not in (Empty, None):
                schema["default"] = field.default
            more, says = of_query(called, operation.id)
            entry = {"name": called, "in": "query", "schema": schema | more}
            if says or kind.description:
                entry["description"] = kind.description or says
            yield entry
    if operation.keyed:
        yield {
            "name": HEADER,
            "in": "header",
            "description": "A name of the caller's for this request: sent again with the same"
            " name, it does nothing more and is answered the same.",
            "schema": {"type": "string", "pattern": PATTERN, "maxLength": MAX_KEY},
        }
    if operation.conditional:
        yield {
            "name": "If-Match",
            "in": "header",
            "description": "An ETag: only if it is still so.",
            "schema": {"type": "string"},
        }
    if operation.conditional and method == "PUT":
        yield {
            "name": "If-None-Match",
            "in": "header",
            "description": "`*`: only if there is no such thing yet, else 412.",
            "schema": {"type": "string"},
        }
    if operation.tagged and method == "GET":
        yield {
            "name": "If-None-Match",
            "in": "header",
            "description": "An ETag: only if it is no longer so, else 304.",
            "schema": {"type": "string"},
        }


def _schema(annotation: Any, kind: Any) -> dict[str, Any]:
    """Of a parameter: there is no null in a query."""
    parts = [a for a in typing.get_args(annotation) if a is not types.NoneType]
    base = parts[0] if typing.get_origin(annotation) in UNIONS else annotation
    schema: dict[str, Any] = dict(msgspec.json.schema(base))
    for ours, theirs in BOUNDS.items():
        if (value := getattr(kind, ours)) is not None:
            schema[theirs] = value
    return schema


def _body(handler: HTTPRouteHandler) -> Any:
    """The shape of the body, if it has one."""
    field = handler.parsed_fn_signature.parameters.get("data")
    if field is None or not isinstance(field.kwarg_definition, BodyKwarg):
        return None
    return field.annotation


def _renamed(schema: Any) -> Any:
    """The fleet file's own schema, among the others."""
    if isinstance(schema, dict):
        return {
            key: _place(value) if key == "$ref" else _renamed(value)
            for key, value in schema.items()
        }
    return [_renamed(one) for one in schema] if isinstance(schema, list) else schema


def _place(said: str) -> str:
    return REFERENCE.format(name=_file(said.rpartition("/")[2]))


def _file(name: str) -> str:
    return f"{name.removesuffix('Entry')}File" if name.endswith("Entry") else name


def _refined(components: dict[str, Any]) -> None:
    """What a type cannot say."""
    for schema in components.values():
        for field, place in schema.get("properties", {}).items():
            if field in FIELDS and "description" not in place:
                place["description"] = FIELDS[field]
    for name, more in SHAPES.items():
        if name in components:
            components[name] |= more
    for name in ("GroupFile", "HostFile"):  # alone, it is named by the path
        whole = components[name]
        required = [field for field in whole["required"] if field != "name"]
        components[f"One{name}"] = whole | {"title": f"One{name}", "required": required}
