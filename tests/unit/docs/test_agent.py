"""docs/applications/agent.md is true: its configuration can be used, and its limits are real."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from forewarn.agent import open_cases
from forewarn.agent.config import read, read_hooks
from forewarn.agent.planning import attempts, plan
from forewarn.agent.running import runner
from forewarn.agent.state import store
from helpers.paths import ROOT

PAGE = (ROOT / "docs/applications/agent.md").read_text()


def test_the_configuration_of_the_page_is_valid(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.M | re.S)
    (tmp_path / "agent.toml").write_text(block)
    found = read.read(tmp_path / "agent.toml")
    assert ([rule.hooks for rule in found.rules], found.warnings) == ([(), ("drain", "save")], ())


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        ("Time before NotBefore by which every prepare has ended", f"{plan.MARGIN:g} s"),
        ("Time that must be left to begin a prepare", f"{plan.LEAST:g} s"),
        (
            "Time between SIGTERM and SIGKILL; a quarter of a shorter time limit",
            f"{runner.GRACE:g} s",
        ),
        (
            "Pause before a stage is retried, doubled every time",
            f"{attempts.RETRY_PAUSE:g} s to {attempts.MAX_RETRY_PAUSE:g} s",
        ),
        (
            "Pause before an undo is retried, doubled every time",
            f"{attempts.UNDO_PAUSE:g} s to {attempts.MAX_UNDO_PAUSE / 60:g} min",
        ),
        ("Attempts of an undo", f"{attempts.UNDO_ATTEMPTS}"),
        (
            "Runs of a stage during which the machine dies, or that somebody else stops",
            f"{attempts.LOST_ATTEMPTS}",
        ),
        (
            "Size of one file of a command's output; the previous one is kept as well",
            f"{runner.MAX_OUTPUT // 1024} KiB",
        ),
        ("Longest `timeout` of a hook", f"{read_hooks.MAX_TIMEOUT / 86_400:g} d"),
        ("Most `retries` of a hook", f"{read_hooks.MAX_RETRIES}"),
        (
            "Time between one machine's turn to approve and the next one's",
            f"{plan.TAKE_OVER.total_seconds():g} s",
        ),
        (
            "Events handled at once; further ones wait, and the log reports it",
            f"{open_cases.MAX_CASES:,}",
        ),
        ("Events that are kept when they are over", f"{store.KEPT_CASES}"),
        ("Time for which they are kept", f"{store.KEPT_FOR.days} d"),
    ],
)
def test_every_limit_is_as_the_page_of_the_agent_says(limit: str, value: str) -> None:
    assert f"| {limit} | {value} |" in PAGE
