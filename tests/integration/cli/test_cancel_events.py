"""Cancelling many events: what is shown first, what is cancelled, and what cannot be any more."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC

import pytest
from msgspec import convert
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.control.schema.feed import FeedCommit
from forewarn.notify import text
from forewarn.notify.notification import Notification, single
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


def run(service: Service, *words: str) -> Result:
    return CliRunner().invoke(app, ["event", "cancel", *words, "--url", service.control_url])


def active(service: Service) -> list[str]:
    return sorted(
        machine
        for group in ("web-0", "db-0")
        for event in service.document(group)["Events"]
        for machine in event["Resources"]
    )


def test_matching_events_are_shown_first_and_cancelled_in_one_commit(service: Service) -> None:
    for machine in ("web-0", "web-1", "db-1"):
        service.schedule("Reboot", machine)
    service.schedule("Freeze", "web-1")
    before = service._session.node.store.seq
    plan = run(service, "--group", "web", "--type", "Reboot")
    assert plan.exit_code == 2
    assert "web-0" in plan.stdout
    assert "web-1" in plan.stdout
    assert re.search("2 events .* 1 group .*: web; .* --yes", plan.stderr)
    assert service._session.node.store.seq == before
    done = run(service, "--group", "web", "--type", "Reboot", "--reason", "wrong week", "--yes")
    assert "2 events cancelled" in done.stdout
    assert service._session.node.store.seq == before + 1
    assert active(service) == ["db-1", "web-1"]
    withdrawn = ask(service, "GET", "/v1/history?what=withdrawn").body["records"]
    assert [record["note"].endswith("operator: wrong week") for record in withdrawn] == [True, True]


def test_labels_select_machines_and_a_maintenance_is_cancelled_as_a_whole(service: Service) -> None:
    ask(service, "POST", "/v1/hosts/h1/maintain", {"mode": "Freeze"})
    service.schedule("Reboot", "web-1")
    assert active(service) == ["db-0", "web-0", "web-1"]
    done = run(service, "--label", "tier=web,!ring", "--yes", "--json")
    assert len(json.loads(done.stdout)["events"]) == 2
    assert active(service) == ["web-1"]
    assert run(service, "--label", "ring=canary", "--yes").exit_code == 0
    assert active(service) == []
    assert "no scheduled event" in run(service, "--group", "web", "--yes").stdout


def test_events_of_other_groups_that_would_be_cancelled_with_them_are_shown_first(
    service: Service,
) -> None:
    ask(service, "POST", "/v1/hosts/h1/maintain", {"mode": "Freeze"})
    service.schedule("Reboot", "web-1")
    before = service._session.node.store.seq
    shown = run(service, "--group", "web")
    assert shown.exit_code == 2
    assert all(machine in shown.stdout for machine in ("web-0", "web-1", "db-0"))
    assert re.search("3 events .* 2 groups .*: web, db; .* --yes", shown.stderr)
    assert re.search(r"1 event .* \(db\)", shown.stderr)
    body = {"group": "web", "plan": True}
    planned = ask(service, "POST", "/v1/events/cancel", body).body
    assert sorted(event["group"] for event in planned["events"]) == ["db", "web", "web"]
    assert {event["status"] for event in planned["events"]} == {"Scheduled"}
    assert service._session.node.store.seq == before
    done = run(service, "--group", "web", "--yes")
    assert "3 events cancelled" in done.stdout
    assert re.search(r"1 event .* \(db\)", done.stderr)
    assert active(service) == []


@pytest.mark.parametrize("body", [{}, {"plan": True}, {"ids": ["AFFE"], "group": "web"}])
def test_a_request_with_neither_or_both_of_ids_and_filters_is_refused(
    service: Service, body: dict[str, object]
) -> None:
    event = service.schedule("Reboot", "web-1")
    answer = ask(service, "POST", "/v1/events/cancel", body)
    assert answer.status == 400
    assert "either ids" in answer.body["detail"]
    assert event.status == "Scheduled"


def test_the_reason_for_cancelling_is_in_the_history_the_feed_and_notifications(
    service: Service,
) -> None:
    event = service.schedule("Reboot", "web-1")
    before = service._session.node.store.seq
    assert run(service, event.id, "--reason", "wrong week").exit_code == 0
    [record] = ask(service, "GET", "/v1/history?what=withdrawn").body["records"]
    ending = record["note"]
    assert ending.endswith("operator: wrong week")
    [commit] = ask(service, "GET", f"/v1/changes?after={before}&wait=0").body["commits"]
    assert [change["note"] for change in commit["changes"]] == [ending]
    assert [event["ending"] for event in commit["events"]] == [ending]
    message = single("", Notification(what="withdrawn", commit=convert(commit, FeedCommit)))
    assert f"Note: {ending}" in text.body(message, UTC)


def test_a_started_event_is_refused_and_the_others_are_cancelled(service: Service) -> None:
    started, waiting = service.schedule("Reboot", "web-0"), service.schedule("Reboot", "db-0")
    ask(service, "POST", f"/v1/events/{started.id}/approve")
    body = {"ids": [started.id, waiting.id, "0000"]}
    answer = ask(service, "POST", "/v1/events/cancel", body).body
    assert [event["id"] for event in answer["events"]] == [waiting.id]
    assert answer["refused"][0].startswith("no event '0000'")
    assert answer["refused"][1] == f"event {started.id} has started"
    assert active(service) == ["web-0"]


@pytest.mark.parametrize("words", [(), ("AFFE", "--group", "web")])
def test_a_command_with_neither_or_both_of_an_id_and_filters_is_refused(
    service: Service, words: tuple[str, ...]
) -> None:
    result = run(service, *words)
    assert result.exit_code == 2
    assert "ID of" in result.stderr


def test_a_paused_rollout_can_withdraw_the_events_it_has_announced(service: Service) -> None:
    rollout = ask(service, "POST", "/v1/rollouts", {"type": "Reboot", "groups": ["web"]}).body["id"]
    service._session.settle()
    [first] = service.document("web-0")["Events"]
    url = ("--url", service.control_url)
    words = ["rollout", "pause", rollout, "--withdraw", "--reason", "bad image", *url]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert active(service) == []
    [record] = ask(service, "GET", "/v1/history?what=withdrawn").body["records"]
    assert record["by"] == "operator"
    assert record["note"].endswith("paused: bad image")
    service.clock.advance("1h")
    assert active(service) == []
    assert CliRunner().invoke(app, ["rollout", "resume", rollout, *url]).exit_code == 0
    service._session.settle()
    [again] = service.document("web-0")["Events"]
    assert again["EventId"] != first["EventId"]
    assert again["Resources"] == first["Resources"]
