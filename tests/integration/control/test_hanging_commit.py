"""A database that does not confirm a commit: nobody waits for ever, and nobody hears what is not
durable."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from forewarn.control.http.access import admission
from forewarn.metadata import upstream
from forewarn.wire.extensions import POSTPONE, READY
from helpers.control_nodes import ControlNodes, ask, new_state, until
from helpers.endpoint import METADATA, NEWEST, approval, events
from helpers.polls import GET
from helpers.raw_http import RawConnection, request

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

    assert status_of(GET) == 200
    event = ask(node.control_url, "POST", "/v1/events", REBOOT).json()["id"]
    approve = request("POST", events(NEWEST), METADATA, body=approval(event))
    ready = request("PUT", f"{READY}/{event}", METADATA, body=b"{}")
    postpone = request("PUT", f"{POSTPONE}/{event}", METADATA, body=UNTIL)
    with hanging(nodes.url):
        assert [status_of(data) for data in (approve, ready, postpone)] == [500, 500, 500]
        assert status_of(GET) == 200
    until(lambda: status_of(approve) == 200)


def test_an_operator_is_answered_503_and_whoever_repeats_the_request_learns_what_became_of_it(
    nodes: ControlNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "STORE_PATIENCE", 0.2)
    node = nodes.start_leader()
    key = {"Idempotency-Key": "once"}
    with hanging(nodes.url):
        first = ask(node.control_url, "POST", "/v1/events", REBOOT, key)
        assert first.status == 503
        assert "repeat the request with the same Idempotency-Key" in first.json()["detail"]
        again = ask(node.control_url, "POST", "/v1/events", REBOOT, key)
        assert again.status == 409
        assert ask(node.control_url, "GET", "/v1/events").json() == []
    until(lambda: ask(node.control_url, "POST", "/v1/events", REBOOT, key).status == 201)
    assert len(ask(node.control_url, "GET", "/v1/events").json()) == 1
