"""The overview counts every machine once, under what happens to it, as a walk over all of them
would."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from forewarn.core.access import Role
from forewarn.drivers.port import Observed, Performed, Task, Unknown
from forewarn.drivers.simulated import ImpactJournal, SimulatedDriver
from forewarn.service.indexes import overview
from forewarn.service.indexes.overview import StateCounts, Table, count
from forewarn.testing import Service
from helpers.control_api import ask
from helpers.reachable_hosts import cut_off, join
from helpers.token_api import api_with_token, token

FLEET = """
hosts: [{name: h1, labels: {rack: r1}}, h2, {name: h10, labels: {rack: r1}}]
groups:
  - name: web
    kind: scale-set
    labels: {tier: web}
    machines:
      - {name: web_0, host: h1, update_domain: 0}
      - {name: web_1, host: h2, update_domain: 1}
      - {name: web_2, host: h1, update_domain: 2, spot: true}
      - {name: web_10, host: h10, update_domain: 0}
  - {name: sql-10, kind: standalone, machines: [{name: db-10}]}
  - {name: sql-9, kind: standalone, labels: {tier: db}, machines: [{name: db-9, host: h2}]}
"""
MACHINES = ("web_0", "web_1", "web_2", "web_10", "db-9", "db-10")


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as service:
        yield service


def rows(service: Service, query: str) -> dict[str, dict[str, Any]]:
    answer = ask(service, "GET", f"/v1/overview?{query}")
    assert answer.status == 200, answer.body
    return {row["name"]: row for row in answer.body["rows"]}


def table(of_rows: Mapping[str, Mapping[str, Any]]) -> Table:
    return {
        name: {
            domain["update_domain"]: msgspec.convert(domain, StateCounts)
            for domain in row["domains"]
        }
        for name, row in of_rows.items()
        if "domains" in row
    }


def test_machines_are_counted_by_what_happens_to_them(service: Service) -> None:
    assert table(rows(service, "by=host"))["h2"][0] == StateCounts(silent=1)
    for machine in MACHINES:
        service.get(machine)
    assert table(rows(service, "by=host")) == {
        "h1": {0: StateCounts(quiet=1), 2: StateCounts(quiet=1)},
        "h2": {0: StateCounts(quiet=1), 1: StateCounts(quiet=1)},
        "h10": {0: StateCounts(quiet=1)},
    }
    event = service.schedule("Reboot", "web_0")
    service.schedule("Reboot", "web_1")
    assert table(rows(service, "by=group"))["web"] == {
        0: StateCounts(scheduled=1, quiet=1),
        1: StateCounts(scheduled=1),
        2: StateCounts(quiet=1),
    }
    service.approve("web_0", event)
    assert table(rows(service, "by=group"))["web"][0] == StateCounts(started=1, quiet=1)
    assert table(rows(service, "by=group"))["web"][1] == StateCounts(scheduled=1)
    service.clock.advance("3h")
    assert table(rows(service, "by=group"))["web"][1] == StateCounts(silent=1)


def test_what_waits_for_an_operator_is_held_and_what_waits_otherwise_is_not() -> None:
    class Unclear(SimulatedDriver):
        repeatable = False

        async def perform(self, task: Task) -> Performed:
            return Unknown("")

        async def observe(self, task: Task) -> Observed:
            return Unknown("")

    driver = Unclear(ImpactJournal(), paced=lambda duration: duration)
    with Service(FLEET, sockets=True, driver=driver) as service:
        service.get("web_0")
        event = service.schedule("Reboot", "web_0")
        halt = ask(service, "POST", "/v1/halts", {"note": "stop"}).body["id"]
        service.clock.advance("20m")
        assert table(rows(service, "by=host"))["h1"][0] == StateCounts(scheduled=1)
        assert ask(service, "POST", f"/v1/halts/{halt}/release", {}).status == 200
        assert table(rows(service, "by=host"))["h1"][0] == StateCounts(held=1)
        assert ask(service, "GET", f"/v1/events/{event.id}").body["held"]
        assert ask(service, "GET", "/v1/status").body["problems"][0]["kind"] == "held"


def test_rows_are_selected_by_label_and_show_the_state_of_hosts(service: Service) -> None:
    assert list(rows(service, "")) == ["h1", "h2", "h10"]
    assert list(rows(service, "label=rack%3Dr1")) == ["h1", "h10"]
    assert list(rows(service, "by=group&label=tier")) == ["sql-9", "web"]
    assert ask(service, "POST", "/v1/hosts/h2/cordon", {}).status == 200
    assert rows(service, "")["h2"]["cordoned"] is True
    assert rows(service, "")["h2"]["health"] == "healthy"
    answer = ask(service, "GET", "/v1/overview?by=rack")
    assert answer.status == 400
    assert "host, group" in answer.body["detail"]


def test_a_host_whose_node_or_driver_process_is_disconnected_is_unhealthy(
    service: Service,
) -> None:
    def unreachable() -> list[str]:
        found = rows(service, "state=unhealthy")
        assert all(row["unreachable"] for row in found.values())
        return list(found)

    cut_off(service, "h2")
    assert unreachable() == ["h2"]
    node = service._session.node
    drivers = node.host_index.drivers
    service._session.call(lambda: drivers.begin(lambda: node.writer.now().at))
    assert unreachable() == ["h2"]  # they have not had time to connect
    drivers._awaited_until = 0.0
    drivers.changed(["h2", "h10"], "libvirt", "1.2", joined=True)
    assert unreachable() == ["h1", "h2"]
    join(service, "h2")
    drivers.changed(["h1"], "libvirt", "1.2", joined=True)
    assert unreachable() == []


def test_rows_are_summed_by_a_label_and_what_is_not_quiet_comes_first(service: Service) -> None:
    for machine in MACHINES:
        service.get(machine)
    service.schedule("Reboot", "web_10")
    assert list(rows(service, "sums=rack")) == ["r1", ""]
    summed = ask(service, "GET", "/v1/overview?sums=rack&order=state").body
    assert [row["name"] for row in summed["rows"]] == ["r1", ""]
    assert summed["rows"][0] == {
        "name": "r1",
        "state": "scheduled",
        "counts": {"scheduled": 1, "quiet": 1},
        "machines": {"scheduled": 1, "quiet": 2},
    }
    assert summed["counts"] == {"scheduled": 1, "quiet": 2}
    assert summed["machines"] == {"scheduled": 1, "quiet": 4}
    assert summed["labels"] == ["rack"]
    assert list(rows(service, "by=group&sums=tier&order=state")) == ["web", "db", ""]
    assert list(rows(service, "order=state")) == ["h10", "h1", "h2"]
    assert list(rows(service, "state=scheduled")) == ["h10"]
    assert list(rows(service, "state=quiet")) == ["h1", "h2"]
    for verb in ("cordon", "degrade"):
        assert ask(service, "POST", f"/v1/hosts/h2/{verb}", {}).status == 200
    assert list(rows(service, "state=cordoned")) == ["h2"]
    first = ask(service, "GET", "/v1/overview?order=state&limit=1").body
    assert [row["name"] for row in first["rows"]] == ["h2"]
    assert first["rows"][0]["state"] == "unhealthy"
    assert first["left_out"] == 2


def test_one_host_or_group_can_be_asked_for(service: Service) -> None:
    assert list(rows(service, "name=h10")) == ["h10"]
    assert list(rows(service, "by=group&name=web")) == ["web"]
    answer = ask(service, "GET", "/v1/overview?name=h11")
    assert answer.status == 404
    assert "h11" in answer.body["detail"]
    assert ask(service, "GET", "/v1/overview?sums=pool").status == 404


def test_a_limited_token_sees_the_numbers_of_its_own_machines() -> None:
    with Service(FLEET, sockets=True) as service:
        token(service, "admin", Role.ADMIN)
        api = api_with_token(service, "db", Role.VIEWER, groups=("sql-9",))
        answer = api.get("/v1/overview?by=host").json()
        assert [row["name"] for row in answer["rows"]] == ["h2"]
        assert answer["rows"][0]["domains"] == [{"update_domain": 0, "silent": 1}]
        answer = api.get("/v1/overview?by=group").json()
        assert [row["name"] for row in answer["rows"]] == ["sql-9"]


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_a_walk_over_all_machines_counts_the_same(
    seed: int, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "LOOK_EVERY", 0.0)
    chance, node = random.Random(seed), service._session.node
    for _ in range(40):
        machine = chance.choice(MACHINES)
        match chance.randrange(9):
            case 0 | 1:
                ask(service, "POST", "/v1/events", {"type": "Reboot", "machines": [machine]})
            case 2:
                ask(service, "POST", f"/v1/machines/{machine}/evict", {})
            case 3:
                service.clock.advance(chance.choice(["1s", "10m", "20m", "2h"]))
            case 4:
                service.get(machine)
            case 5 if events := service.events:
                ask(service, "POST", f"/v1/events/{chance.choice(events).id}/cancel", {})
            case 6:
                host = chance.choice(["h1", "h2", "h10"])
                ask(service, "POST", f"/v1/machines/{machine}/moved", {"to": host})
            case 7:
                ask(service, "POST", "/v1/hosts/h1/fail", {})
                ask(service, "POST", "/v1/hosts/h1/repair", {})
            case 8:
                group = {"group": chance.choice(["web", "sql-9"]), "update_domain": 1}
                ask(service, "PUT", f"/v1/machines/{machine}", group)
        got = table(rows(service, "by=host")), table(rows(service, "by=group"))
        at = node.writer.now().at
        assert got == count(node.store.groups.values(), node.poll_index, at)
