"""Writes tools/portal/api.d.ts anew: the types of the control API's answers, from the published
OpenAPI document, by which `make lint` checks the portal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from helpers.paths import ROOT
from helpers.write_openapi import PUBLISHED

TYPES = ROOT / "tools" / "portal" / "api.d.ts"
HEAD = """\
// The answers of the control API, from docs/reference/openapi.json: do not edit. Written by
// PYTHONPATH=tests python -m helpers.write_portal_types
"""
PRIMITIVES = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
    "object": "Record<string, unknown>",
}


def portal_types(document: Mapping[str, Any]) -> str:
    schemas = document["components"]["schemas"]
    answers = sorted(_answers(document), key=lambda answer: -answer[0].count("/"))
    lines = [HEAD + "declare namespace api {"]
    for name in sorted(_named_in([type for _, type in answers] + ["Problem"], schemas)):
        lines += _named(name, schemas[name])
    lines += [
        "",
        "  // By method and path; the longest first, since a name matches whatever follows.",
    ]
    lines += ["  type Answer<Asked extends string> ="]
    lines += [f"    Asked extends `{asked}` ? {type} :" for asked, type in answers]
    verbs = [verb for verbs in document["paths"].values() for verb in verbs.values()]
    lines += ["    never;", "", "  type Operation ="]
    lines += [f'    | "{operation}"' for operation in sorted(verb["operationId"] for verb in verbs)]
    lines[-1] += ";"
    lines += ["", "  // The names of what is sent, by any operation.", "  type Sent ="]
    lines += [f'    | "{name}"' for name in sorted(set(_sent(verbs, schemas)))]
    return "\n".join(lines) + ";\n}\n"


def _named_in(types: Iterable[str], schemas: Mapping[str, Any]) -> set[str]:
    """Return the names of the schemas that these types are made of."""
    found: set[str] = set()
    todo = {name for type in types for name in schemas if re.search(rf"\b{name}\b", type)}
    while todo:
        found |= todo
        types = [line for name in todo for line in _named(name, schemas[name])]
        words = {word for line in types for word in re.findall(r"\w+", line)}
        todo = words & set(schemas) - found
    return found


def _named(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    if "properties" not in schema:
        yield f"  type {name} = {_type(schema)};"
        return
    yield f"  interface {name} {{"
    for key, value in schema["properties"].items():
        written = key if key.isidentifier() else msgspec.json.encode(key).decode()
        yield f"    {written}: {_type(value)};"
    yield "  }"


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema:
        return " | ".join(msgspec.json.encode(value).decode() for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(map(_type, schema["anyOf"])))
    kind = schema.get("type", "")
    if isinstance(kind, list):
        return " | ".join(PRIMITIVES[one] for one in kind)
    if kind == "array":
        return f"Array<{_type(schema.get('items', {}))}>"
    values = schema.get("additionalProperties")
    if kind == "object" and isinstance(values, dict):
        return f"Record<string, {_type(values)}>"
    return PRIMITIVES.get(kind, "unknown")


def _answers(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for path, verbs in document["paths"].items():
        asked = re.sub(r"{\w+}", "${string}", path)
        for method, operation in verbs.items():
            answer = operation["responses"].get("200", {}).get("content", {})
            if "application/json" in answer:
                yield f"{method.upper()} {asked}", _type(answer["application/json"]["schema"])


def _sent(operations: Iterable[Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    for operation in operations:
        yield from (parameter["name"] for parameter in operation.get("parameters", ()))
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        yield from schemas.get(_type(body.get("schema", {})), {}).get("properties", ())


def publish() -> None:
    TYPES.write_text(portal_types(msgspec.json.decode(PUBLISHED.read_bytes())))


if __name__ == "__main__":
    publish()
