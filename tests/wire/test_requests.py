"""How the endpoint may be asked, and what it says to a request that is not right."""

from __future__ import annotations

import json
import re

import pytest

from forewarn.testing import Service
from helpers.endpoint import (
    BAD_VERSION,
    METADATA,
    NEWEST,
    NO_METADATA_HEADER,
    NOT_FOUND,
    PATH,
    REASONED,
    VERSIONS,
    Caller,
    Groups,
    approval,
    events,
)
from helpers.raw_http import RawResponse, request

JSON = "application/json; charset=utf-8"
COUNT = 12


def standing(answer: RawResponse) -> None:
    """What is on every answer."""
    assert answer.header("content-type") == JSON
    assert int(answer.header("content-length")) >= len(answer.body)
    assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", answer.header("date"))
    assert re.fullmatch(r"IMDS/\S+", answer.header("server"))
    assert answer.header("x-ms-request-id")


def test_a_valid_get_is_answered_200(guest: Caller) -> None:
    answer = guest.get()
    assert answer.line == "HTTP/1.1 200 OK"
    assert answer.body == guest.untouched
    assert answer.header("content-length") == str(len(guest.untouched))
    standing(answer)
    assert sorted(answer.names) == sorted(
        ["content-type", "content-length", "date", "server", "x-ms-request-id", "etag"]
    )


def test_the_date_is_the_services_own(guest: Caller, service: Service) -> None:
    service.clock.advance("1h")
    now = service.clock.now
    assert guest.get().header("date") == f"{now:%a, %d %b %Y %H:%M:%S GMT}"


def test_every_answer_has_an_id_of_its_own(guest: Caller) -> None:
    asks = [
        request("GET", events(NEWEST), METADATA),
        request("GET", events(NEWEST)),
        request("GET", "/nothing", METADATA),
        request("POST", events(NEWEST), METADATA, body=b"{"),
        b"garbage\r\n\r\n",
    ]
    ids = [guest.say(data).header("x-ms-request-id") for data in asks * 3]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    "path",
    [
        "/metadata/scheduledevents",
        "/metadata/scheduledEvents",
        "/METADATA/SCHEDULEDEVENTS",
        "/Metadata/Scheduledevents",
    ],
)
def test_the_path_is_found_in_any_letter_case(guest: Caller, path: str) -> None:
    answer = guest.say(request("GET", f"{path}?api-version={NEWEST}", METADATA))
    assert (answer.status, answer.body) == (200, guest.untouched)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/metadata",
        "/metadata/",
        "/metadata/scheduledevent",
        "/metadata/scheduledevents/all",
        "/metadata/attested/document",
        "/metadata/identity/oauth2",
        "/latest/meta-data/",
        "/machine?comp=goalstate",
        "/v1/status",
        "/favicon.ico",
        "/metadata/..%2fscheduledevents",
        "/%00",
    ],
)
def test_any_other_path_is_not_found(guest: Caller, path: str) -> None:
    answer = guest.say(request("GET", path, METADATA))
    assert answer.line == "HTTP/1.1 404 Not Found"
    assert answer.body == NOT_FOUND
    standing(answer)


def test_a_machine_has_no_managed_identity(guest: Caller) -> None:
    """Clients that look for one give up at once, while they repeat a request after a 404."""
    path = "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://example.org"
    answer = guest.say(request("GET", path, METADATA))
    assert answer.status == 400
    assert json.loads(answer.body)["error_description"] == "Identity not found"
    standing(answer)


@pytest.mark.parametrize(
    "verb",
    [
        *("PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "PROPFIND", "CONNECT", "PRI"),
        *("DESCRIBE", "PAUSE", "GET_PARAMETER"),  # of another protocol, but well-formed
    ],
)
def test_a_wrong_method_is_answered_with_the_allowed_ones(guest: Caller, verb: str) -> None:
    answer = guest.say(request(verb, events(NEWEST), METADATA))
    assert answer.line == "HTTP/1.1 405 Method Not Allowed"
    assert answer.header("allow") == "GET, POST"
    assert isinstance(answer.json()["error"], str)
    standing(answer)


def test_an_unknown_method_is_not_allowed(guest: Caller) -> None:
    answer = guest.say(request("BREW", events(NEWEST), METADATA))
    assert answer.status == 405
    assert answer.header("allow") == "GET, POST"


def test_head_is_not_allowed_and_its_answer_has_no_body(guest: Caller) -> None:
    with guest.line() as line:
        line.send(request("HEAD", events(NEWEST), METADATA))
        answer = line.answer(to_head=True)
        assert answer.line == "HTTP/1.1 405 Method Not Allowed"
        assert answer.header("allow") == "GET, POST"
        line.send(request("GET", events(NEWEST), METADATA))
        assert line.answer().status == 200, "nothing was left on the line"


@pytest.mark.parametrize("path", ["/metadata/instance", "/metadata/versions"])
def test_other_resources_allow_only_get(guest: Caller, path: str) -> None:
    answer = guest.say(request("POST", path, METADATA, body=b"{}"))
    assert (answer.status, answer.header("allow")) == (405, "GET")


@pytest.mark.parametrize("value", ["10.0.0.1", "", "127.0.0.1, 10.0.0.1"])
@pytest.mark.parametrize("name", ["X-Forwarded-For", "x-forwarded-for"])
def test_a_forwarded_request_is_refused(guest: Caller, name: str, value: str) -> None:
    for method, body in (("GET", b""), ("POST", approval("A"))):
        data = request(method, events(NEWEST), METADATA, f"{name}: {value}", body=body)
        answer = guest.say(data)
        assert answer.line == "HTTP/1.1 400 Bad Request"
        assert REASONED.fullmatch(answer.body)
        standing(answer)


@pytest.mark.parametrize(
    "header",
    [
        "Metadata: true",
        "Metadata:true",
        "metadata: true",
        "METADATA: TRUE",
        "mEtAdAtA: tRuE",
        "Metadata: True",
        "Metadata:   true  ",
    ],
)
def test_the_metadata_header_is_read_in_any_letter_case(guest: Caller, header: str) -> None:
    assert guest.say(request("GET", events(NEWEST), header)).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        [],
        ["Metadata: false"],
        ["Metadata:"],
        ["Metadata: 1"],
        ["Metadata: true; q=1"],
        ["X-Metadata: true"],
        ["Metadata: true", "Metadata: false"],
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_without_the_header_a_get_is_refused_in_every_version(
    guest: Caller, version: str, headers: list[str]
) -> None:
    answer = guest.say(request("GET", events(version), *headers))
    assert answer.line == "HTTP/1.1 400 Bad Request"
    assert answer.body == NO_METADATA_HEADER
    standing(answer)


def test_without_the_header_a_post_is_refused_in_every_version_but_the_preview(
    groups: Groups, service: Service
) -> None:
    guest = groups.enabled()[0]
    event = service.schedule("Freeze", guest.name)
    for version in VERSIONS[1:]:
        answer = guest.say(request("POST", events(version), body=approval(event.id)))
        assert (answer.status, answer.body) == (400, NO_METADATA_HEADER)
    assert guest.statuses() == {event.id: "Scheduled"}


def test_without_the_header_a_post_is_accepted_in_the_preview(
    groups: Groups, service: Service
) -> None:
    guest = groups.enabled()[0]
    event = service.schedule("Freeze", guest.name)
    answer = guest.say(request("POST", events("2017-03-01"), body=approval(event.id)))
    assert (answer.status, answer.body) == (200, b"")
    assert guest.statuses() == {event.id: "Started"}


def test_in_the_preview_a_post_from_a_browser_or_with_a_wrong_header_is_refused(
    groups: Groups, service: Service
) -> None:
    guest = groups.enabled()[0]
    event = service.schedule("Freeze", guest.name)
    for header in ("Origin: http://example.org", "Origin: null", "Metadata: false"):
        answer = guest.say(request("POST", events("2017-03-01"), header, body=approval(event.id)))
        assert (answer.status, answer.body) == (400, NO_METADATA_HEADER)
    assert guest.statuses() == {event.id: "Scheduled"}


@pytest.mark.parametrize(
    "query",
    [
        "api-version=2020-07-01&api-version=2020-07-01",
        "api-version=2020-07-01&api-version=2019-08-01",
        "a=1&api-version=2020-07-01&a=2",
        "api-version=2020-07-01&a&a",
    ],
)
def test_a_repeated_parameter_is_refused(guest: Caller, query: str) -> None:
    answer = guest.say(request("GET", f"{PATH}?{query}", METADATA))
    assert answer.status == 400
    assert REASONED.fullmatch(answer.body)
    standing(answer)


@pytest.mark.parametrize(
    "query",
    [
        "api-version=2020-07-01&x=1",
        "x=1&y&api-version=2020-07-01&z=",
        "api-version=2020-07-01&format=text",
        "api-version=2020-07-01&&",
        "api-version=2020-07-01&%f0%28=%ff",
    ],
)
def test_unknown_parameters_are_ignored(guest: Caller, query: str) -> None:
    answer = guest.say(request("GET", f"{PATH}?{query}", METADATA))
    assert (answer.status, answer.body) == (200, guest.untouched)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?",
        "?api-version",
        "?api-version=",
        "?api-version=latest",
        "?api-version=2020-07-02",
        "?api-version=2021-02-01",
        "?api-version=2017-04-02",
        "?api-version=%00",
        "?format=json",
    ],
)
def test_the_version_is_mandatory_and_must_be_known(guest: Caller, query: str) -> None:
    for data in (
        request("GET", PATH + query, METADATA),
        request("POST", PATH + query, METADATA, body=approval("A")),
    ):
        answer = guest.say(data)
        assert answer.line == "HTTP/1.1 400 Bad Request"
        assert answer.body == BAD_VERSION
        standing(answer)


@pytest.mark.platform  # a setting
def test_nothing_is_throttled_unless_asked_for(guest: Caller) -> None:
    with guest.line() as line:
        for _ in range(50):
            line.send(request("GET", events(NEWEST), METADATA))
            assert line.answer().status == 200
