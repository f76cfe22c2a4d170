"""The host of a machine, as commands: reports, and fleet files that contradict them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.core.fleet import Placement
from forewarn.node import Config
from forewarn.service.fleet import edit, read
from forewarn.testing import Event, Service

FLEET = """
hosts: [h1, h2, h3]
groups:
  - name: db
    kind: availability-set
    machines: [{name: db-0, host: h1}, {name: db-1, host: h2, update_domain: 1}]
  - name: free
    kind: standalone
    machines: [{name: free}]
"""
CONFLICT = "db-0 (file: h1, known: h3)"


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as made:
        made.document("db-0")
        yield made


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    file = tmp_path / "fleet.yaml"
    file.write_text(FLEET)
    return file


def run(service: Service, *words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words), "--url", service.control_url])


def printed(service: Service, *words: object) -> str:
    result = run(service, *words)
    assert result.exit_code == 0, result.output
    service._session.settle()
    return result.output


def refused(service: Service, *words: object) -> str:
    result = run(service, *words)
    assert result.exit_code == 1, result.output
    return result.stderr


def machine(service: Service, name: str = "db-0") -> Any:
    return json.loads(run(service, "machine", "show", name, "--json").stdout)


def where(service: Service, name: str = "db-0") -> tuple[str, str, bool]:
    view = machine(service, name)
    return view["host"], view["inventory_host"], view["disputed"]


def conflicts(output: str) -> list[tuple[str, ...]]:
    """Return the machines about which a file contradicts reports: name, host there, known host."""
    pattern = r"^.*conflict: .*'(.+)' on (\w+), .* on (\w+)"
    return [found.groups() for found in re.finditer(pattern, output, re.MULTILINE)]


def moved_away(service: Service) -> None:
    """Let forewarn move db-0 from h1 to h3."""
    event = service.redeploy("db-0").until_started(approve=True)
    explained = printed(service, "event", "explain", event.id)
    assert re.search(f"event finish {event.id} .* --moved db-0=HOST", explained)
    printed(service, "event", "finish", event.id, "--reason", "by hand", "--moved", "db-0=h3")
    assert where(service) == ("h3", "h1", False)


def moved_by_driver(service: Service) -> str:
    """Let the driver move db-0 away from h1, and return where it is now."""
    service.redeploy("db-0").until_started(approve=True).until_over()
    new = where(service)[0]
    assert where(service) == (new, "h1", False)
    assert new != "h1"
    return new


def test_a_machine_that_was_moved_by_hand_is_warned_on_its_new_host(service: Service) -> None:
    moved_away(service)
    printed(service, "machine", "moved", "db-0", "--to", "h1")
    printed(service, "host", "maintain", "h1", "--type", "Reboot")
    [event] = service.document("db-0")["Events"]
    assert event["Resources"] == ["db-0"]


def test_a_file_that_contradicts_a_move_is_a_conflict_until_an_operator_resolves_it(
    service: Service, fleet: Path
) -> None:
    moved_away(service)
    assert conflicts(printed(service, "apply", fleet, "--plan")) == [("db-0", "h1", "h3")]
    assert where(service) == ("h3", "h1", False)
    assert conflicts(printed(service, "apply", fleet)) == [("db-0", "h1", "h3")]
    assert where(service) == ("h3", "h1", True)
    assert re.search("h3, .* file says h1", printed(service, "history", "--machine", "db-0"))
    for host in ("h1", "h3"):
        answer = refused(service, "host", "maintain", host, "--type", "Reboot")
        assert CONFLICT in answer
        assert "forewarn machine moved db-0 --to HOST" in answer
    printed(service, "host", "maintain", "h2", "--type", "Freeze")
    printed(service, "machine", "moved", "db-0", "--to", "h3")
    assert where(service) == ("h3", "h1", False)
    printed(service, "host", "maintain", "h1", "--type", "Reboot")
    assert [event.type for event in service.events] == ["Freeze"]


def test_a_file_that_has_not_changed_since_a_driver_moved_a_machine_is_no_conflict(
    service: Service, fleet: Path
) -> None:
    new = moved_by_driver(service)
    assert new != "h1"
    fleet.write_text(FLEET.replace("update_domain: 1", "update_domain: 2"))
    assert conflicts(printed(service, "apply", fleet)) == []  # another machine may have changed
    assert where(service) == (new, "h1", False)
    printed(service, "host", "maintain", "h1", "--type", "Freeze")
    printed(service, "host", "maintain", new, "--type", "Freeze")
    [event] = [e for e in service.document("db-0")["Events"] if "db-0" in e["Resources"]]
    assert event["EventType"] == "Freeze"


def test_a_file_that_says_something_else_since_a_driver_moved_a_machine_is_a_conflict(
    service: Service, fleet: Path
) -> None:
    new = moved_by_driver(service)
    [other] = {"h2", "h3"} - {new}
    fleet.write_text(FLEET.replace("db-0, host: h1", f"db-0, host: {other}"))
    assert conflicts(printed(service, "apply", fleet)) == [("db-0", other, new)]
    fleet.write_text(FLEET)  # it has changed since, whatever it said before
    assert conflicts(printed(service, "apply", fleet)) == [("db-0", "h1", new)]
    assert where(service) == (new, "h1", True)


def test_a_move_that_was_reported_after_that_of_a_driver_can_be_contradicted(
    service: Service, fleet: Path
) -> None:
    new = moved_by_driver(service)
    [other] = {"h2", "h3"} - {new}
    assert "already known" in printed(service, "machine", "moved", "db-0", "--to", new)
    assert conflicts(printed(service, "apply", fleet)) == []
    printed(service, "machine", "moved", "db-0", "--to", other)
    assert conflicts(printed(service, "apply", fleet)) == [("db-0", "h1", other)]


@pytest.mark.parametrize(
    ("who", "host"), [("file", ("h1", "h1", False)), ("reported", ("h3", "h1", False))]
)
def test_an_apply_can_prefer_the_file_or_the_reports(
    service: Service, fleet: Path, who: str, host: tuple[str, str, bool]
) -> None:
    moved_away(service)
    plan = printed(service, "apply", fleet, "--placement", who, "--plan")
    if who == "file":
        assert f"forewarn apply {fleet} --placement file --if-match " in plan
    printed(service, "apply", fleet, "--placement", who)
    assert where(service) == host
    assert "nothing to change" in printed(service, "apply", fleet, "--placement", who)


def test_an_unknown_authority_is_refused(service: Service, fleet: Path) -> None:
    assert "placement" in refused(service, "apply", fleet, "--placement", "gossip")


def test_a_file_that_names_the_new_host_ends_the_conflict(service: Service, fleet: Path) -> None:
    moved_away(service)
    printed(service, "apply", fleet)
    fleet.write_text(FLEET.replace("db-0, host: h1", "db-0, host: h3"))
    printed(service, "apply", fleet)
    assert where(service) == ("h3", "h3", False)


def test_a_file_moves_machines_unless_only_reports_do(service: Service, fleet: Path) -> None:
    fleet.write_text(FLEET.replace("db-0, host: h1", "db-0, host: h2"))
    answer = printed(service, "apply", fleet, "--plan", "--placement", "reported")
    assert conflicts(answer) == [("db-0", "h2", "h1")]
    printed(service, "apply", fleet, "--placement", "reported")
    assert where(service)[0] == "h1"
    assert where(service) == ("h1", "h2", False)
    assert conflicts(printed(service, "apply", fleet)) == [("db-0", "h2", "h1")]
    printed(service, "apply", fleet, "--placement", "file")
    assert where(service)[0] == "h2"
    fleet.write_text(FLEET.replace("db-0, host: h1", "db-0, host: h3"))
    printed(service, "apply", fleet)
    assert where(service)[0] == "h3"


def test_another_change_of_the_group_leaves_a_moved_machine_where_it_is(service: Service) -> None:
    moved_away(service)
    apply = service._session.node.fleet_apply
    service._session.run(apply.change(edit.remove_machine("db-1"), by="test"))
    assert where(service) == ("h3", "h1", False)


def test_a_machine_without_a_host_in_the_file_keeps_what_is_reported(
    service: Service, fleet: Path
) -> None:
    printed(service, "machine", "moved", "free", "--to", "h2")
    assert where(service, "free") == ("h2", "", False)
    printed(service, "apply", fleet)
    assert where(service, "free")[0] == "h2"


def test_a_report_takes_a_machine_out_of_what_is_planned_for_its_old_host(
    service: Service,
) -> None:
    printed(service, "host", "maintain", "h1", "--type", "Reboot")
    [event] = service.document("db-0")["Events"]
    printed(service, "machine", "moved", "db-0", "--to", "h3")
    assert service.document("db-0")["Events"] == []
    assert re.search("h1 to h3", printed(service, "history", "--machine", "db-0"))
    assert event["EventId"][:8] in printed(service, "event", "list", "--all")


def test_a_move_of_an_unknown_machine_or_to_an_unknown_host_changes_nothing(
    service: Service,
) -> None:
    before = service._session.node.store.seq
    assert "no machine 'db-9'" in refused(service, "machine", "moved", "db-9", "--to", "h1")
    assert "no host 'h9'" in refused(service, "machine", "moved", "db-0", "--to", "h9")
    assert service._session.node.store.seq == before
    event = started(service)
    words = ("event", "finish", event.id, "--reason", "done", "--moved")
    before = service._session.node.store.seq
    assert "no host 'h9'" in refused(service, *words, "db-0=h9")
    assert "db-1' is not" in refused(service, *words, "db-1=h3")
    result = run(service, *words, "db-0")
    assert result.exit_code == 2
    assert "web-0=h3" in result.stderr
    assert service._session.node.store.seq == before


def test_reporting_the_known_host_again_changes_nothing(service: Service) -> None:
    assert "already known" in printed(service, "machine", "moved", "db-0", "--to", "h1")
    assert "machine-moved" not in printed(service, "history", "--machine", "db-0")


def test_a_host_that_fails_is_not_kept_waiting_by_a_conflict(service: Service, fleet: Path) -> None:
    moved_away(service)
    printed(service, "apply", fleet)
    answer = printed(service, "host", "fail", "h1", "--yes")
    assert CONFLICT in answer


def started(service: Service) -> Event:
    return service.redeploy("db-0").until_started(approve=True)


def test_no_placement_is_preferred_by_default() -> None:
    assert Config().placement is None


def test_a_fleet_that_names_no_hosts_undoes_no_move(service: Service, fleet: Path) -> None:
    apply = service._session.node.fleet_apply
    apply.placement = Placement.FILE
    moved_away(service)
    service._session.run(apply.change(edit.remove_machine("free"), by="test"))
    assert where(service) == ("h3", "h1", False)
    service._session.run(apply.fleet(read.parse(FLEET), by="start"))
    assert where(service) == ("h3", "h1", False)
    fleet.write_text(FLEET.replace("{name: db-0, host: h1}", "{name: db-0}"))
    printed(service, "apply", fleet)
    assert where(service) == ("h3", "", False)


def test_an_apply_that_prefers_reports_ends_a_conflict(service: Service, fleet: Path) -> None:
    moved_away(service)
    printed(service, "apply", fleet)
    assert where(service)[2]
    assert "whether db-0" in printed(service, "host", "explain", "h1")
    printed(service, "apply", fleet, "--placement", "reported")
    assert where(service) == ("h3", "h1", False)
    fleet.write_text(FLEET.replace("hosts: [h1, ", "hosts: [").replace("host: h1", "host: h2"))
    printed(service, "apply", fleet, "--placement", "reported")
    assert where(service) == ("h3", "h2", False)
    printed(service, "apply", fleet, "--placement", "reported")


@pytest.mark.parametrize(
    ("who", "there"), [(None, ("h3", "h1", True)), ("file", ("h1", "h1", False))]
)
def test_a_machine_that_changes_its_group_stays_on_its_host(
    service: Service, fleet: Path, who: str | None, there: tuple[str, str, bool]
) -> None:
    moved_away(service)
    machines = "machines: [{name: db-0, host: h1}, {name: db-1, host: h2, update_domain: 1}]"
    text = FLEET.replace(machines, "machines: [{name: db-1, host: h2, update_domain: 1}]")
    fleet.write_text(text + "  - {name: new, kind: standalone, machines: [{name: db-0, host: h1}]}")
    answer = printed(service, "apply", fleet, *(["--placement", who] if who else []))
    assert conflicts(answer) == ([("db-0", "h1", "h3")] if who is None else [])
    assert where(service) == there
    result = run(service, "host", "maintain", "h1", "--type", "Reboot")
    assert result.exit_code == (1 if who is None else 0), result.output


def test_machines_that_swap_their_groups_are_all_found_by_id_and_address(
    service: Service, fleet: Path
) -> None:
    """Whichever of their groups is looked at first."""
    moved_away(service)
    printed(service, "machine", "moved", "free", "--to", "h3")
    index = service._session.node.machine_index
    swapped = FLEET.replace("db-0, host: h1", "free").replace(
        "machines: [{name: free}]", "machines: [{name: db-0, host: h1}]"
    )
    for text in (FLEET, swapped, FLEET):
        fleet.write_text(text)
        printed(service, "apply", fleet)
        for name in ("db-0", "db-1", "free"):
            found = index.machine(name)
            assert found is not None
            assert index.with_id(found[1].vm_id) == name
            assert [m.name for a in found[1].addresses for m in index.at(a)] == [name]
        assert "db-0" in refused(service, "host", "maintain", "h1", "--type", "Reboot")


def test_a_move_reported_with_an_event_leaves_the_events_of_other_machines_alone(
    service: Service,
) -> None:
    reboot = service.schedule("Reboot", "db-0")
    other = service.schedule("Freeze", "db-1", notice="1h")
    reboot.until_started(approve=True)
    printed(service, "event", "finish", reboot.id, "--reason", "done", "--moved", "db-0=h3")
    assert where(service)[0] == "h3"
    assert other.status == "Scheduled"


def test_an_operator_who_moves_a_machine_to_a_host_under_maintenance_is_warned(
    service: Service, fleet: Path
) -> None:
    printed(service, "host", "maintain", "h2", "--type", "Reboot")
    warning = "host 'h2' .* not been announced to"
    assert re.search(f"{warning} db-0", printed(service, "machine", "moved", "db-0", "--to", "h2"))
    assert not re.search(warning, printed(service, "machine", "moved", "db-1", "--to", "h2"))
    fleet.write_text(FLEET.replace("{name: free}", "{name: free, host: h2}"))
    assert re.search(f"{warning} free", printed(service, "apply", fleet, "--plan"))
    assert re.search(f"{warning} free", printed(service, "apply", fleet))


def test_maintenance_does_not_start_while_a_machine_on_the_host_is_not_warned(
    service: Service,
) -> None:
    printed(service, "host", "maintain", "h2", "--type", "Reboot")
    [event] = [e for e in service.events if e.type == "Reboot"]
    printed(service, "machine", "moved", "free", "--to", "h2")
    service.clock.advance("1d")
    assert event.status == "Scheduled"
    for subject in (("event", "explain", event.id), ("host", "explain", "h2")):
        assert re.search("free may be .* 'h2'", printed(service, *subject))
    printed(service, "machine", "moved", "free", "--to", "h3")
    service.clock.advance("1s")
    assert event.status == "Started"


def test_a_file_that_puts_another_machine_on_a_host_under_maintenance_gives_a_warning(
    service: Service, fleet: Path
) -> None:
    printed(service, "machine", "moved", "free", "--to", "h1")
    moved_away(service)
    printed(service, "host", "maintain", "h1", "--type", "Reboot")
    assert "announced to db-0" in printed(service, "apply", fleet)
    service.clock.advance("1d")
    assert re.search("db-0 may be .* 'h1'", printed(service, "host", "explain", "h1"))
    printed(service, "machine", "moved", "db-0", "--to", "h3")
    service.clock.advance("1h")
    assert "nothing is planned" in printed(service, "host", "explain", "h1")


def test_finishing_a_redeploy_by_hand_notes_which_machines_have_no_new_host(
    service: Service,
) -> None:
    event = started(service)
    answer = printed(service, "event", "finish", event.id, "--reason", "by hand")
    assert "not given for db-0" in answer


def test_a_file_with_the_host_between_two_moves_does_not_undo_the_second(
    service: Service, fleet: Path
) -> None:
    printed(service, "machine", "moved", "db-0", "--to", "h2")
    printed(service, "machine", "moved", "db-0", "--to", "h3")
    fleet.write_text(FLEET.replace("db-0, host: h1", "db-0, host: h2"))
    assert conflicts(printed(service, "apply", fleet)) == [("db-0", "h2", "h3")]
    assert where(service) == ("h3", "h2", True)
