"""docs/test/scenarios.md says all there is, and what it says works."""

from __future__ import annotations

import re
from typing import Any

import pytest

from forewarn.testing import Service, scenarios
from forewarn.testing.scenarios.engine import program
from forewarn.testing.scenarios.file import shapes
from forewarn.testing.scenarios.file.timeline_shapes import VERBS, FaultEntry, StepEntry
from forewarn.testing.scenarios.model import Moment
from helpers.paths import ROOT

PAGE = (ROOT / "docs" / "test" / "scenarios.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


class MyClient:
    """The client of the page's test."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def poll(self) -> None:
        answer = self._service.get("web_0")
        for event in answer.json()["Events"] if answer.status == 200 else ():
            if event["EventStatus"] == "Scheduled" and "web_0" in event["Resources"]:
                self._service.approve("web_0", event["EventId"])


def test_the_page_has_a_row_for_every_shipped_scenario() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", PAGE.split("## Run a scenario")[0], re.MULTILINE)
    assert sorted(rows) == scenarios.names()


def test_the_page_has_every_verb_and_expectation() -> None:
    reported = PAGE.split("### Actions\n")[1].split("### Expectations")[0]
    rows = re.findall(r"^\| (`.+?`) \|", reported, re.MULTILINE)
    verbs = {verb for row in rows for verb in re.findall(r"`([a-z-]+)`", row)}
    assert verbs - {"do"} == VERBS.keys()
    assert all(f"`{moment.value}`" in PAGE for moment in Moment)
    own = set(FaultEntry.__struct_encode_fields__)
    own -= set(StepEntry.__struct_encode_fields__)
    words = PAGE.split("the words of a [fault](faults.md)")[1].split("|")[0]
    assert set(re.findall(r"`([a-z-]+)`", words)) == own


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        ("lines of a timeline, faults included", f"{shapes.MAX_STEPS:,}"),
        ("expectations", f"{shapes.MAX_EXPECTATIONS:,}"),
        ("machines of a group that says only their number", f"{shapes.MAX_COUNT:,}"),
        ("commands at once", str(program.MAX_COMMANDS)),
    ],
)
def test_every_limit_is_documented(limit: str, value: str) -> None:
    assert f"| {limit} | {value} |" in PAGE


def test_the_scenario_of_the_page_can_be_played() -> None:
    (text,) = blocks("yaml")
    with Service() as service:
        client = MyClient(service)
        service.play_scenario(scenarios.parse(text), client=client.poll).check()


def test_the_test_of_the_page_passes() -> None:
    code, with_an_address = blocks("python")
    room: dict[str, Any] = {"MyClient": MyClient}
    exec(code, room)
    room["test_an_eviction"]()
    room = {}
    exec(with_an_address, room)
    room["test_a_restart_with_a_client_in_a_thread"]()
