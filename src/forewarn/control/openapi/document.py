"""The OpenAPI 3.1 document, generated from the handlers.

Operations and parameters are taken from the declarations of the handlers, types from msgspec's JSON
Schema, and errors from the kinds of `http/problems.py`. The order is fixed, so that the document
can be compared with the published one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from litestar import Litestar
from litestar.handlers import HTTPRouteHandler
from litestar.params import PathParameter

from forewarn import __version__
from forewarn.control.http.access.authorization import role_for
from forewarn.control.http.enumerations import resolved
from forewarn.control.http.idempotency import HEADER, MAX_KEY, PATTERN
from forewarn.control.http.operation import ignored_fields, operation_of
from forewarn.control.http.parameters import query_schema
from forewarn.control.http.problems import BY_STATUS, PAGE
from forewarn.control.openapi.field_docstrings import field_docstrings
from forewarn.control.openapi.responses import problem_response, responses
from forewarn.control.operations.operation import Operation
from forewarn.control.operations.table import ID_OF, OPERATIONS, TAG_OF, TAGS
from forewarn.control.schema import core as s
from forewarn.core.access import Role
from forewarn.service.fleet import shapes as fleet_shapes
from forewarn.verdict.values import Complaint, Conduct, Course, Unannounced
from forewarn.verdict.verdict import Verdict

REFERENCE = "#/components/schemas/{name}"
NULL = {"type": "null"}
VERDICT_TYPES = (Complaint, Conduct, Course, Unannounced, Verdict)  # described for editors
IGNORED = "Returned by GET; ignored in a request."
FLEET_MEDIA_TYPES = ("application/json", "application/yaml")
METHODS = ("GET", "PUT", "POST", "PATCH", "DELETE")  # in this order
INTRODUCTION = (
    "The API for operators and their programs. Bodies are JSON, times are RFC 3339, and durations"
    f" are in seconds. Every error is a problem (RFC 9457) of one of the kinds listed on {PAGE}."
)


def operations(app: Litestar) -> dict[str, tuple[HTTPRouteHandler, Operation[Any]]]:
    """Return the handler and declaration of every operation, ordered, by method and path."""
    bound = {
        operation_of(handler): handler
        for route in app.routes
        for handler in getattr(route, "route_handlers", ())
        if isinstance(handler, HTTPRouteHandler)
    }
    return {
        operation.call: (bound[operation], operation)
        for operation in sorted(OPERATIONS.values(), key=_order)
    }


def _order(operation: Operation[Any]) -> tuple[bool, str, int]:
    path = operation.path
    return not path.startswith("/v1/"), path, METHODS.index(operation.method)


def document(app: Litestar) -> dict[str, Any]:
    declared = operations(app)
    body_types: dict[Any, None] = {s.Problem: None}
    for _, operation in declared.values():
        both = (operation.takes, operation.returns)
        body_types |= dict.fromkeys(each for each in both if each not in (None, bytes))
    schemas, components = msgspec.json.schema_components(list(body_types), ref_template=REFERENCE)
    known = dict(zip(map(repr, body_types), schemas, strict=True))
    for name, schema in fleet_shapes.schema()["$defs"].items():
        title = _component_name(name)
        components[title] = _with_references(schema) | {"title": title}
    for component in components.values():
        if text := component.get("description"):  # a docstring, of which Pythons indent the lines
            component["description"] = " ".join(text.split())
    _refine(components, body_types)
    for handler, operation in declared.values():
        for field in sorted(ignored_fields(handler)):
            properties = components[_FLEET_TEXTS[operation.fleet_text]]["properties"]
            properties.setdefault(field, {"description": IGNORED, "readOnly": True})
    paths: dict[str, dict[str, Any]] = {}
    for handler, operation in declared.values():
        entry = _operation(handler, operation, known)
        paths.setdefault(operation.path, {})[operation.method.lower()] = entry
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
            "responses": {kind.name: problem_response(kind) for kind in BY_STATUS.values()},
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
    handler: HTTPRouteHandler, operation: Operation[Any], known: Mapping[str, Any]
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "operationId": ID_OF[operation],
        "summary": operation.summary,
        "tags": [TAG_OF[operation]],
    }
    if description := _description(handler, operation):
        entry["description"] = description
    if parameters := list(_parameters(handler, operation)):
        entry["parameters"] = parameters
    if operation.fleet_text:
        reference = {"$ref": REFERENCE.format(name=_FLEET_TEXTS[operation.fleet_text])}
        content = {kind: {"schema": reference} for kind in FLEET_MEDIA_TYPES}
        entry["requestBody"] = {"required": True, "content": content}
    elif operation.takes is not None:
        content = {"application/json": {"schema": known[repr(operation.takes)]}}
        required = not handler.parsed_fn_signature.parameters["data"].is_optional
        entry["requestBody"] = {"required": required, "content": content}
    if operation.example is not None:
        for kind in entry["requestBody"]["content"].values():
            kind["example"] = operation.example
    entry["responses"] = responses(handler, operation, known, "requestBody" in entry)
    role = role_for(operation)
    if role is None:
        entry["security"] = []
    else:
        entry["x-role"] = role.value
    if operation.command:
        entry["x-command"] = f"forewarn {operation.command}"
    return entry


_FLEET_TEXTS = {
    "fleet": "FleetFile",
    "group": "OneGroupFile",
    "host": "OneHostFile",
    "machine": "OneMachineFile",
    "change of a machine": "MachineChangeFile",
}


def _description(handler: HTTPRouteHandler, operation: Operation[Any]) -> str:
    text = " ".join((handler.fn.__doc__ or operation.help).split())
    if operation.fleet_text:
        text += (
            f" The body is a {operation.fleet_text} as YAML or JSON; errors name the line."
            ' See "The fleet file" in the documentation.'
        )
    if role_for(operation) is Role.ADMIN:
        text += " Requires the role admin."
    return text.strip()


_PATH_PARAMETERS = {
    "/v1/events": "Id of the event, or the beginning of it.",
    "/v1/rollouts": "Id of the rollout, or the beginning of it.",
    "/v1/tokens": "Id or name of the token.",
    "/v1/halts": "Id of the halt, or the beginning of it.",
    "/v1/maintenance": "Name of the maintenance configuration.",
    "/v1/notify": "Name of the notification.",
}


def _path_parameter(path: str, name: str) -> str:
    """Describe a parameter of a path: `/v1/machines/{name}` has the name of a machine."""
    before = path.partition(f"/{{{name}}}")[0]
    noun = before.rpartition("/")[2].removesuffix("s")
    return _PATH_PARAMETERS.get(before, f"{name.capitalize()} of the {noun}.")


def _parameters(handler: HTTPRouteHandler, operation: Operation[Any]) -> Iterator[dict[str, Any]]:
    for name, field in handler.parsed_fn_signature.parameters.items():
        kind = field.kwarg_definition
        if isinstance(kind, PathParameter):
            yield {
                "name": name,
                "in": "path",
                "required": True,
                "description": _path_parameter(operation.path, name),
                "schema": {"type": "string", **(kind.schema_extra or {})},
            }
    for name, declared in query_schema(operation.query).items():
        schema = {key: value for key, value in declared.items() if key != "description"}
        description = declared["description"]
        yield {"name": name, "in": "query", "schema": schema, "description": description}
    if operation.keyed:
        yield {
            "name": HEADER,
            "in": "header",
            "description": "A key that the caller chooses for this request. A repeated request with"
            " the same key has no further effect and gets the same response.",
            "schema": {"type": "string", "pattern": PATTERN, "maxLength": MAX_KEY},
        }
    if operation.conditional:
        yield {
            "name": "If-Match",
            "in": "header",
            "description": "An ETag. If the resource is no longer in that state, the response is"
            " 412 and nothing is changed.",
            "schema": {"type": "string"},
        }
    if operation.conditional and operation.method == "PUT":
        yield {
            "name": "If-None-Match",
            "in": "header",
            "description": "`*`: if the resource exists, the response is 412 and nothing"
            " is changed.",
            "schema": {"type": "string"},
        }
    if operation.tagged:
        yield {
            "name": "If-None-Match",
            "in": "header",
            "description": "An ETag. If the resource is still in that state, the response is 304.",
            "schema": {"type": "string"},
        }


def _with_references(schema: Any) -> Any:
    """Point the references of the fleet file's schema to the components of this document."""
    if isinstance(schema, dict):
        return {
            key: _reference(value) if key == "$ref" else _with_references(value)
            for key, value in schema.items()
        }
    return [_with_references(item) for item in schema] if isinstance(schema, list) else schema


def _reference(reference: str) -> str:
    return REFERENCE.format(name=_component_name(reference.rpartition("/")[2]))


def _component_name(name: str) -> str:
    return f"{name.removesuffix('Entry')}File" if name.endswith("Entry") else name


def _refine(components: dict[str, Any], body_types: Mapping[Any, None]) -> None:
    """Add to the schemas what msgspec's types do not express."""
    for name, schema in components.items():
        components[name] = resolved(schema)
    for value_type in VERDICT_TYPES:
        properties = components[value_type.__name__]["properties"]
        for name, text in field_docstrings(value_type).items():
            properties[name] = {"description": text, **properties[name]}
    for body_type in body_types:
        if extra := getattr(body_type, "extra_schema", None):
            components[body_type.__name__] |= extra
    for name in ("GroupFile", "HostFile", "MachineFile"):  # a single one is named by the path
        schema = components[name]
        required = [field for field in schema["required"] if field != "name"]
        single = {
            "title": f"One{name}",
            "required": required,
            "properties": {**schema["properties"]},
        }
        components[f"One{name}"] = schema | single
    machine = components["OneMachineFile"]
    machine["properties"]["group"] = {
        "description": "Its group; a new machine needs one.",
        "anyOf": [{"type": "string"}, NULL],
    }
    components["MachineChangeFile"] = machine | {
        "title": "MachineChangeFile",
        "description": "Changes to a machine; null sets the default.",
        "properties": {
            name: {"description": schema["description"], "anyOf": [schema, NULL]}
            for name, schema in machine["properties"].items()
        },
    }
    group, policy = components["OneGroupFile"], components["PolicyFile"]["properties"]
    group["properties"] |= policy  # as GET shows it; in a fleet file it has a table of its own
    for name in ("terminate_notice", "image_notice", "back_within"):
        group["properties"][name] = policy[name] | {
            "anyOf": [*policy[name]["anyOf"], {"description": "Seconds.", "type": "number"}]
        }
    machines = group["properties"]["machines"]
    names = {"description": "Name of a machine that stays as it is.", "type": "string"}
    group["properties"]["machines"] = machines | {"items": {"anyOf": [machines["items"], names]}}
