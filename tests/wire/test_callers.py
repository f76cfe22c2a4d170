"""Who asks: known by the address a request comes from, and shown nothing of anybody else."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from forewarn.core.commands import Define
from forewarn.testing import Service
from helpers.endpoint import (
    METADATA,
    NEWEST,
    NOT_FOUND,
    REASONED,
    Groups,
    approval,
    events,
    fleet_of,
    known_by_source,
    port_of,
)
from helpers.raw_http import exchange, request

COUNT = 10
UNKNOWN_CALLER = "127.9.9.9"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with known_by_source(Service(fleet_of(COUNT), sockets=True, front=True)) as service:
        yield service


@pytest.mark.parametrize(
    "data",
    [
        request("GET", events(NEWEST), METADATA),
        request("GET", events(NEWEST)),
        request("GET", "/metadata/instance?api-version=2021-02-01", METADATA),
        request("GET", "/metadata/versions", METADATA),
        request("GET", "/", METADATA),
        request("PUT", events(NEWEST), METADATA),
        request("POST", events(NEWEST), METADATA, body=approval("X")),
    ],
)
def test_an_unknown_caller_gets_404(service: Service, data: bytes) -> None:
    answer = exchange(("127.0.0.1", port_of(service)), data, source=UNKNOWN_CALLER)
    assert (answer.status, answer.body) == (404, NOT_FOUND)
    assert answer.header("content-type") == "application/json; charset=utf-8"


@pytest.mark.parametrize(
    "header",
    ["X-Real-IP", "Forwarded", "X-Client-IP", "Client-IP", "True-Client-IP", "Host", "Via"],
)
def test_no_header_identifies_an_unknown_caller(
    groups: Groups, service: Service, header: str
) -> None:
    known = service.addresses["web0_0"]
    data = request("GET", events(NEWEST), METADATA, f"{header}: for={known}", f"{header}: {known}")
    answer = exchange(("127.0.0.1", port_of(service)), data, source=UNKNOWN_CALLER)
    assert (answer.status, answer.body) == (404, NOT_FOUND)


def test_every_machine_of_a_group_sees_all_of_it_and_may_approve_any_of_it(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    event = service.schedule("Reboot", group[0].name)
    bodies = {guest.get().body for guest in group.guests}
    assert len(bodies) == 1
    assert group[3].approve(event.id).status == 200
    assert [guest.statuses() for guest in group.guests] == [{event.id: "Started"}] * 4


def test_a_group_sees_nothing_of_another_and_cannot_approve_its_events(
    groups: Groups, service: Service
) -> None:
    mine, other = groups.enabled(), groups.enabled()
    event = service.schedule("Reboot", other[0].name)
    assert mine[0].get().body == b'{"DocumentIncarnation":1,"Events":[]}'
    refused, nonsense = mine[0].approve(event.id), mine[0].approve("nonsense")
    assert REASONED.fullmatch(refused.body)
    assert (refused.status, refused.body) == (400, nonsense.body), "it does not even exist"
    assert other[0].statuses() == {event.id: "Scheduled"}


def test_a_group_cannot_approve_started_or_past_events_of_another(
    groups: Groups, service: Service
) -> None:
    mine, other = groups.enabled(), groups.enabled()
    event = service.schedule("Freeze", other[0].name)
    other[0].approve(event.id)
    assert mine[0].approve(event.id).status == 400
    service.clock.advance("5m")
    assert other[0].statuses() == {}
    assert mine[0].approve(event.id).status == 400
    assert other[0].approve(event.id).status == 200


def test_a_deleted_machine_gets_404(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    event = service.schedule("Preempt", group[3].name)
    service.clock.advance("30s")
    assert group[3].statuses() == {event.id: "Started"}, "until it is gone it may watch"
    service.clock.advance("30s")
    for answer in (group[3].get(), group[3].approve(event.id), group[3].instance()):
        assert (answer.status, answer.body) == (404, NOT_FOUND)
    assert group[0].statuses() == {}
    assert group[0].approve(event.id).status == 200, "the group may still speak of it"


def test_a_removed_machine_stays_named_and_a_new_one_joins_no_event(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    both = service.schedule("Reboot", *group.names(0, 2))
    alone = service.schedule("Reboot", group[2].name, notice="5h")
    fleet = service._session.node.config.fleet
    assert fleet is not None
    defined = fleet.groups[group.name]
    kept = tuple(machine for machine in defined.machines if machine.name != group[2].name)
    _redefine(service, group.name, Define(kind=defined.kind, machines=kept, place=defined.place))
    assert group[2].get().status == 404
    assert [event["EventId"] for event in group[0].events()] == [both.id]
    assert group[0].events()[0]["Resources"] == group.names(0, 2)
    assert alone.id not in group[0].statuses(), "all its machines are gone"
    _redefine(service, group.name, defined)
    assert group[2].get().body == group[0].get().body
    assert [event["EventId"] for event in group[2].events()] == [both.id], "back, but in no event"


def _redefine(service: Service, group: str, definition: Define) -> None:
    forced = msgspec.structs.replace(definition, force=True)
    service._session.run(service._session.node.writer.submit(group, forced))
    service._session.settle()
