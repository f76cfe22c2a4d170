"""The hook that posts what it was told: to a real HTTP server, a real TLS one, and by a proxy."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.agent.hooks.contract import Failure
from helpers.certificates import Authority
from helpers.hook_receivers import Web
from helpers.hook_runs import EVENT, Hook

SECRET = "open-sesame"


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as web:
        yield web


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_the_event_is_posted_signed_and_with_a_key_that_every_attempt_has(
    web: Web, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    hook = Hook(
        "webhook",
        {
            "url": f"http://me:{SECRET}@127.0.0.1:{web.port}/hook?token={SECRET}",
            "headers": {"X-Team": "web"},
            "secret_file": str(tmp_path / "secret"),
        },
        tmp_path,
    )
    where = f"http://127.0.0.1:{web.port}"
    assert hook.program("prepare") == (0, f"{where} answered 204\n")
    hook.here("prepare", attempt=2)
    hook.here("started")

    first, again, later = web.received
    reported = json.loads(first.body)
    assert (reported["stage"], reported["event"]) == ("prepare", EVENT)
    assert first.path == f"/hook?token={SECRET}"
    signature = hmac.new(SECRET.encode(), first.body, hashlib.sha256).hexdigest()
    assert first.headers["X-Forewarn-Signature"] == f"sha256={signature}"
    assert first.headers["Content-Type"] == "application/json"
    assert first.headers["X-Team"] == "web"
    assert first.headers["Authorization"].startswith("Basic ")
    keys = [one.headers["Idempotency-Key"] for one in (first, again, later)]
    assert keys[0] == keys[1] != keys[2]
    assert Hook("webhook", hook.options, tmp_path).program("undo")[0] == 0
    assert len(web.received) == 3


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (302, ": .* redirects; .*"),
        (403, ": .* credentials"),
        (404, ""),
        (429, "; another attempt .*"),
        (500, "; another attempt .*"),
    ],
)
def test_a_refused_request_is_a_failure_that_names_no_secret(
    web: Web, tmp_path: Path, status: int, advice: str
) -> None:
    web.answers = [(status, {"Location": "/elsewhere", "Retry-After": "3600"})]
    url = f"http://me:{SECRET}@127.0.0.1:{web.port}/{SECRET}"
    with pytest.raises(Failure) as failed:
        Hook("webhook", {"url": url}, tmp_path).here("prepare")
    expected = rf"http://127\.0\.0\.1:{web.port} answered {status}{advice}"
    assert re.fullmatch(expected, str(failed.value))
    assert SECRET not in str(failed.value)
    assert len(web.received) == 1  # the agent tries again, if it is told to; an hour is too long


def test_a_retry_after_header_is_followed(web: Web, tmp_path: Path) -> None:
    web.answers = [(503, {"Retry-After": "0"})]
    hook = Hook("webhook", {"url": f"http://127.0.0.1:{web.port}"}, tmp_path)
    assert hook.here("finished").endswith("answered 204")
    assert len(web.received) == 2


def test_an_address_that_nobody_answers_at_is_a_failure(tmp_path: Path) -> None:
    with Web() as web:
        url = f"http://127.0.0.1:{web.port}/{SECRET}"
    status, output = Hook("webhook", {"url": url}, tmp_path).program("prepare")
    assert status == 1
    assert output.endswith(": Connection refused\n")
    assert SECRET not in output


def test_tls_is_verified_against_the_system_or_an_authority_of_one_s_own(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    with Web(authority.issue("127.0.0.1")).behind_tls() as web:
        url = f"https://127.0.0.1:{web.port}/"
        trusted = Hook("webhook", {"url": url, "ca": str(authority.path)}, tmp_path)
        assert trusted.here("prepare") == f"https://127.0.0.1:{web.port} answered 204"
        for options in ({"url": url}, {"url": url, "ca": str(other.path)}):
            with pytest.raises(Failure, match="is not trusted: "):
                Hook("webhook", options, tmp_path).here("prepare")
        named = {"url": f"https://localhost:{web.port}/", "ca": str(authority.path)}
        with pytest.raises(Failure, match="Hostname mismatch"):
            Hook("webhook", named, tmp_path).here("prepare")
        assert len(web.received) == 1
    assert ssl.create_default_context().check_hostname


def test_a_proxy_of_the_environment_is_asked_for_what_is_far_away_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    with Web(authority.issue("hook.example")) as web:
        monkeypatch.setenv("http_proxy", f"http://me:{SECRET}@127.0.0.1:{web.port}")
        monkeypatch.setenv("https_proxy", f"http://me:{SECRET}@127.0.0.1:{web.port}")
        Hook("webhook", {"url": "http://hook.example:81/a?b"}, tmp_path).here("prepare")
        far = {"url": "https://hook.example/a", "ca": str(authority.path)}
        assert Hook("webhook", far, tmp_path).here("prepare").endswith("answered 204")
        plain, connect, through = web.received
        assert (plain.path, plain.headers["Host"]) == (
            "http://hook.example:81/a?b",
            "hook.example:81",
        )
        assert (connect.path, through.path) == ("hook.example:443", "/a")
        for let_in in (plain, connect):
            assert let_in.headers["Proxy-Authorization"].startswith("Basic ")
        assert "Proxy-Authorization" not in through.headers

        for near in ("127.0.0.1", "localhost"):
            with Web() as origin:
                Hook("webhook", {"url": f"http://{near}:{origin.port}"}, tmp_path).here("prepare")
                assert len(origin.received) == 1
        monkeypatch.setenv("no_proxy", "0.0.0.0")
        with Web() as origin:
            Hook("webhook", {"url": f"http://0.0.0.0:{origin.port}"}, tmp_path).here("prepare")
            assert len(origin.received) == 1
        assert len(web.received) == 3


def test_unusable_files_are_found_by_the_check(tmp_path: Path) -> None:
    (tmp_path / "open").write_text(SECRET)
    (tmp_path / "open").chmod(0o644)
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "empty").chmod(0o600)
    url = {"url": "https://hook.example/"}
    for options, says in (
        ({"secret_file": str(tmp_path / "no")}, "cannot be read"),
        ({"secret_file": str(tmp_path / "open")}, "readable by every"),
        ({"secret_file": str(tmp_path / "empty")}, "is empty"),
        ({"ca": str(tmp_path / "open")}, "contains no certificate"),
    ):
        [problem] = Hook("webhook", url | options, tmp_path).check()
        assert says in problem
        assert SECRET not in problem
    assert Hook("webhook", url, tmp_path).check() == []
