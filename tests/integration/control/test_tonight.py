"""What is going to be disturbed tonight: by host, rack and group, for operators and for tenants."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.control.schema.tonight import Tonight
from forewarn.core.access import Role
from forewarn.testing import Service
from helpers.control_api import ask
from helpers.token_api import api_with_token, token

FLEET = """
maintenance:
  - {name: quiet, select: tier=db, windows: ["20:00-23:00 UTC"]}
hosts: [{name: h1, labels: {rack: r1}}, h2, {name: h10, labels: {rack: r1}}]
groups:
  - name: web
    kind: scale-set
    labels: {tier: web}
    policy: {windows: ["22:00-04:00 UTC"], blackouts: ["2027-01-15 23:00 to 2027-01-15 23:30"]}
    machines:
      - {name: web_0, host: h1, update_domain: 0}
      - {name: web_1, host: h2, update_domain: 1}
      - {name: web_2, host: h10, update_domain: 2}
  - {name: sql, kind: standalone, labels: {tier: db}, machines: [{name: db, host: h2}]}
"""
NOON = datetime(2027, 1, 15, 12, tzinfo=UTC)
NIGHT = "2027-01-15T22:00:00Z"


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True, start=NOON) as service:
        yield service


def tonight(service: Service, query: str = "") -> dict[str, Any]:
    answer = ask(service, "GET", f"/v1/tonight?{query}")
    assert answer.status == 200, answer.body
    body: dict[str, Any] = answer.body
    return body


def by_row(answer: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Return when what begins in each row."""
    return {
        row["name"]: [
            (answer["disturbances"][n]["begins"], answer["disturbances"][n]["type"])
            for n in row["disturbances"]
        ]
        for row in answer["rows"]
    }


def test_rows_are_hosts_groups_or_values_of_a_label(service: Service) -> None:
    for machine in ("web_0", "web_2"):
        service.schedule("Reboot", machine)
    service.schedule("Freeze", "db")
    late, at_night = ("2027-01-15T20:00:00Z", "Freeze"), (NIGHT, "Reboot")
    assert by_row(tonight(service)) == {"h1": [at_night], "h2": [late], "h10": [at_night]}
    assert by_row(tonight(service, "by=group")) == {"sql": [late], "web": [at_night, at_night]}
    assert by_row(tonight(service, "sums=rack")) == {"r1": [at_night, at_night], "": [late]}
    assert by_row(tonight(service, "by=group&sums=tier")).keys() == {"db", "web"}
    assert tonight(service)["labels"] == ["rack"]
    assert by_row(tonight(service, "host_label=rack%3Dr1")).keys() == {"h1", "h10"}
    assert by_row(tonight(service, "label=tier%3Ddb")).keys() == {"h2"}
    unknown = ask(service, "GET", "/v1/tonight?sums=rak")
    assert (unknown.status, unknown.body["did_you_mean"]) == (404, "rack")


def test_the_page_names_who_has_not_approved_and_who_was_never_shown(service: Service) -> None:
    service.document("web_0")
    assert ask(service, "POST", "/v1/hosts/h2/maintain", {"mode": "Reboot"}).status == 200
    (joint,) = tonight(service)["disturbances"]
    assert (joint["host"], joint["machines"], len(joint["events"])) == ("h2", 2, 2)
    assert sorted(joint["groups"]) == ["sql", "web"]
    assert joint["not_approved"] == ["web"]  # nobody asks sql, which is not enabled
    assert sorted(joint["not_shown_names"]) == ["db", "web_1"]
    rows = {row["name"]: row for row in tonight(service, "by=group")["rows"]}
    assert {name: row.get("not_approved") for name, row in rows.items()} == {
        "sql": None,
        "web": ["web"],
    }
    holds = ask(service, "GET", f"/v1/events/{joint['events'][0]}/explain").body["holds"]
    (missing,) = (hold["waits_for"] for hold in holds if hold["kind"] == "joint")
    assert missing == [event.id for event in service.events if event.group == "web"]
    service.document("db")
    assert sorted(tonight(service)["disturbances"][0]["not_approved"]) == ["sql", "web"]
    answer = tonight(service)
    assert answer["not_shown"] == 1
    assert answer["disturbances"][0]["not_shown_names"] == ["web_1"]
    event = next(event for event in service.events if event.group == "sql")
    assert ask(service, "POST", f"/v1/events/{event.id}/approve").status == 200
    assert tonight(service)["disturbances"][0]["not_approved"] == ["web"]
    assert tonight(service)["rows"][0]["not_approved"] == ["web"]
    groups = {row["name"]: row.get("not_approved") for row in tonight(service, "by=group")["rows"]}
    assert groups == {"sql": None, "web": ["web"]}
    assert "approved" not in tonight(service)["disturbances"][0]
    assert ask(service, "POST", f"/v1/events/{joint['events'][0]}/approve").status == 200
    assert ask(service, "POST", f"/v1/events/{joint['events'][1]}/approve").status in (200, 409)
    assert tonight(service)["disturbances"][0]["approved"] is True


def test_what_a_rollout_is_still_to_announce_is_planned(service: Service) -> None:
    request = {"type": "Reboot", "groups": ["web"], "notice": 1800}
    rollout = ask(service, "POST", "/v1/rollouts", request).body["id"]
    answer = tonight(service)
    planned = [item for item in answer["disturbances"] if item["status"] == "Planned"]
    assert {row for item in planned for row in item["rows"]} == {"h2", "h10"}
    assert {item["rollout"] for item in answer["disturbances"]} == {rollout}
    assert all(item["begins"] > NIGHT for item in planned)
    assert (answer["machines"], answer["hosts"]) == (3, 3)
    (of_group,) = (i for i in tonight(service, "by=group")["disturbances"] if not i.get("events"))
    assert (of_group["steps"], of_group["machines"], of_group["wave"]) == (2, 2, 1)


@pytest.mark.parametrize("by", ["host", "group"])
def test_steps_of_a_rollout_after_the_time_are_not_counted(service: Service, by: str) -> None:
    request = {"type": "Reboot", "groups": ["web"], "notice": 1800, "bake": 10_800}
    assert ask(service, "POST", "/v1/rollouts", request).status == 201
    answer = tonight(service, f"by={by}")  # the third step is one of the next night
    assert [item.get("steps", 0) for item in answer["disturbances"]] == [0, 1]
    assert (answer["machines"], answer["hosts"]) == (2, 2)
    assert tonight(service, f"by={by}&hours=48")["machines"] == 3


def test_only_what_is_in_the_time_is_shown(service: Service) -> None:
    event = service.schedule("Reboot", "web_0", duration=600)
    assert by_row(tonight(service, "hours=10")) == {}
    assert by_row(tonight(service, "hours=11")) == {"h1": [(NIGHT, "Reboot")]}
    assert by_row(tonight(service, "from=2027-01-15T22:05:00Z&hours=1")).keys() == {"h1"}
    assert by_row(tonight(service, "from=2027-01-15T22:11:00Z&hours=1")) == {}
    # A blackout that is added later moves it.
    policy = {"blackouts": ["2027-01-15"]}
    assert ask(service, "PATCH", "/v1/groups/web/policy", policy).status == 200
    assert by_row(tonight(service)) == {"h1": [("2027-01-16T00:00:00Z", "Reboot")]}
    service.clock.advance("12h")
    assert event.status == "Started"
    assert [i["status"] for i in tonight(service)["disturbances"]] == ["Started"]


def test_windows_and_blackouts_of_groups_and_of_the_fleet_are_listed(service: Service) -> None:
    listed = tonight(service)["open_or_closed"]
    assert [
        (item.get("name", ""), item.get("blackout", False), item["begins"]) for item in listed
    ] == [
        ("quiet", False, "2027-01-15T20:00:00Z"),
        ("", False, NIGHT),
        ("", True, "2027-01-15T23:00:00Z"),
    ]
    assert listed[1]["groups"] == ["web"]
    assert len(tonight(service, "hours=168")["open_or_closed"]) == 15


def test_a_tenant_sees_what_concerns_its_own_machines_alone(service: Service) -> None:
    service.document("db")
    assert ask(service, "POST", "/v1/hosts/h2/maintain", {"mode": "Reboot"}).status == 200
    service.schedule("Reboot", "web_0")
    rollout = {"type": "Reboot", "groups": ["web"], "notice": 1800}
    assert ask(service, "POST", "/v1/rollouts", rollout).status == 201
    token(service, "admin", Role.ADMIN)
    api = api_with_token(service, "db-team", Role.TENANT, groups=("sql",))
    answer = api.get("/v1/tonight?hours=168")
    assert answer.status == 200
    assert b"web" not in answer.body
    (own,) = answer.json()["disturbances"]
    assert (own["machines"], own["not_approved"], own["rows"]) == (1, ["sql"], ["h2"])
    assert answer.json()["open_or_closed"] == []
    assert api.get("/v1/tonight?group=web").status == 403
    assert api.get("/v1/tonight?host_label=rack").json()["disturbances"] == []
    assert api.get("/v1/tonight?sums=rack").status == 404  # tenants see no labels of hosts


def test_the_command_prints_it_as_a_table(service: Service) -> None:
    def run(*options: str) -> str:
        command = ["tonight", *options, "--url", service.control_url]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
        return result.output

    service.document("web_1")
    assert "nothing is going to be disturbed" in run()
    service.schedule("Reboot", "web_0", duration=60)
    row = next(line for line in run("--sums", "rack").splitlines() if line.startswith("r1"))
    assert row.split() == [
        *("r1", "2027-01-15", "22:00:00Z", "2027-01-15", "22:01:00Z"),
        *("Reboot", "of", "web_0", "Scheduled", "1", "web", "web_0"),
    ]
    assert json.loads(run("--json", "--by", "group"))["rows"][0]["name"] == "web"
    assert "nothing" in run("--from", "2027-01-20T00:00:00Z", "--hours", "2", "--group", "web")
    assert set(json.loads(run("--json"))) == set(Tonight.__struct_fields__)
