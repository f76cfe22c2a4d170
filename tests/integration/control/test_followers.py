"""What a control node answers that follows another one."""

from __future__ import annotations

import contextlib
import json
import re
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.control.client.client import TIMEOUT, ControlClient
from forewarn.control.schema import core as s
from forewarn.node import Address, Node
from forewarn.node import node as node_module
from forewarn.node.config import ArmListener
from forewarn.node.daemon.service_manager import status_line
from forewarn.node.wiring import control_node
from forewarn.store.port import Member
from forewarn.store.postgres import leader as postgres_leader
from forewarn.store.postgres import nodes as postgres_nodes
from forewarn.store.postgres.engine import PostgresStore
from forewarn.support import guard
from helpers.arm import COMPUTE, SUBSCRIPTION
from helpers.certificates import Authority
from helpers.control_nodes import ControlNodes, ask, new_state
from helpers.paths import ROOT
from helpers.polls import metrics, send_poll
from helpers.raw_http import RawConnection
from helpers.token_api import Api
from helpers.waiting import until

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
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def arm(authority: Authority) -> ArmListener:
    return ArmListener(Address("127.0.0.1", 0), authority.issue("127.0.0.1"))


@pytest.fixture(scope="module")
def leader(nodes: ControlNodes, arm: ArmListener) -> Node:
    return nodes.start_leader("c1", arm=arm)


@pytest.fixture(scope="module")
def follower(nodes: ControlNodes, leader: Node, arm: ArmListener) -> Node:
    del leader
    return nodes.start_follower("c2", arm=arm)


def test_every_change_is_refused_with_the_address_of_the_leader(
    leader: Node, follower: Node
) -> None:
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


def test_a_follower_refers_a_session_to_the_leader(leader: Node, follower: Node) -> None:
    here, there = (ask(n.control_url, "GET", "/v1/session").json() for n in (follower, leader))
    assert (here["decides"], here["operations"]) == (False, [])
    assert (
        here["leader"]
        == ask(leader.control_url, "GET", "/v1/status").json()["control_node"]["leader"]
    )
    assert there["decides"]
    assert "approveEvent" in there["operations"]
    assert there["leader"] is None


def test_azures_sdks_read_from_a_follower_and_change_nothing_there(
    leader: Node, follower: Node, authority: Authority
) -> None:
    here = Api(follower.arm_url, "any", tls=authority.trusted())
    there = Api(leader.arm_url, "any", tls=authority.trusted())
    until(lambda: follower.store.seq == leader.store.seq)
    machines = f"{SUBSCRIPTION}/providers/Microsoft.Compute/virtualMachines?api-version=2024-07-01"
    listed = here.get(machines).json()["value"]
    assert [machine["name"] for machine in listed] == ["web-0", "web-1"]
    assert listed == there.get(machines).json()["value"]
    for name in ("none", "a%00b"):  # not in any text of PostgreSQL
        update = f"{COMPUTE}/virtualMachines/web-0/providers/Microsoft.Maintenance/applyUpdates"
        assert here.get(f"{update}/{name}?api-version=2024-07-01").status == 404
    assert leader.store.leadership is not None
    known, before = leader.store.leadership.leader(), leader.store.seq
    assert known is not None
    for path in ("virtualMachines/web-0/restart", "virtualMachines/none/restart"):
        answer = here.call("POST", f"{COMPUTE}/{path}?api-version=2024-07-01")
        assert answer.status == 503, answer
        error = answer.json()["error"]
        assert error["code"] == "ServiceUnavailable"
        assert "'c1'" in error["message"]
        assert known.address in error["message"]
    assert here.call("DELETE", f"{COMPUTE}/virtualMachines/a?api-version=2024-07-01").status == 503
    assert leader.store.seq == before


def test_a_follower_logs_refused_changes_as_information(follower: Node) -> None:
    with capture_logs() as lines:
        looked = ask(follower.control_url, "GET", "/leaderz")
        refused = ask(follower.control_url, "POST", "/v1/events", REBOOT)
        assert (looked.status, refused.status) == (503, 503)
        ids = [response.headers["x-request-id"] for response in (looked, refused)]
        until(lambda: any(line.get("request_id") == ids[1] for line in lines))
    calls = [line for line in lines if line.get("request_id") in ids]
    assert [(line["log_level"], line["request_id"]) for line in calls] == [("info", ids[1])]


def test_reads_at_a_follower_show_what_the_leader_has_committed(
    leader: Node, follower: Node
) -> None:
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


def test_only_the_leader_knows_which_nodes_of_hosts_have_joined(
    nodes: ControlNodes, leader: Node, follower: Node
) -> None:
    assert ask(leader.control_url, "PUT", "/v1/hosts/h1", {"name": "h1"}).status < 300
    assert nodes.run(leader.hosts.node_joined("h1")) is None
    until(lambda: follower.store.seq == leader.store.seq)
    states = [ask(n.control_url, "GET", "/v1/hosts/h1").json() for n in (leader, follower)]
    assert [state["node"]["state"] for state in states] == ["joined", "unknown"]
    samples = [metrics(n.control_url) for n in (leader, follower)]
    assert ["forewarn_hosts_unreachable" in sample for sample in samples] == [True, False]
    event = ask(leader.control_url, "POST", "/v1/events", REBOOT).json()["id"]
    until(lambda: follower.store.seq == leader.store.seq)
    for path in (f"/v1/events/{event}/explain", "/v1/hosts/h1/explain"):
        refused = ask(follower.control_url, "GET", path)
        assert refused.json()["type"].endswith("#problem-not-leading")
        assert refused.headers["forewarn-leader"]
        assert ask(leader.control_url, "GET", path).status == 200
    assert ask(leader.control_url, "DELETE", "/v1/hosts/h1").status < 300
    until(lambda: follower.store.seq == leader.store.seq)


def test_the_feed_of_a_follower_has_what_is_committed_from_now_on(
    leader: Node, follower: Node
) -> None:
    feed = ControlClient(follower.control_url).follow(after=follower.store.seq)
    event = ask(leader.control_url, "POST", "/v1/events", REBOOT).json()["id"]
    assert any(event in str(change) for change in next(feed).changes)


def test_the_status_names_the_leading_control_node(leader: Node, follower: Node) -> None:
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
    # As in `systemctl status`.
    assert re.match(
        r"2 machines, \d+ active events; .*'c1' .* http://127.0.0.1", status_line(follower)
    )
    assert "; guests at http://127.0.0.1" in status_line(leader)


def test_all_control_nodes_are_listed(leader: Node, follower: Node) -> None:
    for url in (leader.control_url, follower.control_url):
        client = ControlClient(url)
        until(lambda client=client: len(client.control_nodes()) == 2)  # type: ignore[misc]
        roles = [(node.name, node.role) for node in client.control_nodes()]
        assert roles == [("c1", "leads"), ("c2", "follows")]


def test_a_missing_standby_and_nodes_with_different_settings_give_warnings(
    nodes: ControlNodes, leader: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    until(lambda: warned_of(leader) == {"replication"})
    other = Member(name="c9", machine="m9", address="")
    with psycopg.connect(nodes.url, autocommit=True) as connection:
        monkeypatch.setattr(postgres_nodes, "__version__", "0.0.1")
        postgres_nodes.report(connection, other, 5.0, 0, None)
        monkeypatch.undo()
        late = nodes.start_follower("c4", replicated="managed")
        until(lambda: warned_of(late) == {"version", "lease"})
        shown = run("control", "list", late.control_url)
        assert re.search("note: .* settings of lease", shown.stderr)
        assert re.search("note: .* different versions", shown.stderr)
        assert re.search(r"0\.0\.1 +5s", shown.stdout)
        assert "different versions" in run("status", late.control_url, code=1).stdout
        response = ask(late.control_url, "GET", "/readyz")
        assert (response.status, response.json()["status"]) == (200, "ok")
        measured = metrics(late.control_url)
        assert measured['forewarn_warning{about="lease"}'] == 1
        assert measured['forewarn_warning{about="replication"}'] == 0
        connection.execute("DELETE FROM control_nodes WHERE name = 'c9'")
    store = late.store
    assert isinstance(store, PostgresStore)
    store.leadership.reports.next_at = 0.0  # at once, not after some seconds
    until(lambda: warned_of(late) == set())


def test_a_control_node_that_is_gone_is_forgotten(nodes: ControlNodes, leader: Node) -> None:
    gone = Member(name="c9", machine="m9", address="")
    with psycopg.connect(nodes.url, autocommit=True) as connection:
        postgres_nodes.report(connection, gone, 900.0, 0, None)
        until(lambda: listed(leader) >= {"c1", "c9"})
        for name in ("c1", "c9"):
            assert ask(leader.control_url, "DELETE", f"/v1/control-nodes/{name}").status == 409
        assert listed(leader) >= {"c1", "c9"}
        connection.execute("UPDATE control_nodes SET seen = 'epoch' WHERE name = 'c9'")
    assert "c9" in run("control", "forget", "c9", leader.control_url).stdout
    assert "c9" not in listed(leader)
    assert ask(leader.control_url, "DELETE", "/v1/control-nodes/c9").status == 404


def listed(node: Node) -> set[str]:
    return {known.name for known in ControlClient(node.control_url).control_nodes()}


def test_a_clone_of_a_control_node_is_refused_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_nodes, "EVERY", 0.0)
    monkeypatch.setattr(postgres_leader, "RENEWALS", 90_000)  # one every 10 ms
    with ControlNodes(new_state()) as nodes:
        leader, clone = nodes.start_leader("c1"), nodes.start("c1", replicated="managed")
        until(lambda: ask(clone.control_url, "GET", "/readyz").status == 503)
        until(lambda: warned_of(leader) == {"replication", "name"})
        assert "'c1'" in ask(clone.control_url, "GET", "/readyz").json()["parts"]["leadership"]
        for node in (leader, clone):
            shown = run("control", "list", node.control_url)
            assert re.findall(r"(?m)^c1 +(\w+)", shown.stdout) == ["leads", "follows"]
            assert re.search("note: .* called c1", shown.stderr)
            assert "called c1" in run("status", node.control_url, code=1).stdout
        assert leader.store.leadership
        assert leader.store.leadership.term == 1


def warned_of(node: Node) -> set[str]:
    return set(ask(node.control_url, "GET", "/readyz").json()["warnings"])


def run(*words: str, code: int = 0) -> Result:
    *command, url = words
    result = CliRunner().invoke(app, [*command, "--url", url])
    assert result.exit_code == code, result.output
    return result


def test_a_node_that_cannot_report_keeps_its_lease(nodes: ControlNodes, leader: Node) -> None:
    member = control_node(leader.config)
    with psycopg.connect(nodes.url) as other, psycopg.connect(nodes.url, autocommit=True) as own:
        other.execute("LOCK TABLE control_nodes IN ACCESS EXCLUSIVE MODE")
        assert postgres_nodes.report(own, member, 900.0, 0, None) is None
    with psycopg.connect(nodes.url, autocommit=True) as own:
        reported = postgres_nodes.report(own, member, 900.0, 0, None)
    assert reported is not None
    lag, _, known = reported
    assert lag == leader.store.seq
    assert known


def test_a_follower_learns_who_has_polled(
    nodes: ControlNodes, leader: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "SIGHTINGS_EVERY", 0.01)
    late = nodes.start_follower("c3")
    place = urlsplit(leader.metadata_url)
    with RawConnection((place.hostname or "", place.port or 0)) as guest:
        assert send_poll(guest).status == 200
    nodes.run(leader.poll_index.save(leader.writer.now(), all_machines=True))
    client = ControlClient(late.control_url)
    until(lambda: client.machine("web-0").polls > 0)
    assert (
        client.machine("web-0").last_poll
        == ControlClient(leader.control_url).machine("web-0").last_poll
    )


def test_a_command_with_several_urls_finds_the_node_that_decides(
    leader: Node, follower: Node
) -> None:
    client = ControlClient(f"{follower.control_url}, {leader.control_url}")
    assert client.schedule(s.ScheduleRequest(type="Reboot", machines=["web-1"])).machines == [
        "web-1"
    ]
    assert client.url == leader.control_url


def test_a_command_with_several_urls_reads_what_the_leader_knows(
    leader: Node, follower: Node
) -> None:
    client = ControlClient(f"{follower.control_url}, {leader.control_url}")
    shown = client.status().control_node
    assert shown is not None
    assert shown.role == "leads"
    assert client.readiness().parts["leadership"] == "ok"


def test_a_command_reads_from_a_follower_while_nobody_can_be_reached_who_decides(
    leader: Node, follower: Node
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}"
        client = ControlClient(f"{nobody}, {follower.control_url}")
        shown = client.status().control_node
    assert shown is not None
    assert (shown.name, shown.role) == ("c2", "follows")


def test_a_control_node_that_does_not_answer_is_soon_left(leader: Node) -> None:
    """A computer that is off: packets to it are lost, so nothing refuses the connection."""
    with full_listener() as silent:
        client = ControlClient(f"{silent}, {leader.control_url}")
        began = guard.monotonic()
        assert client.machines()
        assert client.groups()
        assert guard.monotonic() - began < TIMEOUT / 2


@contextlib.contextmanager
def full_listener() -> Iterator[str]:
    """Yield a URL at which connections are neither accepted nor refused."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_metrics_show_which_node_leads(leader: Node, follower: Node) -> None:
    here, there = metrics(follower.control_url), metrics(leader.control_url)
    assert (here["forewarn_leads"], there["forewarn_leads"]) == (0, 1)
    assert (here["forewarn_term"], there["forewarn_term"]) == (0, 1)
    assert here["forewarn_lease_seconds"] == 0 < there["forewarn_lease_seconds"]
    assert here["forewarn_cannot_lead"] == there["forewarn_cannot_lead"] == 0
    assert there["forewarn_follower_lag_commits"] == there["forewarn_follower_lag_seconds"] == 0
    assert here["forewarn_follower_lag_seconds"] > 0
