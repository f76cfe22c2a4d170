"""docs/applications/agent-operations.md is true: limits, alerts, and every line of the log."""

from __future__ import annotations

import re

import pytest
import yaml

from forewarn.agent import serve
from forewarn.agent.check import check
from forewarn.agent.config.model import DEFAULT_LISTEN
from forewarn.agent.telemetry import health as wellbeing
from forewarn.agent.telemetry import http, log
from forewarn.agent.telemetry import metrics as counting
from helpers import promql
from helpers.paths import ROOT

PAGE = (ROOT / "docs/applications/agent-operations.md").read_text()
AGENT = ROOT / "src/forewarn/agent"
ALERTS = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        (
            "Connections to the health endpoint at once; further ones are closed",
            f"{http.MAX_CONNECTIONS}",
        ),
        ("Size of the head of a request", f"{http.MAX_HEAD // 1024} KiB"),
        ("Time to receive a request", f"{http.REQUEST_WITHIN:g} s"),
        ("Time to send a response", f"{http.RESPONSE_WITHIN:g} s"),
        (
            "Responses per second, for all callers together; further requests wait",
            f"{http.RESPONSES_PER_SECOND:g}",
        ),
        (
            "Share of the agent's time that is spent on collecting the status; with very many"
            " events, the status may be a moment old",
            f"{http.SHARE * 100:g} %",
        ),
        ("Mode of a UNIX socket", f"{http.SOCKET_MODE:04o}"),
        (
            "Time until an address that was in use is tried again",
            f"{serve.LISTEN_AGAIN:g} s",
        ),
        (
            "Time between two heartbeats of the event loop, and between two messages to the"
            " service manager",
            f"{wellbeing.BEAT:g} s",
        ),
        (
            "Time for which the event loop may be blocked before the agent is unhealthy",
            f"{wellbeing.LOOP_PATIENCE:g} s",
        ),
        (
            "Time without a request to the endpoint before the agent is unhealthy",
            f"{wellbeing.POLL_PATIENCE:g} s",
        ),
        (
            "Time without a valid answer before the agent is not ready",
            f"{wellbeing.SILENCE_PATIENCE:g} s",
        ),
        (
            "Time between two tests whether the state directory is writable",
            f"{wellbeing.WRITE_EVERY:g} s",
        ),
        ("Length of one value in a line of the log", f"{log.MAX_VALUE:,} characters"),
        ("Length of a command's output in the log", f"{log.MAX_OUTPUT:,} characters"),
        (
            "Length of the shortest secret that is removed from the log",
            f"{log.LEAST_SECRET} characters",
        ),
        (
            "Time to wait for a slow reader of the log before lines are dropped",
            f"{log.PATIENCE_MS} ms",
        ),
        (
            "Types and sources of events that are counted by name; further ones are `other`",
            f"{counting.MAX_VALUES}",
        ),
        ("`agent check`: time for an answer of the endpoint", f"{check.TIMEOUT:g} s"),
        (
            "`agent check`: polls, and seconds of a long-poll, to find out whether long-polls are"
            " offered",
            f"{check.POLLS}, {check.LONG_POLL:g} s",
        ),
        (
            "`agent check`: difference of the clocks that is not reported",
            f"{check.CLOCK_DIFFERENCE:g} s",
        ),
    ],
)
def test_every_limit_is_as_the_page_says(limit: str, value: str) -> None:
    assert f"| {limit} | {value} |" in PAGE


def test_the_page_names_the_address_and_the_limits_of_health() -> None:
    assert f"| `{DEFAULT_LISTEN}` |" in PAGE
    (health,) = re.findall(r"^\| `/healthz` \|.*$", PAGE, re.M)
    assert f"blocked for {wellbeing.LOOP_PATIENCE:g} s" in health
    assert f"request for {wellbeing.POLL_PATIENCE:g} s" in health
    (ready,) = re.findall(r"^\| `/readyz` \|.*$", PAGE, re.M)
    assert f"answer for {wellbeing.SILENCE_PATIENCE:g} s" in ready
    assert f"tested every {wellbeing.WRITE_EVERY:g} s" in ready


def test_every_log_entry_is_documented_with_its_level() -> None:
    told = {
        word
        for file in AGENT.rglob("*.py")
        for word in re.findall(r'log\(\s*"([a-z ]+)"', file.read_text())
    }
    section = PAGE.partition("### Log")[2].partition("## Resource use")[0]
    rows = re.findall(r"^\| (`.+?`) \| (.+?) \|", section, re.M)
    said = {word: levels for words, levels in rows for word in re.findall("`([^`]+)`", words)}
    assert told == said.keys() - {"event"}
    for word, level in log.SEVERITY.items():
        assert level in said[word]


def test_every_alert_of_agents_is_documented_and_names_existing_metrics() -> None:
    (group,) = [group for group in ALERTS["groups"] if group["name"] == "forewarn-agent"]
    assert {rule["alert"] for rule in group["rules"]} == set(
        re.findall(r"^\| `(ForewarnAgent\w+)` \|", PAGE, re.M)
    )
    rows = re.findall(r"^\| `(forewarn_agent_\w+)(?:\{([a-z_,]*)\})?` \|", PAGE, re.M)
    metrics = {name: set(labels.split(",")) - {""} for name, labels in rows}
    for rule in group["rules"]:
        told = promql.told_labels(rule["annotations"]["summary"])
        assert told <= promql.read(rule["expr"], metrics), rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]
