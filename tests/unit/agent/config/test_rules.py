"""Which rule an event falls under: the first that matches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.agent.config.model import Rule
from forewarn.agent.config.rules import covers, first_match, matches
from helpers.agent_model import event

TAGS = {"tier": "web", "zone": "1"}


@pytest.mark.parametrize(
    ("rule", "output", "mine", "so"),
    [
        ({}, {}, True, True),
        ({}, {}, False, False),
        ({"machine": "peer"}, {}, False, True),
        ({"machine": "peer"}, {}, True, False),
        ({"machine": "any"}, {}, False, True),
        ({"type": ("Freeze", "Reboot")}, {}, True, True),
        ({"type": ("Freeze",)}, {}, True, False),
        ({"source": ("User",)}, {"source": "User"}, True, True),
        ({"source": ("User",)}, {"source": "Platform"}, True, False),
        ({"max_duration": 10.0}, {"duration": 10}, True, True),
        ({"max_duration": 10.0}, {"duration": 11}, True, False),
        ({"max_duration": 10.0}, {"duration": None}, True, False),
        ({"min_duration": 10.0}, {"duration": None}, True, False),
        ({"min_duration": 10.0}, {"duration": 9}, True, False),
        ({"min_duration": 0.0}, {"duration": 0}, True, True),
        ({"labels": {"tier": "web"}}, {}, True, True),
        ({"labels": {"tier": "web", "zone": "2"}}, {}, True, False),
        ({"labels": {"rack": "1"}}, {}, True, False),
    ],
)
def test_a_rule_matches(rule: dict[str, Any], output: dict[str, Any], mine: bool, so: bool) -> None:
    assert matches(Rule(name="r", **rule), event(**output), mine=mine, tags=TAGS) is so


def test_the_first_match_wins() -> None:
    rules = [Rule(name="freezes", type=("Freeze",)), Rule(name="one"), Rule(name="other")]
    found = first_match(rules, event(), mine=True, tags={})
    assert found is rules[1]
    assert first_match(rules, event(), mine=False, tags={}) is None


RULES = st.builds(
    Rule,
    name=st.just("r"),
    type=st.sets(st.sampled_from(["Freeze", "Reboot"])).map(tuple),
    source=st.sets(st.sampled_from(["User", "Platform"])).map(tuple),
    min_duration=st.sampled_from([None, 0.0, 5.0]),
    max_duration=st.sampled_from([None, 5.0, 9.0]),
    machine=st.sampled_from(["mine", "peer", "any"]),
    labels=st.sampled_from([{}, {"tier": "web"}, TAGS]),
)
EVENTS = st.builds(
    lambda type, source, duration: event(type=type, source=source, duration=duration),
    st.sampled_from(["Freeze", "Reboot", "Preempt"]),
    st.sampled_from(["User", "Platform"]),
    st.sampled_from([None, 0, 5, 9, 30]),
)


@given(earlier=RULES, later=RULES, output=EVENTS, mine=st.booleans(), tagged=st.booleans())
def test_a_rule_reported_as_unreachable_never_matches(
    earlier: Rule, later: Rule, output: Any, mine: bool, tagged: bool
) -> None:
    tags = TAGS if tagged else {}
    if covers(earlier, later) and matches(later, output, mine=mine, tags=tags):
        assert matches(earlier, output, mine=mine, tags=tags)
