"""Documents that are given as JSON instead of a recording."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.judge import judge
from forewarn.testing.recording import NotARecordingError, read_text
from forewarn.testing.recording.json_documents import read_documents
from forewarn.testing.scenarios import NoScenarioError, ScenarioError, find, parse, scenario_text
from helpers.examples import examples

EVENT = {
    "EventId": "FE88BA46-96D4-432E-8AED-89A0F0E52D99",
    "EventStatus": "Scheduled",
    "EventType": "Freeze",
    "ResourceType": "VirtualMachine",
    "Resources": ["aks-spotcpu2m8-23666972-vmss_862"],
    "NotBefore": "Fri, 30 Jun 2023 22:00:16 GMT",
    "Description": "",
    "EventSource": "Platform",
    "DurationInSeconds": 30,
}
DUE = 1_688_162_416  # that NotBefore
OLD = {
    "EventId": "28512AF7-C957-4500-9BC4-842D6FB531E4",
    "EventStatus": "Scheduled",
    "EventType": "Reboot",
    "ResourceType": "VirtualMachine",
    "Resources": ["sample_4"],
    "NotBefore": "Wed, 24 Jan 2018 21:20:44 GMT",
}


def document(incarnation: int, *events: dict[str, Any]) -> dict[str, Any]:
    return {"DocumentIncarnation": incarnation, "Events": list(events)}


def started(event: dict[str, Any]) -> dict[str, Any]:
    return {**event, "EventStatus": "Started", "NotBefore": ""}


LIFE = [document(7, EVENT), document(8, started(EVENT)), document(9)]
SHAPES = {
    "lines": "\n".join(json.dumps(one) for one in LIFE),
    "indented, as jq prints them": "\n".join(json.dumps(one, indent=2) for one in LIFE) + "\n",
    "a list": json.dumps(LIFE),
    "with line ends of Windows": json.dumps(LIFE, indent=1).replace("\n", "\r\n"),
    "with keys in another order": json.dumps(LIFE, sort_keys=True),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_documents_become_a_scenario(shape: str) -> None:
    recording = read_text(SHAPES[shape])
    scenario = parse(scenario_text(recording.lines, notes=recording.notes))
    assert scenario.under_test == ("aks-spotcpu2m8-23666972-vmss_862",)
    [step] = scenario.steps
    assert (step.verb, step.entry.type, step.entry.duration) == ("schedule", "Freeze", 30)
    assert (step.entry.notice, step.entry.lasts) == ("15m", "1m")
    assert judge(recording.lines).ok


def test_times_are_assumed_and_the_assumptions_are_noted() -> None:
    recording = read_text(SHAPES["lines"])
    times = [line["t"] for line in recording.lines[1:]]
    assert times == [DUE - 15 * 60, DUE, DUE + 60]
    assert [re.search(r"line \d", note)[0] for note in recording.notes] == [  # type: ignore[index]
        *("line 1", "line 2", "line 3")
    ]
    assert not any("asked" in line for line in recording.lines)  # so nothing is held against anyone


def test_documents_without_usable_times_follow_each_other() -> None:
    recording = read_text(json.dumps([document(1), document(2, started(EVENT)), document(3)]))
    first, second, third = (line["t"] for line in recording.lines[1:])
    assert first < second < third


def test_versions_are_recognized_by_keys_and_previews_by_times() -> None:
    preview = {**OLD, "Resources": ["_sample_4"], "NotBefore": "2018-01-24T21:20:44Z"}
    targets = [
        read_text(json.dumps(document(192, event))).lines[-1]["target"].partition("=")[2]
        for event in (EVENT, OLD, preview, {**OLD, "Description": ""})
    ]
    assert targets == ["2020-07-01", "2019-01-01", "2017-03-01", "2019-04-01"]
    scenario = parse(scenario_text(read_text(json.dumps(document(192, preview))).lines))
    assert scenario.under_test == ("sample_4",)


def test_what_is_shown_of_two_groups_at_a_time_can_be_played() -> None:
    other = {**EVENT, "EventId": OLD["EventId"], "Resources": ["db"]}
    both, machine = document(8, started(EVENT), started(other)), "aks-spotcpu2m8-23666972-vmss_862"
    recording = read_text(json.dumps([document(7, EVENT, other), both, document(9)]))
    scenario = parse(scenario_text(recording.lines, notes=recording.notes))
    assert {step.entry.machine for step in scenario.steps} == {"db", machine}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "empty"),
        ("words", "line 1: not JSON"),
        (f"{json.dumps(LIFE[0])}\nwords", "line 2: not JSON"),
        (f'{json.dumps(LIFE[0])}\n\n{{"a": 1}}', "line 3: not a document"),
        ("[" * 100_000, "nested too deeply"),
        ("[1]", "line 1: not a document"),
    ],
)
def test_whatever_else_is_refused_with_its_line(text: str, place: str) -> None:
    with pytest.raises(NotARecordingError, match=place):
        read_text(text)


def test_events_that_cannot_be_used_are_left_out_and_named() -> None:
    recording = read_text(json.dumps(document(1, {**EVENT, "EventStatus": "Completed"})))
    assert any("'Completed'" in note for note in recording.notes)
    assert len(recording.lines) == 2


def test_a_machine_name_that_no_fleet_allows_is_refused() -> None:
    recording = read_text(json.dumps(document(7, {**EVENT, "Resources": ["<redacted>"]})))
    with pytest.raises(NoScenarioError, match="<redacted>"):
        scenario_text(recording.lines)


def test_a_document_of_no_version_is_not_checked() -> None:
    partial = {key: value for key, value in EVENT.items() if key != "ResourceType"}
    recording = read_text(json.dumps(document(7, partial)))
    assert judge(recording.lines).ok
    assert any("not checked" in note for note in recording.notes)


def test_documents_that_contradict_each_other_break_a_rule() -> None:
    other = {**EVENT, "Resources": ["somebody-else"]}
    recording = read_text(json.dumps([LIFE[0], document(8, other)]))
    assert [finding.rule for finding in judge(recording.lines).findings] == ["changed-facts"]


def test_a_file_with_documents_can_be_used_as_a_scenario(tmp_path: Path) -> None:
    file = tmp_path / "seen.json"
    file.write_text(json.dumps(LIFE))
    assert find(file).name == "seen"
    file.write_text("nothing of the kind")
    with pytest.raises(ScenarioError, match="not JSON"):
        find(file)


_PIECES = st.sampled_from(
    [*SHAPES.values(), *'{}[]":,\n', '{"Events":[', '"EventId":', "1e999", '"\\ud800"', "\ufeff"]
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.one_of(_PIECES, st.text(max_size=20)), max_size=8).map("".join))
def test_the_reader_raises_nothing_else(text: str) -> None:
    try:
        documents = read_documents(text)
    except ValueError:
        return
    assert judge(documents.lines) is not None
    try:
        scenario = scenario_text(documents.lines, notes=documents.notes)
    except NoScenarioError:
        return
    parse(scenario)
