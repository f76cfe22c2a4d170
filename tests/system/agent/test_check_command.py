"""`forewarn agent check` against a real endpoint, and one that is not there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.agent.check import check
from forewarn.support.finding import Finding
from forewarn.testing import Machine, Service
from helpers.running_agent import configured
from helpers.waiting import LIMIT

RULES = """
[[rule]]
name = "reboots"
type = ["Reboot", "Redeploy"]
hooks = ["mine", "gone"]
when = "5m"
approve = "coordinated"

[[rule]]
name = "databases"
labels = { tier = "sql" }
approve = "when-done"

[hook.mine]
prepare = ["/bin/true"]

[hook.gone]
prepare = ["/usr/local/bin/no-such-program"]
undo = ["/bin/true"]
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with Service() as service:
        yield service.scale_set("web", 2)[0]


def found(config: Path) -> dict[str, list[Finding]]:
    by: dict[str, list[Finding]] = {}
    for one in check.findings(config):
        by.setdefault(one.about, []).append(one)
    return by


def test_check_reports_on_everything_the_agent_needs(tmp_path: Path, machine: Machine) -> None:
    seen = found(configured(tmp_path, f'endpoint = "{machine.url}"', RULES))
    (endpoint,) = seen["endpoint"]
    assert endpoint.message == f"{machine.url}, version 2020-07-01, long-polls"
    assert re.match("web_0 .*set web;", seen["identity"][0].message)
    assert seen["clock"][0].grade == "note"  # the test's clock is another
    assert re.search("ahead|behind", seen["clock"][0].message)
    reboots = seen["rule reboots"][0].message
    assert re.match(r"Reboot or Redeploy .*: mine, then gone, 5 min .*; approve coord", reboots)
    assert [one.grade for one in seen["rule databases"]] == ["ok", "note"]
    assert [one.grade for one in seen["hook mine"]] == ["ok", "note"]  # it is never undone
    assert "prepare: /usr/local/bin/no-such-program " in seen["hook gone"][0].message
    together, alone = seen["approval"]
    assert (together.grade, "through the endpoint" in together.message) == ("ok", True)
    assert (alone.grade, "databases" in alone.message) == ("note", True)
    problems = [one.about for several in seen.values() for one in several if one.grade == "problem"]
    assert problems == ["hook gone"]


def test_coordinated_approval_without_a_shared_channel_is_a_problem(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Azure: without the ways beside the wire."""
    monkeypatch.setattr(check, "LONG_POLL", 0.0)  # too short to be let to wait
    config = configured(tmp_path, f'endpoint = "{machine.url}"', RULES)
    together = found(config)["approval"][0]
    assert (together.grade, "set [agent] shared" in together.message) == ("problem", True)
    (tmp_path / "shared").mkdir()
    config = configured(tmp_path, f'endpoint = "{machine.url}"', 'shared = "shared"', RULES)
    assert found(config)["approval"][0].grade == "ok"


def test_check_command_prints_each_finding_and_fails_if_one_is_a_problem(
    tmp_path: Path, machine: Machine
) -> None:
    config = configured(tmp_path, f'endpoint = "{machine.url}"', RULES)
    argv = [sys.executable, "-m", "forewarn", "agent", "--config", str(config), "check", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT)
    assert (done.returncode, done.stderr) == (1, "")
    output = json.loads(done.stdout)
    assert output["usable"] is False
    assert {"grade": "problem", "about": "hook gone"}.items() <= next(
        one for one in output["findings"] if one["grade"] == "problem"
    ).items()


def test_check_reports_the_rest_though_the_endpoint_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "TIMEOUT", 0.0)
    seen = found(configured(tmp_path, 'endpoint = "http://127.0.0.1:9"', RULES))
    (endpoint,) = seen["endpoint"]
    assert (endpoint.grade, "http://127.0.0.1:9" in endpoint.message) == ("problem", True)
    assert seen["rule reboots"][0].grade == "ok"
