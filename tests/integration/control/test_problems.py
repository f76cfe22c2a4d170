"""Every refusal is a problem as in RFC 9457, of a kind that the API's page tells of."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from forewarn.control.http import problems
from forewarn.control.http.errors import MAX_BODY
from forewarn.control.routes import machines
from forewarn.service.engine.writer import Writer
from forewarn.store.port import StoreFailed
from forewarn.testing import SAMPLE, Service
from helpers.control_api import ApiResponse, ask


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(SAMPLE, sockets=True) as service:
        yield service


def is_problem(reported: ApiResponse, kind: str) -> dict[str, object]:
    found = problems.BY_NAME[kind]
    assert reported.headers["content-type"] == "application/problem+json"
    body: dict[str, object] = reported.body
    assert reported.status == body["status"] == found.status
    assert body["type"] == f"/docs#problem-{kind}"
    assert body["title"] == found.title
    assert body["detail"]
    return body


@pytest.mark.parametrize(
    ("method", "target", "raw", "kind"),
    [
        ("GET", "/v1/machines/web_00", b"", "unknown"),
        ("GET", "/nowhere", b"", "unknown"),
        ("GET", "/v1", b"", "unknown"),
        ("DELETE", "/v1/events", b"", "method"),
        ("POST", "/v1/machines/web_0", b"", "method"),
        ("PUT", "/v1/hosts/h9", b"x" * (1024 * 1024 + 1), "too-large"),
        ("POST", "/v1/events", b" " * (MAX_BODY + 1), "too-large"),
        ("POST", "/v1/events", b"{", "invalid"),
        ("POST", "/v1/events", b"", "invalid"),
        ("POST", "/v1/events", b"[]", "invalid"),
        ("POST", "/v1/events", b'{"type": "Reboot", "machines": "web_0"}', "invalid"),
        ("GET", "/v1/machines?limit=x", b"", "invalid"),
        ("GET", "/v1/machines?labels=x", b"", "invalid"),
        ("POST", "/v1/machines/web_0/evict", b"", "conflict"),
    ],
)
def test_every_refusal_has_a_kind(
    service: Service, method: str, target: str, raw: bytes, kind: str
) -> None:
    reported = ask(service, method, target, raw=raw)
    body = is_problem(reported, kind)
    assert body["instance"] == f"urn:uuid:{reported.headers['x-request-id']}"


def test_a_form_instead_of_json_is_refused(service: Service) -> None:
    reported = ask(
        service,
        *("POST", "/v1/events"),
        raw=b"type=Reboot",
        Content_Type="application/x-www-form-urlencoded",
    )
    is_problem(reported, "media-type")


def test_a_wrong_method_is_answered_with_the_allowed_ones(service: Service) -> None:
    reported = ask(service, "PUT", "/v1/events")
    assert set(reported.headers["allow"].split(", ")) == {"GET", "POST", "OPTIONS"}
    reported = ask(service, "OPTIONS", "/v1/events")
    assert set(reported.headers["allow"].split(", ")) == {"GET", "POST", "OPTIONS"}


def test_problems_have_suggestions_and_pointers(service: Service) -> None:
    reported = ask(service, "GET", "/v1/machines/web_00")
    assert reported.body["did_you_mean"] == "web_0"
    reported = ask(service, "GET", "/v1/machines?labels=x")
    assert reported.body["did_you_mean"] == "label"
    reported = ask(service, "PUT", "/v1/fleet", raw=b"hosts: []\ngruops: []\n")
    assert (reported.body["line"], reported.body["did_you_mean"]) == (2, "groups")
    body = {"type": "Reboot", "machines": ["web_0", 7]}
    reported = ask(service, "POST", "/v1/events", body)
    (error,) = reported.body["errors"]
    assert error["pointer"] == "/machines/1"
    assert "Expected `str`, got `int`" in error["detail"]
    reported = ask(service, "GET", "/v1/machines?limit=0")
    assert reported.body["errors"] == [{"pointer": "limit", "detail": "Expected `int` >= 1"}]


@pytest.mark.parametrize(
    ("field", "value"),
    [("short_notice", 0), ("short_notice", "true"), ("duration", "5"), ("duration", 1.5)],
)
def test_a_value_of_a_similar_type_is_refused(service: Service, field: str, value: object) -> None:
    body = {"type": "Reboot", "machines": ["web_0"], field: value}
    reported = ask(service, "POST", "/v1/events", body)
    assert is_problem(reported, "invalid")["errors"]
    assert ask(service, "GET", "/v1/events").body == []


def test_a_failure_of_the_service_reveals_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the secret of it")

    monkeypatch.setattr(machines, "machine_tag", broken)
    reported = ask(service, "GET", "/v1/machines/web_0")
    is_problem(reported, "failed")
    assert b"secret" not in reported.raw


def test_a_change_that_could_not_be_stored_did_not_happen(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: object) -> None:
        raise StoreFailed("no space left")

    monkeypatch.setattr(Writer, "commit", failing)
    reported = ask(service, "POST", "/v1/machines/web_0/restart", idempotency_key="k")
    assert "no space left" in str(is_problem(reported, "not-stored")["detail"])
    monkeypatch.undo()
    assert ask(service, "POST", "/v1/machines/web_0/restart", idempotency_key="k").status == 200


def test_data_that_is_not_http_is_refused_with_a_problem(service: Service) -> None:
    parts = urlsplit(service.control_url)
    with socket.create_connection((parts.hostname or "", parts.port or 0), 20) as raw:
        raw.sendall(b"nonsense\r\n\r\n")
        response = b"".join(iter(lambda: raw.recv(65_536), b""))
    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/problem+json" in head
    assert json.loads(body)["type"] == "/docs#problem-invalid"


def test_every_kind_can_be_looked_up(service: Service) -> None:
    page = ask(service, "GET", "/docs").raw.decode()
    assert [kind.name for kind in problems.KINDS if f'id="problem-{kind.name}"' not in page] == []
