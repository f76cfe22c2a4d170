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
from helpers.paths import ROOT

PAGE = (ROOT / "docs/applications/agent-operations.md").read_text()
AGENT = ROOT / "src/forewarn/agent"
ALERTS = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())


@pytest.mark.parametrize(
    ("names", "value"),
    [
        ("`MAX_CONNECTIONS`", f"{http.MAX_CONNECTIONS}"),
        ("`MAX_HEAD`", f"{http.MAX_HEAD // 1024} KiB"),
        (
            "`REQUEST_WITHIN`, `RESPONSE_WITHIN`",
            f"{http.REQUEST_WITHIN:g} s, {http.RESPONSE_WITHIN:g} s",
        ),
        ("`RESPONSES_PER_SECOND`", f"{http.RESPONSES_PER_SECOND:g}"),
        ("`SHARE`", f"{http.SHARE * 100:g} %"),
        ("`SOCKET_MODE`", f"{http.SOCKET_MODE:04o}"),
        ("`LISTEN_AGAIN`", f"{serve.LISTEN_AGAIN:g} s"),
        ("`BEAT`", f"{wellbeing.BEAT:g} s"),
        (
            "`LOOP_PATIENCE`, `POLL_PATIENCE`",
            f"{wellbeing.LOOP_PATIENCE:g} s, {wellbeing.POLL_PATIENCE:g} s",
        ),
        (
            "`SILENCE_PATIENCE`, `WRITE_EVERY`",
            f"{wellbeing.SILENCE_PATIENCE:g} s, {wellbeing.WRITE_EVERY:g} s",
        ),
        (
            "`MAX_VALUE`, `MAX_OUTPUT`",
            f"{log.MAX_VALUE:,}, {log.MAX_OUTPUT:,} characters",
        ),
        ("`LEAST_SECRET`", f"{log.LEAST_SECRET} characters"),
        ("`PATIENCE_MS`", f"{log.PATIENCE_MS} ms"),
        ("`MAX_VALUES`", f"{counting.MAX_VALUES}"),
        (
            "`TIMEOUT`, `POLLS`, `LONG_POLL`",
            f"{check.TIMEOUT:g} s, {check.POLLS}, {check.LONG_POLL:g} s",
        ),
        ("`CLOCK_DIFFERENCE`", f"{check.CLOCK_DIFFERENCE:g} s"),
    ],
)
def test_every_limit_is_as_the_page_says(names: str, value: str) -> None:
    assert f"| {names} | {value} |" in PAGE


def test_it_says_where_the_agent_listens_and_when_it_is_not_well() -> None:
    assert f"| `{DEFAULT_LISTEN}` |" in PAGE
    for name in ("LOOP_PATIENCE", "POLL_PATIENCE", "SILENCE_PATIENCE", "WRITE_EVERY"):
        assert f"{getattr(wellbeing, name):g} s (`{name}`)" in PAGE.replace(" s, `", " s (`")


def test_every_line_that_the_log_may_have_is_on_it_with_its_level() -> None:
    told = {
        word
        for file in AGENT.rglob("*.py")
        for word in re.findall(r'log\(\s*"([a-z ]+)"', file.read_text())
    }
    section = PAGE.partition("### Log")[2].partition("## What it costs")[0]
    rows = re.findall(r"^\| (`.+?`) \| (.+?) \|", section, re.M)
    said = {word: levels for words, levels in rows for word in re.findall("`([^`]+)`", words)}
    assert told == said.keys() - {"event"}
    for word, level in log.SEVERITY.items():
        assert level in said[word]


def test_every_alert_of_agents_is_on_it_and_names_what_there_is() -> None:
    (group,) = [group for group in ALERTS["groups"] if group["name"] == "forewarn-agent"]
    assert {rule["alert"] for rule in group["rules"]} == set(
        re.findall(r"^\| `(ForewarnAgent\w+)` \|", PAGE, re.M)
    )
    metrics = dict(re.findall(r"^\| `(forewarn_agent_\w+)(?:\{([a-z_,]*)\})?` \|", PAGE, re.M))
    for rule in group["rules"]:
        used = re.findall(r"\b(forewarn_agent_\w+)(?:\{([^}]*)\})?", rule["expr"])
        assert used
        for name, selectors in used:
            labels = set(metrics[name].split(","))
            assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selectors)) <= labels
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]
