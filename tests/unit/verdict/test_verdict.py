"""A verdict reads well: in an assertion, as text, as JUnit XML and as JSON."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from forewarn.verdict.files import verdict_of_files
from forewarn.verdict.junit import junit
from forewarn.verdict.rendering import MAX_OF_ONE_RULE, MAX_RENDERED, length, moment
from forewarn.verdict.values import Complaint
from forewarn.verdict.verdict import Verdict
from helpers.verdict_model import World


@pytest.fixture
def world() -> World:
    world = World()
    world.poll("web_0")
    world.poll("web_1")
    event = world.raise_("Reboot", "web_0")
    world.wait(2)
    world.poll("web_0")
    world.ask("web_0", "GET", headers=(("User-Agent", "agent/1"),), status=400)
    world.wait(3)
    world.approve("web_1", event)
    world.poll("web_0")
    world.wait(30)
    world.poll("web_0")
    return world


def test_the_text_begins_with_complaints(world: World) -> None:
    assert str(world.verdict()).splitlines() == [
        "verdict: 1 thing wrong, 1 note (2 machines, 1 event)",
        "  ✗ missing-header: web_0 at 2027-01-15 08:00:02Z",
        "      GET /metadata/scheduledevents came with no Metadata header and was refused;"
        " send Metadata: true",
        "  · approved-for-others: web_1 about 00000000 at 2027-01-15 08:00:05Z",
        "      approved Reboot 00000000 of web_0, which is not its own; approve events only if"
        " Resources names this machine, unless the machines of the group have agreed on it",
        "events",
        "  Reboot 00000000 (Platform): visible 2027-01-15 08:00:00Z with 15 min of notice;"
        " approved by web_1 after 5 s; started after 5 s; finished after 35 s",
        "    MACHINE               SEEN            AS                   READY  IN TIME  POLLS",
        "    web_0                 seen after 2 s  Scheduled → Started  -      in time  3 polls",
        "    web_1 (not affected)  not seen        -                    -      -        0 polls",
        "machines",
        "  MACHINE  POLLS    HOW OFTEN                API-VERSION    ANSWERED        FAULTS"
        "  USER-AGENT",
        "  web_0    5 polls  every 2 s, longest 30 s  2020-07-01 ×5  200 ×4, 400 ×1  -     "
        "  agent/1",
        "  web_1    1 poll   -                        2020-07-01 ×1  200 ×2          -       -",
    ]


def test_check_raises_with_the_text(world: World) -> None:
    with pytest.raises(AssertionError, match="missing-header: web_0") as raised:
        world.verdict().check()
    assert str(raised.value) == str(world.verdict())
    fine = world.verdict().without("missing-header")
    assert fine.check() is fine


def test_the_repr_shows_the_first_complaint_and_is_short(world: World) -> None:
    verdict = world.verdict()
    assert repr(verdict).startswith(
        f"<Verdict: 1 wrong: missing-header by web_0: {verdict.wrong[0].message}; 2 machines, 1"
    )
    many = Verdict(
        complaints=tuple(
            Complaint(rule="ignored-withdrawal", machine=f"machine-{n}", at=0, message="so")
            for n in range(100)
        )
    )
    assert len(repr(many)) < 240
    assert repr(Verdict()) == "<Verdict: nothing wrong; 0 machines, 0 events>"


def test_a_verdict_can_be_filtered_by_machine_and_event(world: World) -> None:
    verdict = world.verdict()
    assert not verdict.of("web_0").ok
    assert verdict.of("web_1").ok
    assert [one.machine for one in verdict.of("web_1").conducts] == ["web_1"]
    about = verdict.about("00000000")
    assert about.ok
    assert {one.machine for one in about.conducts} == {"web_0", "web_1"}
    assert len(about.courses) == 2
    assert verdict.course("web_0", "00000000").approved_by == "web_1"
    with pytest.raises(LookupError, match="'db'"):
        verdict.conduct("db")


def test_unknown_names_are_refused_with_the_known_ones(world: World) -> None:
    verdict = world.verdict()
    assert verdict.machines == ("web_0", "web_1")
    (event,) = verdict.events
    with pytest.raises(LookupError, match=r"machine 'web_10' .*'web_1'"):
        verdict.of("web_10")
    with pytest.raises(LookupError, match=r"machine 'db' .*web_0, web_1"):
        verdict.course("db", event)
    with pytest.raises(LookupError, match=f"no event 'FFFF'.*{event}"):
        verdict.about("ffff")
    with pytest.raises(LookupError, match="no event ''"):
        verdict.about("")
    with pytest.raises(LookupError, match="no event 'FFFF'"):
        verdict.course("web_0", "ffff")


def test_junit_has_a_case_for_every_course_and_every_machine(world: World) -> None:
    suites = ElementTree.fromstring(junit(world.verdict()))
    (suite,) = suites
    cases = {(case.get("classname"), case.get("name")): case for case in suite.iter("testcase")}
    event = "Reboot 00000000-0000-4000-8000-000000000000"
    assert set(cases) == {
        ("forewarn.web_0", event),
        ("forewarn.web_1", event),
        ("forewarn.web_0", "conduct"),
        ("forewarn.web_1", "conduct"),
    }
    counts = {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "4", "failures": "1", "errors": "0", "skipped": "0"}
    (failure,) = suite.iter("failure")
    assert cases["forewarn.web_0", "conduct"].find("failure") is failure
    assert failure.get("type") == "missing-header"
    assert "send Metadata: true" in (failure.text or "")


def test_characters_that_xml_does_not_allow_are_escaped_in_junit() -> None:
    odd = "a\x00b\x1b<&\ud800"
    complaint = Complaint(rule="wrong-path", machine=odd, at=1e30, message=odd)
    made = junit(Verdict(complaints=(complaint,), remarks=(odd,), at=1e30))
    (case,) = ElementTree.fromstring(made).iter("testcase")
    assert case.get("classname") == "forewarn.a\ufffdb\ufffd<&\ufffd"


@pytest.mark.parametrize("rule", ["missing-heder", "", "Missing-Header"])
def test_a_rule_that_does_not_exist_is_refused(world: World, rule: Any) -> None:
    for use in (world.verdict().by, world.verdict().without):
        with pytest.raises(ValueError, match=f"^unknown rule '{rule}'; "):
            use(rule)
    with pytest.raises(ValueError, match="did you mean 'missing-header'\\?"):
        world.verdict().without("forwarded", "missing-heder")  # type: ignore[arg-type]


def test_a_repeated_refusal_is_one_complaint(world: World) -> None:
    for number in range(30):
        world.ask("web_0", "GET", headers=(), status=400)
        world.ask("web_0", "GET", target="/metadata/scheduledevent?api-version=x", status=404)
        world.approve("web_0", f"NO-SUCH-{number}")
    lines = str(world.verdict()).splitlines()
    assert sum("missing-header" in line for line in lines) == 1
    assert sum("wrong-path: web_0 at" in line and "30 times" in line for line in lines) == 1
    assert sum("✗ unknown-approval" in line for line in lines) == MAX_OF_ONE_RULE
    assert any("… unknown-approval: web_0: 17 more times" in line for line in lines)


def test_a_verdict_survives_json(world: World) -> None:
    verdict = world.verdict()
    assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict) == verdict


def test_the_order_of_recordings_does_not_matter(world: World, tmp_path: Path) -> None:
    lines = [msgspec.json.encode(line) + b"\n" for line in world.lines]
    first, second = tmp_path / "one", tmp_path / "two"
    first.write_bytes(b"".join(lines[::2]) + b'{"kind":"exch')
    second.write_bytes(b"\n".join(lines[1::2]))
    heard = verdict_of_files([first, second])
    assert heard.unreadable == 1
    assert heard.exchanges == sum(line["kind"] == "exchange" for line in world.lines)
    whole = tmp_path / "whole"
    whole.write_bytes(b"".join(lines))
    assert verdict_of_files([whole]).verdict == world.verdict()
    assert heard.verdict.wrong == world.verdict().wrong


@pytest.mark.parametrize(
    ("seconds", "output"),
    [(0, "0 s"), (0.25, "0.25 s"), (119.5, "119.5 s"), (900, "15 min"), (5400, "1 h 30 min")],
)
def test_durations_are_readable(seconds: float, output: str) -> None:
    assert length(seconds) == output
    assert length(-1) == "-1 s"
    assert moment(1e30) == "1e+30"


def test_the_text_limits_complaints_and_counts_the_others() -> None:
    found = Verdict(
        complaints=tuple(
            Complaint(rule="forwarded", machine=f"web_{n}", at=0.0, message="…") for n in range(60)
        )
    )
    text = str(found)
    assert text.count("forwarded") == MAX_RENDERED
    assert "… of 60 complaints" in text


def test_control_characters_of_a_recording_are_escaped(tmp_path: Path) -> None:
    bad = "\x1b[2Jweb\n✗ forged"
    event = {"EventId": bad, "EventStatus": "Scheduled", "EventType": bad, "EventSource": bad}
    shown = {"DocumentIncarnation": 1, "Events": [{**event, "Resources": [bad]}]}
    exchange = {
        "kind": "exchange",
        "t": 1.0,
        "machine": bad,
        "method": "GET",
        "target": "/metadata/scheduledevents?api-version=2020-07-01",
        "headers": [["Metadata", "true"], ["User-Agent", bad]],
        "status": 200,
        "answer": msgspec.json.encode(shown).decode(),
    }
    file = tmp_path / "bad.jsonl"
    refused = {**exchange, "headers": [], "status": 400, "answer": ""}
    file.write_bytes(b"\n".join(map(msgspec.json.encode, (exchange, refused))))
    found = verdict_of_files([file]).verdict
    assert [one.rule for one in found.wrong] == ["missing-header"]
    for text in (str(found), repr(found), *map(str, junit(found).decode().splitlines())):
        assert "\x1b" not in text
        assert not any(line.lstrip().startswith("✗ forged") for line in text.splitlines())
    assert len(found.courses) == 1


def test_a_recording_may_come_through_a_pipe(world: World, tmp_path: Path) -> None:
    written = b"\n".join(map(msgspec.json.encode, world.lines))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(pipe.write_bytes, written)
        assert verdict_of_files([pipe]).verdict == world.verdict()
        writing.result()
