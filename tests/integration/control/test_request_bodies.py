"""What a call does not take is refused, whichever call it is: a body where none is read, bytes that
are not UTF-8, keys and parameters that nobody knows."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from forewarn.control.http.errors import MAX_BODY
from forewarn.testing import SAMPLE, Service
from helpers.control_api import ApiResponse, ask
from helpers.waiting import until

METHODS = {"get", "post", "put", "patch", "delete"}
NAMES = {"/v1/machines": "web_0", "/v1/groups": "web", "/v1/hosts": "host-a"}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(SAMPLE, sockets=True) as service:
        yield service


@pytest.fixture(scope="module")
def operations(service: Service) -> list[tuple[str, str, dict[str, Any]]]:
    """Every call: its method, a path that leads to something if there can be, and what the
    document says of it."""
    document = ask(service, "GET", "/schema/openapi.json").body
    found = []
    for template, entry in document["paths"].items():
        start = next((start for start in NAMES if template.startswith(f"{start}/")), "")
        path = re.sub(r"\{[^}]+\}", NAMES.get(start, "00000000"), template)
        found += [(m.upper(), path, entry[m]) for m in METHODS & entry.keys()]
    return found


def refusal(reported: ApiResponse) -> str:
    assert reported.status == 400, reported
    assert reported.headers["content-type"] == "application/problem+json"
    assert reported.body["type"] == "/docs#problem-invalid"
    return str(reported.body["detail"])


def chunked(service: Service, method: str, path: str, body: bytes) -> bytes:
    """The status line of the answer to a body without a stated length."""
    parts = urlsplit(service.control_url)
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunks = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
    with socket.create_connection((parts.hostname or "", parts.port or 0), 30) as line:
        line.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunks + b"0\r\n\r\n")
        return line.recv(65_536).partition(b"\r\n")[0]


def test_a_body_is_refused_by_every_call_that_takes_none(
    service: Service, operations: list[tuple[str, str, dict[str, Any]]]
) -> None:
    before = ask(service, "GET", "/v1/history").raw
    bare = [(method, path) for method, path, entry in operations if "requestBody" not in entry]
    assert {"GET", "POST", "DELETE"} <= {method for method, _ in bare}
    assert ("POST", "/v1/machines/web_0/restart") in bare
    for method, path in bare:
        for raw in (b'{"notice": 3600}', b"{}", b"\xff"):
            assert "takes no body" in refusal(ask(service, method, path, raw=raw)), (method, path)
    assert ask(service, "GET", "/v1/history").raw == before
    restart = "/v1/machines/web_0/restart"
    assert chunked(service, "POST", restart, b"{}") == b"HTTP/1.1 400 Bad Request"
    assert chunked(service, "POST", restart, b" " * (MAX_BODY + 1)) == b"HTTP/1.1 400 Bad Request"
    assert chunked(service, "GET", "/v1/status", b"{}") == b"HTTP/1.1 400 Bad Request"
    assert chunked(service, "GET", "/v1/status", b"") == b"HTTP/1.1 200 OK"  # which is no body
    assert ask(service, "GET", "/v1/history").raw == before


@pytest.mark.parametrize("raw", [b'{"a": "\xff"}', b'"\xed\xa0\x80"', '{"a": 1}'.encode("utf-16")])
def test_a_body_that_is_no_utf_8_is_refused_by_every_call(
    service: Service, operations: list[tuple[str, str, dict[str, Any]]], raw: bytes
) -> None:
    bodied = [(method, path) for method, path, entry in operations if "requestBody" in entry]
    assert len(bodied) > 10
    for method, path in bodied:
        assert refusal(ask(service, method, path, raw=raw)), (method, path)


def test_a_body_that_is_no_utf_8_is_refused_with_a_key_as_well(service: Service) -> None:
    answer = ask(service, "POST", "/v1/events", raw=b'{"type": "\xff"}', idempotency_key="a")
    assert "position 10" in refusal(answer)


@pytest.mark.parametrize("target", ["/v1/machines/%ff", "/v1/machines?labels=%ff", "/v1/m%ff"])
def test_an_address_that_is_no_utf_8_is_no_failure_of_the_service(
    service: Service, target: str
) -> None:
    assert ask(service, "GET", target).status in (400, 404)


def test_an_unknown_parameter_is_refused_by_every_call(
    service: Service, operations: list[tuple[str, str, dict[str, Any]]]
) -> None:
    for method, path, _ in operations:
        if path.startswith("/v1/"):
            reported = ask(service, method, f"{path}?nonsense=1")
            assert "no parameter 'nonsense'" in refusal(reported), (method, path)


def test_every_body_refuses_unknown_keys(
    service: Service, operations: list[tuple[str, str, dict[str, Any]]]
) -> None:
    """In the document, and so in what reads it: both are made of the same shapes."""
    document = ask(service, "GET", "/schema/openapi.json").body
    seen: set[str] = set()

    def look(schema: Any) -> None:
        if isinstance(schema, list):
            for item in schema:
                look(item)
        elif isinstance(schema, dict):
            if (place := schema.get("$ref")) and place not in seen:
                seen.add(place)
                look(document["components"]["schemas"][place.rpartition("/")[2]])
            if "properties" in schema and schema.get("type") == "object":
                assert schema["additionalProperties"] is False, schema.get("title", schema)
            for value in schema.values():
                look(value)

    for _, _, entry in operations:
        for content in entry.get("requestBody", {}).get("content", {}).values():
            look(content["schema"])
    assert len(seen) > 10
    reported = ask(service, "POST", "/v1/events", {"type": "Reboot", "machines": ["web_0"], "x": 1})
    assert "unknown field `x`" in refusal(reported)


def test_a_call_without_a_body_is_carried_out(service: Service) -> None:
    web_0 = "/v1/machines/web_0"
    ask(service, "POST", "/v1/groups/web/disable")
    assert ask(service, "POST", f"{web_0}/restart").status in (200, 201)
    reported = ask(service, "POST", f"{web_0}/restart", raw=b"")
    assert reported.status in (200, 201), json.loads(reported.raw)


@pytest.mark.parametrize(
    ("target", "framing"),
    [
        ("/v1/events", "Content-Length: 100"),
        ("/v1/fleet", "Content-Length: 100"),
        ("/v1/machines/web_0/restart", "Transfer-Encoding: chunked"),
    ],
)
def test_a_caller_that_leaves_before_its_body_is_complete_is_no_failure(
    service: Service, target: str, framing: str
) -> None:
    def counted() -> list[str]:
        lines = ask(service, "GET", "/metrics").raw.decode().splitlines()
        start = f'forewarn_control_requests_total{{method="{method}",'
        return [line for line in lines if line.startswith(start)]

    method = "PUT" if target == "/v1/fleet" else "POST"
    before = counted()
    parts = urlsplit(service.control_url)
    head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection((parts.hostname or "", parts.port or 0), 30) as line:
        line.sendall(f"{head}{framing}\r\n\r\n".encode())
        line.shutdown(socket.SHUT_WR)
        assert line.recv(65_536) == b""
    until(lambda: counted() != before)  # its call has ended
    after = counted()
    assert not [line for line in after if 'status="5xx"' in line]
