"""A browser on the operator's machine is everybody's program: no page of anybody else's reads or
does anything here, with tokens or without. What is sent is what browsers send."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping

import pytest

from forewarn.core.access import Role
from forewarn.testing import Service
from helpers.token_api import FLEET, Answer, Api, api_with_token

NAME = "forewarn.example.net"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True, control_names=(NAME,)) as service:
        yield service


@pytest.fixture
def api(service: Service) -> Api:
    return Api(service.control_url)


def port(api: Api) -> str:
    return api.url.rpartition(":")[2]


def raw(api: Api, text: str) -> bytes:
    with socket.create_connection(("127.0.0.1", int(port(api))), 20) as connection:
        connection.sendall(text.replace("\n", "\r\n").encode("latin-1"))
        response = b""
        while block := connection.recv(65_536):
            response += block
    return response


def changed(service: Service) -> int:
    return service._session.node.store.seq


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "[::1]", NAME, NAME.upper(), f"{NAME}."],
)
def test_requests_for_its_own_host_names_are_answered(api: Api, host: str) -> None:
    for response in (host, f"{host}:{port(api)}", f"{host}:1"):
        assert api.get("/v1/status", Host=response).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        f"x.{NAME}",
        "localhost@evil.example",
        "evil.example@localhost",
        "evil.example@127.0.0.1",
        "127.0.0.1/evil.example",
        "127.0.0.1?evil.example",
        "127.0.0.1#evil.example",
        "127.0.0.1:80:evil.example",
        "127.0.0.1:65536",
        "169.254.169.254",
        "0.0.0.0",
        "10.0.0.1",
        "[::2]",
        "[",
        "",
        "localhost evil",
        "\xff",
    ],
)
def test_a_request_for_a_foreign_host_name_is_refused(api: Api, host: str) -> None:
    """DNS rebinding: the browser takes it for the page's own site, and says so."""
    for target in ("/v1/status", "/metrics", "/healthz", "/nowhere"):
        refused = api.get(target, Host=host)
        assert refused.status == 421
        assert "control_names" in refused.detail


def test_a_request_with_two_host_headers_is_refused(api: Api) -> None:
    response = raw(
        api,
        "GET /v1/status HTTP/1.1\nHost: localhost\nHost: evil.example\nConnection: close\n\n",
    )
    assert response.startswith((b"HTTP/1.1 421", b"HTTP/1.1 400"))


def test_an_old_program_that_names_no_host_is_answered(api: Api) -> None:
    assert raw(api, "GET /v1/status HTTP/1.0\n\n").startswith(b"HTTP/1.1 200")


# What browsers send along with what a page makes them do.
FOREIGN: list[Mapping[str, str]] = [
    {"Origin": "https://evil.example"},
    {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
    {"Origin": "null"},
    {"Origin": "http://localhost:3000"},
    {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"},
    {"Sec-Fetch-Site": "something new"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_pages_of_other_sites_read_nothing_and_do_nothing(
    service: Service, api: Api, headers: dict[str, str]
) -> None:
    before = changed(service)
    for target in ("/v1/status", "/v1/machines", "/metrics"):
        refused = api.get(target, **headers)
        assert (refused.status, "other sites" in refused.detail) == (403, True)
    for method, target in (
        ("POST", "/v1/machines/web_0/restart"),
        ("POST", "/v1/machines/web_0/delete"),
        ("PUT", "/v1/fleet"),
        ("DELETE", "/v1/groups/web"),
        ("OPTIONS", "/v1/machines/web_0/restart"),
        ("POST", "/nowhere"),
    ):
        assert api.call(method, target, headers=headers).status == 403
    assert changed(service) == before


def test_requests_of_own_pages_and_typed_addresses_are_answered(api: Api) -> None:
    own = f"http://127.0.0.1:{port(api)}"
    assert api.get("/v1/status", **{"Sec-Fetch-Site": "none"}).status == 200
    assert api.get("/v1/status", **{"Sec-Fetch-Site": "same-origin"}).status == 200
    same = {"Origin": own, "Sec-Fetch-Site": "same-origin"}
    assert api.get("/v1/status", **same).status == 200
    assert api.get("/v1/status", Origin=own.replace("http", "https")).status == 403


def test_a_link_from_another_site_leads_to_open_pages(api: Api) -> None:
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert api.get("/healthz", **link).status == 200


@pytest.mark.parametrize(
    "kind",
    [
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain",
        "text/plain;charset=UTF-8",
        "application/octet-stream",
        "application/jsonx",
        "",
    ],
)
def test_a_request_that_a_form_can_send_changes_nothing(
    service: Service, api: Api, kind: str
) -> None:
    """Without a token, a form is all that it would take."""
    before = changed(service)
    body = b'{"type":"Reboot","machines":["web_0"]}'
    for target, method in (("/v1/events", "POST"), ("/v1/fleet", "PUT")):
        refused = api.call(method, target, body, {"Content-Type": kind})
        assert (refused.status, "application/json" in refused.detail) == (415, True)
    assert api.call("POST", "/v1/machines/web_0/restart", b"x=1", {"Content-Type": kind}).status
    assert changed(service) == before


def test_a_body_without_a_content_type_is_not_read(service: Service, api: Api) -> None:
    """A page can send one without a type."""
    before = changed(service)
    body = '{"type":"Reboot","machines":["web_0"]}'
    for how in (f"Content-Length: {len(body)}", "Transfer-Encoding: chunked"):
        sent = body if "Length" in how else f"{len(body):x}\n{body}\n0\n\n"
        response = raw(
            api,
            f"POST /v1/events HTTP/1.1\nHost: localhost\nConnection: close\n{how}\n\n{sent}",
        )
        assert response.startswith(b"HTTP/1.1 415")
    assert changed(service) == before


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", "Application/JSON"]
)
def test_bodies_as_programs_send_them_are_read(api: Api, kind: str) -> None:
    body = b'{"type":"Reboot","groups":["web"]}'
    assert api.call("POST", "/v1/rollouts/plan", body, {"Content-Type": kind}).status == 200


@pytest.mark.parametrize("kind", ["application/yaml", "text/yaml", "application/x-yaml"])
def test_a_fleet_may_be_yaml(api: Api, kind: str) -> None:
    fleet = FLEET.encode()
    done = api.call("PUT", "/v1/fleet?plan=true", fleet, {"Content-Type": kind})
    assert done.status == 200, done


def dressed(answer: Answer) -> None:
    headers = answer.headers
    assert headers["x-content-type-options"] == "nosniff"
    # What the API says of itself is the same for all, and has a name to ask for it again by.
    assert headers["cache-control"] == ("no-cache" if "etag" in headers else "no-store")
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["x-frame-options"] == "DENY"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert not [name for name in headers if name.startswith("access-control-")]


def test_every_answer_has_headers_that_restrict_browsers(api: Api) -> None:
    for target in (
        *("/v1/status", "/metrics", "/healthz", "/schema/openapi.json", "/docs"),
        *("/nowhere", "/v1/machines/nobody", "/v1/status?x=1"),
    ):
        dressed(api.get(target))
    dressed(api.call("DELETE", "/v1/status"))
    dressed(api.call("OPTIONS", "/v1/status"))
    dressed(api.get("/v1/status", Host="evil.example"))
    dressed(api.get("/v1/status", Origin="https://evil.example"))


def test_requests_of_other_sites_are_refused_with_tokens_too() -> None:
    with Service(FLEET, sockets=True) as service:
        api = api_with_token(service, "alice", Role.ADMIN)
        assert api.get("/v1/status").status == 200
        assert api.get("/v1/status", Host="evil.example").status == 421
        assert api.get("/v1/status", Origin="https://evil.example").status == 403
        form = {"Content-Type": "text/plain"}
        assert api.call("POST", "/v1/events", b"{}", form).status == 415
        dressed(Api(service.control_url).get("/v1/status"))


@pytest.mark.parametrize("path", ["//v1/status", "/v1//status", "//v1/machines", "///metrics"])
def test_a_path_with_doubled_slashes_is_not_found(service: Service, path: str) -> None:
    here = service.control_url.removeprefix("http://")
    host, _, number = here.rpartition(":")
    api = Api(service.control_url)
    for site in ("cross-site", "same-site", "none"):
        # As it is on the wire: a client's library would take `//v1` for a host.
        response = raw(
            api,
            f"GET {path} HTTP/1.1\nHost: {host}:{number}\nSec-Fetch-Site: {site}\n"
            "Connection: close\n\n",
        )
        assert response.split(b" ")[1] == b"404"
        assert b"use a single '/'" in response


@pytest.mark.parametrize("path", ["/v1/status", "/metrics", "/v2/status", "/nothing"])
def test_everything_but_the_open_pages_is_closed_to_other_sites(api: Api, path: str) -> None:
    assert api.get(path, **{"Sec-Fetch-Site": "cross-site"}).status == 403
    assert api.get("/docs", **{"Sec-Fetch-Site": "cross-site"}).status == 200
