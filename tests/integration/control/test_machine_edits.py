"""Creating, changing, moving and removing one machine, and sending back what was shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from forewarn.testing import Service
from helpers.control_api import ApiResponse, ask

FLEET = """
hosts: [{name: h1, labels: {rack: "1"}, capacity: {memory: 64}}, h2, h3]
groups:
  - name: db
    kind: availability-set
    labels: {tier: data, ring: late}
    zone: "2"
    machines:
      - {name: db-0, host: h1, update_domain: 0, labels: {ring: early}, tags: {owner: ann},
         size: {memory: 4, cpus: 2}}
      - {name: db-1, host: h2, update_domain: 1}
  - name: web
    kind: scale-set
    policy: {terminate_notice: 5m, user_event_limit: 2, auto_approve: [Reboot]}
    machines: [{name: web_0}, {name: web_1}]
  - {name: jump, kind: standalone, machines: [{name: jump}]}
"""


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as made:
        made.document("db-0")
        yield made


def done(service: Service, method: str, path: str, body: object = None) -> Any:
    answer = ask(service, method, path, body)
    assert answer.status == 200, answer.raw
    service._session.settle()
    return answer.body


def refused(service: Service, method: str, path: str, body: object = None) -> ApiResponse:
    before = service._session.node.fleet_apply.current()
    answer = ask(service, method, path, body)
    assert answer.status >= 400
    assert service._session.node.fleet_apply.current() == before
    return answer


def machine(service: Service, name: str) -> Any:
    return done(service, "GET", f"/v1/machines/{name}")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/machines/db-0",
        "/v1/machines/web_1",
        "/v1/machines/jump",
        "/v1/groups/db",
        "/v1/groups/web",
        "/v1/groups/jump",
        "/v1/hosts/h1",
        "/v1/fleet",
    ],
)
def test_what_is_shown_can_be_sent_back_and_changes_nothing(service: Service, path: str) -> None:
    done(service, "POST", "/v1/hosts/h1/cordon", {"note": "fans"})
    service.redeploy("db-0").until_started(approve=True).until_over()
    shown = done(service, "GET", path)
    if path in ("/v1/machines/db-0", "/v1/fleet"):  # the inventory learns where it is
        done(service, "PUT", path, shown)
        shown = done(service, "GET", path)
    before = dict(service._session.node.store.groups)
    difference = done(service, "PUT", path, shown)
    assert [difference[kind] for kind in ("hosts", "groups", "machines")] == [
        {"added": 0, "changed": 0, "moved": 0, "removed": 0}
    ] * 3
    assert difference["conflicts"] == []
    after = service._session.node.store.groups
    assert {n: g.machines for n, g in after.items()} == {n: g.machines for n, g in before.items()}
    assert done(service, "GET", path) == shown


def test_a_request_may_put_a_moved_machine_on_another_host(service: Service) -> None:
    """What GET shows is where it is, so that sending it back says the same to everybody."""
    service.redeploy("db-0").until_started(approve=True).until_over()
    shown = machine(service, "db-0")
    assert (shown["host"], shown["inventory_host"]) == ("h3", "h1")
    done(service, "PUT", "/v1/machines/db-0", shown)
    assert machine(service, "db-0")["inventory_host"] == "h3"
    shown["host"] = "h1"
    done(service, "PUT", "/v1/machines/db-0", shown)
    assert machine(service, "db-0")["host"] == "h1"
    [event] = done(service, "POST", "/v1/hosts/h1/maintain", {"mode": "Reboot"})["events"]
    assert event["machines"] == ["db-0"]


def test_a_machine_is_created_changed_and_removed(service: Service) -> None:
    body = {"group": "db", "host": "h2", "update_domain": 2, "labels": {"ring": "late"}}
    difference = done(service, "PUT", "/v1/machines/db-2", body)
    assert difference["machines"]["added"] == 1
    created = machine(service, "db-2")
    assert (created["group"], created["host"], created["update_domain"]) == ("db", "h2", 2)
    assert done(service, "PUT", "/v1/machines/db-2", body)["machines"]["changed"] == 0
    done(service, "PATCH", "/v1/machines/db-2", {"spot": True, "labels": {"ring": "canary"}})
    changed = machine(service, "db-2")
    assert (changed["spot"], changed["host"], changed["labels"]["ring"]) == (True, "h2", "canary")
    done(service, "PATCH", "/v1/machines/db-2", {"labels": None})
    assert machine(service, "db-2")["labels"] == {"tier": "data", "ring": "late"}
    assert done(service, "DELETE", "/v1/machines/db-2")["machines"]["removed"] == 1
    assert ask(service, "GET", "/v1/machines/db-2").status == 404


def test_other_machines_of_a_group_stay_as_they_are(service: Service) -> None:
    service.redeploy("db-0").until_started(approve=True).until_over()
    done(service, "PATCH", "/v1/machines/db-1", {"host": "h3"})
    assert machine(service, "db-1")["inventory_host"] == "h3"
    shown = machine(service, "db-0")
    assert (shown["host"], shown["inventory_host"], shown["disputed"]) == ("h3", "h1", False)


def test_a_machine_moves_to_another_group(service: Service) -> None:
    difference = done(service, "PATCH", "/v1/machines/jump", {"group": "db"})
    assert difference["machines"]["moved"] == 1
    assert difference["groups"]["removed"] == 1
    assert machine(service, "jump")["group"] == "db"


def test_labels_of_the_group_do_not_become_the_machine_s_own(service: Service) -> None:
    done(service, "PUT", "/v1/machines/db-1", machine(service, "db-1"))
    shown = done(service, "GET", "/v1/groups/db")
    shown["labels"]["tier"] = "cold"
    done(service, "PUT", "/v1/groups/db", shown)
    assert machine(service, "db-1")["labels"]["tier"] == "cold"
    assert machine(service, "db-0")["labels"]["ring"] == "early"


@pytest.mark.parametrize(
    ("name", "body", "field", "words"),
    [
        ("new", {}, "group", "a new machine needs a group"),
        ("new", {"group": "dbb"}, "group", "no group 'dbb'"),
        ("new", {"group": ["db"]}, "group", "expected the name of a group"),
        ("new", {"group": "db", "host": "h9"}, "host", "host 'h9' is not listed"),
        ("new", {"group": "db", "update_domain": -1}, "update_domain", "must be from 0"),
        ("new", {"group": "db", "hots": "h1"}, "hots", "did you mean 'host'?"),
        ("new", {"group": "web"}, "name", "is named 'web_2'"),
        ("new", {"group": "db", "name": "old"}, "name", "this request is for 'new'"),
        ("new", {"group": "db", "addresses": ["nowhere"]}, "addresses[0]", "not an IP address"),
        ("db-1", {"group": "jump"}, "machines", "exactly one machine"),
    ],
)
def test_a_mistake_is_named_by_its_field_and_changes_nothing(
    service: Service, name: str, body: object, field: str, words: str
) -> None:
    problem = refused(service, "PUT", f"/v1/machines/{name}", body).body
    assert words in problem["detail"]
    assert f"{field}: " in problem["detail"]


def test_an_unknown_machine_is_not_changed(service: Service) -> None:
    assert refused(service, "PATCH", "/v1/machines/db-9", {"spot": True}).status == 404
    assert refused(service, "DELETE", "/v1/machines/db-9").status == 404


def test_a_machine_that_has_changed_meanwhile_is_left_alone(service: Service) -> None:
    tag = ask(service, "GET", "/v1/machines/db-1").headers["etag"]
    answer = ask(service, "PATCH", "/v1/machines/db-1", {"spot": True}, if_match=tag)
    assert answer.status == 200
    answer = ask(service, "PATCH", "/v1/machines/db-1", {"spot": False}, if_match=tag)
    assert answer.status == 412
    assert machine(service, "db-1")["spot"]


def test_a_machine_with_an_event_keeps_its_update_domain(service: Service) -> None:
    service.schedule("Reboot", "db-1")
    answer = refused(service, "PATCH", "/v1/machines/db-1", {"update_domain": 4})
    assert answer.status == 409
    assert refused(service, "DELETE", "/v1/machines/db-1").status == 409
    done(service, "PATCH", "/v1/machines/db-1?force=true", {"update_domain": 4})
    assert machine(service, "db-1")["update_domain"] == 4


def test_a_change_of_another_field_leaves_the_host_alone(service: Service) -> None:
    service.redeploy("db-0").until_started(approve=True).until_over()
    done(service, "PATCH", "/v1/machines/db-0", {"spot": True})
    shown = machine(service, "db-0")
    assert (shown["host"], shown["inventory_host"], shown["disputed"]) == ("h3", "h1", False)
    assert shown["spot"]


def test_a_group_that_names_hosts_may_contradict_a_move(service: Service) -> None:
    service.redeploy("db-0").until_started(approve=True).until_over()
    machines = [{"name": "db-0", "host": "h1"}, {"name": "db-1", "host": "h2"}]
    body = {"kind": "availability-set", "machines": machines}
    assert done(service, "PUT", "/v1/groups/db", body)["conflicts"] == []  # it does not know of it
    machines[0]["host"] = "h2"
    [conflict] = done(service, "PUT", "/v1/groups/db", body)["conflicts"]
    assert (conflict["machine"], conflict["file"], conflict["known"]) == ("db-0", "h2", "h3")
    assert machine(service, "db-0")["disputed"]


def test_a_machine_that_is_given_by_its_name_stays_as_it_is(service: Service) -> None:
    service.redeploy("db-0").until_started(approve=True).until_over()
    body = {
        "kind": "availability-set",
        "machines": ["db-0", {"name": "db-1", "host": "h2", "update_domain": 1, "spot": True}],
    }
    done(service, "PUT", "/v1/groups/db", body)
    assert machine(service, "db-1")["spot"]
    assert not machine(service, "db-0")["disputed"]
    done(service, "PATCH", "/v1/machines/db-0", {"group": None, "spot": True})
    assert machine(service, "db-0")["group"] == "db"
