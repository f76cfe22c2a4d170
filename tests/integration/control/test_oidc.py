"""Tokens of an OIDC issuer beside those of the service, and everything that must not pass for one.
That a real issuer's tokens are accepted is tests/system/control/test_oidc_issuer.py."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from forewarn.control.http.access import token_attempts
from forewarn.core.access import Role
from forewarn.service.access import issuer_keys
from forewarn.service.access.oidc import MAX_TOKEN, Oidc
from forewarn.support import guard
from forewarn.testing import Service
from helpers.oidc_issuer import Issuer, Key, issuer, signed_by_hand
from helpers.token_api import FLEET, Answer, Api, api_with_token
from helpers.waiting import LIMIT


@pytest.fixture
def issued() -> Iterator[Issuer]:
    with issuer() as made:
        yield made


@pytest.fixture
def service(issued: Issuer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(token_attempts, "MAX_FAILED", 1_000)
    with Service(FLEET, sockets=True) as service:
        accept(service, issued.config())
        yield service


def accept(service: Service, oidc: Oidc | None) -> None:
    async def change() -> None:
        service._session.node.accept_issuer(oidc)

    service._session.run(change())


def ask(service: Service, token: str, path: str = "/v1/status") -> Answer:
    return Api(service.control_url, token).get(path)


def refused(service: Service, token: str) -> str:
    answer = ask(service, token)
    assert answer.status == 401, answer
    assert token not in answer.body.decode()
    return answer.detail


def test_the_groups_in_a_token_decide_what_it_allows(service: Service, issued: Issuer) -> None:
    service.document("web_0")
    admin = Api(service.control_url, issued.token())
    assert admin.get("/v1/tokens").status == 200
    event = admin.post("/v1/machines/web_0/restart").json()["id"]
    (record,) = admin.get(f"/v1/history?event={event}&what=raised").json()["records"]
    assert record["by"] == "ann@example.net"
    watcher = Api(service.control_url, issued.token(groups=["watchers", "others"]))
    assert watcher.get("/v1/machines/amber_0").status == 200
    assert watcher.post("/v1/machines/web_0/restart").status == 403
    tenant = Api(service.control_url, issued.token(groups="web-team"))
    assert tenant.post("/v1/machines/web_1/restart").status == 200
    assert "group web" in tenant.get("/v1/machines/amber_0").detail
    both = Api(service.control_url, issued.token(groups=["vault-team", "web-team", "watchers"]))
    assert both.post("/v1/machines/amber_1/restart").status == 200
    assert both.post("/v1/machines/web_2/restart").status == 200
    assert both.post("/v1/machines/amber_1/evict").status == 403


def test_tokens_of_the_service_stay_valid_beside_those_of_the_issuer(
    service: Service, issued: Issuer
) -> None:
    assert Api(service.control_url).get("/v1/status").status == 401
    assert Api(service.control_url).get("/readyz").status == 200
    # Somebody is an admin already, so the first token need not be an admin's.
    viewer = api_with_token(service, "prometheus", Role.VIEWER)
    assert viewer.get("/v1/status").status == 200
    accept(service, None)
    assert ask(service, issued.token()).status == 401
    assert viewer.get("/v1/status").status == 200


def test_forged_tokens_are_refused(service: Service, issued: Issuer) -> None:
    claims, stranger = issued.claims(), Key()
    key = issued.keys[0]
    for algorithm in ("none", "None", "NONE", ""):
        forged = signed_by_hand({"alg": algorithm, "kid": "one"}, claims, None)
        assert "RS256 or PS256" in refused(service, forged)
    for secret in (key.pem, key.pem.strip(), b"", b"one"):
        forged = signed_by_hand({"alg": "HS256", "kid": "one"}, claims, secret or b"\0")
        assert "RS256 or PS256" in refused(service, forged)
    assert "signature" in refused(service, issued.token(stranger))
    elsewhere = {"jku": "http://127.0.0.1:1/keys", "jwk": stranger.jwk, "x5u": "http://127.0.0.1:1"}
    assert "signature" in refused(service, issued.token(stranger, elsewhere))
    header, body, signature = issued.token().split(".")
    other = issued.token(email="eve@example.net").split(".")[1]
    for token in (f"{header}.{other}.{signature}", f"{header}.{body}.", f"{header}.{body}.AAAA"):
        assert "signature" in refused(service, token)
    # A key that is for another algorithm does not verify this one.
    issued.keys.append(Key("two", "PS256", alg="RS256"))
    accept(service, None)
    accept(service, issued.config())
    assert "signature" in refused(service, issued.token(issued.keys[1]))
    assert ask(service, issued.token()).status == 200


def hour(hours: float) -> int:
    return guard.wall_us() // 1_000_000 + round(hours * 3_600)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"aud": "something-else"}, "(claim aud)"),
    ({"aud": ["a", "b"]}, "(claim aud)"),
    ({"aud": None}, "no claim aud"),
    ({"iss": "https://login.example.org"}, "from http://127.0.0.1:"),
    ({"iss": None}, "no claim iss"),
    ({"exp": None}, "no claim exp"),
    ({"sub": None}, "no claim sub"),
    ({"exp": hour(-1)}, "has expired"),
    ({"exp": "never"}, "cannot be verified"),
    ({"exp": 10**400}, "cannot be verified"),
    ({"nbf": hour(1)}, "not valid yet"),
    ({"iat": hour(1)}, "not valid yet"),
]


def test_a_token_with_a_wrong_claim_is_refused_with_its_name(
    service: Service, issued: Issuer
) -> None:
    for changed, why in WRONG:
        assert why in refused(service, issued.token(**changed)), changed


def test_clocks_may_differ_by_the_leeway(service: Service, issued: Issuer) -> None:
    assert issued.config().leeway_seconds == 30
    late, early = issued.token(exp=hour(-0.5)), issued.token(nbf=hour(0.5))
    accept(service, issued.config(leeway="1h"))
    assert [ask(service, token).status for token in (late, early)] == [200, 200]
    accept(service, issued.config(leeway="0s"))
    assert [ask(service, token).status for token in (late, early)] == [401, 401]


def test_malformed_tokens_are_refused(service: Service, issued: Issuer) -> None:
    token = issued.token()
    for text in (
        "a.b.c",
        token.replace(".", ".."),
        token + ".",
        "." + token,
        token.partition(".")[2],
        "=" + token,
        "x" * MAX_TOKEN + ".y.z",
        signed_by_hand({"alg": "RS256", "kid": ["one"]}, issued.claims(), b"x"),
        signed_by_hand({"alg": ["RS256"], "kid": "one"}, issued.claims(), b"x"),
        signed_by_hand({"alg": "RS256", "kid": "one", "crit": ["exp"]}, issued.claims(), b"x"),
    ):
        assert ask(service, text).status == 401, text[:80]
    # One that is far too long is not even read.
    assert ask(service, issued.token(padding="x" * MAX_TOKEN)).status == 401
    assert ask(service, token, f"/v1/status?token={token}").status == 400


USELESS: list[tuple[dict[str, Any], str]] = [
    ({"groups": ["sales", "cooks"]}, "(cooks, sales)"),
    ({"groups": []}, "names no groups"),
    ({"groups": None}, "names no groups"),
    ({"groups": {"fleet-admins": True}}, "names no groups"),
    ({"groups": [["fleet-admins"], 7]}, "names no groups"),
    ({"email": None}, "claim email"),
    ({"email": 7}, "no name for"),
    ({"email": "x" * 200}, "no name for"),
    ({"email": "ann\u202e@example.net"}, "cannot be shown"),
    ({"email": "ann\n"}, "cannot be shown"),
    ({"email_verified": False}, "has not verified"),
    ({"email_verified": "false"}, "has not verified"),
    ({"email_verified": "no"}, "has not verified"),
    ({"email": "driver"}, "'driver' has another"),
    ({"email": "Operator"}, "'Operator' has another"),
    ({"email": "00ff00ff"}, "has another meaning"),
    ({"email": "web_0"}, "called 'web_0'"),
    ({"email": "Bot"}, "name 'Bot'"),
]


def test_a_valid_token_that_allows_nothing_is_refused_with_the_reason(
    service: Service, issued: Issuer
) -> None:
    api_with_token(service, "bot", Role.VIEWER)
    for changed, why in USELESS:
        answer = ask(service, issued.token(**changed))
        assert (answer.status, why in answer.detail) == (403, True), answer


@pytest.mark.parametrize("kind", ["ES256", "EdDSA", "PS256"])
def test_other_kinds_of_keys_are_accepted(service: Service, issued: Issuer, kind: str) -> None:
    issued.keys[:] = [Key("two", kind), Key(None, "ES256")]
    accept(service, None)
    accept(service, issued.config())
    assert ask(service, issued.token()).status == 200
    # Without an id, a token could be meant for either.
    assert ask(service, issued.token(issued.keys[1])).status == 401


def test_the_keys_of_the_issuer_are_fetched_again_only_after_a_pause(
    service: Service, issued: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask(service, issued.token()).status == 200
    known = issued.fetches
    rotated = Key("two")
    for n in range(20):
        assert ask(service, issued.token(rotated, {"kid": f"k{n}"})).status == 401
    assert issued.fetches == known  # the first fetch was a moment ago
    issued.keys.append(rotated)
    passed = 0.0
    real = guard.monotonic
    monkeypatch.setattr(guard, "monotonic", lambda: real() + passed)
    passed += issuer_keys.FETCH_PAUSE
    assert ask(service, issued.token(rotated)).status == 200  # now it is looked for, at once
    for n in range(20):
        assert ask(service, issued.token(rotated, {"kid": f"k{n}"})).status == 401
    assert issued.fetches == known + 1
    # A key that the issuer no longer has is forgotten.
    del issued.keys[0]
    passed += issuer_keys.STALE_AFTER
    assert ask(service, issued.token(rotated)).status == 200
    assert ask(service, issued.token(Key("one"))).status == 401


def test_tokens_with_a_known_key_are_accepted_while_the_issuer_is_down(
    service: Service, issued: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = issued.token()
    assert ask(service, token).status == 200
    issued.status = 500
    late = guard.monotonic() + 10 * issuer_keys.STALE_AFTER
    monkeypatch.setattr(guard, "monotonic", lambda: late)
    assert ask(service, token).status == 200
    assert ask(service, issued.token(Key("two"))).status == 503, "it may be a new one"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"status": 500}, "answered 500"),
        ({"status": 302}, "answered 302"),
        ({"broken": "<html>"}, "/.well-known/openid-configuration: JSON"),
        ({"broken": "x" * 600_000}, "524,288 bytes"),
        ({"calls_itself": "https://other"}, "calls itself 'https://other'"),
        ({"keys": []}, "has no key"),
        ({"keys": [SimpleNamespace(jwk={"kty": "RSA", "use": "enc"})]}, "no key that"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_as_long_as_no_key_is_known_a_token_cannot_be_verified(
    issued: Issuer, changed: dict[str, Any], why: str
) -> None:
    token = issued.token()
    for name, value in changed.items():
        setattr(issued, name, value)
    with Service(FLEET, sockets=True) as service:
        accept(service, issued.config())
        answer = ask(service, token)
        assert (answer.status, why in answer.detail) == (503, True), answer
        assert int(answer.headers["retry-after"]) > 0
        assert api_with_token(service, "root", Role.ADMIN).get("/v1/status").status == 200


def test_an_issuer_that_hangs_does_not_delay_other_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuer_keys, "FETCH_TIMEOUT", LIMIT)
    with Service(FLEET, sockets=True) as service, socket.create_server(("127.0.0.1", 0)) as hung:
        hung.settimeout(LIMIT)
        made = Issuer("http://127.0.0.1:{1}".format(*hung.getsockname()))
        accept(service, made.config())
        asked, _ = hung.accept()
        with asked:
            waiting = threading.Thread(target=ask, args=(service, made.token()))
            waiting.start()
            root = api_with_token(service, "root", Role.ADMIN)
            assert root.get("/v1/status").status == 200
            assert service.document("web_0")["Events"] == []
            assert waiting.is_alive()
        waiting.join(LIMIT)
        assert not waiting.is_alive()


def test_many_invalid_tokens_are_throttled(
    service: Service, issued: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_attempts, "MAX_FAILED", 3)
    for _ in range(3):
        refused(service, issued.token(aud="other"))
    assert ask(service, issued.token(aud="other")).status == 429
    assert ask(service, issued.token()).status == 200


def test_a_stream_ends_when_the_token_expires_or_the_settings_change(
    service: Service, issued: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = api_with_token(service, "root", Role.ADMIN)
    stream = follow(service, issued.token())
    accept(service, issued.config(name_claim="sub"))
    root.post("/v1/machines/web_0/restart")  # so that something is to be sent
    stream.join(LIMIT)
    assert not stream.is_alive()
    stream = follow(service, issued.token())
    wall = guard.wall_us() + 3_600_000_000
    monkeypatch.setattr(guard, "wall_us", lambda: wall)
    root.post("/v1/machines/web_1/restart")
    stream.join(LIMIT)
    assert not stream.is_alive()


def follow(service: Service, token: str) -> threading.Thread:
    """Follow the feed in a thread, until it ends."""
    connection = Api(service.control_url).connection()
    connection.request("GET", "/v1/feed", headers={"Authorization": f"Bearer {token}"})
    stream = connection.getresponse()
    assert stream.status == 200
    begun = threading.Event()

    def read(stream: http.client.HTTPResponse) -> None:
        for _ in stream:
            begun.set()
        connection.close()

    thread = threading.Thread(target=read, args=(stream,), daemon=True)
    thread.start()
    assert begun.wait(LIMIT)
    return thread


def test_idempotency_keys_belong_to_the_subject_of_the_token(
    service: Service, issued: Issuer
) -> None:
    body = {"type": "Reboot", "machines": ["web_0"]}
    key = {"Idempotency-Key": "k"}
    answers = [
        Api(service.control_url, issued.token(sub=sub, email=f"{sub}@example.net")).call(
            "POST", "/v1/events", body, key
        )
        for sub in ("a", "a", "b")
    ]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert answers[0].json()["id"] != answers[2].json().get("id")
