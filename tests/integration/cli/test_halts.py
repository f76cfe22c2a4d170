"""Halts, as commands: what they stop, where they are shown, and what a release starts again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.testing import Service
from helpers.control_api import ask

FLEET = """
hosts: [h1, {name: h2, labels: {row: west}}]
groups:
  - name: web
    kind: availability-set
    labels: {tier: web}
    machines:
      - {name: web-0, host: h1}
      - {name: web-1, host: h2, update_domain: 1, labels: {rack: r7}}
  - name: db
    kind: availability-set
    machines: [{name: db-0, host: h1}, {name: db-1, host: h2, update_domain: 1}]
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as made:
        made.document("web-0")
        made.document("db-0")
        yield made


def run(service: Service, *words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words), "--url", service.control_url])


def printed(service: Service, *words: object) -> str:
    result = run(service, *words)
    assert result.exit_code == 0, result.output
    service._session.settle()
    return result.output


def statuses(service: Service, machine: str) -> list[str]:
    return [event["EventStatus"] for event in service.document(machine)["Events"]]


def placed(service: Service, *words: object) -> str:
    return str(json.loads(run(service, "halt", "place", *words, "--json").stdout)["id"])


def test_events_and_rollouts_wait_and_explain_the_halt_until_it_is_released(
    service: Service,
) -> None:
    event = service.schedule("Reboot", "web-0")
    rollout = ask(service, "POST", "/v1/rollouts", {"type": "Freeze", "groups": ["db"]}).body["id"]
    service._session.settle()
    answer = printed(service, "halt", "place", "--note", "packet loss")
    assert "whole fleet (4 machines, 2 scheduled events)" in answer
    [halt] = ask(service, "GET", "/v1/halts").body
    maintained = run(service, "host", "maintain", "h2", "--type", "Freeze")
    assert re.search("whole fleet .* operator", maintained.stderr)
    service.clock.advance("2h")
    assert statuses(service, "web-0") == ["Scheduled", "Scheduled"]
    for explained in (
        printed(service, "event", "explain", event.id),
        printed(service, "rollout", "explain", rollout),
        printed(service, "host", "explain", "h2"),
    ):
        assert re.search("halt: .*whole fleet .* operator: packet loss", explained)
        assert f"releasing halt {halt['id']}" in explained
    status = run(service, "status")
    assert status.exit_code == 1
    assert re.search(r"halted: .*whole fleet, .*operator.*cannot start \(since", status.output)
    assert "forewarn_halts 1.0" in ask(service, "GET", "/metrics").raw.decode()
    history = printed(service, "history", "--what", "halt-placed")
    assert "whole fleet: packet loss" in history
    printed(service, "halt", "release", halt["id"][:8], "--note", "repaired")
    assert "Started" in statuses(service, "web-0")
    assert "whole fleet: repaired" in printed(service, "history", "--what", "halt-released")
    assert printed(service, "halt", "list").startswith("nothing")
    assert ask(service, "GET", "/v1/halts").body == []


def test_a_part_of_the_fleet_waits_and_the_rest_goes_on(service: Service) -> None:
    placed(service, "--label", "rack=r7")
    placed(service, "--group", "db", "--note", "index build")
    for machine in ("web-0", "web-1", "db-0"):
        service.restart(machine)
    service.clock.advance("16m")
    assert statuses(service, "web-0") == ["Started", "Scheduled"]
    assert statuses(service, "db-0") == ["Scheduled"]
    table = printed(service, "halt", "list")
    assert "label rack=r7" in table
    assert "index build" in table


def test_a_plan_says_what_a_halt_would_cover_and_places_none(service: Service) -> None:
    service.restart("web-1")
    planned = printed(service, "halt", "place", "--label", "rack=r7", "--plan")
    assert "label rack=r7 (1 machine, 1 scheduled event)" in planned
    assert ask(service, "GET", "/v1/halts").body == []
    assert ask(service, "POST", "/v1/halts", {"label": "rack=r8", "plan": True}).status == 404


def test_hosts_are_halted_by_their_labels_with_all_that_is_on_them(service: Service) -> None:
    answer = printed(service, "halt", "place", "--host-label", "row=west")
    assert "row=west (2 machines, 0 scheduled events)" in answer
    host = ask(service, "POST", "/v1/hosts/h2/maintain", {"mode": "Freeze"}).body["events"][0]
    assert host["machines"] in (["web-1"], ["db-1"])
    service.restart("web-0")
    service.clock.advance("16m")
    assert "Started" in statuses(service, "web-0")
    assert statuses(service, "db-0") == ["Scheduled"]
    explained = printed(service, "event", "explain", host["id"])
    assert re.search("halt: it is .* operator", explained)
    # It is the labels of the moment that count.
    assert ask(service, "PUT", "/v1/hosts/h2", {"labels": {"row": "east"}}).status == 200
    service._session.settle()
    service.clock.advance("15m")  # until the restart is over, which takes up another domain
    assert statuses(service, "db-0") != ["Scheduled"]
    assert ask(service, "GET", "/v1/halts").body[0]["machines"] == 0


def test_a_second_halt_of_the_same_machines_changes_nothing(service: Service) -> None:
    first = placed(service, "--label", "tier=web, rack=r7")
    again = run(service, "halt", "place", "--label", "tier=web,rack=r7", "--note", "me too")
    assert "already halted" in again.stderr
    [halt] = ask(service, "GET", "/v1/halts").body
    assert halt["id"] == first


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("place", "--group", "wep"), "'web'"),
        (("place", "--label", "rack=r8"), "rack=r8"),
        (("place", "--host-label", "row=north"), "row=north"),
        (("place", "--label", "=x"), "label name"),
        (("place", "--host-label", "=x"), "label name"),
        (("place", "--note", "x" * 1_025), "at most 1024"),
        (("release", "AFFE"), "no halt 'AFFE'"),
    ],
)
def test_a_halt_that_matches_no_machine_is_refused(
    service: Service, words: tuple[str, ...], reason: str
) -> None:
    before = service._session.node.store.seq
    result = run(service, "halt", *words)
    assert result.exit_code == 1
    assert reason in result.stderr
    assert service._session.node.store.seq == before


def test_a_halt_covers_machines_that_are_added_later(service: Service, tmp_path: Path) -> None:
    placed(service)
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(FLEET + "  - {name: new, kind: standalone, machines: [{name: new}]}\n")
    printed(service, "apply", fleet)
    service.document("new")
    service.schedule("Reboot", "new")
    service.clock.advance("1h")
    assert statuses(service, "new") == ["Scheduled"]


def test_a_halt_is_in_the_feed(service: Service) -> None:
    since = service._session.node.store.seq
    placed(service, "--group", "db", "--note", "why not")
    [commit] = ask(service, "GET", f"/v1/changes?after={since}").body["commits"]
    [change] = commit["changes"]
    assert (change["what"], change["by"]) == ("halt-placed", "operator")
    assert change["note"] == "group db: why not"
