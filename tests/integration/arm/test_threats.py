"""Attacks on Azure Resource Manager's API of docs/operate/security.md that no other file tries."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from forewarn.arm import app
from forewarn.arm.app import MAX_BODY
from forewarn.core.access import Role
from forewarn.node.listening.make_certificate import make_certificate
from forewarn.testing import Service
from helpers.arm import COMPUTE, HOST, SUBSCRIPTION, Arm, anonymous, app_of, code, message
from helpers.endpoint import METADATA, NOT_FOUND, Guest
from helpers.raw_http import request
from helpers.token_api import Api, token

RESTART = f"{COMPUTE}/virtualMachines/jumpbox/restart"


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        service.machine("jumpbox")
        yield service


@pytest.mark.parametrize(
    "path",
    [f"{SUBSCRIPTION}/resourceGroups", RESTART, "/identity", "/metadata/endpoints", "/adfs/oauth2"],
)
def test_the_socket_for_guests_does_not_serve_arm(service: Service, path: str) -> None:
    service.url()
    guest = Guest(service, "jumpbox")
    for method in ("GET", "POST"):
        output = guest.say(request(method, f"{path}?api-version=2022-12-01", METADATA, body=b"{}"))
        assert (output.status, output.body) == (404, NOT_FOUND)


def test_the_control_api_refuses_access_tokens(service: Service) -> None:
    secret = token(service, "root", Role.ADMIN).secret.text
    form = {"grant_type": "client_credentials", "client_secret": secret}
    answer = anonymous(
        service, "POST", "/adfs/oauth2/v2.0/token", {"Host": HOST}, urlencode(form).encode()
    )
    issued = answer.json()["access_token"]
    assert Api(service.control_url, issued).get("/v1/status").status == 401
    assert Api(service.control_url, secret).get("/v1/status").status == 200


def test_a_page_of_another_site_is_refused(service: Service) -> None:
    """Not even while there are no tokens, and whoever asks is on this computer."""
    site = {"Host": HOST, "Origin": "https://evil.example"}
    target = f"{RESTART}?api-version=2024-07-01"
    assert code(anonymous(service, "POST", target, site)) == (401, "AuthenticationFailed")
    asks = {**site, "Access-Control-Request-Headers": "authorization"}
    preflight = anonymous(service, "OPTIONS", target, asks)
    assert preflight.status == 405
    log_in = anonymous(service, "POST", "/adfs/oauth2/v2.0/token", site, b"grant_type=x")
    for answer in (preflight, log_in):
        assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert service.events == []


def test_a_body_that_is_too_large_is_not_kept(service: Service) -> None:
    arm = Arm(service)
    answer = arm.call("POST", RESTART, content=b" " * (MAX_BODY + 1))
    assert code(answer) == (413, "RequestEntityTooLarge")
    log_in = anonymous(service, "POST", "/adfs/oauth2/token", {"Host": HOST}, b"a" * (MAX_BODY + 1))
    assert log_in.status == 413
    assert service.events == []


@pytest.mark.parametrize("fields", [b"&a" * 5_000, b"&".join(b"%d=" % n for n in range(101))])
def test_a_query_or_form_of_very_many_fields_is_not_read(service: Service, fields: bytes) -> None:
    refused = anonymous(service, "GET", f"/metadata/endpoints?{fields.decode()}")
    assert code(refused) == (400, "BadRequest")
    assert "100 fields" in message(refused)
    log_in = anonymous(service, "POST", "/adfs/oauth2/token", {"Host": HOST}, fields)
    assert code(log_in) == (400, "BadRequest")


def status_of(
    service: Service, method: str, target: str, headers: list[tuple[bytes, bytes]], *parts: bytes
) -> int:
    """Return the status of the answer to a request whose body begins with these parts, and never
    ends."""
    sent, unsent = list[Any](), list(parts)

    async def receive() -> Any:
        if not unsent:
            await asyncio.get_running_loop().create_future()
        return {"type": "http.request", "body": unsent.pop(0), "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    path, _, query = target.partition("?")
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode()}
    scope |= {"headers": [(b"host", HOST.encode()), *headers], "client": ("127.0.0.1", 0)}
    service._session.run(app_of(service)(scope, receive, send))
    return int(sent[0]["status"])


def test_an_anonymous_body_that_never_ends_is_cut_off(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "LOGIN_BODY_TIMEOUT", 0.01)
    for path in ("/adfs/oauth2/token", "/6f0a/oauth2/v2.0/token"):
        assert status_of(service, "POST", path, [], b"grant_type=", b"client") == 408
    assert status_of(service, "GET", "/identity", []) == 408


def test_names_in_a_path_add_no_header(service: Service) -> None:
    arm = Arm(service)
    service["jumpbox"].get()
    begun = urlsplit(arm.call("POST", RESTART).headers["location"])
    [event] = service.events
    smuggled = f"{begun.path}%0d%0aSet-Cookie:%20a=b?also={event.id}"
    location = arm.call("GET", smuggled).headers["location"]
    assert location.endswith(f"%0D%0ASet-Cookie%3A%20a%3Db?also={event.id}&api-version=2024-07-01")


def test_a_request_with_two_tokens_is_refused(service: Service) -> None:
    secret = token(service, "root", Role.ADMIN).secret.text
    sent = [(b"authorization", f"Bearer {text}".encode()) for text in ("wrong", secret)]
    target = "/subscriptions?api-version=2022-12-01"
    for headers in (sent, sent[::-1]):
        assert status_of(service, "GET", target, headers, b"") == 401


def test_a_refusal_does_not_repeat_a_token(service: Service) -> None:
    secret = token(service, "root", Role.ADMIN).secret.text
    arm, path = Arm(service, secret), f"{COMPUTE}/virtualMachines/{secret}"
    answer = arm.call("GET", path)
    assert code(answer) == (404, "ResourceNotFound")
    assert secret.encode() not in answer.body
    requests = [{"httpMethod": "GET", "url": f"{path}?api-version=2024-07-01", "name": "one"}]
    answer = arm.call("POST", "/batch", {"requests": requests})
    assert answer.json()["responses"][0]["content"]["error"]["code"] == "ResourceNotFound"
    assert secret.encode() not in answer.body


def test_nothing_is_answered_in_the_clear_and_a_new_certificate_is_shown() -> None:
    with Service(arm=True) as service:
        place = urlsplit(service.arm.url)
        address = (place.hostname, place.port)
        with socket.create_connection(address, 20) as plain:
            plain.sendall(b"GET /metadata/endpoints HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"HTTP/" not in plain.recv(4_096)

        def serial() -> str:
            trusted = ssl.create_default_context(cafile=service.arm.ca)
            with (
                socket.create_connection(address, 20) as connection,
                trusted.wrap_socket(connection, server_hostname="127.0.0.1") as secured,
            ):
                return str((secured.getpeercert() or {})["serialNumber"])

        before = serial()
        make_certificate(service.arm.ca.parent, ["127.0.0.1"])
        certificates = service._session.node.arm_certificates
        assert certificates is not None
        service._session.call(certificates.refresh)
        assert serial() != before


@pytest.mark.parametrize("resource_group", ["forewarn", "db"])
def test_a_limited_token_touches_no_other_group_and_no_host(resource_group: str) -> None:
    fleet = f"""
    hosts: [h1]
    groups:
      - {{name: web, kind: standalone, machines: [{{name: web-0, host: h1}}]}}
      - name: sql
        kind: standalone
        resource_group: {resource_group}
        machines: [{{name: sql-0, host: h1, spot: true}}]
    """
    with Service(fleet) as service:
        token(service, "root", Role.ADMIN)
        arm = Arm(service, token(service, "web", Role.OPERATOR, groups=("web",)).secret.text)
        listed = arm.get(f"{SUBSCRIPTION}/providers/Microsoft.Compute/virtualMachines")["value"]
        assert [machine["name"] for machine in listed] == ["web-0"]
        other = COMPUTE.replace("/forewarn/", f"/{resource_group}/") + "/virtualMachines/sql-0"
        for verb in ("restart", "redeploy", "performMaintenance"):
            assert arm.call("POST", f"{other}/{verb}").status == 404
        assert arm.call("POST", f"{other}/simulateEviction").status == 403
        arm.call("DELETE", other)  # as if it were gone already
        for verb in ("restart", "redeploy"):
            assert arm.call("POST", f"{COMPUTE}/hostGroups/hosts/hosts/h1/{verb}").status == 403
        assert service.events == []
        assert service["sql-0"].alive
