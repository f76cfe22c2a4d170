"""Every limit that the document states for a body holds, whatever else is true of the request: here
at hosts without machines, and with the example of each call."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.testing import SAMPLE, Service
from helpers.control_api import ask

METHODS = ("post", "put", "patch")
NAMES = {"/v1/machines": "web_0", "/v1/groups": "web", "/v1/hosts": "spare"}
LIMITS: dict[str, Callable[[Any], Any]] = {
    "minimum": lambda limit: limit - 1,
    "maximum": lambda limit: limit + 1,
    "exclusiveMinimum": lambda limit: limit,
    "minLength": lambda limit: "x" * (limit - 1),
    "maxLength": lambda limit: "x" * (limit + 1),
    "minItems": lambda _: [],
    "maxItems": lambda limit: [f"x{number}" for number in range(limit + 1)],
    "maxProperties": lambda limit: {f"x{number}": "" for number in range(limit + 1)},
    "uniqueItems": lambda _: ["web_0", "web_0"],
    "pattern": lambda _: "%%",
    "enum": lambda _: "%%",
    "format": lambda _: "%%",
}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(SAMPLE, sockets=True) as service:
        assert ask(service, "PUT", "/v1/hosts/spare", {}).status == 200
        yield service


def beyond_limits(schema: Any, schemas: Any) -> Iterator[tuple[str, Any]]:
    """Each limit of a value, and a value that does not keep it."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    yield from ((key, LIMITS[key](schema[key])) for key in LIMITS.keys() & schema.keys())
    for member in schema.get("anyOf", ()):
        yield from beyond_limits(member, schemas)
    if "items" in schema:
        yield from ((key, [value]) for key, value in beyond_limits(schema["items"], schemas))
    for name, inner in schema.get("properties", {}).items():
        yield from ((key, {name: value}) for key, value in beyond_limits(inner, schemas))


def test_a_value_beyond_a_limit_is_refused_by_every_call(service: Service) -> None:
    document = ask(service, "GET", "/schema/openapi.json").body
    schemas = document["components"]["schemas"]
    before = ask(service, "GET", "/v1/history").raw
    tried, wrong = 0, []
    for template, entry in document["paths"].items():
        start = next((start for start in NAMES if template.startswith(f"{start}/")), "")
        path = re.sub(r"\{[^}]+\}", NAMES.get(start, "00000000"), template)
        for method in METHODS:
            body = entry.get(method, {}).get("requestBody", {}).get("content", {})
            if not (content := body.get("application/json")):
                continue
            schema = schemas[content["schema"]["$ref"].rpartition("/")[2]]
            example = content.get("example", {})
            if "group" in example:
                example |= {"group": "web"}
            for field, value_schema in schema["properties"].items():
                for keyword, value in beyond_limits(value_schema, schemas):
                    answer = ask(service, method.upper(), path, example | {field: value})
                    tried += 1
                    named = field in str(answer.body) or "'%%'" in str(answer.body)
                    if answer.status != 400 or not named:
                        wrong.append((method, path, field, keyword, answer.status, answer.body))
    assert not wrong, "\n".join(map(str, wrong))
    assert tried > 100
    assert ask(service, "GET", "/v1/history").raw == before


@pytest.mark.parametrize(
    ("field", "value", "refusal"),
    [
        (
            "duration",
            4_193_349,
            "duration is 4193349; this operation allows at most 86400 seconds (1 d)",
        ),
        ("duration", -2, "duration is -2; this operation allows at least -1"),
        (
            "description",
            "x" * 1_025,
            "description has 1,025 characters; this operation allows at most 1024",
        ),
    ],
)
def test_a_limit_holds_where_there_is_nothing_to_announce(
    service: Service, field: str, value: object, refusal: str
) -> None:
    body = {"mode": "live-migration", field: value}
    answer = ask(service, "POST", "/v1/hosts/spare/maintain", body)
    assert (answer.status, answer.body["detail"]) == (400, refusal)


NO_ZONE = "'2030-01-31T18:00:00' has no time zone; add Z for UTC, or an offset such as +01:00"


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("POST", "/v1/hosts/spare/maintain", {"mode": "Freeze"}, "not_before"),
        ("POST", "/v1/events", {"type": "Reboot", "machines": ["web_0"]}, "not_before"),
        ("POST", "/v1/tokens", {"name": "a", "role": "viewer"}, "expires_at"),
        ("POST", "/v1/clock/advance", {}, "to"),
        ("GET", "/v1/history", None, "since"),
        ("GET", "/v1/history", None, "until"),
        ("GET", "/v1/events", None, "raised_since"),
    ],
)
def test_a_time_without_a_zone_is_refused(
    service: Service, method: str, path: str, body: dict[str, Any] | None, field: str
) -> None:
    time = "2030-01-31T18:00:00"
    if body is None:
        answer = ask(service, method, f"{path}?{field}={time}")
    else:
        answer = ask(service, method, path, body | {field: time})
    assert (answer.status, answer.body["detail"]) == (400, f"{field}: {NO_ZONE}")


@pytest.mark.parametrize(
    "words",
    [
        ("event", "schedule", "Reboot", "web_0", "--not-before"),
        ("host", "maintain", "spare", "--type", "Freeze", "--not-before"),
        ("token", "create", "a", "--role", "viewer", "--expires"),
        ("history", "--since"),
        ("event", "list", "--since"),
    ],
)
def test_an_option_without_a_zone_is_refused(service: Service, words: tuple[str, ...]) -> None:
    typed = CliRunner().invoke(app, [*words, "2030-01-31T18:00:00", "--url", service.control_url])
    assert typed.exit_code in (1, 2)
    assert NO_ZONE in typed.stderr
