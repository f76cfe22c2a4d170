"""What the vendor's published samples send is never held against a client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from forewarn.testing import Service

PATH = "/metadata/scheduledevents"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
ONE_SHOT = {"Connection": "close"}
MAX_FREEZE = 9  # seconds, of a Freeze that the advanced sample approves


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        service.scale_set("web", 3)
        yield service


class Sample:
    """One machine's program. What it asks is answered 200, or it would not work on Azure."""

    def __init__(self, service: Service, machine: str = "web_0") -> None:
        self.service = service
        self.machine = machine

    def get(self, version: str, **headers: str) -> dict[str, Any]:
        target = f"{PATH}?api-version={version}"
        answer = self.service.request(self.machine, "GET", target, {"Metadata": "true", **headers})
        assert answer.status == 200
        document: dict[str, Any] = answer.json()
        return document

    def post(self, version: str, body: str, headers: dict[str, str]) -> None:
        target = f"{PATH}?api-version={version}"
        answer = self.service.request(self.machine, "POST", target, headers, body.encode())
        assert (answer.status, answer.body) == (200, b"")


def shell(sample: Sample, version: str = "2020-07-01", incarnation: str = "") -> None:
    """curl -H Metadata:true, and -d with the id of the first event."""
    for event in sample.get(version, Accept="*/*")["Events"][:1]:
        body = f'{{{incarnation}"StartRequests": [{{"EventId": "{event["EventId"]}"}}]}}'
        sample.post(version, body, {"Metadata": "true", **FORM})


def shell_with_incarnation(sample: Sample) -> None:
    shell(sample, "2019-08-01", '"DocumentIncarnation":"5", ')


def shell_with_capital_letter(sample: Sample) -> None:
    target = f"{PATH.replace('events', 'Events')}?api-version=2020-07-01"
    answer = sample.service.request(sample.machine, "GET", target, {"Metadata": "true"})
    assert answer.status == 200


def python(sample: Sample) -> None:
    """A new connection for every request; looks for itself, approves with a form's type."""
    for event in sample.get("2017-08-01", **ONE_SHOT)["Events"]:
        event["NotBefore"].replace(" ", "_")
        if sample.machine in event["Resources"]:
            body = json.dumps({"StartRequests": [{"EventId": event["EventId"]}]})
            sample.post("2017-08-01", body, {"Metadata": "true", **FORM, **ONE_SHOT})


def powershell(sample: Sample) -> None:
    """Approves each event, over several lines and with the incarnation as it stands there."""
    document = sample.get("2017-11-01")
    for event in document["Events"]:
        requests = [{"EventId": event["EventId"]}]
        output = {"StartRequests": requests, "DocumentIncarnation": document["DocumentIncarnation"]}
        sample.post("2017-11-01", json.dumps(output, indent=4), {"Metadata": "true", **FORM})


def csharp(sample: Sample) -> None:
    """For every event in the document, approves all of them, without the Metadata header."""
    document = sample.get("2017-03-01")
    ids = [{"EventId": event["EventId"]} for event in document["Events"]]
    output = {"DocumentIncarnation": str(document["DocumentIncarnation"]), "StartRequests": ids}
    headers = {"Content-Type": "application/json; charset=utf-8", "Expect": "100-continue"}
    for _ in document["Events"]:
        sample.post("2017-03-01", json.dumps(output), headers)


def advanced(sample: Sample) -> None:
    """Reads the newest version and approves with another: Freezes that are short."""
    for event in sample.get("2020-07-01")["Events"]:
        short = 0 <= event["DurationInSeconds"] < MAX_FREEZE
        if event["EventType"] == "Freeze" and event["EventStatus"] == "Scheduled" and short:
            body = json.dumps({"StartRequests": [{"EventId": event["EventId"]}]})
            sample.post("2019-08-01", body, {"Metadata": "true"})


SAMPLES: list[Callable[[Sample], None]] = [
    shell,
    shell_with_incarnation,
    shell_with_capital_letter,
    python,
    powershell,
    csharp,
    advanced,
]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.__name__)
def test_a_published_sample_has_no_wrong_complaints(
    service: Service, sample: Callable[[Sample], None]
) -> None:
    events = [
        service["web_0"].freeze(duration=5),
        service["web_0"].restart(),
        service["web_1"].freeze(duration=8),
        service["web_1"].schedule("Redeploy"),
        service["web_2"].restart(),
        service["web_2"].schedule("Reboot"),
    ]
    client = Sample(service)
    sample(client)
    while not all(event.over for event in events):
        service.clock.advance("1m")
        sample(client)
    verdict = service.verdict()
    assert verdict.ok, str(verdict)
    assert [complaint.rule for complaint in verdict.wrong] == []


def test_approving_a_short_freeze_is_a_note(service: Service) -> None:
    service["web_0"].freeze(duration=5)
    advanced(Sample(service))
    verdict = service.verdict()
    assert [complaint.rule for complaint in verdict.notes] == ["approved-freeze"]
    assert verdict.check() is verdict
    with pytest.raises(AssertionError, match="approved-freeze"):
        verdict.check(strict=True)
