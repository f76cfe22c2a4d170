"""docs/applications/agent.md is true: its configuration can be used, and its limits are real."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from forewarn.agent import agent, open_cases
from forewarn.agent.approval import approve, retrying
from forewarn.agent.config import read, read_hooks
from forewarn.agent.planning import attempts, plan
from forewarn.agent.running import command, runner, runners
from forewarn.agent.state import store
from helpers.paths import ROOT

PAGE = (ROOT / "docs/applications/agent.md").read_text()


def test_the_configuration_on_it_can_be_used(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.M | re.S)
    (tmp_path / "agent.toml").write_text(block)
    found = read.read(tmp_path / "agent.toml")
    assert ([rule.hooks for rule in found.rules], found.warnings) == ([(), ("drain", "save")], ())


@pytest.mark.parametrize(
    ("names", "value"),
    [
        ("`MARGIN`, `LEAST`", f"{plan.MARGIN:g} s, {plan.LEAST:g} s"),
        ("`GRACE`", f"{runner.GRACE:g} s"),
        (
            "`RETRY_PAUSE`, `MAX_RETRY_PAUSE`",
            f"{attempts.RETRY_PAUSE:g} s, {attempts.MAX_RETRY_PAUSE:g} s",
        ),
        (
            "`UNDO_PAUSE`, `MAX_UNDO_PAUSE`, `UNDO_ATTEMPTS`",
            f"{attempts.UNDO_PAUSE:g} s, {attempts.MAX_UNDO_PAUSE / 60:g} min,"
            f" {attempts.UNDO_ATTEMPTS}",
        ),
        ("`LOST_ATTEMPTS`", f"{attempts.LOST_ATTEMPTS}"),
        ("`OVERDUE`", f"{plan.OVERDUE:g} s"),
        (
            "`RESULT_ROOM`, `RESULT_ATTEMPTS`",
            f"{runner.RESULT_ROOM:,} bytes, {runner.RESULT_ATTEMPTS}",
        ),
        (
            "`RESULT_PAUSE`, `MAX_RESULT_PAUSE`",
            f"{runner.RESULT_PAUSE:g} s, {runner.MAX_RESULT_PAUSE:g} s",
        ),
        (
            "`BEGUN_WITHIN`, `SWEEP_EVERY`",
            f"{runners.BEGUN_WITHIN:g} s, {agent.SWEEP_EVERY:g} s",
        ),
        ("`MAX_OUTPUT`", f"{runner.MAX_OUTPUT // 1024} KiB"),
        (
            "`MAX_TIMEOUT`, `MAX_RETRIES`",
            f"{read_hooks.MAX_TIMEOUT / 86_400:g} d, {read_hooks.MAX_RETRIES}",
        ),
        ("`TAKE_OVER`", f"{plan.TAKE_OVER.total_seconds():g} s"),
        (
            "`CALL_TIMEOUT`, `CALL_PAUSE`, `MAX_CALL_PAUSE`",
            f"{approve.CALL_TIMEOUT:g} s, {retrying.CALL_PAUSE:g} s, {retrying.MAX_CALL_PAUSE:g} s",
        ),
        ("`POLL_WITHIN`", f"{agent.POLL_WITHIN:g} s"),
        ("`ENDPOINT_PATIENCE`", f"{agent.ENDPOINT_PATIENCE:g} s"),
        ("`MAX_VARIABLE`", f"{command.MAX_VARIABLE:,} characters"),
        ("`IDENTITY_EVERY`", f"{agent.IDENTITY_EVERY / 60:g} min"),
        ("`MAX_CASES`", f"{open_cases.MAX_CASES:,}"),
        ("`KEPT_CASES`, `KEPT_FOR`", f"{store.KEPT_CASES}, {store.KEPT_FOR.days} d"),
        ("`MAX_CONFIG_BYTES`", f"{read.MAX_CONFIG_BYTES // 1024**2} MiB"),
    ],
)
def test_every_limit_is_as_the_page_of_the_agent_says(names: str, value: str) -> None:
    assert f"| {names} | {value} |" in PAGE
