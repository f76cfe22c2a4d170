"""Approvals: how they may be written, when they are refused, and what a 200 means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pytest

from forewarn.core import Group
from forewarn.store import MemoryStore
from forewarn.store.port import Commit, OutcomeUnknown, StoreFailed
from forewarn.testing import SAMPLE, Service
from helpers.endpoint import (
    METADATA,
    NEWEST,
    REASONED,
    VERSIONS,
    Groups,
    Guest,
    approval,
    events,
)
from helpers.raw_http import ConnectionClosed, request

COUNT = 70


FORMS = {
    "form": ["Content-Type: application/x-www-form-urlencoded"],
    "json": ["Content-Type: application/json"],
    "json with a charset": ["Content-Type: application/json; charset=utf-8"],
    "text": ["Content-Type: text/plain"],
    "multipart": ["Content-Type: multipart/form-data; boundary=x"],
    "nonsense": ["Content-Type: \xff;;"],
    "none": [],
}
BODIES = {
    "compact": '{"StartRequests":[{"EventId":"ID"}]}',
    "pretty": '{\r\n    "StartRequests" :  [\r\n        {\r\n            "EventId" : "ID"'
    "\r\n        }\r\n    ]\r\n}\r\n",
    "an integer incarnation": '{"DocumentIncarnation":2,"StartRequests":[{"EventId":"ID"}]}',
    "a string for it": '{"DocumentIncarnation":"2","StartRequests":[{"EventId":"ID"}]}',
    "a stale one": '{"DocumentIncarnation":1,"StartRequests":[{"EventId":"ID"}]}',
    "one that never was": '{"DocumentIncarnation":"5","StartRequests":[{"EventId":"ID"}]}',
    "null for it": '{"DocumentIncarnation":null,"StartRequests":[{"EventId":"ID"}]}',
    "more keys": '{"a":[],"StartRequests":[{"EventId":"ID","EventType":"Reboot"}],"z":{}}',
    "the event as it was listed": '{"StartRequests":[{"EventStatus":"Scheduled","EventId":"ID"}]}',
    "twice": '{"StartRequests":[{"EventId":"ID"},{"EventId":"ID"}]}',
    "a byte order mark": '\ufeff{"StartRequests":[{"EventId":"ID"}]}',
}


def an_event(groups: Groups, service: Service) -> tuple[Guest, str]:
    guest = groups.enabled()[0]
    return guest, service.schedule("Reboot", guest.name).id


@pytest.mark.parametrize("form", FORMS)
def test_the_type_of_the_body_does_not_matter(groups: Groups, service: Service, form: str) -> None:
    guest, id = an_event(groups, service)
    answer = guest.post(approval(id), NEWEST, *FORMS[form])
    assert (answer.status, answer.body) == (200, b"")
    assert guest.statuses() == {id: "Started"}


@pytest.mark.parametrize("body", BODIES)
def test_the_notation_of_the_body_does_not_matter(
    groups: Groups, service: Service, body: str
) -> None:
    guest, id = an_event(groups, service)
    answer = guest.post(BODIES[body].replace("ID", id).encode())
    assert (answer.status, answer.body) == (200, b"")
    assert guest.statuses() == {id: "Started"}


def test_an_id_is_accepted_in_any_letter_case(groups: Groups, service: Service) -> None:
    guest, id = an_event(groups, service)
    assert guest.approve(id.lower()).status == 200
    assert guest.statuses() == {id: "Started"}


def test_success_is_200_with_an_empty_body(groups: Groups, service: Service) -> None:
    guest, id = an_event(groups, service)
    answer = guest.approve(id)
    assert answer.line == "HTTP/1.1 200 OK"
    assert answer.body == b""
    assert answer.header("content-length") == "0"
    assert answer.header("content-type") == "application/json; charset=utf-8"
    assert answer.all("etag") == []


def test_reading_and_approving_may_use_different_versions(groups: Groups, service: Service) -> None:
    for version in VERSIONS:
        guest = groups.enabled()[0]
        service.schedule("Freeze", guest.name)
        id = guest.events(NEWEST)[0]["EventId"]
        assert guest.post(approval(id), version).status == 200
        assert guest.statuses() == {id: "Started"}


def test_several_events_are_approved_at_once(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    ids = [service.schedule("Reboot", group[n].name).id for n in (0, 2)]
    assert group[1].approve(*ids).status == 200
    assert group[1].statuses() == dict.fromkeys(ids, "Started")


@pytest.mark.parametrize("n", range(4))
def test_any_machine_of_the_group_may_approve_for_all_resources(
    groups: Groups, service: Service, n: int
) -> None:
    group = groups.enabled()
    id = service.schedule("Reboot", *group.names(0, 2)).id
    assert group[n].approve(id).status == 200
    assert group[0].statuses() == {id: "Started"}


def test_the_approvers_next_get_shows_it_started_on_the_same_connection_too(
    groups: Groups, service: Service
) -> None:
    guest, id = an_event(groups, service)
    with guest.line() as line:
        line.send(request("POST", events(NEWEST), METADATA, body=approval(id)))
        line.send(request("GET", events(NEWEST), METADATA))
        assert line.answer().status == 200
        assert line.answer().json()["Events"][0]["EventStatus"] == "Started"


def test_an_approval_of_any_event_ever_listed_is_200(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    started = service.schedule("Reboot", group[0].name)
    withdrawn = service.schedule("Freeze", group[1].name)
    service.cancel(withdrawn)
    assert [guest.approve(started.id).status for guest in group.guests] == [200] * 4
    assert group[0].statuses() == {started.id: "Started"}
    assert group[0].approve(withdrawn.id).status == 200
    service.clock.advance("10m")
    assert group[0].statuses() == {}
    assert group[3].approve(started.id, withdrawn.id, started.id.lower()).status == 200
    assert group[0].statuses() == {}, "and nothing comes back"


def test_an_event_that_ended_before_the_group_ever_asked_was_never_listed(
    groups: Groups, service: Service
) -> None:
    group = groups.unpolled()
    event = service.schedule("Reboot", group[0].name)
    service.cancel(event)
    group[0].get()
    assert group[0].approve(event.id).status == 400


NEVER = b"00000000-0000-4000-8000-000000000000"
REFUSED = {
    "nothing": b" ",
    "not json": b"StartRequests=ID",
    "half of it": b'{"StartRequests":[{"EventId":"ID"}]',
    "more than one": b'{"StartRequests":[{"EventId":"ID"}]}{}',
    "a list": b'[{"EventId":"ID"}]',
    "null": b"null",
    "no StartRequests": b'{"DocumentIncarnation":2}',
    "StartRequests in another case": b'{"startrequests":[{"EventId":"ID"}]}',
    "null StartRequests": b'{"StartRequests":null}',
    "an object of them": b'{"StartRequests":{"EventId":"ID"}}',
    "an empty list": b'{"StartRequests":[]}',
    "an entry without an id": b'{"StartRequests":[{"EventId":"ID"},{}]}',
    "an entry that is a string": b'{"StartRequests":["ID"]}',
    "an id that is a number": b'{"StartRequests":[{"EventId":"ID"},{"EventId":1}]}',
    "an id that is null": b'{"StartRequests":[{"EventId":null},{"EventId":"ID"}]}',
    "an id never listed": b'{"StartRequests":[{"EventId":"ID"},{"EventId":"OTHER"}]}',
    "one never listed before it": b'{"StartRequests":[{"EventId":"OTHER"},{"EventId":"ID"}]}',
    "an empty id": b'{"StartRequests":[{"EventId":"ID"},{"EventId":""}]}',
    "an id with spaces": b'{"StartRequests":[{"EventId":" ID "}]}',
    "the beginning of one": b'{"StartRequests":[{"EventId":"HALF"}]}',
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_bad_approval_is_refused_and_nothing_in_it_takes_effect(
    groups: Groups, service: Service, what: str
) -> None:
    guest, id = an_event(groups, service)
    before = guest.get().body
    body = REFUSED[what].replace(b"HALF", id[:18].encode()).replace(b"OTHER", NEVER)
    answer = guest.post(re.sub(rb"\bID\b", id.encode(), body))
    assert answer.line == "HTTP/1.1 400 Bad Request"
    assert REASONED.fullmatch(answer.body)
    assert guest.get().body == before


def test_a_post_without_a_body_is_refused(groups: Groups) -> None:
    guest = groups.enabled()[0]
    for data in (
        request("POST", events(NEWEST), METADATA),
        request("POST", events(NEWEST), METADATA, "Content-Length: 0"),
        request("POST", events(NEWEST), METADATA, "Transfer-Encoding: chunked") + b"0\r\n\r\n",
    ):
        answer = guest.say(data)
        assert answer.status == 400
        assert REASONED.fullmatch(answer.body)


def test_an_approval_cannot_be_withdrawn(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    first = service.schedule("Reboot", group[0].name)
    second = service.schedule("Reboot", group[1].name)
    group[0].approve(first.id)
    group[1].approve(second.id)  # the other domain is being disturbed: it waits
    assert group[0].statuses() == {first.id: "Started", second.id: "Scheduled"}
    group[1].post(b'{"StopRequests":[{"EventId":"%s"}]}' % second.id.encode())
    service.clock.advance("10m")
    assert group[0].statuses() == {second.id: "Started"}, "remembered, and started once it could"


def test_an_approval_of_a_disabled_group_does_not_count(groups: Groups, service: Service) -> None:
    guest, id = an_event(groups, service)
    service.disable(guest.name.partition("_")[0])
    assert guest.approve(id).status == 200
    assert guest.statuses() == {id: "Scheduled"}


class Disk(MemoryStore):
    """A store that can be reached to fail."""

    fails = False
    loses_count = False  # of what has happened and what has not

    async def _persist(
        self, commits: Sequence[Commit], before: Mapping[str, Group], after: Mapping[str, Group]
    ) -> None:
        if self.fails:
            raise StoreFailed("no space left on device")
        if self.loses_count:
            raise OutcomeUnknown("input/output error")
        await super()._persist(commits, before, after)


def test_an_approval_that_cannot_be_made_durable_is_500() -> None:
    disk = Disk()
    with Service(SAMPLE, sockets=True, front=True, store=disk) as service:
        guest, other = Guest(service, "web_0"), Guest(service, "sql-0")
        guest.get()
        event = service.schedule("Reboot", guest.name)
        disk.fails = True
        assert guest.approve(event.id).status == 500
        assert guest.statuses() == {event.id: "Scheduled"}
        assert other.get().status == 500, "nor can a group be enabled"
        disk.fails = False
        assert guest.approve(event.id).status == 200
        assert guest.statuses() == {event.id: "Started"}
        assert other.get().status == 200


def test_an_approval_whose_outcome_is_unknown_is_closed_without_an_answer() -> None:
    """A 500 would say that nothing has happened."""
    disk = Disk()
    with Service(SAMPLE, sockets=True, front=True, store=disk) as service:
        guest = Guest(service, "web_0")
        guest.get()
        event = service.schedule("Reboot", guest.name)
        disk.loses_count = True
        with pytest.raises(ConnectionClosed, match="b''"):
            guest.approve(event.id)
        disk.loses_count = False
        assert guest.approve(event.id).status == 200
