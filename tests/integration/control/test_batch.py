"""Something is done to several machines in one commit, or to none of them, with every refusal."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.testing import SAMPLE, Service
from helpers.control_api import ask

WEB = ["web_0", "web_1", "web_2"]


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(SAMPLE, sockets=True) as service:
        for machine in ("web_0", "sql-0"):
            service.document(machine)
        yield service


def run(service: Service, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--url", service.control_url])


@pytest.mark.parametrize(
    ("verb", "type"), [("restart", "Reboot"), ("redeploy", "Redeploy"), ("delete", "Terminate")]
)
def test_each_machine_gets_an_event_and_all_are_one_commit(
    service: Service, verb: str, type: str
) -> None:
    before = service._session.node.store.seq
    answer = ask(service, "POST", f"/v1/batch/{verb}", {"machines": [*WEB, "sql-1"]})
    assert answer.status == 200, answer
    first = ask(service, "GET", f"/v1/changes?after={before}&wait=0").body["commits"][0]
    raised = [change["machines"] for change in first["changes"] if change["what"] == "raised"]
    assert raised == [["web_0"], ["web_1"], ["web_2"], ["sql-1"]]
    events = answer.body["events"]
    assert {tuple(event["machines"]) for event in events} >= {(name,) for name in WEB}
    assert {event["type"] for event in events if event["machines"] != ["sql-1"]} == {type}


def test_all_refusals_are_named_and_nothing_is_done(service: Service) -> None:
    before = service._session.node.store.seq
    machines = ["web_2", "web_0", "wep_1", "sql-0"]  # the first is a spot machine
    answer = ask(service, "POST", "/v1/batch/evict", {"machines": machines})
    assert answer.status == 409
    assert "3 of 4 machines" in answer.body["detail"]
    details = {error["pointer"]: error["detail"] for error in answer.body["errors"]}
    assert details.keys() == {"/machines/1", "/machines/2", "/machines/3"}
    assert details["/machines/1"].startswith("machines[1]: web_0: ")
    assert "machine 'wep_1'" in details["/machines/2"]
    assert service._session.node.store.seq == before
    result = run(service, "machine", "evict", *machines, "--yes")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 4


def test_limits_count_the_machines_before_in_the_same_batch(service: Service) -> None:
    policy = ask(service, "PATCH", "/v1/groups/web/policy", {"user_event_limit": 2})
    assert policy.status == 200, policy
    answer = ask(service, "POST", "/v1/batch/restart", {"machines": WEB})
    assert (answer.status, len(answer.body["errors"])) == (409, 1)
    assert answer.body["errors"][0]["pointer"] == "/machines/2"
    assert service.document("web_0")["Events"] == []
    assert ask(service, "POST", "/v1/batch/restart", {"machines": WEB[:2]}).status == 200
    assert len(service.document("web_0")["Events"]) == 2


def test_a_command_takes_one_machine_or_several(service: Service) -> None:
    one = run(service, "machine", "restart", "web_0")
    assert (one.exit_code, "machines     web_0" in one.stdout) == (0, True)
    several = run(service, "machine", "restart", *WEB)
    assert several.exit_code == 0, several.output
    assert [name for name in WEB if name in several.stdout] == WEB
    twice = run(service, "machine", "restart", "web_0", "web_0")
    assert twice.exit_code == 1
    assert "machines has 'web_0' twice" in twice.stderr
