"""The requests that published samples send, byte for byte as their tools put them together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest

from forewarn.testing import Service
from helpers.endpoint import NO_METADATA_HEADER, Groups, Guest, fleet_of
from helpers.raw_http import RawResponse

CLOUD_SERVICE = """
  - name: shop
    kind: cloud-service
    machines: [{name: FrontEnd_IN_0}, {name: FrontEnd_IN_1}]
"""
COUNT = 20


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(fleet_of(COUNT) + CLOUD_SERVICE, sockets=True, front=True) as service:
        yield service


# The shell.


def curl_get(guest: Guest, version: str, path: str = "/metadata/scheduledevents") -> RawResponse:
    return guest.say(
        f"GET {path}?api-version={version} HTTP/1.1\r\n"
        "Host: 169.254.169.254\r\n"
        "User-Agent: curl/7.81.0\r\n"
        "Accept: */*\r\n"
        "Metadata:true\r\n"
        "\r\n".encode()
    )


def curl_post(guest: Guest, version: str, body: str) -> RawResponse:
    return guest.say(
        f"POST /metadata/scheduledevents?api-version={version} HTTP/1.1\r\n"
        "Host: 169.254.169.254\r\n"
        "User-Agent: curl/7.81.0\r\n"
        "Accept: */*\r\n"
        "Metadata:true\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n"
        "\r\n"
        f"{body}".encode()
    )


@pytest.mark.parametrize("version", ["2017-03-01", "2017-08-01", "2019-08-01", "2020-07-01"])
@pytest.mark.parametrize("incarnation", ["", '"DocumentIncarnation":"5", '])
def test_the_shell_reads_and_approves(
    groups: Groups, service: Service, version: str, incarnation: str
) -> None:
    guest = groups.enabled()[0]
    event = service.schedule("Reboot", guest.name)
    listed = curl_get(guest, version).json()
    assert listed["Events"][0]["EventId"] == event.id
    body = f'{{{incarnation}"StartRequests": [{{"EventId": "{event.id}"}}]}}'
    answer = curl_post(guest, version, body)
    assert (answer.status, answer.body) == (200, b"")
    assert curl_get(guest, version).json()["Events"][0]["EventStatus"] == "Started"


def test_the_shell_asks_with_a_capital_letter_in_the_path(groups: Groups) -> None:
    guest = groups.enabled()[0]
    assert curl_get(guest, "2020-07-01", "/metadata/scheduledEvents").status == 200


# Python.


def urllib_get(guest: Guest, version: str) -> RawResponse:
    return guest.say(
        f"GET /metadata/scheduledevents?api-version={version} HTTP/1.1\r\n"
        "Accept-Encoding: identity\r\n"
        "Host: 169.254.169.254\r\n"
        "User-Agent: Python-urllib/2.7\r\n"
        "Connection: close\r\n"
        "Metadata: true\r\n"
        "\r\n".encode()
    )


def handled(document: dict[str, list[dict[str, str]]], name: str) -> list[tuple[str, str]]:
    """What the sample does with each event: looks for itself, and takes spaces out of the time."""
    return [
        (event["EventId"], event["NotBefore"].replace(" ", "_"))
        for event in document["Events"]
        if name in event["Resources"]
    ]


def test_python_finds_itself_and_can_parse_the_time(groups: Groups, service: Service) -> None:
    guest = groups.enabled()[0]
    event = service.schedule("Reboot", guest.name)
    answer = urllib_get(guest, "2017-08-01")
    assert answer.header("connection") == "close"
    ((id, time),) = handled(answer.json(), guest.name)
    assert id == event.id
    assert time.endswith("_GMT")
    guest.approve(event.id)
    assert handled(urllib_get(guest, "2017-08-01").json(), guest.name) == [(event.id, "")]
    assert handled(urllib_get(guest, "2017-03-01").json(), guest.name) == [], "it has an underscore"


def test_python_finds_itself_in_the_preview_on_a_cloud_service(service: Service) -> None:
    guest = Guest(service, "FrontEnd_IN_0")
    event = service.schedule("Reboot", guest.name, notice="1h")
    promised = service.clock.now + timedelta(hours=1)
    ((id, time),) = handled(urllib_get(guest, "2017-03-01").json(), guest.name)
    assert id == event.id
    assert time == f"{promised:%Y-%m-%dT%H:%M:%SZ}"
    service.cancel(event)


# PowerShell.


def test_powershell_reads_and_approves_over_several_lines(groups: Groups, service: Service) -> None:
    guest = groups.enabled()[0]
    service.schedule("Reboot", guest.name)
    agent = "User-Agent: Mozilla/5.0 (Windows NT; Windows NT 10.0; en-US) WindowsPowerShell/5.1\r\n"
    with guest.line() as line:
        line.send(
            "GET /metadata/scheduledevents?api-version=2017-08-01 HTTP/1.1\r\n"
            "Metadata: true\r\n"
            f"{agent}"
            "Host: 169.254.169.254\r\n"
            "Connection: Keep-Alive\r\n"
            "\r\n".encode()
        )
        document = line.answer().json()
        (event,) = document["Events"]
        body = (
            "{\r\n"
            '    "StartRequests":  [\r\n'
            "                          {\r\n"
            f'                              "EventId":  "{event["EventId"]}"\r\n'
            "                          }\r\n"
            "                      ],\r\n"
            f'    "DocumentIncarnation":  {document["DocumentIncarnation"]}\r\n'
            "}"
        )
        line.send(
            "POST /metadata/scheduledevents?api-version=2017-08-01 HTTP/1.1\r\n"
            "Metadata: true\r\n"
            f"{agent}"
            "Content-Type: application/x-www-form-urlencoded\r\n"
            "Host: 169.254.169.254\r\n"
            f"Content-Length: {len(body)}\r\n"
            "\r\n"
            f"{body}".encode()
        )
        answer = line.answer()
        assert (answer.status, answer.body) == (200, b"")
    assert guest.events()[0]["EventStatus"] == "Started"


# C#.


def dotnet_post(guest: Guest, version: str, body: str, *, metadata: bool = False) -> RawResponse:
    """Waits to be told to go on before it sends the body."""
    header = "Metadata: true\r\n" if metadata else ""
    with guest.line() as line:
        line.send(
            f"POST /metadata/scheduledevents?api-version={version} HTTP/1.1\r\n"
            "Content-Type: application/json\r\n"
            "Host: 169.254.169.254\r\n"
            f"Content-Length: {len(body)}\r\n"
            "Expect: 100-continue\r\n"
            f"{header}"
            "Connection: Keep-Alive\r\n"
            "\r\n".encode()
        )
        head = line.head()
        if head.status != 100:
            return RawResponse(head.line, head.lines, line.body(head))
        line.send(body.encode())
        return line.answer()


def dotnet_body(document: dict[str, object], ids: list[str]) -> str:
    response = {
        "DocumentIncarnation": str(document["DocumentIncarnation"]),
        "StartRequests": [{"EventId": id} for id in ids],
    }
    return json.dumps(response, separators=(",", ":"))


def test_csharp_approves_every_event_once_for_each_without_the_header_in_the_preview(
    groups: Groups, service: Service
) -> None:
    group = groups.enabled()
    guest = group[0]
    for n in (0, 2):
        service.schedule("Reboot", group[n].name)
    document = guest.document("2017-03-01")
    ids = [event["EventId"] for event in document["Events"]]
    for _ in ids:
        answer = dotnet_post(guest, "2017-03-01", dotnet_body(document, ids))
        assert (answer.status, answer.body) == (200, b"")
    assert guest.statuses() == dict.fromkeys(ids, "Started")


def test_csharp_is_refused_without_the_header_in_later_versions_before_it_sends_the_body(
    groups: Groups, service: Service
) -> None:
    guest = groups.enabled()[0]
    event = service.schedule("Reboot", guest.name)
    body = dotnet_body(guest.document(), [event.id])
    answer = dotnet_post(guest, "2017-08-01", body)
    assert (answer.status, answer.body) == (400, NO_METADATA_HEADER)
    assert guest.statuses() == {event.id: "Scheduled"}
    assert dotnet_post(guest, "2017-08-01", body, metadata=True).status == 200
    assert guest.statuses() == {event.id: "Started"}
