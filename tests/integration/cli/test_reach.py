"""Hosts whose node is cut off, as commands: what waits, what goes on, what operators see and do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.drivers.port import Done, Driver, NotYet, Observed, Ok, Performed, Task
from forewarn.store import MemoryStore
from forewarn.store.memory import Disk
from forewarn.testing import Service
from helpers.control_api import ask
from helpers.reachable_hosts import cut_off, join

FLEET = """
hosts: [h1, h2, h3]
groups:
  - name: web
    kind: availability-set
    machines:
      - {name: web-0, host: h1}
      - {name: web-1, host: h2, update_domain: 1}
  - name: db
    kind: availability-set
    machines: [{name: db-0, host: h1}, {name: db-1, host: h2, update_domain: 1}]
  - {name: solo, kind: standalone, machines: [{name: solo, host: h1}]}
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as made:
        for name in ("web-0", "db-0", "solo"):
            made.document(name)
        yield made


def run(service: Service, *words: object, answer: str = "") -> Result:
    line = [*map(str, words), "--url", service.control_url]
    result = CliRunner().invoke(app, line, input=answer)
    service._session.settle()
    return result


def printed(service: Service, *words: object) -> str:
    result = run(service, *words)
    assert result.exit_code == 0, result.output
    return result.output


def statuses(service: Service, machine: str) -> list[str]:
    return [event["EventStatus"] for event in service.document(machine)["Events"]]


def node(service: Service, host: str) -> Any:
    return ask(service, "GET", f"/v1/hosts/{host}").body["node"]


def test_an_approved_event_starts_as_soon_as_the_node_joins_again(service: Service) -> None:
    event = service.schedule("Reboot", "web-0")
    cut_off(service, "h1")
    service.approve("web-0", event)
    service.clock.advance("2h")
    assert statuses(service, "web-0") == ["Scheduled"]
    explained = printed(service, "event", "explain", event.id)
    assert re.search("reach: host h1 .* cut off since .* web-0 may still", explained)
    assert re.search("by the node, .* operator", explained)
    join(service, "h1")
    assert event.status == "Started"


def test_an_unapproved_event_starts_when_guests_have_had_a_minute_to_poll(
    service: Service,
) -> None:
    event, elsewhere = service.schedule("Reboot", "web-0"), service.schedule("Reboot", "db-1")
    cut_off(service, "h1")
    service.clock.advance("16m")
    assert (event.status, elsewhere.status) == ("Scheduled", "Started")
    join(service, "h1")
    service.clock.advance("59s")
    assert event.status == "Scheduled"
    service.clock.advance("1s")
    assert event.status == "Started"


def test_maintenance_of_a_cut_off_host_is_announced_and_waits(service: Service) -> None:
    cut_off(service, "h1")
    maintained = run(service, "host", "maintain", "h1", "--type", "Freeze")
    assert maintained.exit_code == 0
    assert "host h1 cannot" in maintained.stderr
    service.clock.advance("1h")
    explained = printed(service, "host", "explain", "h1")
    assert re.search("healthy; .* cut off since 20", explained)
    assert "reach: host h1" in explained
    assert statuses(service, "web-0") == ["Scheduled"]
    assert run(service, "host", "without-node", "h1", "--yes").exit_code == 0
    assert statuses(service, "web-0") == ["Started"]


def test_a_host_is_declared_to_have_no_node_after_a_confirmation(service: Service) -> None:
    assert node(service, "h1") is None
    assert "was not expected" in run(service, "host", "without-node", "h1", "--yes").output
    join(service, "h1")
    assert node(service, "h1")["state"] == "joined"
    refused = run(service, "host", "without-node", "h1", "--yes")
    assert refused.exit_code != 0
    assert "'h1' has joined" in refused.output
    cut_off(service, "h1")
    event = service.schedule("Reboot", "web-0")
    service.approve("web-0", event)
    asked = run(service, "host", "without-node", "h1", answer="no\n")
    assert re.search("3 machines .*: db-0, solo, web-0", asked.output)
    assert event.status == "Scheduled"
    printed(service, "host", "without-node", "h1", "--yes")
    assert node(service, "h1") is None
    assert event.status == "Started"
    history = printed(service, "history", "--host", "h1")
    assert "host-node-joined" in history
    assert "host-without-node" in history


def test_the_node_of_a_host_is_listed(service: Service) -> None:
    join(service, "h2")
    cut_off(service, "h1")
    lines = {line.split()[0]: line for line in printed(service, "host", "list").splitlines()[1:]}
    since = json.loads(run(service, "host", "show", "h1", "--json").stdout)["node"]["since"]
    assert " disconnected since 20" in lines["h1"]
    assert since
    assert " joined " in lines["h2"]
    assert " - " in lines["h3"]
    assert "node      disconnected since 20" in printed(service, "host", "show", "h1")


def test_the_driver_processes_of_hosts_are_listed_and_missed(service: Service) -> None:
    def driver(host: str) -> str:
        columns = printed(service, "host", "list").splitlines()
        (line,) = [line for line in columns if line.startswith(f"{host} ")]
        return line[columns[0].index("DRIVER") : columns[0].index("MACHINES")].strip()

    assert driver("h1") == "-"
    node = service._session.node
    drivers = node.host_index.drivers
    service._session.call(lambda: drivers.begin(lambda: node.writer.now().at))
    assert "drivers" not in ask(service, "GET", "/readyz").body["warnings"]  # yet
    drivers._awaited_until = 0.0
    warning = ask(service, "GET", "/readyz").body["warnings"]["drivers"]
    assert warning.startswith("the driver process of 2 hosts has not been connected since 20")
    assert driver("h1").startswith("disconnected since 20")
    drivers.changed(["h1", "h2"], "libvirt", "1.2", joined=True)
    assert driver("h1") == "joined"
    assert "driver          libvirt, forewarn 1.2" in printed(service, "host", "show", "h1")
    assert ask(service, "GET", "/readyz").body["warnings"] == {}
    drivers.changed(["h1"], "libvirt", "1.2", joined=False)
    assert driver("h1").startswith("disconnected since 20")
    metrics = ask(service, "GET", "/metrics").raw.decode()
    assert "forewarn_drivers_disconnected 1.0" in metrics
    service.host("h1").fail()
    metrics = ask(service, "GET", "/metrics").raw.decode()
    assert "forewarn_drivers_disconnected 0.0" in metrics


def test_status_readiness_and_metrics_report_cut_off_hosts(service: Service) -> None:
    cut_off(service, "h1", "h2")
    service.clock.advance("90s")
    status = run(service, "status")
    assert status.exit_code == 1
    assert re.search("2 hosts .* since 20", status.output)
    ready = ask(service, "GET", "/readyz").body
    assert ready["status"] == "ok"
    assert "h1" not in ready["warnings"]["hosts"]
    metrics = ask(service, "GET", "/metrics").raw.decode()
    assert "forewarn_hosts_unreachable 2.0" in metrics
    assert "forewarn_host_unreachable_seconds 90.0" in metrics
    join(service, "h1", "h2")
    assert ask(service, "GET", "/readyz").body["warnings"] == {}
    metrics = ask(service, "GET", "/metrics").raw.decode()
    assert "forewarn_hosts_unreachable 0.0" in metrics
    assert "forewarn_host_unreachable_seconds 0.0" in metrics


def test_a_fleet_file_neither_gives_a_host_a_node_nor_takes_it_away(
    service: Service, tmp_path: Path
) -> None:
    cut_off(service, "h3")
    file = tmp_path / "fleet.yaml"
    file.write_text(FLEET.replace("h3]", "{name: h3, labels: {row: west}}]"))
    printed(service, "apply", file)
    assert node(service, "h3")["state"] == "disconnected"
    assert "node" not in ask(service, "GET", "/v1/fleet").raw.decode()
    file.write_text(FLEET.replace(", h3]", "]"))
    printed(service, "apply", file)
    file.write_text(FLEET)
    printed(service, "apply", file)
    assert node(service, "h3") is None


def test_no_machine_is_moved_to_a_cut_off_host(service: Service) -> None:
    cut_off(service, "h2", "h3")
    refused = run(service, "host", "drain", "h1")
    assert refused.exit_code != 0
    assert ": h2, h3" in refused.output
    join(service, "h3")
    service.redeploy("solo").until_started(approve=True).until_over()
    assert ask(service, "GET", "/v1/machines/solo").body["host"] == "h3"


def test_machines_of_a_host_that_has_failed_are_moved_and_nothing_waits_for_it(
    service: Service,
) -> None:
    reboot = service.schedule("Reboot", "solo")
    cut_off(service, "h1")
    service.approve("solo", reboot)
    assert reboot.status == "Scheduled"
    printed(service, "host", "fail", "h1", "--yes")
    service.clock.advance("1h")
    assert ask(service, "GET", "/v1/machines/solo").body["host"] in ("h2", "h3")
    assert service.document("solo")["Events"] == []
    assert "machines have moved" in printed(service, "event", "explain", reboot.id)
    assert node(service, "h1")["state"] == "disconnected"
    assert ask(service, "GET", "/readyz").body["warnings"] == {}  # that it has failed is known


class Stubborn(Driver):
    """Moves every machine to h2, whatever it is offered."""

    repeatable = True

    async def check(self, task: Task) -> Ok:
        return Ok()

    async def observe(self, task: Task) -> Observed:
        return NotYet()

    async def perform(self, task: Task) -> Performed:
        for machine in task.machines:
            assert "h2" not in (machine.target, *machine.alternatives)
        return Done({machine.name: "h2" for machine in task.machines})


def test_a_machine_that_a_driver_moved_to_a_cut_off_host_is_recorded_there() -> None:
    with Service(FLEET, driver=Stubborn()) as service:
        service.document("solo")
        cut_off(service, "h2")
        service.redeploy("solo").until_started(approve=True).until_over()
        machine = service._session.node.store.groups["solo"].machine("solo")
        assert machine is not None
        assert machine.host == "h2"
        again = service.redeploy("solo")
        service.clock.advance("1h")
        assert again.status == "Scheduled"


def test_a_rollout_announces_nothing_on_a_cut_off_host_and_continues_elsewhere(
    service: Service,
) -> None:
    cut_off(service, "h1")
    wanted = ("--type", "Freeze", "--group", "web", "--group", "solo", "--at-once", 2)
    plan = printed(service, "rollout", "plan", *wanted)
    assert "cut off: h1" in plan
    started = json.loads(run(service, "rollout", "start", *wanted, "--json").stdout)
    service.clock.advance("1h")
    assert statuses(service, "solo") == statuses(service, "web-0") == []
    explained = printed(service, "rollout", "explain", started["id"])
    assert re.search("reach: web and 1 more: host h1 .* cut off", explained)
    join(service, "h1")
    assert statuses(service, "solo") == statuses(service, "web-0") == ["Scheduled"]
    service.clock.advance("2h")
    done = ask(service, "GET", f"/v1/rollouts/{started['id']}").body
    assert done["state"] == "done"


def test_a_group_on_cut_off_hosts_stays_enabled_until_it_could_have_polled() -> None:
    with Service(FLEET, silence="1d") as service:
        for name in ("web-0", "solo"):
            service.document(name)
        cut_off(service, "h1")
        service.clock.advance("3d")
        groups = service._session.node.store.groups
        assert groups["solo"].enabled
        assert not groups["web"].enabled  # web-1 could have polled
        join(service, "h1")
        service.clock.advance("23h")
        assert groups["solo"].enabled
        service.clock.advance("1h")
        assert not groups["solo"].enabled


def test_after_a_restart_a_host_is_cut_off_until_its_node_has_joined_again() -> None:
    disk = Disk()
    with Service(FLEET, store=MemoryStore(disk)) as service:
        service.document("solo")
        join(service, "h1")
        event = service.schedule("Reboot", "solo")
    with Service(FLEET, store=MemoryStore(disk)) as again:
        again.approve("solo", event.id)
        assert statuses(again, "solo") == ["Scheduled"]
        join(again, "h1")
        assert statuses(again, "solo") == ["Started"]
