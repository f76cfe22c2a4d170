"""The document itself: its incarnation, the order in it, ids, times and the other fields."""

from __future__ import annotations

from datetime import timedelta

import pytest

from forewarn.testing import Service
from helpers.endpoint import GUID, VERSIONS, Groups

COUNT = 30


def test_the_document_is_compact_json_with_ordered_keys(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    event = service.schedule(
        "Reboot", *group.names(2, 0), description='Host "b" – maintenance.', duration=0
    )
    not_before = service.clock.now + timedelta(minutes=15)
    assert group[1].get().text == (
        f'{{"DocumentIncarnation":2,"Events":[{{"EventId":"{event.id}",'
        f'"EventStatus":"Scheduled","EventType":"Reboot","ResourceType":"VirtualMachine",'
        f'"Resources":["{group[2].name}","{group[0].name}"],'
        f'"NotBefore":"{not_before:%a, %d %b %Y %H:%M:%S GMT}",'
        f'"Description":"Host \\"b\\" – maintenance.","EventSource":"Platform",'
        f'"DurationInSeconds":0}}]}}'
    )


def test_the_first_document_is_one_and_holds_what_is_already_pending(
    groups: Groups, service: Service
) -> None:
    group = groups.unpolled()
    ids = [service.schedule("Reboot", group[n].name).id for n in (0, 1)]
    document = group[3].document()
    assert document["DocumentIncarnation"] == 1
    assert [event["EventId"] for event in document["Events"]] == ids


def test_the_incarnation_is_an_integer(groups: Groups) -> None:
    assert type(groups.enabled()[0].document()["DocumentIncarnation"]) is int


def test_the_incarnation_changes_when_an_event_is_added_starts_and_ends(
    groups: Groups, service: Service
) -> None:
    guest = groups.enabled()[0]
    seen = [guest.incarnation()]
    event = service.schedule("Reboot", guest.name)
    seen.append(guest.incarnation())
    guest.approve(event.id)
    seen.append(guest.incarnation())
    service.clock.advance("10m")
    assert guest.events() == []
    seen.append(guest.incarnation())
    event = service.schedule("Freeze", guest.name)
    seen.append(guest.incarnation())
    service.cancel(event)
    assert guest.events() == []
    seen.append(guest.incarnation())
    assert seen == sorted(set(seen)), "it only grows while the group is enabled"


def test_the_incarnation_does_not_change_by_polls_or_time(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    service.schedule("Reboot", group[0].name, notice="20m")
    before = group[0].get().body
    service.clock.advance("19m")
    for guest in group.guests:
        assert guest.get().body == before
        assert {guest.document(v)["DocumentIncarnation"] for v in VERSIONS} == {2}


def test_the_incarnation_does_not_change_by_a_waiting_or_repeated_approval(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    first = service.schedule("Reboot", group[0].name)
    second = service.schedule("Reboot", group[1].name)
    group[0].approve(first.id)
    before = group[0].get().body
    for _ in range(2):  # the other domain is being disturbed: this one waits
        assert group[1].approve(second.id).status == 200
        assert group[0].get().body == before
    assert group[2].approve(first.id).status == 200
    assert group[0].get().body == before


def test_the_incarnation_does_not_change_by_a_refused_approval_or_another_group(
    groups: Groups, service: Service
) -> None:
    group, other = groups.enabled(), groups.enabled()
    service.schedule("Reboot", group[0].name)
    before = group[0].get().body
    assert group[0].approve("nonsense").status == 400
    service.schedule("Reboot", other[0].name)
    assert group[0].get().body == before


def test_the_incarnation_restarts_when_a_group_is_enabled_again(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    event = service.schedule("Reboot", group[0].name)
    service.schedule("Freeze", group[1].name)
    assert group[0].incarnation() == 3
    before = group[0].get()
    service.disable(group.name)
    after = group[0].get()
    assert after.json()["DocumentIncarnation"] == 1
    assert after.json()["Events"] == before.json()["Events"]
    assert after.json()["Events"][0]["EventId"] == event.id
    assert after.header("etag") != before.header("etag")


def test_a_tag_does_not_repeat_when_an_incarnation_does(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    first = group[0].get()
    service.schedule("Reboot", group[0].name)
    service.disable(group.name)
    second = group[0].get("2020-07-01", f"If-None-Match: {first.header('etag')}")
    assert second.status == 200
    assert second.json()["DocumentIncarnation"] == first.json()["DocumentIncarnation"] == 1


def test_events_stand_in_the_order_they_were_raised(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    late = service.schedule("Freeze", group[0].name, notice="5h")
    early = service.schedule("Reboot", group[0].name, notice="1h")
    middle = service.schedule("Redeploy", group[1].name, notice="3h")
    for version in VERSIONS:
        ids = [event["EventId"] for event in group[2].events(version)]
        assert ids == [late.id, early.id, middle.id]
    group[0].approve(early.id)
    assert list(group[0].statuses()) == [late.id, early.id, middle.id]


def test_resources_stand_in_one_order_for_every_machine_version_and_poll(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    event = service.schedule("Reboot", *group.names(2, 0))
    for status in ("Scheduled", "Started"):
        for guest in group.guests:
            for version in VERSIONS[1:]:
                (listed,) = guest.events(version)
                assert listed["EventStatus"] == status
                assert listed["Resources"] == group.names(2, 0)
            assert guest.events("2017-03-01")[0]["Resources"] == [
                f"_{name}" for name in group.names(2, 0)
            ]
        group[3].approve(event.id)


def test_an_id_is_an_upper_case_guid_and_stays_the_same_to_the_end(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    id = service.schedule("Reboot", group[0].name).id
    assert GUID.fullmatch(id)
    for status in ("Scheduled", "Started"):
        for version in VERSIONS:
            (event,) = group[1].events(version)
            assert (event["EventId"], event["EventStatus"]) == (id, status)
        group[0].approve(id)


def test_there_is_no_status_after_started_a_finished_event_is_gone(
    groups: Groups, service: Service
) -> None:
    guest = groups.enabled()[0]
    event = service.schedule("Freeze", guest.name)
    seen = []
    for _ in range(30):
        seen.append(guest.statuses().get(event.id, "gone"))
        service.clock.advance("1m")
    assert list(dict.fromkeys(seen)) == ["Scheduled", "Started", "gone"]


def test_a_withdrawn_event_is_gone(groups: Groups, service: Service) -> None:
    guest = groups.enabled()[0]
    event = service.schedule("Reboot", guest.name)
    service.cancel(event)
    assert guest.get().body == b'{"DocumentIncarnation":3,"Events":[]}'
    service.clock.advance("1h")
    assert guest.get().body == b'{"DocumentIncarnation":3,"Events":[]}', "and never starts"


def test_not_before_is_a_whole_second_rounded_up_and_nothing_starts_sooner(
    groups: Groups, service: Service
) -> None:
    guest = groups.enabled()[0]
    service.clock.advance(0.4)
    now = service.clock.now  # to the second, rounded down
    service.schedule("Reboot", guest.name, notice="15m")
    (event,) = guest.events()
    promised = now + timedelta(minutes=15, seconds=1)
    assert event["NotBefore"] == f"{promised:%a, %d %b %Y %H:%M:%S GMT}"
    service.clock.advance("15m")
    service.clock.advance(0.599)
    assert guest.events() == [event]
    service.clock.advance(0.001)
    (event,) = guest.events()
    assert (event["EventStatus"], event["NotBefore"]) == ("Started", "")


def test_started_by_approval_the_time_is_the_empty_string_too(
    groups: Groups, service: Service
) -> None:
    guest = groups.enabled()[0]
    event = service.schedule("Reboot", guest.name)
    guest.approve(event.id)
    assert b'"EventStatus":"Started"' in guest.get().body
    assert b'"NotBefore":""' in guest.get().body


def test_resources_are_matched_by_the_name_in_the_instance_metadata(
    groups: Groups, service: Service
) -> None:
    guest = groups.enabled()[2]
    service.schedule("Preempt", guest.name)
    name = guest.instance("/compute/name", "api-version=2021-02-01&format=text").text
    assert guest.events()[0]["Resources"] == [name]


def test_omitted_properties_of_an_event_are_empty_or_unknown(
    groups: Groups, service: Service
) -> None:
    guest = groups.enabled()[0]
    service.schedule("Reboot", guest.name)
    (event,) = guest.events()
    assert (event["Description"], event["DurationInSeconds"]) == ("", -1)
    assert (event["EventSource"], event["ResourceType"]) == ("Platform", "VirtualMachine")


@pytest.mark.parametrize("duration", [-1, 0, 30, 86_400])
def test_the_duration_of_the_impact_is_an_integer(
    groups: Groups, service: Service, duration: int
) -> None:
    guest = groups.enabled()[0]
    service.schedule("Freeze", guest.name, duration=duration)
    assert f'"DurationInSeconds":{duration}}}'.encode() in guest.get().body


def test_the_duration_is_not_how_long_the_event_stays_started(
    groups: Groups, service: Service
) -> None:
    guest = groups.enabled()[0]
    event = service.schedule("Freeze", guest.name, duration=5)
    guest.approve(event.id)
    service.clock.advance("4m59s")
    assert guest.statuses() == {event.id: "Started"}
    service.clock.advance("1s")
    assert guest.statuses() == {}
