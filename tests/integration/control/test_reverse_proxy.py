"""Behind a reverse proxy: only a proxy that the settings name is believed, and whoever sends a
request through it cannot pretend to be somebody else."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any

import pytest

from forewarn.control.http.access.authentication import Refusal
from forewarn.control.http.access.forwarded import apply_forwarded
from forewarn.core.access import Role
from forewarn.testing import Service
from helpers.control_api import ask
from helpers.token_api import token

PROXIES = (ip_network("127.0.0.1"), ip_network("10.1.0.0/24"))


def applied(peer: str, *proxies: Any, **headers: str) -> tuple[str, str]:
    scope: dict[str, Any] = {"client": (peer, 4711), "scheme": "http"}
    sent = {name.replace("_", "-").encode(): [value.encode()] for name, value in headers.items()}
    apply_forwarded(scope, sent, proxies)
    return scope["client"][0], scope["scheme"]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, ("127.0.0.1", "http")),
        ({"x_forwarded_for": "192.0.2.7"}, ("192.0.2.7", "http")),
        ({"x_forwarded_for": "127.0.0.1, 192.0.2.7"}, ("192.0.2.7", "http")),
        ({"x_forwarded_for": "198.51.100.1, 192.0.2.7, 10.1.0.3"}, ("192.0.2.7", "http")),
        ({"x_forwarded_for": "192.0.2.7", "x_forwarded_proto": "https"}, ("192.0.2.7", "https")),
        ({"x_forwarded_proto": "https"}, ("127.0.0.1", "https")),
        ({"x_forwarded_proto": "gopher"}, ("127.0.0.1", "http")),
        ({"x_forwarded_for": "192.0.2.7, nobody"}, ("127.0.0.1", "http")),
        ({"forwarded": "for=192.0.2.7;proto=https"}, ("192.0.2.7", "https")),
        ({"forwarded": 'For="[2001:db8::7]:4711";Proto=https'}, ("2001:db8::7", "https")),
        ({"forwarded": "for=127.0.0.1;proto=https, for=192.0.2.7"}, ("192.0.2.7", "http")),
        ({"forwarded": 'for="a, for=192.0.2.7:80;proto=https'}, ("192.0.2.7", "https")),
    ],
)
def test_the_last_address_that_is_not_a_proxy_is_the_client(
    headers: dict[str, str], expected: tuple[str, str]
) -> None:
    assert applied("127.0.0.1", *PROXIES, **headers) == expected


def test_headers_from_other_addresses_are_ignored() -> None:
    spoofed = {"x_forwarded_for": "127.0.0.1", "x_forwarded_proto": "https"}
    assert applied("192.0.2.7", *PROXIES, **spoofed) == ("192.0.2.7", "http")
    assert applied("127.0.0.1", **spoofed) == ("127.0.0.1", "http")


def test_two_kinds_of_headers_are_refused() -> None:
    with pytest.raises(Refusal, match="both"):
        applied("127.0.0.1", *PROXIES, x_forwarded_for="192.0.2.7", forwarded="for=127.0.0.1")


@pytest.fixture
def service() -> Iterator[Service]:
    with Service("groups: []", sockets=True) as service:
        yield service


def test_a_proxy_that_is_named_makes_sessions_secure_and_clients_foreign(service: Service) -> None:
    https: dict[str, Any] = {"X_Forwarded_For": "192.0.2.7", "X_Forwarded_Proto": "https"}
    assert ask(service, "GET", "/v1/groups", **https).status == 200  # it is from loopback
    service._session.node.control_proxies = PROXIES
    assert ask(service, "GET", "/v1/groups", **https).status == 401
    assert ask(service, "GET", "/v1/groups").status == 200
    both: dict[str, Any] = {**https, "Forwarded": "for=127.0.0.1"}
    assert ask(service, "GET", "/v1/groups", **both).status == 400
    secret = token(service, "ann", Role.ADMIN).secret.text
    sent: dict[str, Any] = {"Authorization": f"Bearer {secret}", **https}
    cookie = ask(service, "POST", "/v1/session", **sent).headers["set-cookie"]
    assert cookie.startswith("__Host-forewarn=")
    assert cookie.endswith("Secure")
    plain = ask(service, "POST", "/v1/session", Authorization=f"Bearer {secret}")
    assert "Secure" not in plain.headers["set-cookie"]
