"""The API's description, OpenAPI 3.1, made from the handlers.

Operations and parameters are what the handlers declare, types are msgspec's own description of what
it reads and writes, refusals are the kinds of `http/problems.py`. Everything is in a fixed order.
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
from forewarn.control.http.operation import Operation, operation_of
from forewarn.control.http.problems import BY_STATUS, PAGE
from forewarn.control.openapi.responses import UNIONS, answer_of, refusal, responses
from forewarn.control.openapi.values import resolved
from forewarn.control.schema import core as s
from forewarn.core.access import Role
from forewarn.service.fleet import shapes as fleet_shapes

REFERENCE = "#/components/schemas/{name}"
TEXTS = ("application/json", "application/yaml")
BOUNDS = {"ge": "minimum", "le": "maximum", "max_length": "maxLength", "min_length": "minLength"}
METHODS = ("GET", "PUT", "POST", "PATCH", "DELETE")  # in this order
INTRODUCTION = (
    "The API for operators and their programs. Bodies are JSON, times RFC 3339, durations in"
    f" seconds; every refusal is a problem (RFC 9457) of one of the kinds listed on {PAGE}."
)
TAGS = {
    "machines": "Machines, and what can happen to one of them.",
    "groups": "Machines that are shown the same events.",
    "hosts": "Hosts that machines run on.",
    "events": "Events that are announced, and what became of them.",
    "rollouts": "Events over many groups, one update domain at a time.",
    "fleet": "The inventory as a whole, or one part of it.",
    "history": "Who did what, and when.",
    "feed": "Every change, as it happens.",
    "tokens": "Tokens of the API's callers.",
    "faults": "Faults that are injected on purpose.",
    "verdict": "What guests did about their events.",
    "service": "The service itself.",
}


def operations(app: Litestar) -> dict[str, tuple[HTTPRouteHandler, Operation]]:
    """Return handler and declaration of every operation by method and path, ordered."""
    declared: dict[tuple[bool, str, int], tuple[HTTPRouteHandler, Operation]] = {}
    for route in app.routes:
        handlers: Mapping[str, Any] = getattr(route, "route_handler_map", {})
        for method, (handler, _model) in handlers.items():
            if method not in METHODS or not handler.resolve_include_in_schema():
                continue
            path = route.path_format
            place = (not path.startswith("/v1/"), path, METHODS.index(method))
            declared[place] = (handler, operation_of(handler))
    return {
        f"{METHODS[method]} {path}": declared[other, path, method]
        for other, path, method in sorted(declared)
    }


def document(app: Litestar) -> dict[str, Any]:
    declared = operations(app)
    described: dict[Any, None] = {s.Problem: None}
    for handler, _ in declared.values():
        described |= dict.fromkeys(t for t in (_body(handler), answer_of(handler)) if t is not None)
    schemas, components = msgspec.json.schema_components(list(described), ref_template=REFERENCE)
    known = dict(zip(map(repr, described), schemas, strict=True))
    for name, schema in fleet_shapes.schema()["$defs"].items():
        components[_file(name)] = _renamed(schema) | {"title": _file(name)}
    _refine(components, described)
    paths: dict[str, dict[str, Any]] = {}
    for name, (handler, operation) in declared.items():
        method, path = name.split()
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
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.items())),
            "responses": {kind.name: refusal(kind) for kind in BY_STATUS.values()},
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of this service. Until the first one is created, local"
                    " programs need none.",
                }
            },
        },
    }


def _operation(
    method: str, handler: HTTPRouteHandler, operation: Operation, known: Mapping[str, Any]
) -> dict[str, Any]:
    body = _body(handler)
    entry: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.tag],
    }
    if description := _description(handler, operation):
        entry["description"] = description
    if parameters := list(_parameters(handler, operation, method)):
        entry["parameters"] = parameters
    if operation.fleet_text:
        place = {"$ref": REFERENCE.format(name=_FLEET_TEXTS[operation.fleet_text])}
        content = {kind: {"schema": place} for kind in TEXTS}
        entry["requestBody"] = {"required": True, "content": content}
    elif body is not None:
        content = {"application/json": {"schema": known[repr(body)]}}
        entry["requestBody"] = {"required": True, "content": content}
    if operation.example is not None:
        for kind in entry["requestBody"]["content"].values():
            kind["example"] = operation.example
    entry["responses"] = responses(handler, operation, known, "requestBody" in entry)
    role = role_for(handler)
    if role is None:
        entry["security"] = []
    else:
        entry["x-role"] = role.value
    if operation.command_example:
        entry["x-command"] = f"forewarn {operation.command_example}"
    return entry


_FLEET_TEXTS = {"fleet": "FleetFile", "group": "OneGroupFile", "host": "OneHostFile"}


def _description(handler: HTTPRouteHandler, operation: Operation) -> str:
    text = " ".join((handler.fn.__doc__ or "").split())
    if operation.fleet_text:
        text += (
            f" The body is a {operation.fleet_text} as YAML or JSON; a mistake in it is named with"
            " its line. See docs/operate/fleet.md."
        )
    if role_for(handler) is Role.ADMIN:
        text += " Needs the role admin."
    return text.strip()


def _parameters(
    handler: HTTPRouteHandler, operation: Operation, method: str
) -> Iterator[dict[str, Any]]:
    for name, field in handler.parsed_fn_signature.parameters.items():
        kind = field.kwarg_definition
        if isinstance(kind, PathParameter):
            schema = _schema(field.annotation, kind)
            yield {"name": name, "in": "path", "required": True, "schema": schema}
        elif isinstance(kind, QueryParameter):
            schema = _schema(field.annotation, kind)
            if field.default not in (Empty, None):
                schema["default"] = field.default
            entry = {"name": kind.name or name, "in": "query", "schema": schema}
            if kind.description:
                entry["description"] = kind.description
            yield entry
    if operation.keyed:
        yield {
            "name": HEADER,
            "in": "header",
            "description": "A key that the caller chooses for this request: repeated with the"
            " same key, it does nothing more and gets the same response.",
            "schema": {"type": "string", "pattern": PATTERN, "maxLength": MAX_KEY},
        }
    if operation.conditional:
        yield {
            "name": "If-Match",
            "in": "header",
            "description": "An ETag: only if the resource is still in this state, else 412.",
            "schema": {"type": "string"},
        }
    if operation.conditional and method == "PUT":
        yield {
            "name": "If-None-Match",
            "in": "header",
            "description": "`*`: only if the resource does not exist yet, else 412.",
            "schema": {"type": "string"},
        }
    if operation.tagged and method == "GET":
        yield {
            "name": "If-None-Match",
            "in": "header",
            "description": "An ETag: only if the resource has changed, else 304.",
            "schema": {"type": "string"},
        }


def _schema(annotation: Any, kind: PathParameter | QueryParameter) -> dict[str, Any]:
    """Describe a parameter; there is no null in a query."""
    parts = [a for a in typing.get_args(annotation) if a is not types.NoneType]
    base = parts[0] if typing.get_origin(annotation) in UNIONS else annotation
    schema: dict[str, Any] = dict(msgspec.json.schema(base))
    for ours, theirs in BOUNDS.items():
        if (value := getattr(kind, ours)) is not None:
            schema[theirs] = value
    schema |= resolved(kind.schema_extra or {})
    return schema


def _body(handler: HTTPRouteHandler) -> Any:
    """Return the type of the JSON body, or None."""
    field = handler.parsed_fn_signature.parameters.get("data")
    if field is None or not isinstance(field.kwarg_definition, BodyKwarg):
        return None
    return field.annotation


def _renamed(schema: Any) -> Any:
    """Point the references of the fleet file's own schema to this document's components."""
    if isinstance(schema, dict):
        return {
            key: _place(value) if key == "$ref" else _renamed(value)
            for key, value in schema.items()
        }
    return [_renamed(item) for item in schema] if isinstance(schema, list) else schema


def _place(reference: str) -> str:
    return REFERENCE.format(name=_file(reference.rpartition("/")[2]))


def _file(name: str) -> str:
    return f"{name.removesuffix('Entry')}File" if name.endswith("Entry") else name


def _refine(components: dict[str, Any], described: Mapping[Any, None]) -> None:
    """Add what msgspec cannot know."""
    for name, schema in components.items():
        components[name] = resolved(schema)
    for type in described:
        if more := getattr(type, "extra_schema", None):
            components[type.__name__] |= more
    for name in ("GroupFile", "HostFile"):  # alone, it is named by the path
        whole = components[name]
        required = [field for field in whole["required"] if field != "name"]
        components[f"One{name}"] = whole | {"title": f"One{name}", "required": required}
