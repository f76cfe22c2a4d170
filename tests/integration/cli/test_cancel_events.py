"""Cancelling many events: what is shown first, what is cancelled, and what cannot be any more."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.testing import Service
from helpers.control_api import ask

FLEET = """
hosts: [h1]
groups:
  - name: web
    kind: availability-set
    labels: {tier: web}
    machines: [{name: web-0, host: h1}, {name: web-1, update_domain: 1, labels: {ring: canary}}]
  - name: db
    kind: availability-set
    machines: [{name: db-0, host: h1}, {name: db-1, update_domain: 1}]
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as made:
        made.document("web-0")
        made.document("db-0")
        yield made


def typed(service: Service, *words: str) -> Result:
    return CliRunner().invoke(app, ["event", "cancel", *words, "--url", service.control_url])


def active(service: Service) -> list[str]:
    return sorted(
        machine
        for group in ("web-0", "db-0")
        for event in service.document(group)["Events"]
        for machine in event["Resources"]
    )


def test_what_matches_is_shown_first_and_cancelled_in_one_commit(service: Service) -> None:
    for machine in ("web-0", "web-1", "db-1"):
        service.schedule("Reboot", machine)
    service.schedule("Freeze", "web-1")
    before = service._session.node.store.seq
    plan = typed(service, "--group", "web", "--type", "Reboot")
    assert plan.exit_code == 2
    assert "web-0" in plan.stdout
    assert "web-1" in plan.stdout
    assert "2 events of 1 group would be cancelled: web; pass --yes to confirm" in plan.stderr
    assert service._session.node.store.seq == before
    done = typed(service, "--group", "web", "--type", "Reboot", "--reason", "wrong week", "--yes")
    assert "2 events cancelled" in done.stdout
    assert service._session.node.store.seq == before + 1
    assert active(service) == ["db-1", "web-1"]
    withdrawn = ask(service, "GET", "/v1/history?what=withdrawn").body["records"]
    assert {record["note"] for record in withdrawn} == {"cancelled by operator: wrong week"}


def test_labels_select_machines_and_a_maintenance_is_cancelled_as_a_whole(service: Service) -> None:
    ask(service, "POST", "/v1/hosts/h1/maintain", {"mode": "Freeze"})
    service.schedule("Reboot", "web-1")
    assert active(service) == ["db-0", "web-0", "web-1"]
    done = typed(service, "--label", "tier=web,!ring", "--yes", "--json")
    assert len(json.loads(done.stdout)["events"]) == 2
    assert active(service) == ["web-1"]
    assert typed(service, "--label", "ring=canary", "--yes").exit_code == 0
    assert active(service) == []
    assert "no scheduled event matches" in typed(service, "--group", "web", "--yes").stdout


def test_what_has_started_is_named_and_the_rest_is_cancelled(service: Service) -> None:
    started, waiting = service.schedule("Reboot", "web-0"), service.schedule("Reboot", "db-0")
    ask(service, "POST", f"/v1/events/{started.id}/approve")
    body = {"ids": [started.id, waiting.id, "0000"]}
    answer = ask(service, "POST", "/v1/events/cancel", body).body
    assert [event["id"] for event in answer["events"]] == [waiting.id]
    assert answer["refused"][0].startswith("no event '0000'")
    assert answer["refused"][1] == f"event {started.id} has started"
    assert active(service) == ["web-0"]


@pytest.mark.parametrize("words", [(), ("AFFE", "--group", "web")])
def test_either_an_event_or_a_selection(service: Service, words: tuple[str, ...]) -> None:
    result = typed(service, *words)
    assert result.exit_code == 2
    assert "pass the ID of an event, or options that select events" in result.stderr


def test_a_rollout_that_is_paused_can_take_back_what_it_has_announced(service: Service) -> None:
    rollout = ask(service, "POST", "/v1/rollouts", {"type": "Reboot", "groups": ["web"]}).body["id"]
    service._session.settle()
    [first] = service.document("web-0")["Events"]
    url = ("--url", service.control_url)
    words = ["rollout", "pause", rollout, "--withdraw", "--reason", "bad image", *url]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert active(service) == []
    [record] = ask(service, "GET", "/v1/history?what=withdrawn").body["records"]
    assert record["note"] == "cancelled by operator: the rollout was paused: bad image"
    service.clock.advance("1h")
    assert active(service) == []
    assert CliRunner().invoke(app, ["rollout", "resume", rollout, *url]).exit_code == 0
    service._session.settle()
    [again] = service.document("web-0")["Events"]
    assert again["EventId"] != first["EventId"]
    assert again["Resources"] == first["Resources"]
