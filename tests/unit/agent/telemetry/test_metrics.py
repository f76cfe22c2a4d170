"""What the agent counts: along with what it tells, and as its cases_with_runs stand."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from forewarn.agent.telemetry import metrics
from forewarn.agent.telemetry.metrics import AgentMetrics, Health, exposition
from forewarn.agent.telemetry.status import AgentStatus, status_view
from forewarn.client.events import EndpointStatus
from helpers.agent_model import BEGINNING, AgentWorld, a_case, event, hook
from helpers.paths import ROOT

DOCS = ROOT / "docs/applications/agent-operations.md"
WELL = Health(healthy=True, ready=True, writable=True)


def endpoint(problem: str = "", **more: Any) -> EndpointStatus:
    output: dict[str, Any] = {
        "endpoint": "http://169.254.169.254",
        "version": "2020-07-01",
        "long_poll": True,
        "problem": problem,
        "problem_kind": "refused" if problem else "",
        "since": BEGINNING,
        "responses": 7,
        "failures": 2,
        "failures_by_kind": {"late": 2},
    }
    return EndpointStatus(**(output | more))


def status(world: AgentWorld | None = None, problem: str = "", after: float = 0.0) -> AgentStatus:
    world = world or AgentWorld()
    return AgentStatus(
        now=BEGINNING + timedelta(seconds=after),
        machine="web_0",
        dry_run=False,
        endpoint=endpoint(problem),
        events=tuple(case.event for case in world.cases.values() if not case.over),
        cases=tuple(world.cases_with_runs()),
    )


def shown(counts: AgentMetrics, seen: AgentStatus, health: Health = WELL) -> dict[str, float]:
    text = exposition(counts, seen, health)[0].decode()
    pairs = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name.removeprefix("forewarn_agent_"): float(value) for name, _, value in pairs}


def busy() -> tuple[AgentMetrics, AgentWorld]:
    """A case in the middle of everything."""
    world = AgentWorld(a_case(hook("drain"), hook("stop"), approve="when-done"))
    world.turn()
    world.end_a_run()
    world.turn()
    counts, reported = AgentMetrics(), []
    tell = counts.counted(lambda what, /, **_: reported.append(what))
    tell("event seen", event="E1", type="Reboot", source="Platform")
    facts = {"hook": "drain", "stage": "prepare"}
    tell("hook ended", **facts, outcome="ended", ok=True, seconds=0.3)
    tell("hook ended", **facts, outcome="ended", ok=False, seconds=2.0)
    tell("hook ended", **facts, outcome="timed-out", ok=False, seconds=60.0)
    tell("hook ended", **facts, outcome="lost", ok=False, seconds=None)
    tell("approval failed", event="E1", why="x")
    tell("approved", event="E1")
    assert reported.count("hook ended") == 4  # it all goes on to the log
    return counts, world


def test_every_log_entry_is_counted() -> None:
    counts, world = busy()
    found = shown(counts, status(world))
    assert found['events_seen_total{source="Platform",type="Reboot"}'] == 1
    for outcome in ("done", "failed", "timed-out", "lost"):
        name = f'hook_runs_total{{hook="drain",outcome="{outcome}",stage="prepare"}}'
        assert found[name] == 1
    assert found['hook_seconds_count{hook="drain",stage="prepare"}'] == 3
    assert found['hook_seconds_sum{hook="drain",stage="prepare"}'] == 62.3
    assert found['hook_seconds_bucket{hook="drain",le="5.0",stage="prepare"}'] == 2
    assert found['approvals_total{outcome="approved"}'] == 1
    assert found['approvals_total{outcome="failed"}'] == 1


def test_gauges_of_runs_and_undos_are_derived_from_cases() -> None:
    counts, world = busy()
    found = shown(counts, status(world))
    assert found['events{status="Scheduled"}'] == found["cases"] == 1
    assert (found["hooks_running"], found["undo_pending"]) == (1, 2)
    world.end_a_run()
    world.to_the_end()
    found = shown(counts, status(world))
    assert (found["cases"], found["undo_pending"], found["undo_given_up"]) == (0, 0, 0)


def test_an_undo_that_was_given_up_is_shown_until_the_next_one_succeeds() -> None:
    fails = True
    first, second = (a_case(hook("drain"), of=event(id), id=f"{id}.1") for id in ("E1", "E2"))
    world = AgentWorld(first, roll=lambda stage: "bad" if stage == "undo" and fails else "good")
    world.turn()
    world.end_a_run()
    world.to_the_end()
    seen = status(world)
    assert shown(AgentMetrics(), seen)["undo_given_up"] == 1
    assert status_view(seen).cases[0].state == "undo of drain given up"
    fails = False
    world.cases[second.id], world.runs[second.id] = second, []
    world.turn()
    world.end_a_run()
    world.to_the_end()
    assert shown(AgentMetrics(), status(world))["undo_given_up"] == 0


def test_metrics_show_the_state_of_the_endpoint() -> None:
    well = shown(AgentMetrics(), status(after=60))
    name = 'endpoint_info{api_version="2020-07-01",endpoint="http://169.254.169.254"}'
    assert (well[name], well["long_poll"], well["silence_seconds"]) == (1, 1, 0)
    assert (well["responses_total"], well['request_failures_total{kind="late"}']) == (7, 2)
    assert well['request_failures_total{kind="refused"}'] == 0
    assert not [name for name in well if name.startswith("endpoint_problem{")]
    ill = shown(AgentMetrics(), status(problem="the connection was refused", after=60))
    assert (ill['endpoint_problem{kind="refused"}'], ill["silence_seconds"]) == (1, 60)
    sick = Health(healthy=False, ready=False, writable=False)
    ill = shown(AgentMetrics(), status(), sick)
    assert (ill["healthy"], ill["ready"], ill["state_writable"]) == (0, 0, 0)


def test_results_of_hooks_are_exported_as_zero_from_the_start() -> None:
    """Else the first failure would go unnoticed: a series that begins at one has not grown."""
    found = shown(AgentMetrics([hook("drain", ("prepare", "undo"))]), status())
    assert found['hook_runs_total{hook="drain",outcome="failed",stage="undo"}'] == 0
    assert 'hook_runs_total{hook="drain",outcome="failed",stage="started"}' not in found
    assert found['approvals_total{outcome="failed"}'] == 0


def test_unknown_types_do_not_create_unlimited_series() -> None:
    counts = AgentMetrics()
    for number in range(metrics.MAX_VALUES + 50):
        counts.count("event seen", {"type": f"New{number}", "source": "Platform"})
    assert len(counts.seen) == metrics.MAX_VALUES + 1
    assert counts.seen[metrics.OTHER, metrics.OTHER] == 50


def test_documented_and_exported_metrics_are_the_same() -> None:
    counts, world = busy()
    seen = status(world, problem="the connection was refused")
    types = re.findall(r"^# TYPE (\S+) (\S+)$", exposition(counts, seen, WELL)[0].decode(), re.M)
    there = {name for name, _ in types if name.startswith("forewarn_agent_")}
    output = set(re.findall(r"^\| `(forewarn_agent_\w+)[{`]", DOCS.read_text(), re.M))
    assert output == there
    assert {name for name, type in types if type == "counter"} <= {
        name for name, _ in types if name.endswith("_total")
    }


@pytest.mark.parametrize("accept", ["application/openmetrics-text;version=1.0.0", "text/plain"])
def test_openmetrics_is_sent_if_requested(accept: str) -> None:
    text, type = exposition(AgentMetrics(), status(), WELL, accept)
    assert ("openmetrics" in type) is ("openmetrics" in accept)
    assert text.endswith(b"# EOF\n") is ("openmetrics" in accept)
