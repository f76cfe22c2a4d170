"""A database that does not confirm a commit: nobody waits for ever, and nobody hears what is not
durable."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from urllib.parse import urlencode, urlsplit

import psycopg
import pytest

from forewarn.arm.app import ArmApp
from forewarn.control.http.access import admission
from forewarn.core import Refused
from forewarn.core.access import Role
from forewarn.metadata import upstream
from forewarn.node import Node
from forewarn.service.access.tokens import NewToken
from forewarn.testing.kit.inprocess import Response, exchange
from forewarn.wire.extensions import POSTPONE, READY
from helpers.arm import COMPUTE, HOST
from helpers.control_nodes import ControlNodes, ask, new_state
from helpers.endpoint import METADATA, NEWEST, approval, events
from helpers.polls import GET
from helpers.raw_http import RawConnection, request
from helpers.waiting import until

UNTIL = b'{"until": "2100-01-01T00:00:00Z"}'
REBOOT = {"type": "Reboot", "machines": ["web-0"]}


@pytest.fixture
def nodes() -> Iterator[ControlNodes]:
    with ControlNodes(new_state()) as nodes:
        yield nodes


@contextlib.contextmanager
def hanging(url: str) -> Iterator[None]:
    """Let no commit become durable."""
    with psycopg.connect(url) as connection:
        connection.execute("LOCK TABLE commits IN ACCESS EXCLUSIVE MODE")
        yield


def test_a_guest_is_answered_500_and_the_change_may_happen_later(
    nodes: ControlNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "ANSWER_WITHIN", 0.2)
    node = nodes.start_leader()
    parts = urlsplit(node.metadata_url)
    place = parts.hostname or "", parts.port or 0

    def status_of(data: bytes) -> int:
        with RawConnection(place) as guest:
            guest.send(data)
            return guest.answer().status

    until(lambda: status_of(GET) == 200)  # a slow database may not have enabled its group in time
    event = ask(node.control_url, "POST", "/v1/events", REBOOT).json()["id"]
    approve = request("POST", events(NEWEST), METADATA, body=approval(event))
    ready = request("PUT", f"{READY}/{event}", METADATA, body=b"{}")
    postpone = request("PUT", f"{POSTPONE}/{event}", METADATA, body=UNTIL)
    with hanging(nodes.url):
        assert [status_of(data) for data in (approve, ready, postpone)] == [500, 500, 500]
        assert status_of(GET) == 200
    until(lambda: status_of(approve) == 200)


def test_an_operator_is_answered_503_and_a_repeated_request_returns_the_outcome(
    nodes: ControlNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = nodes.start_leader()
    key = {"Idempotency-Key": "once"}
    with hanging(nodes.url), monkeypatch.context() as patch:
        patch.setattr(admission, "STORE_PATIENCE", 0.2)
        first = ask(node.control_url, "POST", "/v1/events", REBOOT, key)
        assert first.status == 503
        assert "Idempotency-Key" in first.json()["detail"]
        again = ask(node.control_url, "POST", "/v1/events", REBOOT, key)
        assert again.status == 409
        assert ask(node.control_url, "GET", "/v1/events").json() == []
    until(lambda: ask(node.control_url, "POST", "/v1/events", REBOOT, key).status == 201)
    assert len(ask(node.control_url, "GET", "/v1/events").json()) == 1


def test_a_client_of_azure_is_answered_503_and_gets_its_operation_when_it_asks_again(
    nodes: ControlNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, follower = nodes.start_leader(), nodes.start_follower()
    ops = nodes.run(leader.tokens.create(NewToken(name="ops", role=Role.ADMIN), "test"))
    assert not isinstance(ops, Refused)
    until(lambda: follower.store.seq == leader.store.seq)
    apps = {node: ArmApp(node._operators_context()) for node in (leader, follower)}

    def call(node: Node, target: str, body: bytes = b"", **headers: str) -> Response:
        response = {name.replace("_", "-"): value for name, value in headers.items()} | {
            "Host": HOST
        }
        return nodes.run(exchange(apps[node], HOST, "POST", target, response, body))

    def log_in(node: Node) -> Response:
        form = {"grant_type": "client_credentials", "client_secret": ops.secret.text}
        return call(node, "/adfs/oauth2/token", urlencode(form).encode())

    refused = log_in(follower)
    assert (refused.status, refused.json()["error"]) == (503, "temporarily_unavailable")
    assert "control node 'c1'" in refused.json()["error_description"]
    issued = log_in(leader).json()["access_token"]
    until(lambda: log_in(follower).status == 200)  # once it knows the public key

    def restart() -> Response:
        target = f"{COMPUTE}/virtualMachines/web-0/restart?api-version=2024-07-01"
        return call(leader, target, Authorization=f"Bearer {issued}", x_ms_client_request_id="once")

    with hanging(nodes.url), monkeypatch.context() as patch:
        patch.setattr(admission, "STORE_PATIENCE", 0.2)
        answer = restart()
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert "x-ms-client-request-id" in answer.json()["error"]["message"]
    until(lambda: restart().status == 202)
    assert len(leader.active_events) == 1
