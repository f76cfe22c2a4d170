"""Lists of the control API: pages that end where something stood, whatever became of it since, and
filters that mean what they say."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from forewarn.control.operations.table import OPERATIONS
from forewarn.testing import Service
from helpers.control_api import ask

FLEET = """
hosts: [{name: h1, labels: {rack: r1}}, h2, {name: h10, labels: {rack: r1}}]
groups:
  - name: web
    kind: scale-set
    labels: {tier: web}
    policy: {may_postpone: 30d}
    machines:
      - {name: web_0, host: h1}
      - {name: web_1, host: h2}
      - {name: web_2, host: h1, spot: true}
      - {name: web_10, host: h10}
  - {name: sql-10, kind: standalone, machines: [{name: db-10}]}
  - {name: sql-9, kind: standalone, labels: {tier: db}, machines: [{name: db-9, host: h2}]}
"""
INVENTORY = ["db-9", "db-10", "web_0", "web_1", "web_2", "web_10"]  # as people count


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET, sockets=True) as service:
        yield service


def pages(service: Service, target: str) -> Iterator[list[Any]]:
    for _ in range(100):
        reported = ask(service, "GET", target)
        assert reported.status == 200, reported.body
        yield reported.body
        target = reported.next
        if not target:
            return
    raise AssertionError("it leads round in circles")


def names(service: Service, target: str) -> list[str]:
    by_id = ("/v1/events", "/v1/rollouts", "/v1/tokens", "/v1/faults")
    key = "id" if target.startswith(by_id) else "name"
    return [one[key] for page in pages(service, target) for one in page]


def test_machines_groups_and_hosts_come_in_the_order_of_their_names(service: Service) -> None:
    assert names(service, "/v1/machines") == INVENTORY
    assert names(service, "/v1/groups") == ["sql-9", "sql-10", "web"]
    assert names(service, "/v1/hosts") == ["h1", "h2", "h10"]


def test_what_matters_most_comes_first_if_that_is_asked_for(service: Service) -> None:
    service.schedule("Reboot", "web_10")
    service.document("web_2")
    service.clock.advance("1m")
    service.document("db-10")
    assert ask(service, "POST", "/v1/hosts/h10/fail", {}).status == 200
    assert ask(service, "POST", "/v1/hosts/h2/maintain", {"mode": "reboot"}).status == 200
    assert names(service, "/v1/hosts?order=health") == ["h10", "h1", "h2"]
    assert names(service, "/v1/hosts?order=machines") == ["h1", "h2", "h10"]
    assert names(service, "/v1/hosts?order=events")[0] == "h2"
    assert names(service, "/v1/groups?order=machines") == ["web", "sql-9", "sql-10"]
    assert names(service, "/v1/groups?order=silent") == ["web", "sql-9", "sql-10"]
    assert names(service, "/v1/groups?order=events") == ["web", "sql-9", "sql-10"]
    machines = [*(f"db-{n}" for n in (9, 10)), *(f"web_{n}" for n in (0, 1, 2, 10))]
    assert names(service, "/v1/machines?order=name") == machines
    assert names(service, "/v1/machines?order=last_poll")[-2:] == ["web_2", "db-10"]
    assert names(service, "/v1/machines?order=events")[0] in ("web_1", "db-9", "web_10")
    by_host = ["db-10", "web_0", "web_2", "db-9", "web_1", "web_10"]
    assert names(service, "/v1/machines?order=host") == by_host
    assert ask(service, "GET", "/v1/hosts?order=no").status == 400


def test_pages_of_any_size_are_the_whole(service: Service) -> None:
    for event in ("web_0", "web_1", "db-9", "db-10"):
        service.schedule("Reboot", event)
    service.clock.advance("2h")  # all over
    for machine in ("web_1", "db-9", "db-10"):
        service.schedule("Freeze", machine)
    for group in ("web", "sql-9", "sql-10"):
        body = {"type": "Reboot", "groups": [group], "notice": 86_400}
        assert ask(service, "POST", "/v1/rollouts", body).status == 201
    service._session.settle()
    for path in (
        *("/v1/machines", "/v1/machines?group=web", "/v1/groups", "/v1/hosts"),
        *(f"/v1/machines?order={order}" for order in ("name", "host", "last_poll", "events")),
        *(f"/v1/groups?order={order}" for order in ("machines", "events", "silent")),
        *(f"/v1/hosts?order={order}" for order in ("health", "machines", "events")),
        *(
            "/v1/events",
            "/v1/events?order=not_before",
            "/v1/events?past=true",
            "/v1/events?status=Finished",
            "/v1/rollouts",
        ),
    ):
        whole = names(service, path)
        assert len(whole) >= 3, path
        for limit in (1, 2, 100):
            glue = "&" if "?" in path else "?"
            found = list(pages(service, f"{path}{glue}limit={limit}"))
            assert all(len(page) <= limit for page in found)
            assert all(len(page) == limit for page in found[:-1])
            key = "name" if "name" in found[0][0] else "id"
            assert [one[key] for page in found for one in page] == whole, (path, limit)


def test_the_steps_of_a_rollout_come_in_pages_and_by_state_and_lane(service: Service) -> None:
    body = {"type": "Reboot", "hosts": ["*"], "conflicts": "split", "canary": ["h2"]}
    id = ask(service, "POST", "/v1/rollouts", body).body["id"]
    service._session.settle()
    path = f"/v1/rollouts/{id}/steps"
    found = [
        (s["number"], s["lane"], s["wave"], s["state"]) for s in ask(service, "GET", path).body
    ]
    assert found[0] == (1, "h2", 1, "announced")
    assert {(lane, wave) for _, lane, wave, _ in found[1:]} == {("h1", 2), ("h10", 2)}
    for limit in (1, 2):
        paged = [s["number"] for page in pages(service, f"{path}?limit={limit}") for s in page]
        assert paged == [number for number, *_ in found]
    assert [s["lane"] for s in ask(service, "GET", f"{path}?state=announced").body] == ["h2"]
    assert {s["lane"] for s in ask(service, "GET", f"{path}?host=h1").body} == {"h1"}
    assert ask(service, "GET", f"{path}?state=no").status == 400
    plan = ask(service, "POST", "/v1/rollouts/plan?steps=1", body).body
    assert (len(plan["steps"]), plan["steps_total"]) == (1, len(found))
    assert (plan["hosts"], plan["machines"], plan["waves"]) == (3, 5, [1, 2])
    assert plan["conflicts"][0]["host"] == "h1"


def test_tokens_come_in_pages_too(service: Service) -> None:
    secret = ask(service, "POST", "/v1/tokens", {"name": "a", "role": "admin"}).body["token"]
    bearer = f"Bearer {secret}"
    for name in "bcd":
        ask(service, "POST", "/v1/tokens", {"name": name, "role": "viewer"}, authorization=bearer)
    whole = [one["id"] for one in ask(service, "GET", "/v1/tokens", authorization=bearer).body]
    found, target = [], "/v1/tokens?limit=3"
    while target:
        reported = ask(service, "GET", target, authorization=bearer)
        found += [one["id"] for one in reported.body]
        target = reported.next
    assert found == whole
    assert len(whole) == 4


def test_callers_that_are_no_machine_come_in_pages_too(service: Service) -> None:
    for number in range(4):
        service._session.node.poll_index.unknown_callers.record(f"10.9.9.{number}", 1)
    found, target = [], "/v1/callers?limit=3"
    while target:
        page = ask(service, "GET", target)
        found.append([one["address"] for one in page.body])
        target = page.next
    assert found == [["10.9.9.0", "10.9.9.1", "10.9.9.2"], ["10.9.9.3"]]


def test_a_page_goes_on_where_the_last_one_ended_though_that_is_gone(service: Service) -> None:
    first = ask(service, "GET", "/v1/machines?limit=3")
    assert [one["name"] for one in first.body] == INVENTORY[:3]
    for gone in INVENTORY[:3]:
        assert ask(service, "DELETE", f"/v1/machines/{gone}").status == 200
    assert names(service, first.next) == INVENTORY[3:]
    groups = ask(service, "GET", "/v1/groups?limit=1")  # of which only one is left
    assert [one["name"] for one in groups.body] == ["web"]
    hosts = ask(service, "GET", "/v1/hosts?limit=1")
    for path in ("machines/web_2", "hosts/h1"):
        assert ask(service, "DELETE", f"/v1/{path}").status == 200
    assert names(service, hosts.next) == ["h2", "h10"]


def test_a_page_of_events_goes_on_though_the_last_one_is_over(service: Service) -> None:
    ids = []
    for machine in ("web_0", "web_1", "db-9", "db-10"):
        ids.append(service.schedule("Reboot", machine).id)
        service.clock.advance("1s")
    first = ask(service, "GET", "/v1/events?limit=2")
    assert [one["id"] for one in first.body] == ids[:2]
    ask(service, "POST", f"/v1/events/{ids[1]}/cancel")
    assert names(service, first.next) == ids[2:]


def test_a_page_of_past_events_goes_on_though_the_last_one_is_forgotten(service: Service) -> None:
    ids = []
    for machine in ("web_0", "web_1", "db-9", "db-10"):
        ids.append(service.schedule("Reboot", machine).id)
        ask(service, "POST", f"/v1/events/{ids[-1]}/cancel")
        service.clock.advance("1h")
    first = ask(service, "GET", "/v1/events?past=true&limit=2")
    assert [one["id"] for one in first.body] == ids[:1:-1]
    del service._session.node.store.disk.events[ids[2]]  # type: ignore[attr-defined]
    assert names(service, first.next) == ids[1::-1]


def test_events_are_listed_in_the_order_in_which_they_may_start(service: Service) -> None:
    def later(hours: int, machine: str) -> str:
        body = {"type": "Reboot", "machines": [machine], "notice": hours * 3600}
        return str(ask(service, "POST", "/v1/events", body).body["id"])

    path = "/v1/events?order=not_before"
    third, first = later(5, "web_10"), later(1, "db-10")
    maintenance = ask(service, "POST", "/v1/hosts/h2/maintain", {"mode": "Freeze", "notice": 7200})
    joint = [event["id"] for event in maintenance.body["events"]]
    assert len(joint) == 2  # of two groups
    service.clock.advance("1s")  # nothing else may start at the same instant
    fourth = later(6, "db-10")
    listed = ask(service, "GET", path).body
    assert [e["id"] for e in listed if not e["joint"]] == [first, third, fourth]
    assert {e["id"] for e in listed[1:3]} == set(joint)
    assert len({e["joint"] for e in listed[1:3]}) == 1
    page = ask(service, "GET", f"{path}&limit=2")
    ask(service, "POST", f"/v1/events/{joint[0]}/cancel")  # both, and so the last one of the page
    assert names(service, page.next) == [third, fourth]
    for query, found in {
        "from=2h": [third, fourth],
        "until=2h": [first],
        "from=2h&until=5h30m": [third],
        f"from={listed[3]['not_before']}&until=1d": [third, fourth],
        "until=0s": [],
        "label=tier=web": [third],
        "label=!tier&limit=1": [first, fourth],
    }.items():
        assert names(service, f"{path}&{query}") == found, query
        assert set(names(service, f"/v1/events?{query}")) == set(found), query


def test_the_next_events_are_right_whatever_has_changed_since_they_were_last_listed(
    service: Service,
) -> None:
    path, active = "/v1/events?order=not_before&limit=7", {}
    random = Random(7)
    for _ in range(4):
        for machine in INVENTORY * 4:
            hours = random.randrange(1, 200)
            body = {"type": "Freeze", "machines": [machine], "notice": hours * 3600}
            event = ask(service, "POST", "/v1/events", body).body
            active[event["id"]] = event["not_before"]
        for id in random.sample(sorted(active), 9):
            ask(service, "POST", f"/v1/events/{id}/cancel")
            del active[id]
        found = [(e["not_before"], e["id"]) for page in pages(service, path) for e in page]
        assert found == sorted((at, id) for id, at in active.items())
    mine = names(service, f"{path}&group=web")[0]
    by = {"by": 20 * 24 * 3600}
    assert ask(service, "POST", f"/v1/events/{mine}/postpone", by).status == 200
    assert names(service, path)[-1] == mine


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("group=web", ["web_0", "web_1", "web_2", "web_10"]),
        ("label=tier=db", ["db-9"]),
        ("label=!tier", ["db-10"]),
        ("host=h1", ["web_0", "web_2"]),
        ("host=h1&gone=true", ["web_2"]),
        ("gone=false", ["db-9", "db-10", "web_0", "web_1", "web_10"]),
        ("health=degraded", ["db-9", "web_1"]),
        ("enabled=true", ["web_0", "web_1", "web_2", "web_10"]),
        ("enabled=false&health=healthy", []),
        ("enabled=false&limit=1", ["db-9", "db-10"]),
    ],
)
def test_machines_are_filtered(service: Service, query: str, found: list[str]) -> None:
    service.document("web_0")
    ask(service, "POST", "/v1/machines/web_2/evict")
    service.clock.advance("1h")  # it is gone, and the group listens
    ask(service, "POST", "/v1/hosts/h2/degrade", {})
    assert names(service, f"/v1/machines?{query}") == found


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("/v1/groups?kind=standalone", ["sql-9", "sql-10"]),
        ("/v1/groups?enabled=true", ["web"]),
        ("/v1/groups?enabled=false&label=tier", ["sql-9"]),
        ("/v1/hosts?label=rack=r1", ["h1", "h10"]),
        ("/v1/hosts?health=degraded", ["h10"]),
        ("/v1/hosts?health=healthy", ["h1", "h2"]),
    ],
)
def test_groups_and_hosts_are_filtered(service: Service, target: str, found: list[str]) -> None:
    service.document("web_0")
    service.clock.advance("1h")
    ask(service, "POST", "/v1/hosts/h10/degrade", {})
    assert names(service, target) == found


def test_events_are_filtered(service: Service) -> None:
    early = service.schedule("Reboot", "web_0").id
    ask(service, "POST", f"/v1/events/{early}/cancel")
    service.clock.advance("1h")
    mine = ask(service, "POST", "/v1/machines/web_0/restart").body["id"]
    host = ask(service, "POST", "/v1/hosts/h10/maintain", {"mode": "Freeze"}).body["events"][0]
    body = {"type": "Redeploy", "groups": ["sql-9"]}
    rollout = ask(service, "POST", "/v1/rollouts", body).body["id"]
    service._session.settle()
    rolled = names(service, f"/v1/events?rollout={rollout}")
    assert len(rolled) == 1
    cases = {
        "group=web": [mine, host["id"]],
        "group=web&past=true": [mine, host["id"], early],
        "machine=web_0&past=true": [mine, early],
        "host=h10": [host["id"]],
        "type=Freeze": [host["id"]],
        "type=freeze": [host["id"]],
        "status=Withdrawn": [early],
        "status=Scheduled&group=web": [host["id"]],
        "status=Started&group=web": [mine],  # nobody listens, so nobody was waited for
        "source=User": [mine],
        f"cause={host['cause']}": [host["id"]],
        "raised_since=30m&past=true": [mine, host["id"], *rolled],
        "raised_since=2h&past=true&group=web": [mine, host["id"], early],
        f"rollout={rollout.lower()}": rolled,
    }
    for query, found in cases.items():
        assert names(service, f"/v1/events?{query}") == found, query
    assert names(service, "/v1/rollouts?state=running") == [rollout]
    assert names(service, "/v1/rollouts?state=done") == []


@pytest.mark.parametrize(
    ("target", "status", "says"),
    [
        ("/v1/machines?host=h3", 404, "no host 'h3'"),
        ("/v1/machines?health=sick", 400, "unknown health 'sick'; expected one of healthy"),
        ("/v1/machines?limit=0", 400, "limit"),
        ("/v1/machines?limit=1&limit=2", 400, "'limit' is given more than once"),
        ("/v1/machines?gone=null", 400, "leave it out instead"),
        ("/v1/groups?kind=heap", 400, "unknown kind of group 'heap'"),
        ("/v1/machines?order=last_poll&after=web_0", 400, "omit it for the first page"),
        ("/v1/hosts?node=lost", 400, "unknown node 'lost'; expected one of joined"),
        ("/v1/events?after=x", 400, "omit it for the first page"),
        ("/v1/events?order=not_before&after=0~1~A", 400, "in this order"),
        ("/v1/events?after=s~1~a~A", 400, "in this order"),
        ("/v1/events?order=name", 400, "unknown order 'name'; expected one of raised_at"),
        ("/v1/events?order=not_before&past=true", 400, "for events that are not over"),
        ("/v1/events?order=not_before&status=Finished", 400, "for events that are not over"),
        ("/v1/events?until=soon", 400, "until: 'soon' is neither a time nor a delay from now"),
        ("/v1/events?from=2030-01-01T00:00:00", 400, "has no time zone"),
        ("/v1/events?label==", 400, "not a valid label name"),
        ("/v1/events?limit=1001", 400, "limit"),
        ("/v1/events?machine=web_7", 404, "no machine 'web_7'"),
        ("/v1/events?rollout=no", 400, "rollout: 'no' is not a valid id"),
        ("/v1/rollouts?state=over", 400, "unknown state 'over'; expected one of running"),
    ],
)
def test_a_filter_that_cannot_be_meant_is_refused(
    service: Service, target: str, status: int, says: str
) -> None:
    reported = ask(service, "GET", target)
    assert reported.status == status
    assert says in reported.body["detail"]


def test_the_history_leads_to_its_next_page(service: Service) -> None:
    for machine in INVENTORY:
        service.schedule("Freeze", machine)
    found: list[int] = []
    target = "/v1/history?limit=4&what=raised"
    while target:
        reported = ask(service, "GET", target)
        found += [record["seq"] for record in reported.body["records"]]
        assert bool(reported.next) == bool(reported.body["next"])
        target = reported.next
    assert len(found) == len(set(found)) == 6
    assert found == sorted(found, reverse=True)


def test_faults_come_in_the_order_in_which_they_were_added(service: Service) -> None:
    ids = [service.faults.add("gone", machine="web_0", times=1).id for _ in range(11)]
    for size in (1, 3, 11, 12):
        assert names(service, f"/v1/faults?limit={size}") == ids
    ask(service, "DELETE", f"/v1/faults/{ids[1]}")  # at which the first page had ended
    assert names(service, f"/v1/faults?limit=4&after={ids[1]}") == ids[2:]


def test_every_list_is_paged() -> None:
    lists = [operation for id, operation in OPERATIONS.items() if id.startswith("list")]
    assert all(operation.paged for operation in lists)
    assert len(lists) == 12
