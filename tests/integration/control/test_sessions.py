"""Logging in with a browser: a cookie counts like the token it was made with, for as long as that,
and only for requests of our own page."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterator, Mapping
from http.cookies import SimpleCookie
from pathlib import Path

import pytest

from forewarn.control.routes import feed
from forewarn.core import EventType
from forewarn.core.access import Role
from forewarn.service.access.sessions import MAX_SESSIONS
from forewarn.testing import Service
from helpers.certificates import Authority
from helpers.token_api import Answer, Api, api_with_token, token
from helpers.waiting import until

FLEET = """
groups:
  - {name: web, kind: standalone, machines: [{name: web-0}]}
  - {name: db, kind: standalone, machines: [{name: db-0}]}
"""
OURS = {"Sec-Fetch-Site": "same-origin"}


class Browser:
    """A page of the service, in a browser with a cookie."""

    def __init__(self, service: Service, login: Api) -> None:
        self._api = Api(service.control_url)
        answer = login.call("POST", "/v1/session", headers=OURS)
        assert answer.status == 200, answer
        self.set_cookie = answer.headers["set-cookie"]
        ((self.name, morsel),) = SimpleCookie(self.set_cookie).items()
        self.cookie = f"{self.name}={morsel.value}"

    def call(
        self, method: str, target: str, body: object = None, headers: Mapping[str, str] = OURS
    ) -> Answer:
        return self._api.call(method, target, body, {"Cookie": self.cookie, **headers})

    @property
    def logged_in(self) -> bool:
        answer = self.call("GET", "/v1/machines")
        assert answer.status == 200 or answer.detail == "the session has ended; log in again"
        return answer.status == 200


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as service:
        yield service


@pytest.fixture
def admin(service: Service) -> Api:
    return api_with_token(service, "alice", Role.ADMIN)


def test_a_session_has_the_permissions_of_its_token(service: Service, admin: Api) -> None:
    browser = Browser(service, admin)
    assert "HttpOnly" in browser.set_cookie
    assert "SameSite=Strict" in browser.set_cookie
    response = browser.call("GET", "/v1/session").json()
    types = {type["name"]: type for type in response["event_types"]}
    assert [*types] == [type.value for type in EventType]
    for trait in ("by_user", "host_maintenance", "relocates", "deletes"):
        having = [name for name, type in types.items() if type[trait]]
        assert having == [t.value for t in EventType if getattr(t.traits, trait)]
    assert response | {"expires_at": "", "operations": [], "event_types": []} == {
        "name": "alice",
        "role": "admin",
        "limited": False,
        "needs_token": True,
        "expires_at": "",
        "operations": [],
        "event_types": [],
        "decides": True,
        "login": "",
        "leader": None,
    }
    assert browser.call("POST", "/v1/machines/web-0/restart").status == 200
    (record,) = admin.get("/v1/history?what=raised").json()["records"]
    assert record["by"] == "alice"


def test_over_tls_the_cookie_is_for_tls_and_this_host_alone(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with Service(FLEET, sockets=True, tls=authority.issue("127.0.0.1")) as service:
        secret = token(service, "alice", Role.ADMIN).secret.text
        api = Api(service.control_url, secret, tls=authority.trusted())
        answer = api.call("POST", "/v1/session", headers=OURS)
    cookie, *attributes = answer.headers["set-cookie"].split("; ")
    assert cookie.startswith("__Host-forewarn=")
    assert attributes == ["Path=/", "Max-Age=43200", "HttpOnly", "SameSite=Strict", "Secure"]


def test_a_cookie_is_limited_like_its_token(service: Service, admin: Api) -> None:
    del admin
    limited = api_with_token(service, "bob", Role.VIEWER, groups=("web",))
    browser = Browser(service, limited)
    machines = browser.call("GET", "/v1/machines").json()
    assert [machine["name"] for machine in machines] == ["web-0"]
    assert browser.call("POST", "/v1/machines/web-0/restart").status == 403


@pytest.mark.parametrize(
    ("role", "groups", "may", "may_not"),
    [
        (Role.VIEWER, (), ["planRollout"], ["approveEvent", "restartMachine"]),
        (Role.TENANT, ("web",), ["approveEvent", "restartMachine"], ["retryEvent", "planRollout"]),
        (Role.OPERATOR, ("web",), ["retryEvent", "deleteMachine"], ["failHost", "placeHalt"]),
        (Role.OPERATOR, (), ["failHost", "placeHalt"], ["createToken"]),
        (Role.ADMIN, (), ["createToken", "approveEvent"], ["getSession", "listEvents"]),
    ],
)
def test_callers_learn_which_operations_they_may_use(
    service: Service, role: Role, groups: tuple[str, ...], may: list[str], may_not: list[str]
) -> None:
    api_with_token(service, "alice", Role.ADMIN)
    caller = api_with_token(service, "carol", role, groups=groups)
    operations = set(caller.get("/v1/session").json()["operations"])
    assert operations.issuperset(may)
    assert not operations.intersection(may_not)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://elsewhere.example"},
        {"Origin": "null", **OURS},
    ],
    ids=str,
)
def test_a_cookie_counts_for_requests_of_our_own_page_only(
    service: Service, admin: Api, headers: dict[str, str]
) -> None:
    browser = Browser(service, admin)
    assert browser.call("GET", "/v1/machines", headers=headers).status in (401, 403)
    own = {"Origin": service.control_url}
    assert browser.call("GET", "/v1/machines", headers=own).status == 200


def test_a_cookie_is_no_token_and_no_other_cookie_is_one(service: Service, admin: Api) -> None:
    browser = Browser(service, admin)
    secret = browser.cookie.partition("=")[2]
    assert Api(service.control_url, secret).get("/v1/machines").status == 401
    for cookie in ("x", "", f"{secret}0", secret[:-1], f".{secret}", f"{secret[:8]}.", "eyJ.eyJ.x"):
        browser.cookie = f"{browser.name}={cookie}"
        assert browser.call("GET", "/v1/machines").status == 401
    browser.cookie = f"__Host-forewarn={secret}"  # which is for TLS
    assert browser.call("GET", "/v1/machines").status == 401
    browser.cookie = f"theme=dark; {browser.name}={secret}"
    assert browser.logged_in


def test_a_session_ends_with_a_logout_or_its_token(service: Service, admin: Api) -> None:
    first, second = Browser(service, admin), Browser(service, admin)
    assert first.call("DELETE", "/v1/session").status == 200
    assert (first.logged_in, second.logged_in) == (False, True)
    token(service, "carol", Role.ADMIN)
    assert admin.post("/v1/tokens/alice/revoke", {}).status == 200
    assert not second.logged_in


def test_a_session_ends_after_half_a_day_and_with_its_token(service: Service, admin: Api) -> None:
    long, short = (
        Browser(service, admin),
        api_with_token(service, "bob", Role.VIEWER, expires_in=3_600_000_000),
    )
    of_short = Browser(service, short)
    assert of_short.call("GET", "/v1/session").json()["expires_at"].startswith("20")
    service.clock.advance("59m59s")
    assert (long.logged_in, of_short.logged_in) == (True, True)
    service.clock.advance("1s")
    assert (long.logged_in, of_short.logged_in) == (True, False)
    service.clock.advance("10h59m59s")
    assert long.logged_in
    service.clock.advance("1s")
    assert not long.logged_in


@contextlib.contextmanager
def following(browser: Browser) -> Iterator[http.client.HTTPResponse]:
    """A stream of the feed that has begun."""
    with contextlib.closing(browser._api.connection()) as connection:
        connection.request("GET", "/v1/feed", headers={"Cookie": browser.cookie, **OURS})
        with connection.getresponse() as stream:
            while stream.readline() != b"event: hello\n":
                pass
            yield stream


@pytest.mark.parametrize("end", ["logout", "revoked", "token expired", "session expired"])
def test_a_stream_ends_with_its_session(
    service: Service, admin: Api, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "KEEP_ALIVE", 0.05)
    lasts = {"expires_in": 3_600_000_000} if end == "token expired" else {}
    bob = api_with_token(service, "bob", Role.VIEWER, **lasts)
    browser, other = Browser(service, bob), Browser(service, admin)
    with following(browser) as stream, following(other) as others:
        match end:
            case "logout":
                assert browser.call("DELETE", "/v1/session").status == 200
            case "revoked":
                assert admin.post("/v1/tokens/bob/revoke", {}).status == 200
            case "token expired":
                service.clock.advance("61m")
            case "session expired":
                service.clock.advance("13h")
        assert b"raised" not in stream.read()
        if end == "session expired":
            others.read()
        else:
            service.schedule("Freeze", "web-0")
            assert any(b"raised" in line for line in others)


def test_a_long_poll_ends_with_its_session(service: Service, admin: Api) -> None:
    bob = api_with_token(service, "bob", Role.VIEWER)
    browser = Browser(service, bob)
    newest = bob.get("/v1/changes").json()["next"]
    target = f"/v1/changes?after={newest}&wait=60"
    with contextlib.closing(browser._api.connection()) as waiting:
        waiting.request("GET", target, headers={"Cookie": browser.cookie, **OURS})
        until(lambda: service._session.node.feed.followers == 1)
        assert admin.post("/v1/tokens/bob/revoke", {}).status == 200
        with waiting.getresponse() as answer:
            assert answer.status == 401


def test_the_oldest_of_too_many_sessions_ends(service: Service, admin: Api) -> None:
    browsers = [Browser(service, admin) for _ in range(MAX_SESSIONS + 2)]
    assert [b.logged_in for b in browsers] == [False, False] + [True] * MAX_SESSIONS


def test_a_session_outlives_the_service(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    with Service(FLEET, sockets=True, state=state) as service:
        browser = Browser(service, api_with_token(service, "alice", Role.ADMIN))
    with Service(sockets=True, state=state) as service:
        browser._api.url = service.control_url
        assert browser.logged_in


def test_the_state_does_not_contain_the_cookie(tmp_path: Path) -> None:
    state = tmp_path / "state.db"
    with Service(FLEET, sockets=True, state=state) as service:
        browser = Browser(service, api_with_token(service, "alice", Role.ADMIN))
    secret = browser.cookie.rpartition(".")[2].encode()
    assert len(secret) == 64
    assert not any(secret in file.read_bytes() for file in tmp_path.iterdir())


def test_without_tokens_no_login_is_needed(service: Service) -> None:
    response = Api(service.control_url).get("/v1/session").json()
    assert (response["name"], response["needs_token"]) == ("operator", False)
    answer = Api(service.control_url).post("/v1/session")
    assert "set-cookie" not in answer.headers
