"""What the events promise: notice, users' own maintenance, and when a group is listening."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from forewarn import core
from forewarn.core.commands import Fail
from forewarn.testing import EventType, RefusedError, Service
from helpers.endpoint import METADATA, NEWEST, Groups, Guest, approval, events, fleet_of
from helpers.raw_http import request

COUNT = 40
POLICIES = """
  - name: limited
    kind: scale-set
    policy: {user_event_limit: 2}
    machines: [{name: limited_0}, {name: limited_1}, {name: limited_2}]
  - name: hasty
    kind: scale-set
    policy: {auto_approve: [Reboot]}
    machines: [{name: hasty_0}, {name: hasty_1}]
  - name: big-a
    kind: scale-set
    scale_set: big
    machines: [{name: big_0}, {name: big_1}]
  - name: big-b
    kind: scale-set
    scale_set: big
    machines: [{name: big_36}]
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(fleet_of(COUNT) + POLICIES, sockets=True, front=True, silence="24h") as service:
        yield service


# Notice.


@pytest.mark.parametrize(
    ("type", "n", "notice"),
    [
        ("Freeze", 0, timedelta(minutes=15)),
        ("Reboot", 0, timedelta(minutes=15)),
        ("Redeploy", 0, timedelta(minutes=10)),
        ("Preempt", 2, timedelta(seconds=30)),
        ("Terminate", 0, timedelta(minutes=5)),
    ],
)
def test_the_default_notice_is_the_least_that_is_promised(
    groups: Groups, service: Service, type: EventType, n: int, notice: timedelta
) -> None:
    guest = groups.enabled()[n]
    service.schedule(type, guest.name)
    (event,) = guest.events()
    not_before = service.clock.now + notice
    assert event["NotBefore"] == f"{not_before:%a, %d %b %Y %H:%M:%S GMT}"
    assert event["EventSource"] == "Platform"
    with pytest.raises(RefusedError):
        service.schedule(type, guest.name, notice=notice.total_seconds() - 1)


@pytest.mark.parametrize("type", ["Freeze", "Reboot", "Redeploy", "Terminate"])
def test_unapproved_an_event_starts_at_not_before_and_no_sooner(
    groups: Groups, service: Service, type: EventType
) -> None:
    guest = groups.enabled()[0]
    event = service.schedule(type, guest.name, notice="15m")
    service.clock.advance("14m59s")
    assert guest.statuses() == {event.id: "Scheduled"}
    service.clock.advance("1s")
    assert guest.statuses() == {event.id: "Started"}


def test_an_unforeseen_failure_appears_as_started(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    other = service.schedule("Reboot", group[1].name)
    group[1].approve(other.id)
    failure = Fail(
        id="00000000-0000-4000-8000-0000000000FA",
        type=core.EventType.REDEPLOY,
        machines=(group[0].name,),
        by="test",
    )
    service._session.run(service._session.node.writer.submit(group.name, failure))
    listed = group[0].events()[-1]
    assert (listed["EventId"], listed["EventStatus"]) == (failure.id, "Started")
    assert (listed["NotBefore"], listed["EventSource"]) == ("", "Platform")
    assert listed["Description"] == "Virtual machine has encountered a failure."
    assert listed["DurationInSeconds"] == -1


def test_a_predicted_failure_is_announced_days_ahead_and_settled_by_a_redeploy(
    groups: Groups, service: Service
) -> None:
    guest = groups.enabled()[0]
    predicted = service.schedule("Redeploy", guest.name, notice="7d")
    own = service.redeploy(guest.name)
    assert guest.statuses() == {predicted.id: "Scheduled", own.id: "Scheduled"}
    guest.approve(own.id)
    assert guest.statuses() == {predicted.id: "Scheduled", own.id: "Started"}
    service.clock.advance("10m")
    assert guest.statuses() == {}


def test_the_machines_of_an_event_lie_in_one_update_domain_of_one_group(
    groups: Groups, service: Service
) -> None:
    group, other = groups.enabled(), groups.enabled()
    with pytest.raises(RefusedError):
        service.schedule("Reboot", *group.names(0, 1))
    with pytest.raises(RefusedError):
        service.schedule("Reboot", group[0].name, other[0].name)
    assert group[0].get().body == b'{"DocumentIncarnation":1,"Events":[]}'


def test_placement_groups_of_a_scale_set_are_groups_of_their_own(service: Service) -> None:
    first, second = Guest(service, "big_0"), Guest(service, "big_36")
    first.get()
    second.get()
    event = service.schedule("Reboot", "big_0")
    assert Guest(service, "big_1").statuses() == {event.id: "Scheduled"}
    assert second.get().body == b'{"DocumentIncarnation":1,"Events":[]}'
    text = "api-version=2021-02-01&format=text"
    assert second.instance("/compute/vmScaleSetName", text).body == b"big"
    assert second.instance("/compute/osProfile/computerName", text).body == b"big000010"
    ids = {g.instance("/compute/placementGroupId", text).body for g in (first, second)}
    assert len(ids) == 2


# Users.


@pytest.mark.parametrize(
    ("verb", "type", "minutes", "says"),
    [
        (
            "restart",
            "Reboot",
            15,
            "Virtual machine is going to be restarted as requested by authorized user.",
        ),
        (
            "redeploy",
            "Redeploy",
            10,
            "Virtual machine is going to be redeployed as requested by authorized user.",
        ),
    ],
)
def test_a_users_maintenance_is_announced_and_waits_like_any_other(
    groups: Groups, service: Service, verb: str, type: str, minutes: int, says: str
) -> None:
    guest = groups.enabled()[0]
    event = getattr(service, verb)(guest.name)
    (listed,) = guest.events()
    not_before = service.clock.now + timedelta(minutes=minutes)
    assert listed == {
        "EventId": event.id,
        "EventStatus": "Scheduled",
        "EventType": type,
        "ResourceType": "VirtualMachine",
        "Resources": [guest.name],
        "NotBefore": f"{not_before:%a, %d %b %Y %H:%M:%S GMT}",
        "Description": says,
        "EventSource": "User",
        "DurationInSeconds": -1,
    }
    service.clock.advance(f"{minutes}m")
    assert guest.statuses() == {event.id: "Started"}
    service.clock.advance("10m")
    assert guest.statuses() == {}


def test_a_second_restart_while_one_is_scheduled_is_the_same_event(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    first = service.restart(group[0].name)
    before = group[0].get().body
    assert service.restart(group[0].name).id == first.id
    assert group[0].get().body == before
    assert service.restart(group[1].name).id != first.id, "another machine"
    group[0].approve(first.id)
    assert service.restart(group[0].name).id != first.id, "the first has started"


def test_while_the_group_is_not_enabled_a_restart_happens_at_once(
    groups: Groups, service: Service
) -> None:
    group = groups.unpolled()
    event = service.restart(group[0].name)
    assert event.status == "Started"
    assert group[0].get().body == b'{"DocumentIncarnation":1,"Events":[]}', "under way"
    assert group[1].approve(event.id).status == 400, "never listed"
    service.clock.advance("10m")
    assert group[0].get().body == b'{"DocumentIncarnation":1,"Events":[]}'
    service.disable(group.name)
    assert service.redeploy(group[0].name).status == "Started"


def test_platform_events_stay_scheduled_while_the_group_is_not_enabled(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    service.disable(group.name)
    event = service.schedule("Reboot", group[0].name, notice="1h")
    service.clock.advance("59m")
    assert group[0].statuses() == {event.id: "Scheduled"}
    service.disable(group.name)
    service.clock.advance("1m")
    assert group[0].statuses() == {event.id: "Started"}, "by NotBefore, listening or not"


def test_user_events_beyond_the_limit_are_refused_with_those_scheduled(service: Service) -> None:
    guest = Guest(service, "limited_0")
    guest.get()
    pending = [service.restart("limited_0"), service.redeploy("limited_1")]
    with pytest.raises(RefusedError) as refused:
        service.restart("limited_2")
    assert all(event.id in str(refused.value) for event in pending)
    assert len(guest.events()) == 2
    assert service.restart("limited_0").id == pending[0].id, "the same event counts once"
    guest.approve(pending[0].id)
    service.restart("limited_2")
    assert len(guest.events()) == 3


def test_user_events_are_not_limited_by_default(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    for guest in group.guests:
        service.restart(guest.name)
        service.redeploy(guest.name)
    assert len(group[0].events()) == 8


def test_a_policy_may_approve_beforehand_so_that_it_appears_started(service: Service) -> None:
    guest = Guest(service, "hasty_0")
    guest.get()
    reboot = service.restart("hasty_0")
    redeploy = service.redeploy("hasty_1")
    assert guest.statuses() == {reboot.id: "Started", redeploy.id: "Scheduled"}


# Listening.


def test_only_a_get_that_is_answered_enables(groups: Groups, service: Service) -> None:
    group = groups.unpolled()
    guest = group[0]
    for data in (
        request("GET", events(NEWEST)),
        request("GET", events("never"), METADATA),
        request("GET", events(NEWEST), METADATA, "X-Forwarded-For: 10.0.0.1"),
        request("HEAD", events(NEWEST), METADATA),
        request("POST", events(NEWEST), METADATA, body=approval("A")),
        request("GET", "/metadata/instance?api-version=2021-02-01", METADATA),
        request("GET", "/metadata/versions", METADATA),
    ):
        with guest.line() as line:
            line.send(data)
            line.answer(to_head=data.startswith(b"HEAD"))
        assert service.restart(guest.name).status == "Started", "nobody listens yet"
        service.clock.advance("10m")
    guest.get()
    assert service.restart(guest.name).status == "Scheduled"


def test_a_day_without_a_get_disables_and_a_get_in_time_does_not(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    event = service.schedule("Reboot", group[0].name, notice="20d")
    tag = group[0].get().header("etag")
    for n in range(4):  # by whichever machine
        service.clock.advance("23h59m")
        assert group[n].incarnation() == 2
    service.clock.advance("23h59m")
    assert group[0].get(NEWEST, f"If-None-Match: {tag}").status == 304, "is a sign of life too"
    service.clock.advance("23h59m")
    assert group[0].incarnation() == 2
    service.clock.advance("24h")
    assert group[0].document()["DocumentIncarnation"] == 1
    assert group[0].statuses() == {event.id: "Scheduled"}


def test_an_approval_does_not_keep_a_group_enabled(groups: Groups, service: Service) -> None:
    guest = groups.enabled()[0]
    service.schedule("Reboot", guest.name, notice="20d")
    ended = service.schedule("Reboot", guest.name, notice="20d")
    service.cancel(ended)
    assert guest.incarnation() == 4
    service.clock.advance("23h")
    assert guest.approve(ended.id).status == 200
    assert guest.instance().status == 200
    service.clock.advance("1h")
    assert guest.incarnation() == 1


def test_silence_counts_only_while_the_endpoint_was_serving(
    groups: Groups, service: Service
) -> None:
    guest = groups.enabled()[0]
    service.schedule("Reboot", guest.name, notice="20d")
    service.clock.advance("12h")
    service.clock.interrupt("30h")
    service.clock.advance("11h59m")
    assert guest.incarnation() == 2
    service.clock.advance("24h")
    assert guest.incarnation() == 1


def test_after_an_outage_nothing_starts_by_its_time_for_a_minute(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    late = service.schedule("Reboot", group[0].name)
    approved = service.schedule("Reboot", group[2].name)
    service.clock.advance("14m")
    service.clock.interrupt("5m")
    assert group[0].statuses() == {late.id: "Scheduled", approved.id: "Scheduled"}
    group[1].approve(approved.id)
    assert group[0].statuses() == {late.id: "Scheduled", approved.id: "Started"}
    service.clock.advance("59s")
    assert group[0].statuses() == {late.id: "Scheduled", approved.id: "Started"}
    service.clock.advance("1s")
    assert group[0].statuses() == {late.id: "Started", approved.id: "Started"}


def test_a_first_answer_may_take_its_time() -> None:
    with Service(
        fleet_of(1), sockets=True, front=True, enable_delay="2m", silence="24h"
    ) as service:
        first, second = Guest(service, "web0_0"), Guest(service, "web0_1")
        with first.line() as one, second.line() as other:
            for line in (one, other):
                line.send(request("GET", events(NEWEST), METADATA))
            while service._session.node.store.groups["web0"].enabling_until is None:
                assert second.instance().status == 200  # until the service has heard it
            event = service.schedule("Reboot", "web0_0")
            service.clock.advance("1m59s")
            assert one.silent()
            assert other.silent()
            service.clock.advance("1s")
            for line in (one, other):
                document = line.answer().json()
                assert document["DocumentIncarnation"] == 1
                assert [listed["EventId"] for listed in document["Events"]] == [event.id]
        assert first.get().status == 200, "only the first waits"
        service.disable("web0")
        with first.line() as line:
            line.send(request("GET", events(NEWEST), METADATA))
            while service._session.node.store.groups["web0"].enabling_until is None:
                assert second.instance().status == 200
            assert line.silent(), "and the first after it was disabled"
            service.clock.advance("2m")
            assert line.answer().status == 200
