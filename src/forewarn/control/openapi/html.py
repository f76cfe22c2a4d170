"""The OpenAPI document as an HTML page, without scripts or external resources.

Every operation and every type has an anchor, so that it can be linked to, and everything is visible
to the browser's search.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterator, Mapping
from typing import Any

from forewarn.control.http.idempotency import HEADER
from forewarn.control.http.problems import KINDS

STYLE = """
:root { color-scheme: light dark; --back: #fff; --fore: #1c2024; --soft: #60646c;
  --line: #d9dce1; --field: #f4f5f7; --link: #0b62c4; --get: #0b62c4; --post: #18794e;
  --put: #946800; --patch: #946800; --delete: #c62a2f; }
@media (prefers-color-scheme: dark) { :root { --back: #16181b; --fore: #edeef0; --soft: #a5abb5;
  --line: #33373d; --field: #1f2226; --link: #79b8ff; --get: #79b8ff; --post: #5fd0a0;
  --put: #e2b340; --patch: #e2b340; --delete: #ff8b8f; } }
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; }
body { margin: 0; background: var(--back); color: var(--fore);
  font: 16px/1.5 system-ui, sans-serif; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
a:focus-visible, summary:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
nav { padding: 1rem; border-bottom: 1px solid var(--line); font-size: .875rem;
  max-height: 40vh; overflow-y: auto; }
nav h2 { margin: 1rem 0 .25rem; font-size: .875rem; } nav .top { font-weight: 700; }
nav ul { margin: 0; padding: 0; list-style: none; } nav li { padding: .15rem 0; }
main { padding: 1rem; min-width: 0; max-width: 60rem; }
h1 { font-size: 1.6rem; line-height: 1.2; }
section > h2 { margin-top: 3rem; padding-bottom: .25rem; border-bottom: 2px solid var(--line);
  text-transform: capitalize; }
article { margin: 1.5rem 0; padding: 0 0 1rem; border-bottom: 1px solid var(--line); }
article:target, tr:target { background: var(--field); }
h3 { font-size: 1.05rem; overflow-wrap: anywhere; } h4 { margin: 1rem 0 .25rem; }
h3 .anchor { color: var(--soft); }
small { color: var(--soft); font-weight: 400; }
th small { display: block; }
.summary { font-weight: 600; } .role { color: var(--soft); font-size: .875rem; }
code, pre { font-family: ui-monospace, monospace; font-size: .875em; }
pre { padding: .75rem; background: var(--field); border-radius: 6px; overflow-x: auto; }
.method { display: inline-block; min-width: 3.6em; font: 700 .75rem ui-monospace, monospace; }
.get { color: var(--get); } .post { color: var(--post); } .put { color: var(--put); }
.patch { color: var(--patch); } .delete { color: var(--delete); }
.wide { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-size: .875rem; }
th, td { padding: .35rem .75rem .35rem 0; border-top: 1px solid var(--line);
  text-align: left; vertical-align: top; overflow-wrap: anywhere; }
th { min-width: 8rem; font-weight: 500; } td:last-child { min-width: 10rem; }
dt { float: left; clear: left; width: 3rem; font-weight: 600; } dd { margin: 0 0 .5rem 3.5rem; }
@media (min-width: 60rem) { body { display: grid; grid-template-columns: 18rem minmax(0, 1fr); }
  nav { position: sticky; top: 0; height: 100vh; max-height: none; border-bottom: 0;
  border-right: 1px solid var(--line); } main { padding: 1rem 2rem; } }
"""

_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'"
)
BASE_URL = "$FOREWARN_URL"  # in examples
MAX_SHOWN_PATTERN = 80  # characters; longer patterns are left out
MAX_DEPTH = 2  # types nested deeper than this are shown as links

Json = Mapping[str, Any]
Operations = Mapping[str, list[tuple[str, str, Json]]]  # method, path and operation, by tag


def render(document: Json) -> str:
    operations = _by_tag(document)
    title = f"{document['info']['title']} {document['info']['version']}"
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{STYLE}</style></head>\n"
        f'<body><nav aria-label="Contents">{"".join(_contents(operations))}</nav>\n'
        f"<main><h1>{_text(title)}</h1><p>{_markup(document['info']['description'])}</p>"
        '<p><a href="/schema/openapi.json">OpenAPI 3.1 document</a></p>\n'
        f"{''.join(_sections(document, operations))}{_problems()}{_types(document)}"
        "</main></body></html>\n"
    )


def _by_tag(document: Json) -> Operations:
    tags: dict[str, list[tuple[str, str, Json]]] = {t["name"]: [] for t in document["tags"]}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            tags[operation["tags"][0]].append((method.upper(), path, operation))
    return {tag: operations for tag, operations in tags.items() if operations}


def _contents(operations: Operations) -> Iterator[str]:
    yield '<a class="top" href="#">forewarn</a>'
    for tag, of_tag in operations.items():
        yield f'<h2><a href="#tag-{tag}">{_text(tag)}</a></h2><ul>'
        for method, _path, operation in of_tag:
            id = operation["operationId"]
            yield f'<li><a href="#{id}">{_method(method)} {_text(operation["summary"])}</a></li>'
        yield "</ul>"
    yield '<h2><a href="#problems">problems</a></h2><h2><a href="#types">types</a></h2>'


def _sections(document: Json, operations: Operations) -> Iterator[str]:
    descriptions = {tag["name"]: tag["description"] for tag in document["tags"]}
    for tag, of_tag in operations.items():
        yield f'<section id="tag-{tag}"><h2>{_text(tag)}</h2><p>{_markup(descriptions[tag])}</p>\n'
        for method, path, operation in of_tag:
            yield _operation(document, method, path, operation)
        yield "</section>\n"


def _operation(document: Json, method: str, path: str, operation: Json) -> str:
    id = operation["operationId"]
    parts = [
        f'<article id="{id}"><h3>{_method(method)} <code>{_text(path)}</code>'
        f' <a class="anchor" href="#{id}" aria-label="Link to this operation">#</a></h3>',
        f'<p class="summary">{_markup(operation["summary"])}.</p>',
    ]
    if "description" in operation:
        parts.append(f"<p>{_markup(operation['description'])}</p>")
    if "x-role" in operation:
        parts.append(f'<p class="role">Role: {_text(operation["x-role"])}</p>')
    if parameters := operation.get("parameters"):
        parts.append(_parameters(parameters))
    if body := operation.get("requestBody"):
        kinds = " or ".join(body["content"])
        schema = next(iter(body["content"].values()))["schema"]
        parts.append(f"<h4>Body <small>{_text(kinds)}</small></h4>{_schema(document, schema)}")
    parts.append(_responses(document, operation))
    parts.append(_examples(method, path, operation))
    return "".join(parts) + "</article>\n"


def _parameters(parameters: list[Json]) -> str:
    rows = "".join(
        f"<tr><th><code>{_text(p['name'])}</code><small>{_text(p['in'])}</small></th>"
        f"<td>{_constraints(p['schema'])}</td><td>{_markup(p.get('description', ''))}</td></tr>"
        for p in parameters
    )
    return f'<h4>Parameters</h4><div class="wide"><table>{rows}</table></div>'


def _responses(document: Json, operation: Json) -> str:
    parts = ["<h4>Responses</h4><dl>"]
    errors = []
    for status, response in operation["responses"].items():
        if "$ref" in response:
            name = response["$ref"].rpartition("/")[2]
            errors.append(f'<a href="#problem-{name}">{status} {_text(name)}</a>')
            continue
        headers = ", ".join(f"<code>{_text(name)}</code>" for name in response.get("headers", {}))
        description = _markup(response["description"])
        parts.append(f"<dt>{status}</dt><dd>{description} Headers: {headers}.")
        for kind, content in response.get("content", {}).items():
            parts.append(f"<small>{_text(kind)}</small>{_schema(document, content['schema'])}")
        if links := response.get("links"):
            related = ", ".join(f'<a href="#{id}">{id}</a>' for id in links)
            parts.append(f"<p>Related operations: {related}.</p>")
        parts.append("</dd>")
    return "".join(parts) + f"</dl><p>Errors: {', '.join(errors)}.</p>"


def _examples(method: str, path: str, operation: Json) -> str:
    name = next((v for k, v in _EXAMPLE_NAMES.items() if path.startswith(k)), "")
    target = path.replace("{name}", name).replace("{id}", "4933F66C")
    option = "" if method == "GET" else f"-X {method} "
    lines = [f'curl {option}"{BASE_URL}{target}"']
    if "security" not in operation:
        lines.append('-H "Authorization: Bearer $FOREWARN_TOKEN"')
    if any(parameter["name"] == HEADER for parameter in operation.get("parameters", ())):
        lines.append(f"-H '{HEADER}: my-request-1'")
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    if "example" in content:
        lines += ["-H 'Content-Type: application/json'", f"-d '{json.dumps(content['example'])}'"]
    text = " \\\n  ".join(lines)
    if "x-command" in operation:
        text += f"\n\n{operation['x-command']}"
    return f"<h4>Example</h4><pre>{_text(text)}</pre>"


_EXAMPLE_NAMES = {"/v1/machines": "web_0", "/v1/groups": "web", "/v1/hosts": "host-a"}


def _problems() -> str:
    rows = "".join(
        f'<tr id="problem-{kind.name}">'
        f"<th><code>{kind.name}</code><small>{kind.status}</small></th>"
        f"<td>{_text(kind.title)}</td><td>{_markup(kind.description)}</td></tr>"
        for kind in KINDS
    )
    return (
        '<section id="problems"><h2>problems</h2><p>Every error is a problem (RFC 9457):'
        " <code>type</code> is an anchor on this page, <code>detail</code> a sentence for people,"
        " and <code>instance</code> the id of the request, which is also in the service's log.</p>"
        f'<div class="wide"><table>{rows}</table></div></section>\n'
    )


def _types(document: Json) -> str:
    parts = ['<section id="types"><h2>types</h2>']
    for name, schema in document["components"]["schemas"].items():
        description = _markup(schema.get("description", ""))
        parts.append(f'<article id="type-{name}"><h3>{_text(name)}</h3><p>{description}</p>')
        parts.append(f"{_fields(document, schema, MAX_DEPTH)}</article>\n")
    return "".join(parts) + "</section>"


def _schema(document: Json, schema: Json, depth: int = 0) -> str:
    """Return a type in place, or a link to it if it is nested too deeply."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        link = f'<a href="#type-{name}">{_text(name)}</a>'
        if depth >= MAX_DEPTH:
            return link
        target = document["components"]["schemas"][name]
        fields = _fields(document, target, depth)
        return f"<details open><summary>{link}</summary>{fields}</details>"
    if "items" in schema:
        return f"a list of {_schema(document, schema['items'], depth)}"
    return _constraints(schema)


def _fields(document: Json, schema: Json, depth: int) -> str:
    properties = schema.get("properties")
    if not properties:
        return f"<p>{_constraints(schema)}</p>"
    required = schema.get("required", [])
    rows = "".join(
        f"<tr><th><code>{_text(name)}</code>{'<small>required</small>' if name in required else ''}"
        f"</th><td>{_type(document, field, depth + 1)}</td>"
        f"<td>{_markup(field.get('description', ''))}</td></tr>"
        for name, field in properties.items()
    )
    return f'<div class="wide"><table>{rows}</table></div>'


def _type(document: Json, field: Json, depth: int) -> str:
    if "$ref" in field or "items" in field:
        return _schema(document, field, max(depth, MAX_DEPTH if "items" not in field else depth))
    if "anyOf" in field:
        return " or ".join(_type(document, option, MAX_DEPTH) for option in field["anyOf"])
    return _constraints(field)


_BOUNDS = (
    ("minimum", "at least {}"),
    ("maximum", "at most {}"),
    ("minLength", "{} characters or more"),
    ("maxLength", "{} characters or fewer"),
    ("minItems", "{} or more"),
    ("maxItems", "{} or fewer"),
)


def _constraints(schema: Json) -> str:
    parts = []
    if "enum" in schema:
        parts.append(" | ".join(f"<code>{_text(str(value))}</code>" for value in schema["enum"]))
    elif "anyOf" in schema:
        parts.append(" or ".join(_constraints(option) for option in schema["anyOf"]))
    else:
        parts.append(_text(str(schema.get("format") or schema.get("type") or "any value")))
    parts += [text.format(schema[key]) for key, text in _BOUNDS if key in schema]
    if "pattern" in schema and len(schema["pattern"]) < MAX_SHOWN_PATTERN:
        parts.append(f"matches <code>{_text(schema['pattern'])}</code>")
    if schema.get("default") not in (None, "", [], {}):
        parts.append(f"default <code>{_text(json.dumps(schema['default']))}</code>")
    return ", ".join(parts)


def _method(method: str) -> str:
    return f'<span class="method {method.lower()}">{method}</span>'


def _text(text: str) -> str:
    return html.escape(text, quote=True)


def _markup(text: str) -> str:
    """Return HTML for a text in which code is in backquotes."""
    parts = _text(text).split("`")
    return "".join(f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))
