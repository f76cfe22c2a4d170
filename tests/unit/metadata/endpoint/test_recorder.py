"""What a recording says was asked for is what was sent, and the judge accuses no right refusal."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from forewarn.judge import judge_files
from forewarn.testing import Service
from helpers.waiting import LIMIT

FLEET = "groups: [{name: web, kind: scale-set, machines: [{name: web_0}]}]"
PATH = "/metadata/scheduledevents"
VERSION = "?api-version=2020-07-01"
METADATA = "Metadata: true"
HUGE = 50_000_000  # bytes, more than any limit

ODD_TARGETS = [
    f"{PATH}%3Fapi-version=2020-07-01",
    f"/metadata/%2e%2e/metadata/scheduledevents{VERSION}",
    f"/metadata/../metadata/scheduledevents{VERSION}",
    f"{PATH}%00{VERSION}",
    f"{PATH}%23{VERSION}",
    f"{PATH}%2F{VERSION}",
    f"/metadata%2Fscheduledevents{VERSION}",
    f"/metadata/scheduled%65vents{VERSION}",
    f"{PATH}/{VERSION}",
    f"{PATH}//{VERSION}",
    f"//metadata/scheduledevents{VERSION}",
    f"{PATH}%FF%FE{VERSION}",
    f"{PATH};x=1{VERSION}",
    f"{PATH}?api%2Dversion=2020-07-01",
    f"{PATH}?api-version=2020%2D07%2D01",
    f"{PATH}?api-version=2020-07-01+",
    f"{PATH}?api-version=2020-07-01;x=1",
    f"{PATH}?api-version=2020-07-01&&",
    f"{PATH}?&api-version=2020-07-01&x",
    f"{PATH}?api-version=2020-07-01&x=1&x=2",
    f"{PATH}?api-version=2020-07-01&%78=1&x=2",
    f"{PATH}?API-VERSION=2020-07-01",
    f"{PATH}?api-version=2020-07-01?api-version=2019-01-01",
    f"http://169.254.169.254{PATH}{VERSION}",
    "/metadata/instance/compute/name?api-version=2021-02-01&format=text",
    "/metadata/instance?api-version=2021-02-01",
    "/metadata/versions",
    "/forewarn/v1/wait?timeout=0",
    "/",
]
ODD_REQUESTS = [
    ("HEAD", [METADATA], b""),
    ("PUT", [METADATA], b""),
    ("OPTIONS", [], b""),
    ("FETCH", [METADATA], b""),
    ("GET", [], b""),
    ("GET", ["metadata: TRUE"], b""),
    ("GET", [METADATA, METADATA], b""),
    ("GET", [METADATA, "X-Forwarded-For: 10.0.0.1"], b""),
    ("GET", [METADATA, "Content-Length: 3"], b"abc"),
    ("GET", [METADATA, "Cookie: " + "x" * 7_000], b""),
    ("POST", [METADATA], b""),
    ("POST", [METADATA, "Content-Length: 2"], b"{}"),
    ("POST", [METADATA, f"Content-Length: {HUGE}"], b""),
    ("POST", [METADATA, f"Content-Length: {HUGE}"], b"x" * 1_000),
    ("POST", ["Content-Length: 2"], b"{}"),
    ("POST", [METADATA, "Transfer-Encoding: chunked"], b"2\r\n{}\r\n0\r\n\r\n"),
    ("POST", [METADATA, "Transfer-Encoding: chunked"], b"fffff\r\n" + b"x" * 0xFFFFF),
    ("POST", [METADATA, "If-None-Match: 0", "Content-Length: 2"], b"[]"),
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything above, sent over a socket to a service that records."""
    path = tmp_path_factory.mktemp("recorder") / "trace"
    with Service(FLEET, record=path) as service:
        for target in ODD_TARGETS:
            send(service, f"GET {target} HTTP/1.1", [METADATA], b"")
        for method, headers, body in ODD_REQUESTS:
            send(service, f"{method} {PATH}{VERSION} HTTP/1.1", headers, body)
    return path


def send(service: Service, line: str, headers: list[str], body: bytes) -> bytes:
    place = urlsplit(service.url("web_0"))
    lines = [line, "Host: 169.254.169.254", "Connection: close", *headers, "", ""]
    answer = b""
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=LIMIT) as line_:
        try:
            line_.sendall("\r\n".join(lines).encode("latin-1") + body)
            while more := line_.recv(65_536):
                answer += more
        except ConnectionError:
            pass  # it has hung up before all was sent
    return answer


def exchanges(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if line["kind"] == "exchange"]


def test_a_target_is_recorded_as_it_was_sent(recorded: Path) -> None:
    targets = {line["target"] for line in exchanges(recorded)}
    # The server takes the scheme and the host of an absolute target away.
    sent = {target.removeprefix("http://169.254.169.254") for target in ODD_TARGETS}
    assert sent <= targets


def test_a_body_that_was_not_read_is_not_recorded(recorded: Path) -> None:
    refused = [line for line in exchanges(recorded) if line["status"] == 413]
    assert len(refused) >= 2
    assert all(len(line["body"]) < HUGE for line in refused)


def test_a_service_that_refuses_rightly_is_not_accused(recorded: Path) -> None:
    judgement = judge_files([recorded])
    assert judgement.ok, judgement.render()
    assert judgement.exchanges > 40


def test_a_request_inside_the_process_is_recorded_as_it_was_sent(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    with Service(FLEET, record=path) as service:
        target = f"{PATH}%3Fapi-version=2020-07-01"
        answer = service.request("web_0", "GET", target, {"Metadata": "true"})
    assert answer.status == 404
    assert [line["target"] for line in exchanges(path)] == [target]
    assert judge_files([path]).ok
