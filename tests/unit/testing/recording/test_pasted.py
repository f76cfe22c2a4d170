"""Documents that people paste into issue threads, in the shapes they have there."""

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
from forewarn.testing.recording.pasted import read_pasted
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


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def started(event: dict[str, Any]) -> dict[str, Any]:
    return {**event, "EventStatus": "Started", "NotBefore": ""}


ONE = document(7, EVENT)
LINE = compact(ONE)
PRETTY = json.dumps(ONE, indent=2)

SHAPES = {
    "alone": LINE,
    "pretty": PRETTY,
    "in a fence": f"Hi, we see this:\n\n```json\n{PRETTY}\n```\nAny idea?",
    "quoted": "\n".join(f"> {line}" for line in PRETTY.splitlines()),
    "quoted twice": "\n".join(f"> > {line}" for line in PRETTY.splitlines()),
    "behind a prompt": f"$ curl -s -H Metadata:true http://169.254.169.254/…\n{LINE}$ ",
    "behind a log's prefix": f"2023-06-30 21:45:16,204 DEBUG imds: got {LINE}",
    "with a prefix on every line": "\n".join(
        f"Jun 30 21:45:16 node-1 watcher[812]: {line}" for line in PRETTY.splitlines()
    ),
    "of a container, with a prefix on every line": "\n".join(
        f"watcher-1  | {line}" for line in PRETTY.splitlines()
    ),
    "as Python prints it": f"events: {ONE!r}",
    "with typographic quotes": LINE.replace('"', "”"),
    "escaped in another log": f'{{"level":"info","message":{json.dumps(LINE)},"n":1}}',
    "with keys in another order": json.dumps(ONE, sort_keys=True),
    "with a comma too many": PRETTY.replace('"DurationInSeconds": 30', '"DurationInSeconds": 30,'),
    "with HTML's quotes": LINE.replace('"', "&quot;"),
    "with line ends of Windows": PRETTY.replace("\n", "\r\n"),
    "with colours": f"\x1b[32m{LINE}\x1b[0m",
    "with control characters": LINE.replace('"Description":""', '"Description":"a\x01b"'),
    "an event alone": json.dumps(EVENT, indent=4),
    "after another JSON": '{"name":"x","list":[1,2]}\n' + LINE,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_document_is_found_in_any_shape(shape: str) -> None:
    found = read_text(SHAPES[shape])
    exchanges = [line for line in found.lines if line["kind"] == "exchange"]
    assert len(exchanges) == 1
    event = json.loads(exchanges[0]["answer"])["Events"][0]
    assert event["EventId"] == EVENT["EventId"]
    assert event["Resources"] == EVENT["Resources"]
    assert event["NotBefore"] == EVENT["NotBefore"]
    scenario = parse(scenario_text(found.lines, name="thread", notes=found.notes))
    assert scenario.under_test == ("aks-spotcpu2m8-23666972-vmss_862",)
    judgement = judge(found.lines)
    assert judgement.ok, judgement.render()


@pytest.mark.parametrize(
    ("before", "seconds"),
    [
        ("2023-06-30T21:45:16Z ", 900),
        ("[2023-06-30 21:45:16.250] ", 899.75),
        ("2023-06-30T23:45:16+02:00 ", 900),
        ("2023/06/30 21:45:16 ", 900),
        ("Fri, 30 Jun 2023 21:45:16 GMT: ", 900),
        ("Jun 30 21:45:16 node-1 app: ", 900),
        ("[1688161516.5] ", 899.5),
        ("HTTP/1.1 200 OK\nContent-Type: application/json\nDate: Fri, 30 Jun 2023 21:45:16 GMT"
         "\nServer: IMDS/150.870.65.1854\nx-a: b\nx-c: d\n\n", 900),
        ("at 2023-06-30 21:45:16 it said:\n\n", 900),
    ],
)  # fmt: skip
def test_the_time_is_read_from_the_text_before_the_document(before: str, seconds: float) -> None:
    lines = read_text(before + LINE).lines
    assert DUE - lines[-1]["t"] == pytest.approx(seconds)
    assert lines[-1]["asked"] == lines[-1]["t"]


def test_without_a_time_the_minimum_notice_is_assumed_and_noted() -> None:
    found = read_text(f"first\n{LINE}")
    assert DUE - found.lines[-1]["t"] == 15 * 60
    assert "asked" not in found.lines[-1]  # so that nothing is held against anybody for it
    [note] = found.notes
    assert re.match("line 2: .*minimum notice", note)


def test_a_time_inside_another_document_is_not_used() -> None:
    twice = f"2023-06-30T21:45:16Z {LINE} {compact(document(8, started(EVENT)))}"
    first, second = read_text(twice).lines[1:]
    assert "asked" in first
    assert "asked" not in second
    assert second["t"] == DUE


def test_a_large_and_hostile_text_is_searched() -> None:
    for piece in ('{"Events":[', "{'Events': \"", '"Events":' + " " * 500, ": " * 50, "> " * 50):
        assert read_pasted(piece * 5_000).lines == ()
    assert read_pasted(" " * 500_000 + LINE + "," + " " * 500_000).lines


def test_a_pasted_thread_becomes_a_scenario() -> None:
    thread = "\n".join(
        [
            "We poll every second, and got, in this order:",
            "```",
            f"2023-06-30T21:50:00Z {compact(document(7, EVENT))}",
            f"2023-06-30T21:56:00Z {compact(document(8, started(EVENT)))}",
            f"2023-06-30T22:03:30Z {compact(document(9))}",
            "```",
        ]
    )
    found = read_text(thread)
    assert found.notes == ()
    text = scenario_text(found.lines, name="thread")
    scenario = parse(text)
    raised, approved = scenario.steps
    assert (raised.verb, raised.entry.type, raised.entry.machine) == (
        *("schedule", "Freeze"),
        "aks-spotcpu2m8-23666972-vmss_862",
    )
    assert (raised.entry.notice, raised.entry.lasts) == ("10m16s", "7m30s")
    assert raised.entry.short_notice
    assert raised.entry.duration == 30
    assert approved.verb == "approve"
    assert approved.when.at == 6 * 60 * 1_000_000


def test_documents_without_times_are_put_in_the_order_of_their_incarnation() -> None:
    thread = "\n\n".join(
        (
            *("it was gone:", compact(document(9)), "it had been:", LINE, "and:"),
            compact(document(8, started(EVENT))),
        )
    )
    found = read_text(thread)
    numbers = [json.loads(line["answer"])["DocumentIncarnation"] for line in found.lines[1:]]
    assert numbers == [7, 8, 9]
    assert any("incarnation" in note for note in found.notes)
    times = [line["t"] for line in found.lines[1:]]
    assert times == [DUE - 900, DUE, DUE + 60]


def test_versions_are_recognized_by_keys_and_previews_by_times() -> None:
    preview = {**OLD, "Resources": ["_sample_4"], "NotBefore": "2018-01-24T21:20:44Z"}
    targets = [
        read_text(compact(document(192, event))).lines[-1]["target"].partition("=")[2]
        for event in (EVENT, OLD, preview, {**OLD, "Description": ""})
    ]
    assert targets == ["2020-07-01", "2019-01-01", "2017-03-01", "2019-04-01"]
    scenario = parse(scenario_text(read_text(compact(document(192, preview))).lines))
    assert scenario.under_test == ("sample_4",)


def test_unusable_documents_are_named_with_their_line() -> None:
    bad = {**EVENT, "EventStatus": "Completed"}
    thread = f'words\n{compact(document(1, bad))}\n{{"DocumentIncarnation":3,"Events":[ …\n{LINE}\n'
    found = read_text(thread)
    assert re.match(f"line 2: event {EVENT['EventId']}: 'Completed'.*EventStatus", found.notes[0])
    assert any(note.startswith("line 3: incomplete") for note in found.notes)
    assert [json.loads(one["answer"])["DocumentIncarnation"] for one in found.lines[1:]] == [1, 7]


def test_a_redacted_machine_name_is_replaced() -> None:
    found = read_text(compact(document(7, {**EVENT, "Resources": ["<redacted>", "web 2"]})))
    text = scenario_text(found.lines)
    assert re.search("'<redacted>' .*'machine-0'", text)
    assert parse(text).steps[0].entry.machines == ["machine-0", "machine-1"]


def test_a_paste_with_assumed_times_breaks_no_rule() -> None:
    elided = {key: value for key, value in EVENT.items() if key != "ResourceType"}
    thread = "\n".join([compact(document(9, started(EVENT))), compact(document(7, elided))])
    found = read_text(thread)
    assert judge(found.lines).ok
    assert any("not checked" in note for note in found.notes)


def test_a_paste_with_recorded_times_can_break_a_rule() -> None:
    other = {**EVENT, "Resources": ["somebody-else"]}
    found = read_text(f"{LINE}\n{compact(document(8, other))}")
    assert [finding.rule for finding in judge(found.lines).findings] == ["changed-facts"]


def test_a_text_file_with_documents_can_be_used_as_a_scenario(tmp_path: Path) -> None:
    thread = tmp_path / "thread.md"
    thread.write_text(f"look:\n```\n{PRETTY}\n```\n")
    assert find(thread).name == "thread"
    thread.write_text("nothing of the kind")
    with pytest.raises(ScenarioError, match="no document"):
        find(thread)
    with pytest.raises(NotARecordingError):
        read_text("")


_PIECES = st.sampled_from(
    [
        *(*SHAPES.values(), *'{}[]":,\\\n>', '"Events":', "'Events':", '{"Events":[', '"EventId":'),
        *(
            "2023-06-30 21:45:16 ",
            "9999-99-99T99:99:99Z ",
            '\\"Events\\":[',
            "EventStatus",
            "1e999",
        ),
    ]
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.one_of(_PIECES, st.text(max_size=20)), max_size=8).map("".join))
def test_the_reader_never_raises(text: str) -> None:
    found = read_pasted(text)
    assert judge(found.lines) is not None
    if found.lines:
        try:
            made = scenario_text(found.lines, notes=found.notes)
        except NoScenarioError:
            return
        parse(made)
