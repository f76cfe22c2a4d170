"""docs/applications/agent-operations.md is true: limits, alerts, and every line of the log."""

from __future__ import annotations

import re

import pytest
import yaml

from forewarn.agent import serve
from forewarn.agent.config.model import DEFAULT_LISTEN
from forewarn.agent.telemetry import health as wellbeing
from forewarn.agent.telemetry import http, log
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
        (
            "Responses per second, for all callers together; further requests wait",
            f"{http.RESPONSES_PER_SECOND:g}",
        ),
        ("Mode of a UNIX socket", f"{http.SOCKET_MODE:04o}"),
        (
            "Time until an address that was in use is tried again",
            f"{serve.LISTEN_AGAIN:g} s",
        ),
        ("Length of one value in a line of the log", f"{log.MAX_VALUE:,} characters"),
        ("Length of a command's output in the log", f"{log.MAX_OUTPUT:,} characters"),
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
    reported = {
        word
        for file in AGENT.rglob("*.py")
        for word in re.findall(r'log\(\s*"([a-z ]+)"', file.read_text())
    }
    section = PAGE.partition("### Log")[2].partition("## Resource use")[0]
    rows = re.findall(r"^\| (`.+?`) \| (.+?) \|", section, re.M)
    output = {word: levels for words, levels in rows for word in re.findall("`([^`]+)`", words)}
    assert reported == output.keys() - {"event"}
    for word, level in log.SEVERITY.items():
        assert level in output[word]


def test_every_alert_of_agents_is_documented_and_names_existing_metrics() -> None:
    (group,) = [group for group in ALERTS["groups"] if group["name"] == "forewarn-agent"]
    assert {rule["alert"] for rule in group["rules"]} == set(
        re.findall(r"^\| `(ForewarnAgent\w+)` \|", PAGE, re.M)
    )
    rows = re.findall(r"^\| `(forewarn_agent_\w+)(?:\{([a-z_,]*)\})?` \|", PAGE, re.M)
    metrics = {name: set(labels.split(",")) - {""} for name, labels in rows}
    for rule in group["rules"]:
        reported = promql.shown_labels(rule["annotations"]["summary"])
        assert reported <= promql.read(rule["expr"], metrics), rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]
