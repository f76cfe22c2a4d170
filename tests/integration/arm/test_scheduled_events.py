"""Scheduled events of a resource in Azure Resource Manager's API: listed, and acknowledged."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from uuid import uuid4

import pytest

from forewarn.core import Event
from forewarn.core.access import Role
from forewarn.testing import SAMPLE, Service
from helpers.arm import COMPUTE, Arm, code, message
from helpers.token_api import token

ONE = "Successfully approved scheduled event"  # Azure's, as the next
ALL = "Successfully approved all Scheduled Events in the list"
EVENTS = "/providers/Microsoft.Maintenance/scheduledevents"
SETS = f"{COMPUTE}/virtualMachineScaleSets"
WEB = f"{SETS}/web{EVENTS}"
SQL = f"{COMPUTE}/availabilitySets/sql{EVENTS}"


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(SAMPLE) as service:
        yield service


@pytest.fixture
def arm(service: Service) -> Arm:
    return Arm(service)


def ids(answer: dict[str, list[dict[str, str]]]) -> set[str]:
    return {event["name"] for event in answer["value"]}


def test_a_resource_has_the_events_that_name_its_machines(service: Service, arm: Arm) -> None:
    service.document("web_0")
    first = service.schedule("Reboot", "web_0", "web_2", duration=9, description="A reboot.")
    second = service.schedule("Freeze", "sql-1")
    assert ids(arm.get(WEB)) == {first.id}
    assert ids(arm.get(SQL.lower())) == {second.id}
    assert ids(arm.get(f"{SETS}/web/virtualMachines/2{EVENTS}")) == {first.id}
    assert arm.get(f"{SETS}/web/virtualMachines/1{EVENTS}") == {"value": []}
    assert ids(arm.get(f"{COMPUTE}/virtualMachines/sql-1{EVENTS}")) == {second.id}
    event = arm.get(f"{WEB}/{first.id.lower()}")
    assert event["id"].lower() == f"{WEB}/{first.id}".lower()
    shown = service.document("web_0")["Events"][0]
    assert event["properties"] == {**shown, "ScheduledEventApiVersion": "2020-07-01"}


def test_an_acknowledged_event_starts_under_the_name_of_the_token(service: Service) -> None:
    token(service, "all", Role.ADMIN)
    arm = Arm(service, token(service, "shop", Role.TENANT, groups=("web",)).secret.text)
    event = service.schedule("Reboot", "web_0", duration=9)
    path = f"{SETS}/web/virtualMachines/0{EVENTS}/{event.id.lower()}/acknowledge"
    for _ in range(2):
        answer = arm.call("POST", path)
        assert (answer.status, answer.json()) == (200, {"value": ONE})
    assert event.status == "Started"
    service.clock.advance("10m")
    assert event.status == "Finished"
    assert arm.call("POST", path).status == 200  # an SDK repeats what was not answered
    [stored] = service._session.run(service._session.node.platform.events([event.id]))
    assert stored.approved is not None
    assert stored.approved.by == "shop"
    other = Arm(service, token(service, "other", Role.TENANT, groups=("web",)).secret.text)
    answer = other.call("POST", path)
    assert (code(answer), "is over" in message(answer)) == ((409, "OperationNotAllowed"), True)


def test_each_event_of_a_list_is_acknowledged_by_itself(service: Service, arm: Arm) -> None:
    first, second = (service.schedule("Freeze", f"sql-{number}") for number in (0, 1))
    foreign, unknown = service.schedule("Freeze", "web_0"), str(uuid4())
    wanted = [first.id.lower(), foreign.id, unknown, second.id]
    answer = arm.call("POST", SQL, {"value": wanted})
    assert code(answer) == (207, "MultiStatusResponse")
    details = answer.json()["error"]["details"]
    assert [(detail["target"], detail["code"]) for detail in details] == [
        (foreign.id, "NotFound"),
        (unknown, "NotFound"),
    ]
    assert f"'{unknown}'" in details[1]["message"]
    assert (first.status, foreign.status) == ("Started", "Scheduled")
    assert second.approved_by  # it waits for the other update domain
    answer = arm.call("POST", SQL, {"value": [first.id, second.id]})
    assert (answer.status, answer.json()) == (200, {"value": ALL})
    answer = arm.call("POST", SQL, {"value": [unknown]})
    assert code(answer) == (404, "MultiStatusResponse")


def test_many_events_are_looked_up_at_once(
    service: Service, arm: Arm, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, lookups = service._session.node.store, []
    lookup = store.ended_events

    async def ended_events(ids: Collection[str]) -> Mapping[str, Event]:
        lookups.append(len(ids))
        return await lookup(ids)

    monkeypatch.setattr(store, "ended_events", ended_events)
    answer = arm.call("POST", SQL, {"value": [str(uuid4()) for _ in range(1_000)]})
    assert code(answer) == (404, "MultiStatusResponse")
    assert lookups == [1_000]


@pytest.mark.parametrize("body", [None, {}, {"value": []}, {"value": "x"}, {"value": [1]}])
def test_ids_are_a_list_of_texts(arm: Arm, body: object) -> None:
    answer = arm.call("POST", WEB, body)
    assert (code(answer), message(answer)[:7]) == ((400, "BadRequest"), "'value'")


def test_a_token_that_must_not_approve_must_not_acknowledge(service: Service) -> None:
    token(service, "all", Role.ADMIN)
    event = service.schedule("Reboot", "web_0")
    path = f"{WEB}/{event.id}/acknowledge"
    viewer = Arm(service, token(service, "reads", Role.VIEWER).secret.text)
    assert ids(viewer.get(WEB)) == {event.id}
    assert code(viewer.call("POST", path)) == (403, "AuthorizationFailed")
    other = Arm(service, token(service, "sql", Role.TENANT, groups=("sql",)).secret.text)
    assert code(other.call("POST", path)) == (404, "ResourceNotFound")
    assert code(other.call("POST", f"{SQL}/{event.id}/acknowledge")) == (404, "NotFound")
    assert event.status == "Scheduled"
    assert not event.approved_by


@pytest.mark.parametrize("kind", ["disks/web", "hostGroups/hosts/hosts/host-a"])
def test_other_resources_have_no_scheduled_events(arm: Arm, kind: str) -> None:
    assert code(arm.call("GET", f"{COMPUTE}/{kind}{EVENTS}")) == (404, "InvalidResourceType")
