"""Answers to GET are compressed for callers that accept it; streams, secrets and strangers' answers
are not."""

from __future__ import annotations

import gzip
import http.client
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from forewarn.control.client import client as control_client
from forewarn.control.client.client import ControlClient
from forewarn.control.http import compression
from forewarn.control.schema.tokens import TokenRequest
from forewarn.testing import Service
from helpers.control_api import ApiResponse, ask
from helpers.waiting import LIMIT

MACHINES = ", ".join(f"{{name: web_{n}}}" for n in range(100))
FLEET = f"groups: [{{name: web, kind: scale-set, machines: [{MACHINES}]}}]"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as service:
        yield service


def encoding(answer: ApiResponse) -> str:
    return answer.headers.get("content-encoding", "")


@pytest.mark.parametrize("in_thread", [0, 10**9])
def test_a_compressed_list_is_shorter_and_has_the_same_content(
    service: Service, monkeypatch: pytest.MonkeyPatch, in_thread: int
) -> None:
    monkeypatch.setattr(compression, "IN_THREAD", in_thread)
    plain = ask(service, "GET", "/v1/machines")
    assert (encoding(plain), "vary" in plain.headers) == ("", False)
    short = ask(service, "GET", "/v1/machines", accept_encoding="br, gzip;q=0.5")
    assert encoding(short) == "gzip"
    assert short.headers["vary"] == "Accept-Encoding"
    assert int(short.headers["content-length"]) == len(short.raw) < len(plain.raw) / 5
    assert gzip.decompress(short.raw) == plain.raw


@pytest.mark.parametrize("accepted", ["identity", "br", "*", "gzip;q=0", "gzip; q=0.0"])
def test_answers_are_not_compressed_for_callers_that_do_not_accept_it(
    service: Service, accepted: str
) -> None:
    assert encoding(ask(service, "GET", "/v1/machines", accept_encoding=accepted)) == ""


def test_short_answers_are_not_compressed(service: Service) -> None:
    answer = ask(service, "GET", "/v1/clock", accept_encoding="gzip")
    assert (encoding(answer), answer.headers["vary"]) == ("", "Accept-Encoding")
    assert answer.body["virtual"] is True


def test_an_answer_to_a_change_is_not_compressed(service: Service) -> None:
    """A new token stands in such an answer: its length must not tell anything about it."""
    body = FLEET.replace("web_99", "web_100").encode()
    answer = ask(service, "PUT", "/v1/fleet?plan=true", raw=body, accept_encoding="gzip")
    assert (answer.status, encoding(answer)) == (200, "")


def test_an_export_is_compressed_as_it_is_written(service: Service) -> None:
    plain = ask(service, "GET", "/v1/history/export")
    short = ask(service, "GET", "/v1/history/export", accept_encoding="gzip")
    assert encoding(short) == "gzip"
    assert "content-length" not in short.headers
    assert gzip.decompress(short.raw) == plain.raw
    lines = b"".join(ControlClient(service.control_url).history_lines({}))
    assert lines == plain.raw


def test_an_answer_that_has_not_changed_has_no_body(service: Service) -> None:
    tag = ask(service, "GET", "/v1/groups/web", accept_encoding="gzip").headers["etag"]
    same = ask(service, "GET", "/v1/groups/web", accept_encoding="gzip", if_none_match=tag)
    assert (same.status, same.raw, encoding(same)) == (304, b"", "")


def test_a_stream_of_changes_is_not_held_back(service: Service) -> None:
    parts = urlsplit(service.control_url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=LIMIT)
    try:
        connection.request("GET", "/v1/feed", headers={"Accept-Encoding": "gzip"})
        stream = connection.getresponse()
        assert stream.getheader("Content-Encoding") is None
        assert stream.readline().startswith((b"event:", b"id:", b"retry:", b":"))
    finally:
        connection.close()


def test_the_client_accepts_compressed_answers(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = ControlClient(service.control_url).machines()
    monkeypatch.setattr(control_client, "GZIP", {})
    assert ControlClient(service.control_url).machines() == machines
    assert len(machines) == 100


def test_answers_to_unknown_callers_are_not_compressed() -> None:
    with Service(FLEET, sockets=True) as service:
        page = ask(service, "GET", "/docs", accept_encoding="gzip")
        assert encoding(page) == "gzip"  # as long as there are no tokens, nobody is a stranger
        client = ControlClient(service.control_url)
        client.create_token(TokenRequest(name="a", role="admin"))
        page = ask(service, "GET", "/docs", accept_encoding="gzip")
        assert (page.status, encoding(page)) == (200, "")
