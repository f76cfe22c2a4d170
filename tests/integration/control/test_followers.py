"""What a control node answers that follows another one."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from forewarn.control.client.client import ControlClient
from forewarn.node import Node
from helpers.control_nodes import ControlNodes, ask, new_state, until
from helpers.paths import ROOT
from helpers.polls import metrics

DOCUMENT = json.loads((ROOT / "docs/reference/openapi.json").read_text())
CHANGES = sorted(
    (method.upper(), path)
    for path, operations in DOCUMENT["paths"].items()
    for method in operations
    if method in ("post", "put", "patch", "delete")
)
REBOOT = {"type": "Reboot", "machines": ["web-0"]}


@pytest.fixture(scope="module")
def nodes() -> Iterator[ControlNodes]:
    with ControlNodes(new_state()) as nodes:
        yield nodes


@pytest.fixture(scope="module")
def leader(nodes: ControlNodes) -> Node:
    return nodes.start_leader("c1")


@pytest.fixture(scope="module")
def follower(nodes: ControlNodes, leader: Node) -> Node:
    del leader
    return nodes.start_follower("c2")


def test_every_change_is_refused_with_who_decides(leader: Node, follower: Node) -> None:
    assert len(CHANGES) > 40
    assert leader.store.leadership is not None
    known = leader.store.leadership.leader()
    assert known is not None
    before = leader.store.seq
    for method, path in CHANGES:
        response = ask(follower.control_url, method, path.replace("{", "").replace("}", ""))
        assert response.status == 503, (method, path, response.body)
        assert response.json()["type"].endswith("#problem-not-leading"), (method, path)
        assert response.headers["forewarn-leader"] == known.address, (method, path)
    assert leader.store.seq == before


def test_what_is_read_is_what_the_leader_has_committed(leader: Node, follower: Node) -> None:
    created = ask(leader.control_url, "POST", "/v1/events", REBOOT)
    event, commit = created.json()["id"], int(created.headers["forewarn-commit"])
    until(lambda: follower.store.seq >= commit)
    for path in (
        *("/v1/events", f"/v1/events/{event}/explain", "/v1/groups", "/v1/history"),
        *("/v1/hosts", "/v1/rollouts", "/v1/halts", "/v1/changes?after=0"),
    ):
        here, there = (ask(node.control_url, "GET", path) for node in (follower, leader))
        assert here.json() == there.json(), path
        assert int(here.headers["forewarn-commit"]) >= commit


def test_the_feed_of_a_follower_has_what_is_committed_from_now_on(
    leader: Node, follower: Node
) -> None:
    feed = ControlClient(follower.control_url).follow(after=follower.store.seq)
    event = ask(leader.control_url, "POST", "/v1/events", REBOOT).json()["id"]
    assert any(event in str(change) for change in next(feed).changes)


def test_the_status_says_who_decides(leader: Node, follower: Node) -> None:
    until(lambda: follower.store.seq == leader.store.seq)
    here = ControlClient(follower.control_url).status().control_node
    there = ControlClient(leader.control_url).status().control_node
    assert here is not None
    assert there is not None
    assert (here.name, here.role, here.term) == ("c2", "follows", 0)
    assert (there.name, there.role, there.term) == ("c1", "leads", 1)
    assert here.leader == there.leader
    assert there.leader is not None
    assert there.leader.name == "c1"
    assert here.commit == there.commit


def test_all_control_nodes_are_listed(leader: Node, follower: Node) -> None:
    for url in (leader.control_url, follower.control_url):
        client = ControlClient(url)
        until(lambda client=client: len(client.control_nodes()) == 2)  # type: ignore[misc]
        roles = [(node.name, node.role) for node in client.control_nodes()]
        assert roles == [("c1", "leads"), ("c2", "follows")]


def test_metrics_say_who_decides(leader: Node, follower: Node) -> None:
    here, there = metrics(follower.control_url), metrics(leader.control_url)
    assert (here["forewarn_leads"], there["forewarn_leads"]) == (0, 1)
    assert (here["forewarn_term"], there["forewarn_term"]) == (0, 1)
    assert here["forewarn_lease_seconds"] == 0 < there["forewarn_lease_seconds"]
    assert here["forewarn_cannot_lead"] == there["forewarn_cannot_lead"] == 0
    assert there["forewarn_follower_lag_commits"] == there["forewarn_follower_lag_seconds"] == 0
    assert here["forewarn_follower_lag_seconds"] > 0
