"""Everything that can happen to a fleet, as a command, and as a guest sees it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.testing import DocumentEvent, Service

FLEET = """
hosts:
  - {name: h1, labels: {rack: "1"}}
  - {name: h2, labels: {rack: "1"}}
  - {name: h3, labels: {rack: "2"}}
groups:
  - name: web
    kind: scale-set
    policy: {terminate_notice: 5m}
    machines:
      - {name: web_0, host: h1, update_domain: 0}
      - {name: web_1, host: h2, update_domain: 1}
      - {name: web_2, host: h2, update_domain: 1}
  - name: batch
    kind: scale-set
    machines:
      - {name: batch_0, host: h1, spot: true}
      - {name: batch_1, host: h2, spot: true}
      - {name: batch_2, host: h3}
  - name: db
    kind: availability-set
    machines:
      - {name: db-a, host: h1, update_domain: 0}
      - {name: db-b, host: h2, update_domain: 1}
      - {name: db-c, host: h3, update_domain: 2}
  - name: jump
    kind: standalone
    machines: [{name: jump, host: h3}]
  - name: split
    kind: availability-set
    machines:
      - {name: split-0, host: h3, update_domain: 0}
      - {name: split-1, host: h3, update_domain: 1}
"""
DESCRIPTIONS = {  # Azure's
    "restart": "Virtual machine is going to be restarted as requested by authorized user.",
    "redeploy": "Virtual machine is going to be redeployed as requested by authorized user.",
    "maintenance": "Host server is undergoing maintenance.",
    "repair": "Host server is undergoing an emergency repair.",
    "failure": "Virtual machine has encountered a failure.",
    "migration": "Virtual machine is being paused because of a memory-preserving Live Migration"
    " operation.",
}
LISTENERS = ("web_0", "batch_0", "db-a", "jump", "split-0")


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as service:
        for machine in LISTENERS:
            service.document(machine)
        yield service


def run(service: Service, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--url", service.control_url])


def result_of(service: Service, *words: str) -> Any:
    result = run(service, *words, "--json")
    assert result.exit_code == 0, result.output
    service._session.settle()
    return json.loads(result.stdout)


def refused(service: Service, *words: str) -> str:
    result = run(service, *words)
    assert result.exit_code == 1, result.output
    return result.stderr


def events(service: Service, machine: str) -> list[DocumentEvent]:
    return list(service.document(machine)["Events"])


def event(service: Service, machine: str) -> DocumentEvent:
    (only,) = events(service, machine)
    return only


def notice(service: Service, shown: DocumentEvent) -> timedelta:
    return parsedate_to_datetime(shown["NotBefore"]) - service.clock.now


def facts(shown: Mapping[str, Any]) -> tuple[Any, ...]:
    keys = ("EventType", "EventStatus", "EventSource", "DurationInSeconds", "Description")
    return tuple(shown[key] for key in keys)


def test_a_users_restart_is_announced_15_minutes_ahead(service: Service) -> None:
    result_of(service, "machine", "restart", "web_0")
    shown = event(service, "web_1")
    assert facts(shown) == ("Reboot", "Scheduled", "User", -1, DESCRIPTIONS["restart"])
    assert shown["Resources"] == ["web_0"]
    assert notice(service, shown) == timedelta(minutes=15)


def test_a_users_redeploy_moves_the_machine_to_another_host(service: Service) -> None:
    result_of(service, "machine", "redeploy", "jump")
    shown = event(service, "jump")
    assert facts(shown) == ("Redeploy", "Scheduled", "User", -1, DESCRIPTIONS["redeploy"])
    assert notice(service, shown) == timedelta(minutes=10)
    service.clock.advance("30m")
    assert events(service, "jump") == []
    assert result_of(service, "machine", "show", "jump")["host"] in ("h1", "h2")


def test_a_spot_machine_is_evicted_and_can_be_restored(service: Service) -> None:
    result_of(service, "machine", "evict", "batch_1", "--yes")
    shown = event(service, "batch_0")
    assert facts(shown) == ("Preempt", "Scheduled", "Platform", -1, "")
    assert notice(service, shown) == timedelta(seconds=30)
    service.clock.advance("2m")
    assert events(service, "batch_0") == []
    assert service.get("batch_1").status == 404
    assert result_of(service, "machine", "show", "batch_1")["gone"] == "evicted"
    result_of(service, "machine", "restore", "batch_1")
    assert service.get("batch_1").status == 200


def test_a_machine_is_not_restored_on_a_host_that_has_failed(service: Service) -> None:
    result_of(service, "machine", "evict", "batch_1", "--yes")
    service.clock.advance("2m")
    result_of(service, "host", "fail", "h2", "--yes")
    assert "host repair h2" in refused(service, "machine", "restore", "batch_1")
    assert result_of(service, "machine", "show", "batch_1")["gone"] == "evicted"
    result_of(service, "host", "repair", "h2")
    assert result_of(service, "machine", "restore", "batch_1")["notes"] == []
    assert "'batch_1' exists" in refused(service, "machine", "restore", "batch_1")


def test_restoring_a_machine_on_a_degraded_host_gives_a_note(service: Service) -> None:
    result_of(service, "machine", "evict", "batch_1", "--yes")
    service.clock.advance("2m")
    result_of(service, "host", "degrade", "h2")
    restored = run(service, "machine", "restore", "batch_1")
    assert restored.stdout.startswith("batch_1 ")
    assert re.match("note: host 'h2' is degraded, .* batch_1", restored.stderr)
    assert service.get("batch_1").status == 200


def test_only_spot_machines_are_evicted(service: Service) -> None:
    refusal = refused(service, "machine", "evict", "web_0", "--yes")
    assert "spot machine" in refusal
    assert "event schedule Preempt web_0" in refusal
    assert "no spot machine" in refused(service, "group", "evict", "web", "--yes")
    assert events(service, "web_0") == []


def test_a_second_eviction_is_the_same_event(service: Service) -> None:
    first = result_of(service, "machine", "evict", "batch_0", "--yes")
    second = result_of(service, "machine", "evict", "batch_0", "--yes")
    assert first["id"] == second["id"]
    assert "same event" in second["notes"][0]


def test_a_whole_scale_set_is_evicted_machine_by_machine(service: Service) -> None:
    outcome = result_of(service, "group", "evict", "batch", "--yes")
    shown = events(service, "batch_0")
    assert [one["EventType"] for one in shown] == ["Preempt", "Preempt"]
    assert [one["Resources"] for one in shown] == [["batch_0"], ["batch_1"]]
    assert len({one["NotBefore"] for one in shown}) == 1
    assert "batch_2" in outcome["notes"][0]


def test_a_delete_is_announced_where_the_scale_set_asked_for_it(service: Service) -> None:
    result_of(service, "machine", "delete", "web_2", "--yes")
    shown = event(service, "web_0")
    assert facts(shown) == ("Terminate", "Scheduled", "Platform", -1, "")
    assert notice(service, shown) == timedelta(minutes=5)
    service.clock.advance("6m")
    assert service.get("web_2").status == 404
    assert result_of(service, "machine", "show", "web_2")["gone"] == "deleted"


@pytest.mark.parametrize(
    ("machine", "witness", "why"),
    [
        ("batch_2", "batch_0", "sets no terminate notice"),
        ("batch_1", "batch_0", "spot"),
        ("db-b", "db-a", "scale set members"),
    ],
)
def test_a_delete_without_a_terminate_notice_happens_at_once_and_unannounced(
    service: Service, machine: str, witness: str, why: str
) -> None:
    before = service.get(witness).body
    outcome = result_of(service, "machine", "delete", machine, "--yes")
    assert why in outcome["notes"][0]
    assert service.get(witness).body == before
    service.clock.advance("1m")
    assert service.get(witness).body == before
    assert service.get(machine).status == 404
    assert result_of(service, "event", "show", outcome["id"])["status"] == "Finished"


def test_an_unannounced_delete_cannot_be_approved(service: Service) -> None:
    outcome = result_of(service, "machine", "delete", "db-b", "--yes")
    assert service.approve("db-a", outcome["id"]).status == 400


def test_scale_in_deletes_the_highest_numbers_and_couples_them(service: Service) -> None:
    result_of(service, "group", "scale-in", "web", "--count", "2", "--yes")
    shown = events(service, "web_0")
    assert [one["Resources"] for one in shown] == [["web_2"], ["web_1"]]
    assert len({one["NotBefore"] for one in shown}) == 1
    service.approve("web_0", shown[0]["EventId"])
    assert {one["EventStatus"] for one in events(service, "web_0")} == {"Scheduled"}
    service.approve("web_0", shown[1]["EventId"])
    assert {one["EventStatus"] for one in events(service, "web_0")} == {"Started"}
    service.clock.advance("1m")
    left = result_of(service, "group", "scale-in", "web", "--to", "1", "--yes")
    assert left["events"] == []
    assert "already has 1 machine" in left["notes"][0]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("web", "--count", "4"), "has 3 machines"),
        (("web", "--to", "4"), "cannot have 4"),
        (("db", "--count", "1"), "not a scale set"),
        (("wep", "--count", "1"), "did you mean 'web'"),
    ],
)
def test_a_scale_in_beyond_the_machines_of_a_scale_set_is_refused(
    service: Service, words: tuple[str, ...], reason: str
) -> None:
    assert reason in refused(service, "group", "scale-in", *words, "--yes")
    assert events(service, "web_0") == []


@pytest.mark.parametrize(
    ("how", "facts_of", "seconds"),
    [("Freeze", "Freeze", 9), ("reboot", "Reboot", -1)],
)
def test_a_hosts_update_is_one_event_for_each_group_at_one_instant(
    service: Service, how: str, facts_of: str, seconds: int
) -> None:
    outcome = result_of(service, "host", "maintain", "h1", "--type", how)
    shown = [event(service, machine) for machine in ("web_1", "batch_1", "db-b")]
    expected = (facts_of, "Scheduled", "Platform", seconds, DESCRIPTIONS["maintenance"])
    assert {facts(one) for one in shown} == {expected}
    assert [one["Resources"] for one in shown] == [["web_0"], ["batch_0"], ["db-a"]]
    assert len({one["NotBefore"] for one in shown}) == 1
    assert notice(service, shown[0]) == timedelta(minutes=15)
    assert len({one["cause"] for one in outcome["events"]}) == 1
    assert events(service, "jump") == []


def test_all_groups_of_a_host_start_with_the_last_approval(service: Service) -> None:
    result_of(service, "host", "maintain", "h1", "--type", "Reboot")
    machines = ("web_0", "batch_0", "db-a")
    for machine in machines[:-1]:
        assert service.approve(machine, event(service, machine)["EventId"]).status == 200
    assert {event(service, m)["EventStatus"] for m in machines} == {"Scheduled"}
    assert re.search("not yet .* group db", run(service, "host", "explain", "h1").stdout)
    assert service.approve("db-a", event(service, "db-a")["EventId"]).status == 200
    assert {event(service, m)["EventStatus"] for m in machines} == {"Started"}
    service.clock.advance("20m")
    assert [events(service, machine) for machine in machines] == [[], [], []]


def test_a_host_reboots_once(service: Service) -> None:
    result_of(service, "host", "maintain", "h1", "--type", "Reboot")
    service.clock.advance("16m")
    carried = [one for one in result_of(service, "event", "list") if one["host"] == "h1"]
    assert {one["status"] for one in carried} == {"Started"}
    leads = [e for e in service._session.node.platform.active() if e.attempt is not None]
    assert len(leads) == 1


def test_a_machine_that_is_put_on_another_host_is_not_disturbed_with_the_old_one(
    service: Service, tmp_path: Path
) -> None:
    result_of(service, "host", "maintain", "h1", "--type", "Reboot")
    withdrawn = event(service, "db-a")["EventId"]
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(FLEET.replace("db-a, host: h1", "db-a, host: h3"))
    result_of(service, "apply", str(fleet))
    assert events(service, "db-a") == []
    assert "moved" in result_of(service, "event", "show", withdrawn)["ending"]
    service.clock.advance("16m")
    assert event(service, "web_0")["EventStatus"] == "Started"
    assert events(service, "db-a") == []
    lead = next(e for e in service._session.node.platform.active() if e.attempt is not None)
    task = service._session.node.executor.task(lead)
    assert {machine.name for machine in task.machines} == {"web_0", "batch_0"}


def test_maintenance_of_a_host_with_two_domains_of_one_group_is_refused(service: Service) -> None:
    for how in ("Freeze", "Reboot"):
        refusal = refused(service, "host", "maintain", "h3", "--type", how)
        assert "'split-0' of 0 and 'split-1' of 1" in refusal
        assert "machine redeploy split-1" in refusal
        assert "--evacuate" in refusal
    assert result_of(service, "event", "list") == []


@pytest.mark.parametrize("words", [("--evacuate",), ("--type", "live-migration")])
def test_a_host_is_emptied_machine_by_machine(service: Service, words: tuple[str, ...]) -> None:
    result_of(service, "host", "maintain", "h3", *words)
    shown = events(service, "split-0")
    assert [one["Resources"] for one in shown] == [["split-0"], ["split-1"]]
    expected = ("Freeze", "Scheduled", "Platform", 5, DESCRIPTIONS["migration"])
    assert {facts(one) for one in shown} == {expected}
    service.clock.advance("15m")
    assert [one["EventStatus"] for one in events(service, "split-0")] == ["Started", "Scheduled"]
    service.clock.advance("1h")
    assert events(service, "split-0") == []
    assert result_of(service, "host", "show", "h3")["machines"] == []


def test_a_host_is_not_planned_for_twice(service: Service) -> None:
    result_of(service, "host", "maintain", "h1")
    assert "already" in refused(service, "host", "maintain", "h1", "--type", "Reboot")


def test_cancelling_one_event_of_a_host_cancels_the_maintenance(service: Service) -> None:
    result_of(service, "host", "maintain", "h1")
    first = event(service, "web_0")["EventId"]
    outcome = result_of(service, "event", "cancel", first)
    assert "host 'h1'" in outcome["notes"][0]
    assert events(service, "web_0") == events(service, "db-a") == events(service, "batch_0") == []


def test_degraded_hardware_is_announced_days_ahead_and_settled_by_a_redeploy(
    service: Service,
) -> None:
    result_of(service, "host", "degrade", "h1", "--notice", "7d", "--note", "ECC errors")
    shown = event(service, "web_0")
    assert facts(shown) == ("Redeploy", "Scheduled", "Platform", -1, DESCRIPTIONS["repair"])
    assert notice(service, shown) == timedelta(days=7)
    assert result_of(service, "host", "show", "h1")["health"] == "degraded"
    result_of(service, "machine", "redeploy", "web_0")
    user = events(service, "web_0")[1]
    service.approve("web_0", user["EventId"])
    service.clock.advance("15m")
    assert events(service, "web_0") == []
    assert result_of(service, "machine", "show", "web_0")["host"] != "h1"
    past = result_of(service, "event", "show", shown["EventId"])
    assert past["status"] == "Withdrawn"
    assert "settled" in past["ending"]


def test_machines_left_on_degraded_hardware_are_moved_at_the_end(service: Service) -> None:
    result_of(service, "host", "degrade", "h1")
    service.clock.advance("7d")
    service.clock.advance("2h")
    assert result_of(service, "host", "show", "h1")["machines"] == []


def test_a_repaired_host_needs_no_redeploys(service: Service) -> None:
    result_of(service, "host", "degrade", "h1")
    result_of(service, "host", "repair", "h1")
    assert events(service, "web_0") == events(service, "db-a") == []
    assert result_of(service, "host", "show", "h1")["health"] == "healthy"
    assert "healthy" in refused(service, "host", "repair", "h1")


def test_no_machine_is_moved_to_a_host_that_is_degraded_or_under_maintenance(
    service: Service,
) -> None:
    result_of(service, "host", "degrade", "h2")
    result_of(service, "host", "maintain", "h1", "--notice", "5h")
    result_of(service, "machine", "redeploy", "jump")
    service.clock.advance("30m")
    assert result_of(service, "machine", "show", "jump")["host"] == "h3"  # nowhere to go


def test_the_failure_of_a_machine_starts_a_redeploy_at_once(service: Service) -> None:
    result_of(service, "machine", "fail", "db-b", "--yes")
    shown = event(service, "db-a")
    assert facts(shown) == ("Redeploy", "Started", "Platform", -1, DESCRIPTIONS["failure"])
    assert shown["NotBefore"] == ""
    assert "not a Preempt" in refused(
        service, "machine", "fail", "db-c", "--type", "Preempt", "--yes"
    )


@pytest.mark.parametrize("type", ["Redeploy", "Reboot"])
def test_the_failure_of_a_host_moves_its_machines_at_once_whatever_guests_are_shown(
    service: Service, type: str
) -> None:
    assert "not a Preempt" in refused(service, "host", "fail", "h3", "--type", "Preempt", "--yes")
    chosen = () if type == "Redeploy" else ("--type", type)
    result_of(service, "host", "fail", "h3", *chosen, "--yes")
    assert {one["EventStatus"] for one in events(service, "split-0")} == {"Started"}
    assert [one["Resources"] for one in events(service, "split-0")] == [["split-0"], ["split-1"]]
    assert event(service, "jump")["EventType"] == type
    service.clock.advance("20m")
    host = result_of(service, "host", "show", "h3")
    assert (host["health"], host["machines"]) == ("failed", [])
    assert "already failed" in refused(service, "host", "fail", "h3", "--yes")


def test_a_withdrawn_event_is_gone(service: Service) -> None:
    result_of(service, "host", "maintain", "h2", "--type", "live-migration")
    for one in events(service, "web_0"):
        result_of(service, "event", "cancel", one["EventId"])
    assert events(service, "web_0") == []


def test_commands_note_groups_that_are_not_enabled(service: Service) -> None:
    service.disable("jump")
    outcome = result_of(service, "machine", "restart", "jump")
    assert "not enabled" in outcome["notes"][0]
    assert outcome["status"] == "Started"
    service.clock.advance("20m")
    service.disable("split")
    outcome = result_of(service, "host", "maintain", "h3", "--evacuate")
    assert re.search("not enabled, .*: jump, split$", "\n".join(outcome["notes"]), re.MULTILINE)
    service.disable("batch")
    assert "not enabled" in result_of(service, "machine", "evict", "batch_0", "--yes")["notes"][0]


def test_a_policy_is_shown_and_changed(service: Service) -> None:
    words = ("--auto-approve", "Reboot,redeploy", "--user-event-limit", "2")
    changed = result_of(service, "group", "policy", "db", *words)
    assert changed["auto_approve"] == ["Reboot", "Redeploy"]
    assert changed["user_event_limit"] == 2
    assert result_of(service, "machine", "restart", "db-a")["status"] == "Started"
    changed = result_of(service, "group", "policy", "db", "--auto-approve", "none")
    assert (changed["auto_approve"], changed["user_event_limit"]) == ([], 2)
    result_of(service, "machine", "restart", "db-b")
    result_of(service, "machine", "redeploy", "db-b")
    assert "2 user events" in refused(service, "machine", "restart", "db-c")
    assert (
        result_of(service, "group", "policy", "web", "--terminate-notice", "PT15M")[
            "terminate_notice"
        ]
        == 900
    )
    assert (
        result_of(service, "group", "policy", "web", "--terminate-notice", "off")[
            "terminate_notice"
        ]
        is None
    )


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("web", "--terminate-notice", "16m"), "5 min to 15 min"),
        (("db", "--terminate-notice", "5m"), "kind scale-set"),
        (("db", "--auto-approve", "Freeze"), "not Freeze"),
        (("db", "--user-event-limit", "0"), "at least 1"),
    ],
)
def test_an_invalid_policy_is_refused(
    service: Service, words: tuple[str, ...], reason: str
) -> None:
    assert reason in refused(service, "group", "policy", *words)


def test_users_events_are_approved_while_all_machines_are_down(service: Service) -> None:
    result_of(service, "group", "policy", "split", "--all-instances-down")
    result_of(service, "machine", "restart", "split-1")
    result_of(service, "machine", "fail", "split-0", "--yes")
    waiting = events(service, "split-0")[0]
    assert waiting["EventStatus"] == "Scheduled"
    result_of(service, "machine", "fail", "split-1", "--yes")
    shown = result_of(service, "event", "show", waiting["EventId"])
    assert shown["approved"]["by"].startswith("policy: all machines")
    service.clock.advance("11m")
    assert events(service, "split-0")[0]["EventStatus"] == "Started"


def test_hosts_are_listed_and_selected_by_label(service: Service) -> None:
    assert [host["name"] for host in result_of(service, "host", "list")] == ["h1", "h2", "h3"]
    assert [h["name"] for h in result_of(service, "host", "list", "--label", "rack!=1")] == ["h3"]
    assert "did you mean 'h1'" in refused(service, "host", "show", "h11")


def test_apply_and_plan_report_all_mistakes_of_a_file(service: Service, tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("groups:\n- {name: g, kind: standalon, machines: []}\nhostts: []\n")
    for words in ([], ["--plan"]):
        refused = CliRunner().invoke(
            app, ["apply", str(file), *words, "--url", service.control_url]
        )
        assert refused.exit_code == 1
        first, second = refused.stderr.splitlines()
        assert first.startswith(f"forewarn: {file}:2: groups[0].kind: ")
        assert "'standalon'" in first
        assert second.startswith(f"forewarn: {file}:3: hostts: ")
        assert "'hosts'" in second


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (("machine", "--host", "h1"), ["batch_0", "db-a", "web_0"]),
        (("machine", "--host", "h1", "--group", "db"), ["db-a"]),
        (("machine", "--health", "degraded"), ["batch_2", "db-c", "jump", "split-0", "split-1"]),
        (("machine", "--gone"), []),
        (("machine", "--group", "jump", "--present"), ["jump"]),
        (("machine", "--disabled"), []),
        (("group", "--kind", "standalone"), ["jump"]),
        (("group", "--disabled"), []),
        (("host", "--health", "degraded"), ["h3"]),
        (("rollout", "--state", "running"), []),
    ],
)
def test_lists_are_filtered(
    degraded: Service, listed: tuple[str, ...], expected: list[str]
) -> None:
    found = run(degraded, listed[0], "list", *listed[1:], "--json")
    assert [item["name"] for item in json.loads(found.stdout)] == expected


@pytest.fixture(scope="module")
def degraded() -> Iterator[Service]:
    """One host is degraded, and so its machines are about to be redeployed."""
    with Service(FLEET, sockets=True) as service:
        for machine in LISTENERS:
            service.document(machine)
        run(service, "host", "degrade", "h3")
        yield service


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ((), 5),
        (("--machine", "jump"), 1),
        (("--host", "h3"), 5),
        (("--type", "Redeploy", "--status", "Scheduled", "--source", "Platform"), 5),
        (("--type", "Freeze"), 0),
        (("--since", "1h"), 5),
        (("--since", "2099-01-01T00:00:00Z"), 0),
        (("--cause", "none"), 0),
    ],
)
def test_events_are_filtered(degraded: Service, filters: tuple[str, ...], count: int) -> None:
    found = run(degraded, "event", "list", *filters, "--json")
    assert len(json.loads(found.stdout)) == count


def test_the_instance_metadata_of_machines_and_groups_are_shown() -> None:
    fleet = """
location: north
subscription: abc
groups:
  - name: web
    kind: standalone
    zone: "2"
    resource_group: shop
    machines: [{name: web, tags: {team: red}, vm_id: 9b1f2f0e-6c0f-4c55-8a41-2f6f6cf0a1d7}]
"""
    with Service(fleet, sockets=True) as service:
        machine = run(service, "machine", "show", "web").stdout
        assert re.search(r"^tags +team=red$", machine, re.MULTILINE)
        assert re.search(r"^vm id +9b1f2f0e-6c0f-4c55-8a41-2f6f6cf0a1d7$", machine, re.MULTILINE)
        group = run(service, "group", "show", "web").stdout
        rows = ("location +north", "zone +2", "resource group +shop", "subscription +abc")
        assert all(re.search(f"^{row}$", group, re.MULTILINE) for row in rows), group
        (listed,) = json.loads(run(service, "machine", "list", "--json").stdout)
        assert listed["tags"] == {"team": "red"}


def test_windows_that_leave_a_group_no_time_for_maintenance_give_a_note(
    service: Service, tmp_path: Path
) -> None:
    def noted(*words: str) -> list[list[str]]:
        """Return the names in each note: of groups, then of configurations."""
        result = run(service, *words)
        assert result.exit_code == 0, result.stderr
        notes = [line for line in result.stderr.splitlines() if line.startswith("note: ")]
        assert all("400 d" in note for note in notes)
        return [re.findall("'([^']+)'", note) for note in notes]

    assert noted("group", "policy", "web", "--window", "10:00-11:00") == []
    assert noted("group", "policy", "web", "--window", "22:00-23:00") == []
    names = noted("maintenance", "set", "nights", "--window", "01:00-02:00")
    assert names == [["web", "group web", "nights"]]
    blackout = "2026-01-01 to 2099-12-31"
    names = noted("group", "policy", "jump", "--blackout", blackout)
    assert names == [["jump", "group jump", "nights"]]
    file = tmp_path / "fleet.yaml"
    file.write_text(f"{FLEET}maintenance: [{{name: never, blackouts: [{blackout}]}}]\n")
    for options in (("--plan",), ()):
        names = noted("apply", str(file), *options)
        assert names == [["web", "batch", "db", "jump", "split", "never"]]
