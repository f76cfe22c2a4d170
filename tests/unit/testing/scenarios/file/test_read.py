"""A scenario file: what it may say, what is wrong with it, and the schema that says the same."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from forewarn.testing import scenarios
from forewarn.testing.scenarios import ScenarioError, parse
from forewarn.testing.scenarios.file.read import MAX_PROBLEMS
from forewarn.testing.scenarios.file.timeline_shapes import VERBS
from forewarn.testing.scenarios.model import EventExpectation, Moment
from helpers.paths import ROOT

DOCS = ROOT / "docs"

SPOT = """\
scenario: spot-eviction
about: A spot machine is taken back.
fleet:
  hosts: [rack-1]
  groups:
    - {name: web, kind: scale-set, machines: {count: 3, spot: true, hosts: [rack-1]}}
as: web_0
faults:
  - {kind: gone, machine: web_0, times: 5, at: 5s}
timeline:
  - at: 10s
    do: evict
    machine: web_0
    name: eviction
  - after: eviction approved by web_0
    delay: 1s
    do: wait
  - when-approved: eviction
    do: wait
  - at: 1m
    repeat: {every: 5m, times: 3}
    do: disable
    group: web
expect:
  - {event: eviction, seen: {within: 5s}, in-time: true}
  - {event: eviction, approved: {by: web_0, ahead: 5s}}
  - {command: {exit: 0}}
  - no-complaints
ends: 30m
"""


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = scenarios.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_every_part_of_a_scenario_has_its_line() -> None:
    scenario = scenarios.parse(SPOT)
    assert scenario.under_test == ("web_0",)
    assert [(step.line, step.verb) for step in scenario.steps] == [
        (9, "fault"),
        (11, "evict"),
        (15, "wait"),
        (18, "wait"),
        (20, "disable"),
    ]
    after = scenario.steps[2].when
    assert (after.name, after.moment, after.by, after.delay) == (
        *("eviction", Moment.APPROVED),
        *("web_0", 1_000_000),
    )
    assert scenario.steps[3].when.moment is Moment.APPROVED
    assert (scenario.steps[4].every, scenario.steps[4].times) == (300_000_000, 3)
    expected = scenario.expectations[0]
    assert isinstance(expected, EventExpectation)
    assert expected.in_time is True
    assert expected.expected[0].within == 5_000_000
    assert scenario.ends == 1_800_000_000


def test_machines_that_are_counted_are_named_by_their_kind() -> None:
    text = SPOT.replace(
        "{name: web,", "{name: db, kind: availability-set, machines: 2}\n    - {name: web,"
    )
    names = [machine.name for machine in scenarios.parse(text).fleet.machines]
    assert names == ["db-0", "db-1", "web_0", "web_1", "web_2"]


def test_a_large_scale_set_becomes_placement_groups_that_go_by_its_name() -> None:
    text = SPOT.replace("count: 3", "count: 250").replace("machine: web_0\n", "group: web\n")
    groups = scenarios.parse(text).fleet.groups
    assert {name: len(define.machines) for name, define in groups.items()} == {
        "web": 100,
        "web-2": 100,
        "web-3": 50,
    }
    assert {define.place.scale_set for define in groups.values()} == {"web"}


def test_a_fleet_may_be_a_file_beside_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text(
        "groups: [{name: web, kind: scale-set, machines: [{name: web_0, spot: true}]}]"
    )
    output = yaml.safe_load(SPOT)
    output["fleet"] = "fleet.yaml"
    file = tmp_path / "scenario.yaml"
    file.write_text(json.dumps(output))
    assert [m.name for m in scenarios.load(file).fleet.machines] == ["web_0"]
    (tmp_path / "fleet.yaml").write_text("groups: [{name: web}]")
    with pytest.raises(ScenarioError, match=r"scenario.yaml:1: fleet: .*fleet.yaml:1: groups\[0\]"):
        scenarios.load(file)


# What is wrong, by shape (which the schema says as well) or by what it means (which it cannot).
BY_SHAPE = [
    ("do: evict\n", "do: evikt\n", r"12: timeline\[0\].do: .* did you mean 'evict'"),
    ("    do: evict\n", "", r"11: timeline\[0\]: 'do'"),
    ("    machine: web_0\n    name", "    machin: web_0\n    name", r"13: .*'machine'\?"),
    ("at: 10s", "at: 10q", r"11: timeline\[0\].at: '10q'"),
    ("at: 10s", "at: [10s]", r"11: timeline\[0\].at: expected .*, not a list"),
    ("  - at: 10s\n    do", "  - do", r"11: timeline\[0\]: .*exactly one"),
    ("at: 10s", "at: 10s\n    after: eviction over", r"11: timeline\[0\]: .*exactly one"),
    ("at: 10s", "at: 10s\n    delay: 1s", r"12: timeline\[0\].delay: 'delay' needs"),
    ("eviction approved by web_0", "eviction begun", r"15: .* no moment 'begun'"),
    ("eviction approved by web_0", "eviction", r"15: .* expected '<name> <moment>'"),
    ("every: 5m, ", "", r"21: timeline\[3\].repeat: 'repeat' needs 'every'"),
    ("times: 3", "times: 0", r"21: timeline\[3\].repeat.times: .*from 1"),
    ("kind: gone", "kind: gonne", r"9: faults\[0\].kind: .* did you mean 'gone'"),
    ("times: 5", "tines: 5", r"9: faults\[0\].tines: .*'times'"),
    ("seen: {within", "sen: {within", r"25: expect\[0\].sen: unknown key; .*'seen'"),
    ("within: 5s", "witin: 5s", r"25: expect\[0\].seen.witin: unknown key; .*'within'"),
    ("no-complaints", "no-complaint", r"28: expect\[3\]: 'no-complaint'"),
    ("{exit: 0}", "{}", r"27: expect\[2\].command: .*exit, running or crashed"),
    ("{exit: 0}", "{exit: zero}", r"27: expect\[2\].command.exit: .*whole number"),
    ("about: A spot machine is taken back.", "about: 3", r"2: about: expected text"),
    ("ends:", "end:", r"29: end: .*'ends'"),
    ("scenario: spot-eviction", "about_: x", r"1: .*unknown key"),
    ("count: 3", "count: 0", r"6: fleet.groups\[0\].machines: .*list of machines"),
    (
        "kind: scale-set",
        "kind: scale",
        r"6: fleet.groups\[0\].kind: .*'scale'.*scale-set",
    ),
    (
        "machine: web_0\n    name",
        "machine: web_0\n    group: web\n    name",
        r"either machine or group",
    ),
    ("times: 5", "times: 0", r"9: faults\[0\].times: .*at least 1.* 0"),
    ("times: 5", "probability: 3", r"9: .*probability: .* 0 .* 1.* 3"),
    ("times: 5", "status: 404", r"9: faults\[0\].status: .*500 to 599.*404"),
    ("do: disable\n", "do: scale-in\n    count: -1\n", r"23: .*count: .*at least 1"),
    (
        "do: disable\n    group: web",
        "do: rollout\n    type: Reboot",
        r"groups, labels or hosts",
    ),
    ("{by: web_0, ahead", "{by: [], ahead", r"26: expect\[1\].approved.by: .*at least one"),
    ("hosts: [rack-1]}}", "update_domains: true}}", r"6: .*update_domains.*number"),
]
BY_MEANING = [
    ("machine: web_0\n    name", "machine: web_9\n    name", r"13: .* no machine 'web_9'"),
    ("when-approved: eviction", "when-approved: evict", r"18: .* did you mean 'eviction'"),
    ("event: eviction, seen", "event: evictio, seen", r"25: expect\[0\].event: .*'eviction'"),
    ("as: web_0", "as: web_7", r"7: as: .*'web_7'"),
    ("group: web\nexpect", "group: wed\nexpect", r"23: .* no group 'wed'.*'web'"),
    ("do: wait\n  - when", "do: wait\n    name: idle\n  - when", r"'wait' raises no event"),
    ("approved: {by: web_0", "approved: {by: web_8", r"26: .* no machine 'web_8'"),
    ("approved by web_0", "started by web_0", r"15: .* 'started' has no 'by'"),
    ("at: 10s", "after: eviction over", r"11: timeline\[0\].after: .* waits for itself"),
    ("times: 5", "status: 503", r"9: faults\[0\]: .*status.*'gone'"),
    (
        "- no-complaints",
        "- {complaints: [polls-often]}",
        r"28: expect\[3\].complaints\[0\]: .* no rule",
    ),
    (
        "do: disable\n    group: web",
        "do: rollout\n    type: Reboot\n    hosts: [rack-2]",
        r"24: .*hosts\[0\]: .*host 'rack-2'",
    ),
    (
        "do: disable\n    group: web",
        "do: rollout\n    type: Reboot\n    labels: [a b]",
        r"24: .*labels\[0\]: ",
    ),
]


@pytest.mark.parametrize(("right", "wrong", "says"), BY_SHAPE + BY_MEANING)
def test_a_mistake_is_reported_with_its_line(right: str, wrong: str, says: str) -> None:
    assert SPOT.count(right) == 1, right
    with pytest.raises(ScenarioError, match=rf"^file\.yaml:.*{says}"):
        scenarios.parse(SPOT.replace(right, wrong), "file.yaml")


@pytest.mark.parametrize(("right", "wrong", "says"), BY_SHAPE)
def test_the_schema_refuses_what_the_reader_refuses(
    right: str, wrong: str, says: str, validator: jsonschema.Draft202012Validator
) -> None:
    assert not validator.is_valid(yaml.safe_load(SPOT.replace(right, wrong)))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "1: .*empty.*scenario, fleet and timeline"),
        ("- a\n", "1: .*mapping"),
        ("{", "2: not YAML"),
        (SPOT + "---\na: 1\n", "30: .*second document"),
        (SPOT.replace("ends: 30m", "about: again"), "29: about: .*twice"),
    ],
)
def test_a_text_that_is_not_a_scenario_is_refused(text: str, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        scenarios.parse(text, "file.yaml")


def test_lines_that_wait_for_each_other_are_refused() -> None:
    text = SPOT.replace("at: 10s", "after: second over").replace(
        "  - at: 1m",
        "  - {after: eviction over, do: evict, machine: web_1, name: second}\n  - at: 1m",
    )
    says = r"11: timeline\[0\].after: 'eviction' waits for itself, via 'second'"
    with pytest.raises(ScenarioError, match=says):
        scenarios.parse(text)


def test_the_text_is_scanned_for_lines_only_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output = yaml.safe_load(SPOT)
    output["timeline"] += [{"at": number, "do": "wait"} for number in range(900)]
    output["expect"] += [{"event": "eviction", "seen": True}] * 900
    readings: list[str] = []

    def loader(text: str) -> Any:
        readings.append(text)
        return yaml.SafeLoader(text)

    monkeypatch.setattr("forewarn.support.yaml.positions.Loader", loader)
    read = scenarios.parse(yaml.safe_dump(output))
    assert len(readings) <= 2
    lines = [step.line for step in read.steps]
    assert lines == sorted(set(lines))
    assert len({one.line for one in read.expectations}) == 904


def test_a_name_used_twice_is_refused() -> None:
    twice = SPOT.replace(
        "  - at: 1m", "  - {at: 2m, do: evict, machine: web_1, name: eviction}\n  - at: 1m"
    )
    with pytest.raises(ScenarioError, match=r"'eviction' .*twice"):
        scenarios.parse(twice)


def test_a_timeline_with_too_many_lines_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forewarn.testing.scenarios.file.shapes.MAX_STEPS", 4)
    with pytest.raises(ScenarioError, match="at most 4 steps"):
        scenarios.parse(SPOT)


def test_a_missing_or_too_large_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ScenarioError, match=rf"nowhere\.yaml: {os.strerror(errno.ENOENT)}"):
        scenarios.load(tmp_path / "nowhere.yaml")
    file = tmp_path / "large.yaml"
    file.write_text(SPOT)
    monkeypatch.setattr("forewarn.testing.scenarios.file.shapes.MAX_SIZE", 100)
    with pytest.raises(ScenarioError, match="at most 100 bytes"):
        scenarios.load(file)


# Those that are shipped, and what is published.


@pytest.mark.parametrize("name", scenarios.names())
def test_every_shipped_scenario_matches_the_schema(
    name: str, validator: jsonschema.Draft202012Validator
) -> None:
    scenario = scenarios.find(name)
    assert scenario.name == name
    assert scenario.about.endswith(".")
    assert scenario.text.startswith("# "), "it says what a good client does"
    validator.validate(yaml.safe_load(scenario.text))
    assert "no-complaints" in scenario.text


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "unreadable.json"
    file.symlink_to("/proc/self/mem")
    with pytest.raises(ScenarioError, match=r"unreadable\.json: Input/output error"):
        scenarios.find(file)


def test_an_unknown_scenario_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ScenarioError, match="did you mean 'spot-eviction'"):
        scenarios.find("spot-evction")


def test_the_schema_accepts_every_notation(
    validator: jsonschema.Draft202012Validator,
) -> None:
    validator.validate(yaml.safe_load(SPOT))
    output: dict[str, Any] = yaml.safe_load(SPOT)
    words: dict[str, dict[str, Any]] = {
        "restart": {"machine": "web_0"},
        "redeploy": {"machine": "web_0"},
        "evict": {"group": "web"},
        "delete": {"machine": "web_0"},
        "scale-in": {"group": "web", "to": 1},
        "fail": {"host": "rack-1"},
        "degrade": {"host": "rack-1", "notice": "P7D"},
        "repair": {"host": "rack-1"},
        "maintain": {"host": "rack-1", "type": "live-migration", "evacuate": True},
        "schedule": {"type": "Freeze", "machines": ["web_0"], "notice": 900, "duration": 5},
        "rollout": {"type": "Reboot", "groups": ["web"], "bake": "1m", "at-once": 2},
        "cancel": {"event": "eviction"},
        "approve": {"event": "eviction"},
        "finish": {"event": "eviction"},
        "restore": {"machine": "web_0"},
        "disable": {"group": "web"},
        "interrupt": {"lost": "2m"},
        "fault": {"kind": "slow", "seconds": 1.5, "probability": 0.5, "seed": 1, "lasts": "1m"},
        "clear-faults": {},
        "wait": {},
    }
    assert words.keys() == VERBS.keys()
    output["timeline"] += [{"at": 0, "do": verb, **more} for verb, more in words.items()]
    output["expect"] += [
        {"event": "eviction", moment.value: wanted} for moment in Moment for wanted in (True, False)
    ]
    output["expect"] += [
        {"event": "eviction", "of": "web_0", "not-approved": True},
        {"event": "eviction", "seen": {"by": "each"}, "approved": {"by": ["web_0", "web_1"]}},
        {"complaints": ["approved-freeze"]},
        {"command": {"running": True, "crashed": False}},
    ]
    validator.validate(output)
    read = scenarios.parse(json.dumps(output))
    assert {step.verb for step in read.steps} == VERBS.keys()


def test_the_published_schema_is_current() -> None:
    assert (DOCS / "reference" / "scenario.schema.json").read_text() == scenarios.schema_text()


MANY_MISTAKES = """\
scenario: bad one
fleet: {groups: [{name: web, kind: scale-set, machines: 3}]}
as: [web_0, web_7]
faultz: []
faults:
  - {kind: goen, machine: web_9, times: 5, at: 5s}
timeline:
  - {at: 10s, do: restart, machine: web_x, nam: first, name: first}
  - {at: 10x, do: evikt, machine: web_0, name: second}
  - {do: schedule, type: Rebot, machine: web_0, notice: soon}
  - {after: second seen by web_0, do: cancel, event: secnd}
  - {after: first seeen, do: wait}
expect:
  - {event: first, approved: {by: web_x, within: 5q}}
  - {event: third, seen: true}
  - {event: second}
  - no-complaint
  - {complaints: [gave-upp, never-seen]}
ends: never
"""


def test_all_mistakes_are_reported_in_the_order_of_their_lines() -> None:
    with pytest.raises(ScenarioError) as refused:
        parse(MANY_MISTAKES, "file.yaml")
    places = [problem.split(": ")[:2] for problem in refused.value.problems]
    assert places == [
        ["file.yaml:1", "scenario"],
        ["file.yaml:3", "as"],
        ["file.yaml:4", "faultz"],
        ["file.yaml:6", "faults[0].machine"],
        ["file.yaml:6", "faults[0].kind"],
        ["file.yaml:8", "timeline[0].nam"],
        ["file.yaml:8", "timeline[0].machine"],
        ["file.yaml:9", "timeline[1].at"],
        ["file.yaml:9", "timeline[1].do"],
        ["file.yaml:10", "timeline[2].type"],
        ["file.yaml:10", "timeline[2]"],
        ["file.yaml:10", "timeline[2].notice"],
        ["file.yaml:11", "timeline[3].event"],
        ["file.yaml:12", "timeline[4].after"],
        ["file.yaml:14", "expect[0].approved.within"],
        ["file.yaml:14", "expect[0].approved.by"],
        ["file.yaml:15", "expect[1].event"],
        ["file.yaml:16", "expect[2]"],
        ["file.yaml:17", "expect[3]"],
        ["file.yaml:18", "expect[4].complaints[0]"],
        ["file.yaml:19", "ends"],
    ]
    assert str(refused.value).splitlines() == list(refused.value.problems)


def test_a_reference_to_a_wrong_entry_is_not_reported() -> None:
    text = """\
scenario: one
fleet: {groups: [{name: web, kind: scale-set, machines: 3}]}
timeline: [{at: 10s, do: restartt, machine: web_0, name: restart}]
expect: [{event: restart, in-time: true}]
"""
    with pytest.raises(ScenarioError) as refused:
        parse(text)
    assert len(refused.value.problems) == 1
    assert "'restartt'" in str(refused.value)


def test_a_reference_to_machines_of_a_wrong_fleet_is_not_reported() -> None:
    text = """\
scenario: one
fleet: {groups: [{name: web, kind: scale, machines: 3}]}
as: web_0
timeline: [{at: 10s, do: restart, machine: web_0, name: restart}]
expect: [{event: restart, approved: {by: web_0}}]
"""
    with pytest.raises(ScenarioError) as refused:
        parse(text)
    [problem] = refused.value.problems
    assert problem.startswith("line 2: fleet.groups[0].kind: ")


def test_the_number_of_reported_mistakes_is_limited() -> None:
    line = "  - {at: 10s, do: restart, machine: nobody}\n"
    head = "scenario: one\nfleet: {groups: [{name: web, kind: scale-set, machines: 3}]}\n"
    with pytest.raises(ScenarioError) as refused:
        parse(f"{head}timeline:\n{line * 300}", "file.yaml")
    assert len(refused.value.problems) == MAX_PROBLEMS + 1
    assert refused.value.problems[-1] == f"file.yaml: and {300 - MAX_PROBLEMS} more mistakes"


@pytest.mark.parametrize("key", ["scenario", "fleet", "timeline"])
@pytest.mark.parametrize("value", ["null", "7", "[]", "{}", "[[]]", "text"])
def test_any_value_of_a_key_is_read_or_refused(key: str, value: str) -> None:
    values = {"scenario": "one", "fleet": "{}", "timeline": "[]", key: value}
    with pytest.raises(ScenarioError):
        parse("".join(f"{name}: {text}\n" for name, text in values.items()))


def test_all_mistakes_of_a_fleet_are_reported_with_those_of_the_scenario() -> None:
    text = (
        "scenario: x\nfleet:\n  groups:\n  - {name: g, kind: standalon, machines: []}\n"
        "  hostts: []\ntimeline:\n- {at: 1s, do: restrt, machine: g}\n"
    )
    with pytest.raises(ScenarioError) as refused:
        parse(text, "x.yaml")
    first, second, third = refused.value.problems
    assert re.match(r"x.yaml:4: fleet.groups\[0\].kind: .*'standalon'", first)
    assert re.match("x.yaml:5: fleet.hostts: .*'hosts'", second)
    assert "restrt" in third
