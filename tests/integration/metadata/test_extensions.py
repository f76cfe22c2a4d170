"""Beside the wire: waiting for another document, readiness by machine, and postponing.

On real sockets, with and without Front. Whoever waits is answered when something happens, never
when a test has slept long enough.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from forewarn.core import Group as State
from forewarn.core.commands import Define, Delete
from forewarn.core.fleet import Policy
from forewarn.core.time import MINUTE
from forewarn.core.windows.may_postpone import parse_may_postpone
from forewarn.judge import judge_files
from forewarn.metadata.endpoint.limits import Limits
from forewarn.metadata.endpoint.metrics import EndpointCounts
from forewarn.node.listening import serve, server
from forewarn.store import MemoryStore, StoreFailed
from forewarn.store.port import Commit
from forewarn.support import guard
from forewarn.support.limits import MAX_READY_NOTE
from forewarn.testing import Service
from forewarn.wire.times import parse_rfc1123, rfc1123
from helpers.endpoint import (
    METADATA,
    NEWEST,
    NOT_FOUND,
    REASONED,
    THROTTLED,
    VERSIONS,
    Group,
    Groups,
    Guest,
    fleet_of,
    known_by_source,
)
from helpers.polls import GET, metrics, send_poll, until_closed
from helpers.raw_http import RawConnection, RawResponse, request
from helpers.waiting import LIMIT, until

WAIT = "/forewarn/v1/wait"
READY = "/forewarn/v1/ready"
POSTPONE = "/forewarn/v1/postpone"
STOPPING = b'{"error":"The service is stopping. Try again"}'
COUNT = 120
CROWD = 200
ROOM = Limits(max_connections_per_machine=2 * CROWD)
WAYS = pytest.mark.parametrize("front", [True, False], ids=["front", "no front"])


@pytest.fixture(scope="module", params=[True, False], ids=["front", "no front"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    with Service(fleet_of(COUNT), sockets=True, front=request.param, limits=ROOM) as service:
        yield service


@pytest.fixture(scope="module")
def groups(service: Service) -> Groups:
    return Groups(service, COUNT)


@pytest.fixture(autouse=True)
def nobody_is_forgotten(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever a test has done, nothing of those who waited is left behind."""
    yield
    if "service" in request.fixturenames:
        service: Service = request.getfixturevalue("service")
        until(lambda: waiting(service) == 0)
        until_closed(service)
        assert service._session.node.endpoint.extensions.waits._waiting == {}


def waiting(service: Service) -> int:
    return service._session.run(_waiting(service))


async def _waiting(service: Service) -> int:
    return len(service._session.node.endpoint.extensions.waits)


def wait_for(tag: str = "", *headers: str, **parameters: str) -> bytes:
    response = {"etag": tag.replace('"', "%22"), **parameters} if tag else parameters
    query = "&".join(f"{name.replace('_', '-')}={value}" for name, value in response.items())
    return request("GET", f"{WAIT}?{query}", METADATA, *headers)


@contextlib.contextmanager
def waits(guest: Guest, *headers: str, **parameters: str) -> Iterator[RawConnection]:
    """A connection on which the machine waits for what is not its document now."""
    tag = guest.get(parameters.get("api_version", NEWEST)).header("etag")
    with guest.line() as line:
        before = waiting(guest.service)
        line.send(wait_for(tag, *headers, **{"timeout": "5m", **parameters}))
        until(lambda: waiting(guest.service) == before + 1)
        assert line.silent()
        yield line


def an_event(group: Group, *numbers: int) -> str:
    return group.service.schedule("Reboot", *group.names(*(numbers or (0,)))).id


def same(one: RawResponse, other: RawResponse) -> bool:
    """The same answer, but for when it was given and which it was."""
    fresh = ("date", "x-ms-request-id")
    kept = [[x for x in raw.lines if x.split(":")[0].lower() not in fresh] for raw in (one, other)]
    return (one.line, one.body) == (other.line, other.body) and kept[0] == kept[1]


# Waiting.


@pytest.mark.parametrize("version", ["2017-03-01", NEWEST])
def test_a_wait_without_a_known_tag_is_answered_at_once(
    groups: Groups, service: Service, version: str
) -> None:
    group = groups.enabled()
    an_event(group)
    for query in ({}, {"etag": "0"}, {"etag": "%22%22"}):
        response = group[1].say(wait_for(api_version=version, timeout="5m", **query))
        assert same(response, group[1].get(version))
        assert response.status == 200
        assert {"date", "server", "x-ms-request-id", "etag"} <= set(response.names)


def test_a_wait_without_a_version_is_answered_with_the_newest(groups: Groups) -> None:
    guest = groups.enabled()[0]
    assert same(guest.say(wait_for()), guest.get(NEWEST))


@pytest.mark.parametrize("version", ["2017-03-01", NEWEST])
def test_a_wait_with_the_current_tag_is_answered_when_the_document_changes(
    groups: Groups, version: str
) -> None:
    group = groups.enabled()
    with waits(group[1], api_version=version) as line:
        id = an_event(group)
        response = line.answer()
        assert response.status == 200
        assert [event["EventId"] for event in response.json()["Events"]] == [id]
        assert same(response, group[1].get(version))
        assert send_poll(line).status == 200, "the line is kept"


@pytest.mark.parametrize("form", ['"{}"', "{}", 'W/"{}"', '"zzz", "{}"', "*"])
@pytest.mark.parametrize("where", ["the header", "the query"])
def test_a_tag_may_be_written_as_clients_write_it(groups: Groups, form: str, where: str) -> None:
    group = groups.enabled()
    guest = group[0]
    tag = form.format(guest.get().header("etag").strip('"'))
    with guest.line() as line:
        if where == "the header":
            line.send(wait_for("", f"If-None-Match: {tag}"))
        else:
            line.send(wait_for(tag.replace(" ", "%20")))
        until(lambda: waiting(guest.service) == 1)
        an_event(group)
        assert line.answer().json()["DocumentIncarnation"] == 2


@pytest.mark.parametrize("timeout", ["0", "0s", "0.05", "PT0.05S"])
def test_when_the_time_is_up_the_answer_is_304(groups: Groups, timeout: str) -> None:
    guest = groups.enabled()[0]
    tag = guest.get().header("etag")
    with guest.line() as line:
        for _ in range(2):
            response = send_poll(line, wait_for(tag, timeout=timeout))
            assert response.line == "HTTP/1.1 304 Not Modified"
            assert same(response, guest.get(NEWEST, f"If-None-Match: {tag}"))


def test_a_wait_across_an_approval_shows_that_the_event_has_started(groups: Groups) -> None:
    group = groups.enabled()
    id = an_event(group)
    with waits(group[1]) as line:
        assert group[0].approve(id).status == 200
        (event,) = line.answer().json()["Events"]
        assert (event["EventId"], event["EventStatus"]) == (id, "Started")


def test_a_wait_ends_with_its_event(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    an_event(group)
    with waits(group[1]) as line:
        service.clock.advance("16m")
        (event,) = line.answer().json()["Events"]
        assert event["EventStatus"] == "Started"
    with waits(group[1]) as line:
        service.clock.advance("11m")
        assert line.answer().json()["Events"] == []


def test_only_waits_of_the_group_that_changes_are_answered(groups: Groups) -> None:
    one, other = groups.enabled(), groups.enabled()
    with waits(one[0]) as waits_on, waits(other[0]) as second_waits:
        an_event(other)
        assert second_waits.answer().status == 200
        assert waits_on.silent()
        an_event(one)
        assert waits_on.answer().status == 200


def test_a_change_that_shows_in_no_document_answers_no_wait(
    groups: Groups, service: Service
) -> None:
    """An approval that has to wait, and a machine's readiness."""
    group = groups.enabled()
    first, second = an_event(group, 0), an_event(group, 1)
    assert group[0].approve(first).status == 200  # its domain is taken from here on
    with waits(group[2]) as line:
        waits_before = service._session.node.endpoint.extensions.waits._waiting[group.name].copy()
        assert group[0].approve(second).status == 200
        assert put(group[1], second).status == 200
        assert service._session.node.endpoint.extensions.waits._waiting[group.name] == waits_before
        assert line.silent()
        service.clock.advance("11m")
        assert line.answer().status == 200


def test_all_waiting_requests_get_the_new_document(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    tag = group[0].get().header("etag")
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(group[n % 4].line()) for n in range(CROWD)]
        for line in lines:
            line.send(wait_for(tag, timeout="5m"))
        until(lambda: waiting(service) == CROWD)
        an_event(group)
        document = group[0].get().body
        assert [line.answer().body for line in lines] == [document] * CROWD
        assert waiting(service) == 0


def test_requests_behind_a_wait_are_answered_after_it(groups: Groups) -> None:
    group = groups.enabled()
    tag = group[0].get().header("etag")
    with group[0].line() as line:
        line.send(wait_for(tag, timeout="5m") + GET + wait_for("x"))
        until(lambda: waiting(group.service) == 1)
        an_event(group)
        bodies = {line.answer().body for _ in range(3)}
        assert bodies == {group[0].get().body}


@pytest.mark.parametrize(
    "header", ["Content-Length: 2", "Expect: 100-continue\r\nContent-Length: 2"]
)
def test_a_wait_may_have_a_body_that_means_nothing(groups: Groups, header: str) -> None:
    group = groups.enabled()
    with waits(group[0]) as line:
        an_event(group)
        tag = line.answer().header("etag")
        line.send(wait_for(tag, header))
        line.send(b"{}")
        until(lambda: waiting(group.service) == 1)
        an_event(group, 1)
        assert line.answer().json()["DocumentIncarnation"] == 3


def test_an_offer_to_upgrade_is_passed_over(groups: Groups) -> None:
    group = groups.enabled()
    with waits(group[0], "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c") as line:
        an_event(group)
        assert line.answer().status == 200


def test_a_wait_with_connection_close_is_answered_and_closed(groups: Groups) -> None:
    group = groups.enabled()
    with waits(group[0], "Connection: close") as line:
        an_event(group)
        response = line.answer()
        assert (response.status, response.header("connection"), line.over()) == (200, "close", b"")


# Who has gone, or goes.


def test_a_caller_that_closes_its_connection_no_longer_waits(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    with contextlib.ExitStack() as stack:
        lines = [stack.enter_context(waits(group[n])) for n in range(4)]
        for left, line in reversed(list(enumerate(lines))):
            line.close()
            until(lambda left=left: waiting(service) == left)  # type: ignore[misc]
    until_closed(service)


def test_a_wait_whose_caller_half_closes_is_answered_at_once(groups: Groups) -> None:
    """It may have gone, or it may be listening: nobody can tell, so it is not kept waiting."""
    guest = groups.enabled()[0]
    with waits(guest) as line:
        line.finish()
        assert line.answer().status == 304
        assert line.over() == b""
    with guest.line() as line:
        tag = guest.get().header("etag")
        line.send(wait_for(tag, timeout="5m") + wait_for(tag, timeout="5m"))
        line.finish()
        assert [line.answer().status, line.answer().status] == [304, 304]
        assert line.over() == b""
    with guest.line() as line:
        line.send(wait_for("x"))
        line.finish()
        assert line.answer().status == 200


def test_a_machine_that_is_deleted_while_it_waits_is_not_found(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    id = service.schedule("Preempt", group[2].name).id
    group[0].approve(id)
    with waits(group[2]) as gone, waits(group[0]) as stays:
        service.clock.advance("1m")
        response = gone.answer()
        assert (response.status, response.body) == (404, NOT_FOUND)
        assert stays.answer().json()["Events"] == []


def test_a_machine_that_is_removed_from_the_fleet_while_it_waits_is_not_found(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    with waits(group[3]) as removed, waits(group[0]) as stays:
        state = service._session.node.store.groups[group.name]
        command = Define(kind=state.kind, machines=state.machines[:3], place=state.place)
        service._session.run(service._session.node.writer.submit(group.name, command))
        assert removed.answer().status == 404
        until(lambda: waiting(service) == 1)
        assert stays.silent(), "the document is the same"
        an_event(group)
        assert stays.answer().status == 200


def test_a_waiting_machine_keeps_its_group_enabled(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    an_event(group)
    with waits(group[0]) as line:
        service.disable(group.name)
        response = line.answer()
        assert (response.status, response.json()["DocumentIncarnation"]) == (200, 1)
        assert len(response.json()["Events"]) == 1


def test_a_wait_with_the_tag_of_the_first_document_is_not_answered_with_it(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    with waits(group[0]) as line:
        service.disable(group.name)
        until(
            lambda: service._session.node.store.groups[group.name].enabled and waiting(service) == 1
        )
        assert line.silent()
        an_event(group)
        assert line.answer().json()["DocumentIncarnation"] == 2


@WAYS
def test_all_waits_are_answered_when_the_service_stops(
    front: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "GRACE", 60)  # nobody who is only cancelled has that patience
    service = Service(fleet_of(1), sockets=True, front=front)
    service.__enter__()
    stop = threading.Thread(target=service.__exit__, args=(None, None, None))
    with contextlib.ExitStack() as stack:
        group = Group(service, "web0")
        lines = [stack.enter_context(waits(guest)) for guest in group.guests]
        stop.start()
        for line in lines:
            response = line.answer()
            assert (response.status, response.body) == (500, STOPPING)
            assert response.header("connection") == "close"
            assert line.over() == b""
    stop.join()
    assert service._session.node.endpoint.extensions.waits._waiting == {}


# Enabling, and signs of life.


def test_a_wait_enables_its_group(groups: Groups, service: Service) -> None:
    group = groups.unpolled()
    response = group[0].say(wait_for("anything", timeout="0"))
    assert (response.status, response.body) == (200, b'{"DocumentIncarnation":1,"Events":[]}')
    assert service._session.node.store.groups[group.name].enabled


def test_a_wait_that_enables_its_group_goes_on_to_wait(groups: Groups, service: Service) -> None:
    known = groups.enabled()[0].get().header("etag")  # the empty document is the same everywhere
    group = groups.unpolled()
    with group[0].line() as line:
        line.send(wait_for(known, timeout="5m"))
        until(lambda: waiting(service) == 1)
        an_event(group)
        assert line.answer().json()["DocumentIncarnation"] == 2


@WAYS
def test_a_wait_is_answered_when_enabling_has_taken_its_time(front: bool) -> None:
    delay = "2m"
    with Service(fleet_of(1), sockets=True, front=front, enable_delay=delay) as service:
        guest = Guest(service, "web0_0")
        with guest.line() as line:
            line.send(wait_for(timeout="0"))
            until(lambda: service._session.node.store.groups["web0"].enabling_until is not None)
            service.clock.advance("1m")
            assert line.silent()
            service.clock.advance("1m")
            assert line.answer().body == b'{"DocumentIncarnation":1,"Events":[]}'


def test_a_wait_is_a_poll_when_it_begins_and_when_it_is_answered(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    poll_index = service._session.node.poll_index

    def polls() -> int:
        found = poll_index.polls(group[1].name)
        return found.count if found else 0

    with waits(group[1]) as line:
        assert polls() == 2, "one GET, and the wait has begun"
        began = poll_index.seen(group.name)
        service.clock.advance("1m")
        assert poll_index.seen(group.name) == began
        id = an_event(group)
        line.answer()
        assert polls() == 3
        assert poll_index.seen(group.name) == began + MINUTE
        assert list(poll_index.first_sights(id, [group[1].name])) == [group[1].name]


def test_an_answered_wait_counts_as_one_document(groups: Groups, service: Service) -> None:
    def count(status: int) -> float:
        name = f'forewarn_polls_total{{api_version="2019-01-01",status="{status}"}}'
        return metrics(service.control_url)[name]

    guest = groups.enabled()[0]
    tag = guest.get().header("etag")
    before = count(200), count(304)
    guest.say(wait_for(api_version="2019-01-01"))
    guest.say(wait_for(tag, api_version="2019-01-01", timeout="0.01"))
    assert (count(200), count(304)) == (before[0] + 1, before[1] + 1)


@WAYS
def test_a_group_whose_machines_only_wait_is_never_silent(front: bool) -> None:
    silence = "24h"
    with Service(fleet_of(2), sockets=True, front=front, silence=silence) as service:
        waiter, sleeper = Guest(service, "web0_0"), Guest(service, "web1_0")
        sleeper.get()
        tag = waiter.say(wait_for()).header("etag")
        for _ in range(4):
            service.clock.advance("23h")
            assert waiter.say(wait_for(tag, timeout="0")).status == 304
        enabled = {
            name: group.enabled for name, group in service._session.node.store.groups.items()
        }
        assert enabled == {"web0": True, "web1": False}


# What a caller may use up.


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Guard time in a test's hands, and how often the sweep has come by, which it does oftener."""
    seen, log_hits = [1_000.0, 0.0], EndpointCounts.log_hits

    def reported(counts: EndpointCounts, now: float) -> None:
        log_hits(counts, now)
        seen[1] += 1

    monkeypatch.setattr(guard, "monotonic", lambda: seen[0])
    monkeypatch.setattr(serve, "SWEEP_EVERY", 0.01)
    monkeypatch.setattr(EndpointCounts, "log_hits", reported)
    return seen


@WAYS
def test_a_waiting_connection_is_not_cut_off_as_slow(front: bool, time: list[float]) -> None:
    with Service(fleet_of(1), sockets=True, front=front) as service:
        group = Group(service, "web0")
        with waits(group[0]) as line:
            line.send(GET[:20])  # the next request begins meanwhile
            for _ in range(3):
                time[0] += 1_000
                swept = time[1]
                until(lambda swept=swept: time[1] >= swept + 2)  # type: ignore[misc]
            assert line.silent()
            an_event(group)
            assert line.answer().json()["DocumentIncarnation"] == 2
            line.send(GET[20:])
            assert line.answer().status == 200
        assert not any(service._session.node.endpoint.counts.hits.values())


@WAYS
def test_a_connection_that_waits_is_one_of_its_machines(front: bool) -> None:
    limits = Limits(max_connections_per_machine=2)
    with Service(fleet_of(1), sockets=True, front=front, limits=limits) as service:
        group = Group(service, "web0")
        group[0].get()
        until_closed(service)
        with waits(group[0]) as one, group[0].line() as two:
            two.send(wait_for(group[1].get().header("etag")))
            until(lambda: waiting(service) == 2)
            refused = group[0].say(wait_for())
            assert (refused.status, refused.body) == (429, THROTTLED)
            assert group[1].say(wait_for()).status == 200
            one.close()
            until(lambda: service._session.node.endpoint.connections.total == 1)
            assert group[0].say(wait_for()).status == 200


@WAYS
def test_waits_are_throttled_and_still_signs_of_life(front: bool, time: list[float]) -> None:
    limits = Limits(throttle=1)
    with Service(fleet_of(1), sockets=True, front=front, limits=limits) as service:
        guest = Guest(service, "web0_0")
        assert guest.say(wait_for()).status == 200
        service.clock.advance(3_600)
        response = guest.say(wait_for())
        assert (response.status, response.body) == (429, THROTTLED)
        assert (
            service._session.node.poll_index.seen("web0")
            == service._session.node.writer.now().served
        )
        time[0] += 1
        assert guest.say(wait_for()).status == 200


def test_a_body_beyond_the_limit_is_refused(groups: Groups) -> None:
    group = groups.enabled()
    id = an_event(group)
    for target in (f"PUT {READY}/{id}", f"GET {WAIT}"):
        method, _, path = target.partition(" ")
        response = group[0].say(request(method, path, METADATA, "Content-Length: 65537"))
        assert (response.status, response.header("connection")) == (413, "close")


# What is refused, and that nothing leaks.


@pytest.mark.parametrize(
    ("response", "status"),
    [
        (request("PUT", WAIT), 405),
        (request("HEAD", WAIT), 405),
        (request("GET", WAIT, METADATA, "X-Forwarded-For: 10.0.0.1"), 400),
        (request("GET", WAIT), 400),
        (request("GET", f"{WAIT}?etag=a&etag=b", METADATA), 400),
        (request("GET", f"{WAIT}?api-version=latest", METADATA), 400),
        (request("GET", f"{WAIT}?timeout=soon", METADATA), 400),
        (request("GET", f"{WAIT}/more", METADATA), 404),
        (request("GET", "/forewarn/v2/wait", METADATA), 404),
        (request("POST", f"{READY}/X", METADATA), 405),
        (request("PUT", f"{READY}/X"), 400),
        (request("PUT", READY, METADATA), 404),
    ],
)
def test_a_wrong_wait_is_refused_as_on_the_endpoint_and_enables_no_group(
    groups: Groups, service: Service, response: bytes, status: int
) -> None:
    group = groups.unpolled()
    answer = group[0].say(response, to_head=response.startswith(b"HEAD"))
    assert answer.status == status
    assert {"date", "server", "x-ms-request-id", "content-type"} <= set(answer.names)
    if status == 405:
        assert answer.header("allow") == ("GET, PUT" if b"ready" in response else "GET")
    if status == 404:
        assert answer.body == NOT_FOUND
    assert not service._session.node.store.groups[group.name].enabled


@WAYS
def test_a_caller_that_is_no_machine_finds_nothing(front: bool) -> None:
    with known_by_source(Service(fleet_of(1), sockets=True, front=front)) as service:
        place = Guest(service, "web0_0").place
        for response in (wait_for(), request("GET", f"{READY}/X", METADATA), request("PUT", WAIT)):
            with RawConnection(place, source="127.9.9.9") as line:
                answer = send_poll(line, response)
            assert (answer.status, answer.body) == (404, NOT_FOUND)
        with waits(Guest(service, "web0_0")) as line:
            service.schedule("Reboot", "web0_1")
            assert line.answer().status == 200


# Readiness.


def put(guest: Guest, id: str, body: bytes = b"") -> RawResponse:
    return guest.say(request("PUT", f"{READY}/{id}", METADATA, body=body))


def readiness(guest: Guest, id: str) -> Any:
    response = guest.say(request("GET", f"{READY}/{id}", METADATA))
    assert response.status == 200, response
    return response.json()


def ready(guest: Guest, id: str) -> list[str]:
    return [response["Machine"] for response in readiness(guest, id)["Ready"]]


def test_readiness_is_reported_by_a_machine_and_seen_by_its_group(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    id = an_event(group, 0, 2)
    first, third = group.names(0, 2)
    assert readiness(group[3], id) == {"EventId": id, "Ready": [], "Waiting": [first, third]}
    at = service.clock.now.strftime("%a, %d %b %Y %H:%M:%S GMT")
    response = put(group[2], id.lower(), b'{"ready": true, "note": "drained"}')
    assert response.status == 200
    assert (
        response.body
        == (
            f'{{"EventId":"{id}","Ready":[{{"Machine":"{third}","At":"{at}","Note":"drained"}}],'
            f'"Waiting":["{first}"]}}'
        ).encode()
    )
    for guest in group.guests:
        assert readiness(guest, id) == response.json()
    assert put(group[0], id).json()["Waiting"] == []
    assert ready(group[1], id) == [third, first]


def test_a_machine_that_an_event_does_not_affect_may_report_readiness(groups: Groups) -> None:
    group = groups.enabled()
    id = an_event(group, 0)
    response = put(group[1], id).json()
    assert [word["Machine"] for word in response["Ready"]] == [group[1].name]
    assert response["Waiting"] == [group[0].name]


def test_readiness_can_be_withdrawn(groups: Groups) -> None:
    group = groups.enabled()
    id = an_event(group)
    put(group[0], id)
    response = put(group[0], id, b'{"ready": false}')
    assert (response.status, response.json()["Ready"]) == (200, [])
    assert response.json()["Waiting"] == [group[0].name]


def test_the_same_report_twice_is_one_and_another_replaces_it(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    id = an_event(group)
    first = put(group[0], id, b'{"note": "a"}')
    committed = service._session.node.store.seq
    service.clock.advance("1m")
    assert put(group[0], id, b'{"note": "a", "ready": true}').body == first.body
    assert service._session.node.store.seq == committed
    (word,) = put(group[0], id, b'{"note": "b"}').json()["Ready"]
    assert word["Note"] == "b"
    assert service._session.node.store.seq == committed + 1
    put(group[1], id, b'{"ready": false}')
    assert service._session.node.store.seq == committed + 1, "it had not said so anyway"


def test_readiness_changes_no_document(groups: Groups) -> None:
    group = groups.enabled()
    id = an_event(group)
    before = [group[0].get(version) for version in VERSIONS]
    put(group[0], id)
    assert all(same(b, group[0].get(v)) for b, v in zip(before, VERSIONS, strict=True))


def test_readiness_may_be_reported_for_an_event_that_has_started(groups: Groups) -> None:
    group = groups.enabled()
    id = an_event(group)
    group[0].approve(id)
    assert group[0].statuses() == {id: "Started"}
    assert put(group[0], id).status == 200


def nothing_there(guest: Guest, id: str) -> None:
    for method in ("GET", "PUT"):
        response = guest.say(request(method, f"{READY}/{id}", METADATA))
        assert (response.status, response.body) == (404, NOT_FOUND), method


def test_readiness_for_an_event_that_a_group_is_not_shown_is_not_found(
    groups: Groups, service: Service
) -> None:
    group, other = groups.enabled(), groups.enabled()
    id = an_event(group)
    nothing_there(other[0], id)
    nothing_there(group[0], "28512AF7-C957-4500-9BC4-842D6FB531E4")
    nothing_there(group[0], "%2E%2E")
    service.disable(group.name)
    nothing_there(group[0], id)
    group[0].get()
    assert put(group[0], id).status == 200
    service.cancel(service._session.node.store.groups[group.name].events[0])
    nothing_there(group[0], id)
    asleep = groups.unpolled()
    nothing_there(asleep[0], an_event(asleep))
    silent = "28512AF7-C957-4500-9BC4-842D6FB531E5"  # its group is not told of deletes
    delete = Delete(id=silent, machine=other[1].name, by="test")
    service._session.run(service._session.node.writer.submit(other.name, delete))
    assert [event.id for event in service._session.node.store.groups[other.name].events] == [silent]
    nothing_there(other[0], silent)


def test_readiness_of_a_deleted_machine_is_not_waited_for(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    id = an_event(group, 0, 2)
    preempt = service.schedule("Preempt", group[2].name).id
    group[0].approve(preempt)
    service.clock.advance("1m")
    assert readiness(group[0], id)["Waiting"] == [group[0].name]


def test_readiness_is_no_sign_of_life(groups: Groups, service: Service) -> None:
    group = groups.enabled()
    id = an_event(group)
    before = service._session.node.poll_index.seen(group.name)
    service.clock.advance("1m")
    put(group[1], id)
    readiness(group[1], id)
    assert service._session.node.poll_index.seen(group.name) == before
    assert service._session.node.poll_index.polls(group[1].name) is None


@pytest.mark.parametrize(
    "body",
    [b"yes", b"{", b"[]", b"true", b'{"ready":1}', b'{"note":5}', b'{"note":"%b"}'],
)
def test_a_malformed_report_is_refused_and_changes_nothing(groups: Groups, body: bytes) -> None:
    group = groups.enabled()
    id = an_event(group)
    response = put(group[0], id, body.replace(b"%b", b"a" * (MAX_READY_NOTE + 1)))
    assert response.status == 400
    assert REASONED.fullmatch(response.body)
    assert ready(group[0], id) == []


def test_a_note_may_be_long_and_in_any_language(groups: Groups) -> None:
    group = groups.enabled()
    id = an_event(group)
    note = "ö\\u0000" + "界" * (MAX_READY_NOTE - 2)
    response = put(group[0], id, f'{{"note":"{note}"}}'.encode())
    assert response.json()["Ready"][0]["Note"] == note.replace("\\u0000", "\ufffd")


@WAYS
def test_readiness_survives_a_restart(tmp_path: Path, front: bool) -> None:
    def service() -> Service:
        return Service(fleet_of(1), sockets=True, state=tmp_path / "state.db", front=front)

    with service() as first:
        group = Group(first, "web0")
        group[0].get()
        id = an_event(group, 0, 2)
        response = put(group[0], id, b'{"note":"drained"}')
    with service() as second:
        after = Group(second, "web0")[1].say(request("GET", f"{READY}/{id}", METADATA))
        assert after.body == response.body


class Disk(MemoryStore):
    """A store that can be reached to fail."""

    fails = False

    async def _persist(
        self, commits: Sequence[Commit], before: Mapping[str, State], after: Mapping[str, State]
    ) -> None:
        if self.fails:
            raise StoreFailed("no space left on device")
        await super()._persist(commits, before, after)


@WAYS
def test_a_report_that_cannot_be_stored_is_answered_500(front: bool) -> None:
    disk = Disk()
    with Service(fleet_of(2), sockets=True, front=front, store=disk) as service:
        group, asleep = Group(service, "web0"), Group(service, "web1")
        group[0].get()
        id = an_event(group)
        disk.fails = True
        assert put(group[0], id).status == 500
        assert ready(group[0], id) == []
        assert asleep[0].say(wait_for()).status == 500, "nor can a group be enabled"
        disk.fails = False
        assert put(group[0], id).status == 200
        assert ready(group[0], id) == [group[0].name]


# In process, and judged.


# Postponing.


def postpone(guest: Guest, id: str, until: object) -> RawResponse:
    body = json.dumps({"until": until}).encode()
    return guest.say(request("PUT", f"{POSTPONE}/{id}", METADATA, body=body))


def test_a_machine_postpones_an_event_for_its_group_within_the_policy(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    id = an_event(group)
    (event,) = group[1].events()
    before = parse_rfc1123(event["NotBefore"])
    later = rfc1123(before + 30 * 60)
    refused = postpone(group[1], id, later)
    assert refused.status == 409
    assert "does not allow" in refused.json()["error"]
    allowed = Policy(may_postpone=parse_may_postpone("1h"))
    platform = service._session.node.platform
    service._session.run(platform.set_policy(group.name, lambda _: allowed, "test"))
    with waits(group[2]) as line:
        response = postpone(group[1], id.lower(), later)
        assert (response.status, response.json()) == (200, {"EventId": id, "NotBefore": later})
        assert line.answer().json()["Events"][0]["NotBefore"] == later
    assert postpone(group[1], id, later).body == response.body
    again = postpone(group[1], id, rfc1123(before + 50 * 60))
    assert (again.status, "postponed once" in again.json()["error"]) == (409, True)
    assert postpone(group[0], id, "soon").status == 400
    assert postpone(groups.enabled()[0], id, later).status == 404


def test_a_wait_in_process_waits_as_well() -> None:
    with Service(fleet_of(1)) as service:
        tag = service.get("web0_0").headers["etag"]
        response: list[int] = []

        def wait() -> None:
            target = f"{WAIT}?timeout=5m&etag={tag.strip(chr(34))}"
            answer = service.request("web0_0", "GET", target, {"Metadata": "true"})
            response.append(answer.json()["DocumentIncarnation"])

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: waiting(service) == 1)
        service.schedule("Reboot", "web0_0")
        thread.join(LIMIT)
        assert response == [2]


def test_the_judge_has_nothing_against_a_life_of_waiting(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    silence = "2h"
    with (
        contextlib.ExitStack() as at_the_end,
        Service(fleet_of(1), sockets=True, record=trace, silence=silence) as service,
    ):
        group = Group(service, "web0")
        tag = group[0].say(wait_for(api_version="2019-08-01")).header("etag")
        id = an_event(group)
        assert group[1].say(wait_for(tag, "If-None-Match: zzz")).status == 200
        assert group[0].say(wait_for(tag, timeout="0")).status == 200
        put(group[0], id)
        readiness(group[1], id)
        assert postpone(group[1], id, "2030-01-31T18:00:00Z").status == 409
        nothing_there(group[0], "X")
        with waits(group[2]) as line:
            group[0].approve(id)
            line.answer()
        with waits(group[2]) as line:
            service.clock.advance("1h")
            line.answer()
        for response in (request("PUT", WAIT), wait_for(timeout="no"), put_too_much(id)):
            group[0].say(response)
        with waits(group[3]) as line:
            service.disable("web0")
            line.answer()
        with waits(group[3]) as line:
            line.close()
            until(lambda: waiting(service) == 0)
        with waits(group[3]) as stops:
            an_event(group, 3)
            stops.answer()
        assert len(group[0].events()) == 1
        at_the_end.enter_context(waits(group[0]))
    judgement = judge_files([trace])
    assert judgement.findings == ()
    assert judgement.unreadable == 0


def put_too_much(id: str) -> bytes:
    return request("PUT", f"{READY}/{id}", METADATA, "Content-Length: 99999")
