"""Guests' requests at a control node whose lease has run out: they wait until it is renewed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from forewarn.core import EventType, Refused
from forewarn.metadata.endpoint.app import MetadataApp
from forewarn.metadata.endpoint.limits import Limits
from forewarn.metadata.http.front import Front
from forewarn.node import Node
from forewarn.wire.extensions import WAIT
from helpers.control_nodes import ControlNodes, new_state
from helpers.endpoint import METADATA, NEWEST, approval, events
from helpers.polls import GET, ODD, send_poll
from helpers.raw_http import Place, RawConnection, request
from helpers.waiting import until

ONE_CONNECTION = Limits(max_connections_per_machine=1)


@pytest.fixture
def nodes() -> Iterator[ControlNodes]:
    with ControlNodes(new_state()) as nodes:
        yield nodes


def place_of(node: Node) -> Place:
    parts = urlsplit(node.metadata_url)
    return parts.hostname or "", parts.port or 0


def enable(place: Place) -> None:
    with RawConnection(place) as first:
        assert send_poll(first).status == 200


def reboot(nodes: ControlNodes, node: Node) -> str:
    schedule = node.platform.schedule(type=EventType.REBOOT, machines=("web-0",), by="test")
    outcome = nodes.run(schedule)
    assert not isinstance(outcome, Refused)
    return outcome.event.id


def check_silence(nodes: ControlNodes, front: bool) -> None:
    """Send requests after the end of a lease: they wait until it is renewed, and then see what was
    committed meanwhile."""
    node = nodes.start_leader(front=front)
    place = place_of(node)
    enable(place)
    with contextlib.ExitStack() as stack:
        kept, slow, post, new, gone, empty = (
            stack.enter_context(RawConnection(place)) for _ in range(6)
        )
        for connection in (kept, slow, post):
            assert send_poll(connection, ODD if connection is slow else GET).status == 200
        seen = reboot(nodes, node)
        with nodes.without_lease(node):
            kept.send(GET)
            slow.send(ODD)
            post.send(request("POST", events(NEWEST), METADATA, body=approval(seen)))
            new.send(GET)
            gone.send(GET)
            gone.close()
            empty.send(b"not HTTP\r\n\r\n")
            unseen = reboot(nodes, node)
            waiting = {"kept": kept, "slow": slow, "post": post, "new": new}
            answered = [name for name, sent in waiting.items() if not sent.silent()]
            assert not answered, f"answered without the lease: {', '.join(answered)}"
        for connection in (kept, slow, new):
            assert unseen in connection.answer().text
        assert post.answer().status == 200


@pytest.mark.parametrize("front", [True, False])
def test_requests_after_the_end_of_the_lease_wait_and_see_what_was_committed_meanwhile(
    nodes: ControlNodes, front: bool
) -> None:
    check_silence(nodes, front)


def answers_known_polls(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Front, "_ready_if_held", Front._ready)
    patch.setattr(MetadataApp, "_answer_poll_if_held", MetadataApp.answer_poll)


def answers_other_requests(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Front, "_ready_if_held", Front._ready)
    patch.setattr(MetadataApp, "_checked_reply", MetadataApp._reply_or_refusal)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (answers_known_polls, "answered without the lease: kept"),
        (answers_other_requests, "answered without the lease: .*slow"),
    ],
    ids=["answers known polls", "answers other requests"],
)
def test_a_broken_node_without_its_lease_is_caught(
    broken: Callable[[pytest.MonkeyPatch], None],
    reason: str,
    nodes: ControlNodes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError, match=reason):
        check_silence(nodes, front=True)


def test_a_wait_that_ends_without_the_lease_is_answered_with_the_newest_document(
    nodes: ControlNodes,
) -> None:
    node = nodes.start_leader()
    enable(place_of(node))
    with RawConnection(place_of(node)) as waiting:
        tag = send_poll(waiting).header("etag")
        target = f"{WAIT}?api-version={NEWEST}&timeout=60"
        waiting.send(request("GET", target, METADATA, f"If-None-Match: {tag}"))
        until(lambda: len(node.endpoint.extensions.waits) == 1)
        with nodes.without_lease(node):
            first = reboot(nodes, node)
            until(lambda: len(node.endpoint.extensions.waits) == 0)
            second = reboot(nodes, node)
            assert waiting.silent()
        answer = waiting.answer()
        assert first in answer.text
        assert second in answer.text


def test_a_refusal_is_not_sent_without_the_lease(nodes: ControlNodes) -> None:
    node = nodes.start_leader(limits=ONE_CONNECTION, front=False)
    place = place_of(node)
    enable(place)
    until(lambda: node.endpoint.connections.total == 0)
    with RawConnection(place) as only:
        assert send_poll(only).status == 200
        with (
            nodes.without_lease(node),
            RawConnection(place) as another,
            contextlib.suppress(ConnectionResetError),
        ):
            assert another.over() == b""
