"""What each version shows: types, fields, times and names, on machines of every kind."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from forewarn.testing import EventType, Service
from helpers.endpoint import GUID, NEWEST, VERSIONS, Caller, Groups, Guest, approval, fleet_of

FLEET = """
groups:
  - name: lonely_one
    kind: standalone
    machines: [{name: lonely_one}]
  - name: sql
    kind: availability-set
    machines: [{name: sql-0, update_domain: 0}, {name: sql-1, update_domain: 1}]
  - name: zonal
    kind: availability-zone
    zone: "2"
    machines: [{name: zonal-a, update_domain: 0}, {name: zonal-b, update_domain: 0}]
  - name: web
    kind: scale-set
    machines: [{name: web_0, update_domain: 0, spot: true}, {name: web_1, update_domain: 0}]
  - name: shop
    kind: cloud-service
    machines: [{name: FrontEnd_IN_0, update_domain: 0}, {name: Worker_IN_0, update_domain: 0}]
"""
# A machine of each kind, with its name as the preview wrote it and as all others do.
NAMES = [
    ("lonely_one", "_lonely_one"),
    ("sql-0", "_sql-0"),
    ("zonal-a", "_zonal-a"),
    ("web_0", "_web_0"),
    ("FrontEnd_IN_0", "FrontEnd_IN_0"),
]
FIRST: list[EventType] = ["Freeze", "Reboot", "Redeploy"]
TYPES: dict[str, list[EventType]] = {
    "2017-03-01": FIRST,
    "2017-08-01": FIRST,
    "2017-11-01": [*FIRST, "Preempt"],
    "2019-01-01": [*FIRST, "Preempt", "Terminate"],
    "2019-04-01": [*FIRST, "Preempt", "Terminate"],
    "2019-08-01": [*FIRST, "Preempt", "Terminate"],
    "2020-07-01": [*FIRST, "Preempt", "Terminate"],
}
FIRST_FIELDS = ["EventId", "EventStatus", "EventType", "ResourceType", "Resources", "NotBefore"]
NEWER_FIELDS = {
    "2017-03-01": [],
    "2017-08-01": [],
    "2017-11-01": [],
    "2019-01-01": [],
    "2019-04-01": ["Description"],
    "2019-08-01": ["Description", "EventSource"],
    "2020-07-01": ["Description", "EventSource", "DurationInSeconds"],
}
# The service begins on Fri, 15 Jan 2027 08:00:00 GMT; each is announced with an hour's notice.
PREVIEW_TIMES = r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"  # empty once an event has started
TIMES = r"|\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT"
GUEST = "web_0"
COUNT = 3  # groups beside those above
PREVIEW_TIME, TIME = "2027-01-15T09:00:00Z", "Fri, 15 Jan 2027 09:00:00 GMT"


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """Every machine of `NAMES` has one event of each type, in the order of the newest version."""
    with Service(
        FLEET + "\n".join(fleet_of(COUNT).splitlines()[1:]), sockets=True, front=True
    ) as service:
        for name, _ in NAMES:
            for type in TYPES[NEWEST]:
                service.schedule(type, name, notice="1h", description="For a test.", duration=9)
        yield service


def expected(version: str, name: str, ids: dict[str, str]) -> bytes:
    time = PREVIEW_TIME if version == "2017-03-01" else TIME
    newer = {
        "Description": '"For a test."',
        "EventSource": '"Platform"',
        "DurationInSeconds": "9",
    }
    fields = "".join(f',"{field}":{newer[field]}' for field in NEWER_FIELDS[version])
    events = [
        f'{{"EventId":"{ids[type]}","EventStatus":"Scheduled","EventType":"{type}",'
        f'"ResourceType":"VirtualMachine","Resources":["{name}"],"NotBefore":"{time}"{fields}}}'
        for type in TYPES[version]
    ]
    return f'{{"DocumentIncarnation":1,"Events":[{",".join(events)}]}}'.encode()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("name", "in_preview"), NAMES)
def test_every_version_shows_every_kind_of_machine_in_its_own_way(
    service: Service, version: str, name: str, in_preview: str
) -> None:
    guest = Guest(service, name)
    ids = {event["EventType"]: event["EventId"] for event in guest.events()}
    answer = guest.get(version)
    assert answer.status == 200
    shown = in_preview if version == "2017-03-01" else name
    assert answer.body == expected(version, shown, ids)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_has_its_own_fields_types_and_times(guest: Caller, version: str) -> None:
    document = guest.document(version)
    assert list(document) == ["DocumentIncarnation", "Events"]
    assert type(document["DocumentIncarnation"]) is int
    for event in document["Events"]:
        assert list(event) == [*FIRST_FIELDS, *NEWER_FIELDS[version]]
        assert GUID.fullmatch(event["EventId"])
        assert event["EventStatus"] in ("Scheduled", "Started")
        assert event["EventType"] in TYPES[version]
        assert event["ResourceType"] == "VirtualMachine"
        assert all(isinstance(name, str) for name in event["Resources"])
        assert re.fullmatch(PREVIEW_TIMES if version == "2017-03-01" else TIMES, event["NotBefore"])


def test_once_started_the_time_is_an_empty_string_in_every_version(
    groups: Groups, service: Service
) -> None:
    guest = groups.enabled()[0]
    guest.approve(service.schedule("Freeze", guest.name).id)
    for version in VERSIONS:
        (event,) = guest.events(version)
        assert (event["EventStatus"], event["NotBefore"]) == ("Started", "")


def test_only_a_role_instance_finds_itself_in_the_preview(
    service: Service,
) -> None:
    finds_itself = [
        name
        for name, _ in NAMES
        if any(name in event["Resources"] for event in Guest(service, name).events("2017-03-01"))
    ]
    assert finds_itself == ["FrontEnd_IN_0"]


def test_one_incarnation_for_all_versions_counts_events_that_some_do_not_show(
    groups: Groups, service: Service
) -> None:
    guest = groups.enabled()[2]
    service.schedule("Preempt", guest.name)
    documents = {version: guest.document(version) for version in VERSIONS}
    assert {document["DocumentIncarnation"] for document in documents.values()} == {2}
    assert documents["2017-08-01"]["Events"] == []
    assert len(documents["2017-11-01"]["Events"]) == 1


def test_an_event_is_found_by_a_post_in_any_version(groups: Groups, service: Service) -> None:
    guest = groups.enabled()[0]
    event = service.schedule("Terminate", guest.name)
    assert guest.events("2017-03-01") == []
    assert guest.post(approval(event.id), "2017-03-01").status == 200
    assert guest.statuses() == {event.id: "Started"}
