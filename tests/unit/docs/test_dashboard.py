"""The dashboard and the alerts name only what is exposed, and are what their programs can read.

What is exposed is the table in docs/operate/monitoring.md, which another test
compares with a real scrape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from helpers import promql
from helpers.paths import ROOT

MONITORING = (ROOT / "docs" / "operate" / "monitoring.md").read_text()
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "forewarn.json").read_text())
ALERTS: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "prometheus" / "alerts.yml").read_text())
# The agent's alerts, and what they are about, are tests/unit/agent/telemetry/test_metrics.py's.
ALERTS["groups"] = [group for group in ALERTS["groups"] if group["name"] == "forewarn"]

WIDTH = 24  # of Grafana's grid


def exposed() -> dict[str, set[str]]:
    rows = re.findall(
        r"^\| `((?:forewarn|process)_\w+)(?:\{([a-z_,]*)\})?` \| (\w*)", MONITORING, re.M
    )
    found: dict[str, set[str]] = {}
    for name, labels, kind in rows:
        names = [name]
        if kind == "histogram":
            names = [f"{name}_{part}" for part in ("bucket", "sum", "count")]
        for one in names:
            found[one] = set(labels.split(",")) - {""}
            if one.endswith("_bucket"):
                found[one].add("le")
    return found


def expressions() -> Iterator[tuple[str, str, str]]:
    """Yield where each expression is, the expression, and what is told about its result."""
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield f"panel {panel['title']}", target["expr"], target["legendFormat"]
    for group in ALERTS["groups"]:
        for rule in group["rules"]:
            yield f"alert {rule['alert']}", rule["expr"], rule["annotations"]["summary"]


@pytest.mark.parametrize(("where", "expression", "reported"), list(expressions()))
def test_every_expression_is_valid_and_has_existing_labels(
    where: str, expression: str, reported: str
) -> None:
    labels = promql.read(expression, exposed() | {"up": set()})
    assert promql.shown_labels(reported) <= labels, where


@pytest.mark.parametrize(
    "expression",
    [
        "sum(forewarn_ready",
        "forewarn_ready = 0",
        "forewarn_no_such_thing > 0",
        'forewarn_events{colour="red"} > 0',
        'forewarn_events{state="Scheduled" type="Reboot"} > 0',
        "sum by (colour) (forewarn_events)",
        "rate(forewarn_polls_total) > 0",
        "forewarn_polls_total[5m] > 0",
        "forewarn_polls_total[5 minutes] > 0",
        "sum by (job) (forewarn_machines) < forewarn_groups",
        "1 > 0",
        "",
    ],
)
def test_an_expression_that_prometheus_would_refuse_is_found(expression: str) -> None:
    with pytest.raises(promql.Unreadable):
        promql.read(expression, exposed())


def test_every_metric_is_used_by_the_dashboard_or_an_alert() -> None:
    used = " ".join(expression for _, expression, _ in expressions())
    unused = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exposed()} - {
        re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\b\w+_\w+\b", used)
    }
    assert unused == {
        "forewarn_commit",
        "process_virtual_memory_bytes",
        "process_start_time_seconds",
    }


def test_the_dashboard_can_be_imported() -> None:
    assert DASHBOARD["title"] == "forewarn"
    assert DASHBOARD["schemaVersion"] >= 36
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    names = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert names == {"datasource", "instance"}
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        if panel["type"] == "row":
            continue
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["fieldConfig"]["defaults"]["unit"]
        ids = [target["refId"] for target in panel["targets"]]
        assert len(set(ids)) == len(ids)


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        taken |= cells


def test_every_alert_is_documented_and_says_what_it_is_about() -> None:
    section = MONITORING.partition("### Alerts")[2].partition("\n## ")[0]
    documented = set(re.findall(r"`(Forewarn\w+)`", section))
    rules = [rule for group in ALERTS["groups"] for rule in group["rules"]]
    assert {rule["alert"] for rule in rules} == documented
    for rule in rules:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0m"))
