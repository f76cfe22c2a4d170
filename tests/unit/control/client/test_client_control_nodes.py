"""A client that knows several control nodes: which of them it asks, and what it repeats."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from forewarn.control.client import client as module
from forewarn.control.client.client import ControlClient, ControlError
from forewarn.control.client.connection import ServiceAddress
from forewarn.control.operations.service import ACCEPT_CLOCK
from forewarn.control.schema import core as s

TOKEN = "fw_" + "0" * 40
REBOOT = s.ScheduleRequest(type="Reboot", machines=["web_0"])
CUT = (0, None, "")  # the connection is closed in place of an answer
HALTS: tuple[int, Any, str] = (200, [], "")
REFUSED = {"type": "/docs#problem-conflict", "title": "Conflict", "status": 409, "detail": "no"}


def follows(leader: str = "") -> tuple[int, Any, str]:
    problem = {"type": "/docs#problem-not-leading", "title": "", "status": 503, "detail": "follows"}
    return 503, problem, leader


class FakeNode:
    """A control node that gives the answers it is told, the last one again and again."""

    def __init__(self, *answers: tuple[int, Any, str]) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[str, str | None, str | None]] = []
        node = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                key, token = self.headers.get("Idempotency-Key"), self.headers.get("Authorization")
                node.requests.append((f"{self.command} {self.path}", key, token))
                status, body, leader = node.answers[0]
                if len(node.answers) > 1:
                    del node.answers[0]
                if not status:
                    self.close_connection = True
                    return
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                if leader:
                    self.send_header("Forewarn-Leader", leader)
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FakeNode:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    monkeypatch.setattr(module, "LEADER_PAUSE", 0.0)
    with ExitStack() as stack:
        yield stack


def client_of(*urls: str) -> ControlClient:
    return ControlClient(ServiceAddress(" , ".join(urls), TOKEN))


def unused_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def conflict(client: ControlClient) -> None:
    """Schedule an event, which the node that decides refuses."""
    with pytest.raises(ControlError, match="no"):
        client.schedule(REBOOT)


def test_a_node_that_cannot_be_reached_is_skipped(stack: ExitStack) -> None:
    node = stack.enter_context(FakeNode(HALTS))
    client = client_of(unused_url(), node.url)
    assert client.halts() == []
    assert client.url == node.url
    assert [request for request, _, _ in node.requests] == ["GET /v1/halts"]


def test_requests_that_only_read_go_to_the_first_node(stack: ExitStack) -> None:
    first, second = (stack.enter_context(FakeNode(HALTS)) for _ in range(2))
    client_of(first.url, second.url).halts()
    assert second.requests == []


def test_a_change_goes_to_the_node_that_decides(stack: ExitStack) -> None:
    idle = stack.enter_context(FakeNode(follows()))
    leader = stack.enter_context(FakeNode((409, REFUSED, "")))
    first = stack.enter_context(FakeNode(follows(leader.url)))
    client = client_of(first.url, idle.url, leader.url)
    conflict(client)
    conflict(client)
    assert (len(first.requests), len(idle.requests), len(leader.requests)) == (1, 0, 2)


def test_the_token_is_not_sent_to_other_hosts(stack: ExitStack) -> None:
    stranger = stack.enter_context(FakeNode((409, REFUSED, "")))
    first = stack.enter_context(FakeNode(follows(stranger.url)))
    second = stack.enter_context(FakeNode((409, REFUSED, "")))
    conflict(client_of(first.url, second.url))
    assert stranger.requests == []
    assert [token for _, _, token in second.requests] == [f"Bearer {TOKEN}"]


def test_without_a_leader_the_client_waits_and_reports_it_once(stack: ExitStack) -> None:
    first = stack.enter_context(FakeNode(*[follows()] * 3, (409, REFUSED, "")))
    second = stack.enter_context(FakeNode(follows()))
    client = client_of(first.url, second.url)
    notes: list[str] = []
    client.on_wait = lambda: notes.append("waits")
    conflict(client)
    assert notes == ["waits"]
    assert len({key for _, key, _ in first.requests + second.requests}) == 1


def test_if_no_leader_is_found_the_refusal_is_reported(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEADER_TRIES", 2)
    nodes = [stack.enter_context(FakeNode(follows())) for _ in range(2)]
    with pytest.raises(ControlError, match="follows"):
        client_of(*(node.url for node in nodes)).schedule(REBOOT)
    assert [len(node.requests) for node in nodes] == [3, 3]


def test_a_request_with_a_key_is_repeated_at_the_next_node(stack: ExitStack) -> None:
    dying = stack.enter_context(FakeNode(CUT))
    heir = stack.enter_context(FakeNode(follows(), (409, REFUSED, "")))
    conflict(client_of(dying.url, heir.url))
    keys = {key for _, key, _ in dying.requests + heir.requests}
    assert len(keys) == 1
    assert None not in keys


def test_a_request_without_a_key_is_not_repeated_once_it_was_sent(stack: ExitStack) -> None:
    dying = stack.enter_context(FakeNode(CUT))
    other = stack.enter_context(FakeNode((409, REFUSED, "")))
    with pytest.raises(ControlError, match="no service answers"):
        client_of(dying.url, other.url).call(ACCEPT_CLOCK)
    assert other.requests == []


def test_an_empty_list_of_urls_is_refused() -> None:
    with pytest.raises(ControlError, match="it is empty"):
        client_of("", "")
