"""Where a machine is, typed as commands: reports, files that contradict them, and who is right."""

from __future__ import annotations

import json
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


def typed(service: Service, *words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words), "--url", service.control_url])


def printed(service: Service, *words: object) -> str:
    result = typed(service, *words)
    assert result.exit_code == 0, result.output
    service._session.settle()
    return result.output


def refused(service: Service, *words: object) -> str:
    result = typed(service, *words)
    assert result.exit_code == 1, result.output
    return result.stderr


def machine(service: Service, name: str = "db-0") -> Any:
    return json.loads(typed(service, "machine", "show", name, "--json").stdout)


def where(service: Service, name: str = "db-0") -> tuple[str, str, bool]:
    view = machine(service, name)
    return view["host"], view["inventory_host"], view["disputed"]


def moved_away(service: Service) -> None:
    """Let forewarn move db-0 from h1 to h3."""
    event = service.redeploy("db-0").until_started(approve=True)
    advice = f"forewarn event finish {event.id} --reason … --moved db-0=HOST"
    assert advice in printed(service, "event", "explain", event.id)
    printed(service, "event", "finish", event.id, "--reason", "by hand", "--moved", "db-0=h3")
    assert where(service) == ("h3", "h1", False)


def test_a_machine_that_a_hand_has_moved_is_warned_where_it_is(service: Service) -> None:
    moved_away(service)
    assert "db-0 is on h1" in printed(service, "machine", "moved", "db-0", "--to", "h1")
    printed(service, "host", "maintain", "h1", "--type", "Reboot")
    [event] = service.document("db-0")["Events"]
    assert event["Resources"] == ["db-0"]


def test_a_file_that_contradicts_a_move_is_a_conflict_until_somebody_says_who_is_right(
    service: Service, fleet: Path
) -> None:
    moved_away(service)
    sentence = "the file has machine 'db-0' on h1, but it is known to be on h3, where it stays"
    assert sentence in printed(service, "apply", fleet, "--plan")
    assert where(service) == ("h3", "h1", False)
    assert sentence in printed(service, "apply", fleet)
    assert where(service) == ("h3", "h1", True)
    assert "on h3, but a fleet file says h1" in printed(service, "history", "--machine", "db-0")
    for host in ("h1", "h3"):
        answer = refused(service, "host", "maintain", host, "--type", "Reboot")
        assert "db-0 (file: h1, known: h3)" in answer
        assert "forewarn machine moved db-0 --to HOST" in answer
    printed(service, "host", "maintain", "h2", "--type", "Freeze")
    printed(service, "machine", "moved", "db-0", "--to", "h3")
    assert where(service) == ("h3", "h1", False)
    assert "no machine is on host 'h1'" in printed(
        service, "host", "maintain", "h1", "--type", "Reboot"
    )


@pytest.mark.parametrize(
    ("who", "host"), [("file", ("h1", "h1", False)), ("reported", ("h3", "h1", False))]
)
def test_an_apply_can_say_who_is_right(
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


def test_a_file_that_has_caught_up_settles_it(service: Service, fleet: Path) -> None:
    moved_away(service)
    printed(service, "apply", fleet)
    fleet.write_text(FLEET.replace("db-0, host: h1", "db-0, host: h3"))
    printed(service, "apply", fleet)
    assert where(service) == ("h3", "h3", False)


def test_a_file_moves_machines_unless_only_reports_do(service: Service, fleet: Path) -> None:
    fleet.write_text(FLEET.replace("db-0, host: h1", "db-0, host: h2"))
    answer = printed(service, "apply", fleet, "--plan", "--placement", "reported")
    assert "the file has machine 'db-0' on h2, but it is known to be on h1" in answer
    printed(service, "apply", fleet, "--placement", "reported")
    assert where(service)[0] == "h1"
    assert where(service) == ("h1", "h2", False)
    assert "conflict: the file has machine 'db-0' on h2" in printed(service, "apply", fleet)
    printed(service, "apply", fleet, "--placement", "file")
    assert where(service)[0] == "h2"
    fleet.write_text(FLEET.replace("db-0, host: h1", "db-0, host: h3"))
    printed(service, "apply", fleet)
    assert where(service)[0] == "h3"


def test_another_change_of_the_group_is_no_statement_about_hosts(service: Service) -> None:
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
    history = printed(service, "history", "--machine", "db-0")
    assert "from h1 to h3" in history
    assert event["EventId"][:8] in printed(service, "event", "list", "--all")


def test_what_is_not_there_is_refused_and_changes_nothing(service: Service) -> None:
    before = service._session.node.store.seq
    assert "no machine 'db-9'" in refused(service, "machine", "moved", "db-9", "--to", "h1")
    assert "no host 'h9'" in refused(service, "machine", "moved", "db-0", "--to", "h9")
    assert service._session.node.store.seq == before
    event = started(service)
    words = ("event", "finish", event.id, "--reason", "done", "--moved")
    before = service._session.node.store.seq
    assert "no host 'h9'" in refused(service, *words, "db-0=h9")
    assert "db-1' is not affected" in refused(service, *words, "db-1=h3")
    result = typed(service, *words, "db-0")
    assert result.exit_code == 2
    assert "web-0=h3" in result.stderr
    assert service._session.node.store.seq == before


def test_reporting_what_is_known_changes_nothing(service: Service) -> None:
    answer = printed(service, "machine", "moved", "db-0", "--to", "h1")
    assert "it was already known to be on host 'h1'" in answer
    assert "machine-moved" not in printed(service, "history", "--machine", "db-0")


def test_a_host_that_fails_is_not_kept_waiting_by_a_conflict(service: Service, fleet: Path) -> None:
    moved_away(service)
    printed(service, "apply", fleet)
    answer = printed(service, "host", "fail", "h1", "--yes")
    assert "db-0 (file: h1, known: h3)" in answer


def started(service: Service) -> Event:
    return service.redeploy("db-0").until_started(approve=True)


def test_the_setting_is_for_every_file() -> None:
    assert Config().placement is None
    assert [placement.value for placement in Placement] == ["file", "reported"]


def test_what_says_nothing_about_hosts_undoes_no_move(service: Service, fleet: Path) -> None:
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


def test_saying_that_reports_are_right_settles_a_conflict(service: Service, fleet: Path) -> None:
    moved_away(service)
    printed(service, "apply", fleet)
    assert where(service)[2]
    assert "it is not certain whether db-0 is on it" in printed(service, "host", "explain", "h1")
    printed(service, "apply", fleet, "--placement", "reported")
    assert where(service) == ("h3", "h1", False)
    fleet.write_text(FLEET.replace("hosts: [h1, ", "hosts: [").replace("host: h1", "host: h2"))
    printed(service, "apply", fleet, "--placement", "reported")
    assert where(service) == ("h3", "h2", False)
    printed(service, "apply", fleet, "--placement", "reported")


@pytest.mark.parametrize(
    ("who", "there"), [(None, ("h3", "h1", True)), ("file", ("h1", "h1", False))]
)
def test_a_machine_that_changes_its_group_is_where_it_was(
    service: Service, fleet: Path, who: str | None, there: tuple[str, str, bool]
) -> None:
    moved_away(service)
    machines = "machines: [{name: db-0, host: h1}, {name: db-1, host: h2, update_domain: 1}]"
    text = FLEET.replace(machines, "machines: [{name: db-1, host: h2, update_domain: 1}]")
    fleet.write_text(text + "  - {name: new, kind: standalone, machines: [{name: db-0, host: h1}]}")
    answer = printed(service, "apply", fleet, *(["--placement", who] if who else []))
    assert ("conflict: the file has machine 'db-0' on h1" in answer) is (who is None)
    assert where(service) == there
    result = typed(service, "host", "maintain", "h1", "--type", "Reboot")
    assert result.exit_code == (1 if who is None else 0), result.output


def test_machines_that_change_places_are_all_known(service: Service, fleet: Path) -> None:
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


def test_where_one_machine_of_an_event_went_says_nothing_about_the_others(
    service: Service,
) -> None:
    reboot = service.schedule("Reboot", "db-0")
    other = service.schedule("Freeze", "db-1", notice="1h")
    reboot.until_started(approve=True)
    printed(service, "event", "finish", reboot.id, "--reason", "done", "--moved", "db-0=h3")
    assert where(service)[0] == "h3"
    assert other.status == "Scheduled"


def test_whoever_puts_a_machine_under_planned_maintenance_is_warned(
    service: Service, fleet: Path
) -> None:
    printed(service, "host", "maintain", "h2", "--type", "Reboot")
    warning = "maintenance of host 'h2' is planned or under way, and has not been announced to"
    assert f"{warning} db-0" in printed(service, "machine", "moved", "db-0", "--to", "h2")
    assert warning not in printed(service, "machine", "moved", "db-1", "--to", "h2")
    fleet.write_text(FLEET.replace("{name: free}", "{name: free, host: h2}"))
    assert f"{warning} free" in printed(service, "apply", fleet, "--plan")
    assert f"{warning} free" in printed(service, "apply", fleet)


def test_maintenance_does_not_start_while_a_machine_on_the_host_is_not_warned(
    service: Service,
) -> None:
    printed(service, "host", "maintain", "h2", "--type", "Reboot")
    [event] = [e for e in service.events if e.type == "Reboot"]
    printed(service, "machine", "moved", "free", "--to", "h2")
    service.clock.advance("1d")
    assert event.status == "Scheduled"
    explained = printed(service, "event", "explain", event.id)
    assert "free may be on host 'h2' and would not be warned" in explained
    assert "free may be on host 'h2'" in printed(service, "host", "explain", "h2")
    printed(service, "machine", "moved", "free", "--to", "h3")
    service.clock.advance("1s")
    assert event.status == "Started"


def test_a_file_that_makes_planned_maintenance_doubtful_is_warned_about(
    service: Service, fleet: Path
) -> None:
    printed(service, "machine", "moved", "free", "--to", "h1")
    moved_away(service)
    printed(service, "host", "maintain", "h1", "--type", "Reboot")
    answer = printed(service, "apply", fleet)
    assert "has not been announced to db-0, which the file puts there" in answer
    service.clock.advance("1d")
    assert "db-0 may be on host 'h1'" in printed(service, "host", "explain", "h1")
    printed(service, "machine", "moved", "db-0", "--to", "h3")
    service.clock.advance("1h")
    assert "nothing is planned for it" in printed(service, "host", "explain", "h1")


def test_who_finishes_a_redeploy_by_hand_is_asked_where_the_machines_went(
    service: Service,
) -> None:
    event = started(service)
    answer = printed(service, "event", "finish", event.id, "--reason", "by hand")
    assert "the new host was not given for db-0" in answer


def test_a_host_between_two_moves_does_not_undo_the_second(service: Service, fleet: Path) -> None:
    printed(service, "machine", "moved", "db-0", "--to", "h2")
    printed(service, "machine", "moved", "db-0", "--to", "h3")
    fleet.write_text(FLEET.replace("db-0, host: h1", "db-0, host: h2"))
    assert "has machine 'db-0' on h2, but it is known to be on h3" in printed(
        service, "apply", fleet
    )
    assert where(service) == ("h3", "h2", True)
