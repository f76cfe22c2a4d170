"""Logging in to the portal at an OpenID Connect issuer: authorization code with PKCE."""

from __future__ import annotations

import base64
import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

from forewarn.service.access.oidc import Oidc
from forewarn.testing import Service
from helpers.oidc_issuer import Issuer, issuer
from helpers.token_api import FLEET
from helpers.waiting import LIMIT

PAGE = {"Sec-Fetch-Site": "same-origin"}


class Browser:
    """As much of a browser as a login needs: cookies, and redirects one at a time."""

    def __init__(self) -> None:
        self.cookies: dict[str, str] = {}
        self.flags: dict[str, str] = {}

    def get(self, url: str, **headers: str) -> tuple[int, str, str]:
        """Return the status, where it leads, and the body."""
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=LIMIT)
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        sent = {**headers, **({"Cookie": cookies} if cookies else {})}
        connection.request("GET", parts._replace(scheme="", netloc="").geturl(), headers=sent)
        response = connection.getresponse()
        body = response.read().decode()
        for text in response.headers.get_all("Set-Cookie") or []:
            pair, _, flags = text.partition(";")
            name, _, value = pair.partition("=")
            self.cookies[name], self.flags[name] = value.strip('"'), flags
            if "Max-Age=0" in flags:
                del self.cookies[name]
        connection.close()
        return response.status, response.headers.get("Location", ""), body

    def session(self, service: Service) -> dict[str, Any]:
        status, _, body = self.get(f"{service.control_url}/v1/session", **PAGE)
        assert status == 200
        return dict(msgspec.json.decode(body))


@pytest.fixture
def issued() -> Iterator[Issuer]:
    with issuer() as made:
        yield made


@pytest.fixture
def service(issued: Issuer) -> Iterator[Service]:
    with Service(FLEET, sockets=True) as service:
        accept(service, issued.config(client_id="forewarn"))
        yield service


def accept(service: Service, oidc: Oidc | None) -> None:
    async def change() -> None:
        service._session.node.accept_issuer(oidc)

    service._session.run(change())


def at_issuer(service: Service, browser: Browser, query: str = "") -> str:
    """Let a browser go to the issuer, and return where that sends it back to."""
    status, there, _ = browser.get(f"{service.control_url}/ui/login{query}")
    assert status == 303
    status, back, _ = browser.get(there)
    assert status == 302
    return back


def test_a_browser_logs_in_at_the_issuer_and_returns_to_its_page(
    service: Service, issued: Issuer
) -> None:
    browser = Browser()
    assert browser.session(service)["login"] == "/ui/login"
    back = at_issuer(service, browser, "?to=/ui/events%3Fstatus%3DStarted")
    assert issued.asked["response_type"] == "code"
    assert issued.asked["redirect_uri"] == f"{service.control_url}/ui/login/done"
    assert "SameSite=Lax" in browser.flags["forewarn-login"]
    status, there, _ = browser.get(back)
    assert (status, there) == (303, "/ui/events?status=Started")
    assert "SameSite=Strict" in browser.flags["forewarn"]
    assert "HttpOnly" in browser.flags["forewarn"]
    assert list(browser.cookies) == ["forewarn"]
    session = browser.session(service)
    assert (session["name"], session["role"]) == ("ann@example.net", "admin")


@pytest.mark.parametrize("to", ["//evil.example/", "https://evil.example/", "/v1/session", "x"])
def test_a_browser_is_led_to_no_other_place(service: Service, to: str) -> None:
    browser = Browser()
    status, there, _ = browser.get(at_issuer(service, browser, f"?to={to}"))
    assert (status, there) == (303, "/ui/")
    back = at_issuer(service, browser)
    begun, _, _ = browser.cookies["forewarn-login"].rpartition(".")
    changed = base64.urlsafe_b64encode(to.encode()).decode().rstrip("=")
    browser.cookies["forewarn-login"] = f"{begun}.{changed}"  # as another page of the host can
    status, there, _ = browser.get(back)
    assert (status, there) == (303, "/ui/")


def test_an_answer_counts_only_in_the_browser_that_has_asked_and_only_once(
    service: Service,
) -> None:
    browser, other = Browser(), Browser()
    back = at_issuer(service, browser)
    assert other.get(back)[0] == 400  # which has begun no login
    at_issuer(service, other)
    assert other.get(back)[0] == 400  # which has begun another one
    assert browser.get(back.replace("state=", "state=0"))[0] == 400
    assert browser.get(back)[0] == 303
    assert browser.get(back)[0] == 400
    assert other.session(service)["name"] == ""


def test_a_code_of_another_login_is_worth_nothing(service: Service, issued: Issuer) -> None:
    victim, thief = Browser(), Browser()
    code = dict(parse_qsl(urlsplit(at_issuer(service, victim)).query))["code"]
    mine = dict(parse_qsl(urlsplit(at_issuer(service, thief)).query))
    done = f"{service.control_url}/ui/login/done?code={code}&state={mine['state']}"
    status, _, body = thief.get(done)
    assert status == 401
    assert "invalid_grant" in body
    assert thief.session(service)["name"] == ""


@pytest.mark.parametrize(
    ("person", "status", "says"),
    [
        ({"nonce": "another"}, 401, "issued for another login"),
        ({"nonce": None}, 401, "issued for another login"),
        ({"aud": "another"}, 401, "not for forewarn"),
        ({"exp": 1}, 401, "has expired"),
        ({"groups": ["<b>"]}, 403, "(&lt;b&gt;)"),
        ({"more": "x" * 4_000}, 403, "too long for a cookie"),
    ],
)
def test_the_login_page_explains_why_there_is_no_access(
    service: Service, issued: Issuer, person: dict[str, Any], status: int, says: str
) -> None:
    issued.logs_in = person
    browser = Browser()
    found, _, body = browser.get(at_issuer(service, browser))
    assert found == status
    assert says in body
    assert browser.session(service)["name"] == ""


def test_a_login_that_the_issuer_refuses_is_refused(service: Service, issued: Issuer) -> None:
    issued.denies = True
    browser = Browser()
    assert browser.get(at_issuer(service, browser))[0] == 403
    assert browser.cookies == {}


def test_a_client_with_a_secret_sends_it(service: Service, issued: Issuer, tmp_path: Path) -> None:
    issued.secret = "correct horse"
    browser = Browser()
    status, _, body = browser.get(at_issuer(service, browser))
    assert (status, "invalid_client" in body) == (401, True)
    file = tmp_path / "secret"
    file.write_text("correct horse\n")
    changed = issued.config(client_id="forewarn", client_secret_file=str(file))
    accept(service, changed)
    assert browser.get(at_issuer(service, browser))[0] == 401  # a space is a plus
    issued.secret = "correct+horse"
    assert browser.get(at_issuer(service, browser))[0] == 303


def test_wrong_answers_from_one_address_are_counted(service: Service) -> None:
    statuses = set()
    for _ in range(30):
        browser = Browser()
        back = at_issuer(service, browser)
        statuses.add(browser.get(back.replace("code=", "code=0"))[0])
    assert statuses == {401, 429}


def test_without_a_client_no_browser_is_redirected_to_the_issuer(
    service: Service, issued: Issuer
) -> None:
    accept(service, issued.config())
    browser = Browser()
    assert browser.session(service)["login"] == ""
    assert browser.get(f"{service.control_url}/ui/login")[0] == 404


def test_an_issuer_that_does_not_answer_is_reported(service: Service, issued: Issuer) -> None:
    issued.status = 500
    accept(service, issued.config(client_id="forewarn", ca="/nowhere"))  # its keys are asked again
    status, _, body = Browser().get(f"{service.control_url}/ui/login")
    assert status == 503
    assert "answered 500" in body


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"client_id": "other"}, "client_id"),
        ({"client_secret_file": "/nowhere"}, "client_secret_file"),
        ({"scope": "email"}, "scope"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    issued: Issuer, changed: dict[str, Any], key: str
) -> None:
    assert [name for name, _ in issued.config(**changed).problems()] == [key]
