"""`agent test`: which rule an invented event falls under, why not the others, and what would be
done; in agreement with what decides about real ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.agent.check.explain_rules import actions, explain, why_not
from forewarn.agent.config.model import Rule
from forewarn.agent.config.read import read
from forewarn.agent.config.rules import first_match, matches
from forewarn.agent.planning.plan import MARGIN
from forewarn.cli.commands.agent_check import HypotheticalEvent
from forewarn.cli.commands.agent_check import explain as explain_command
from forewarn.client.events import Event
from forewarn.support.text import SECOND, in_words

DURATIONS = st.none() | st.sampled_from([1.0, 5.0, 9.0])
SOME = st.sampled_from([(), ("Freeze",), ("Reboot", "Freeze"), ("Platform",), ("User",)])
LABELS = st.sampled_from([{}, {"tier": "web"}, {"tier": "sql"}])
RULES = st.builds(
    Rule,
    name=st.just("one"),
    type=SOME,
    source=SOME,
    min_duration=DURATIONS,
    max_duration=DURATIONS,
    machine=st.sampled_from(["mine", "peer", "any"]),
    labels=LABELS,
)
EVENTS = st.builds(
    Event,
    id=st.just("E1"),
    type=st.sampled_from(["Freeze", "Reboot"]),
    status=st.just("Scheduled"),
    source=st.sampled_from(["Platform", "User", ""]),
    duration=st.none() | st.integers(0, 10),
)

CONFIG = """
[[rule]]
name = "short freezes"
type = "Freeze"
max_duration = "10s"

[[rule]]
name = "everything else"
hooks = ["drain", "save"]
when = "5m"
approve = "when-done"

[[rule]]
name = "never"
type = "Preempt"

[hook.drain]
prepare = "true"
undo = "true"
timeout = "10m"

[hook.save]
prepare = "true"
undo = "true"
started = "true"
"""


@given(RULES, EVENTS, st.booleans(), LABELS)
def test_the_explanation_agrees_with_the_decision(
    rule: Rule, event: Event, mine: bool, tags: dict[str, str]
) -> None:
    says = why_not(rule, event, mine=mine, tags=tags)
    assert (says == "") is matches(rule, event, mine=mine, tags=tags)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "agent.toml").write_text(CONFIG)
    return tmp_path / "agent.toml"


def test_the_first_rule_that_matches_is_named_and_why_the_others_do_not(file: Path) -> None:
    config = read(file)
    event = Event(id="E1", type="Freeze", status="Scheduled", duration=11)
    found = explain(config, event, mine=True, tags={})
    short, matching, later = (rule.why_not for rule in found)
    assert "10 s" in short
    assert matching == ""
    assert "'everything else'" in later
    assert first_match(config.rules, event, mine=True, tags={}) is config.rules[1]


@pytest.mark.parametrize(
    ("notice", "output"),
    [
        (
            895.0 + MARGIN,
            [
                f"prepare drain: after 9 min {55 + MARGIN:g} s,"
                f" {in_words(round((300 - MARGIN) * SECOND))} at most",
                "prepare save: then, 1 min",
            ],
        ),
        (30.0 + MARGIN, ["prepare drain: at once, 30 s at most", "prepare save: then, 30 s"]),
        (0.5 + MARGIN, ["prepare drain: not started", "prepare save: not started"]),
    ],
)
def test_no_command_is_given_time_beyond_not_before(
    file: Path, notice: float, output: list[str]
) -> None:
    config = read(file)
    steps = list(actions(config.rules[1], config.hooks, notice))
    for step, begins in zip(steps, output, strict=False):
        assert step.startswith(begins)
    approved, started, over = steps[2:]
    assert re.search("hooks are done, .*approved for every", approved)
    assert started.endswith("started save")
    assert over.endswith("undo save, then drain")


def test_the_command_prints_the_explanation(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    explain_command(
        file, HypotheticalEvent("Freeze", "Platform", "5s", "15m", False, []), json=False
    )
    matching, *others, prepared, approved = capsys.readouterr().out.splitlines()
    assert matching == "yes  short freezes"
    assert [line.partition(":")[0] for line in others] == ["no   everything else", "no   never"]
    assert all("'short freezes'" in line for line in others)
    assert "nothing is prepared" in prepared
    assert "does not approve" in approved
    explain_command(
        file, HypotheticalEvent("Preempt", "User", None, "30s", True, ["tier=web"]), json=False
    )
    assert "no rule matches" in capsys.readouterr().out.splitlines()[-1]
