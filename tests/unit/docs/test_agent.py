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
            "Time after a command's time limit until the log reports that its runner has not"
            " ended it",
            f"{plan.OVERDUE:g} s",
        ),
        (
            "Space reserved on disk for the result of a command before it starts",
            f"{runner.RESULT_ROOM:,} bytes",
        ),
        ("Attempts to write the result", f"{runner.RESULT_ATTEMPTS}"),
        (
            "Pause between these attempts, doubled every time",
            f"{runner.RESULT_PAUSE:g} s to {runner.MAX_RESULT_PAUSE:g} s",
        ),
        (
            "Time until the agent checks whether a runner has begun",
            f"{runners.BEGUN_WITHIN:g} s",
        ),
        (
            "Time between two checks of all events that are being handled",
            f"{agent.SWEEP_EVERY:g} s",
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
            "Time for one request to the endpoint (approval, readiness)",
            f"{approve.CALL_TIMEOUT:g} s",
        ),
        (
            "Pause before such a request is retried, doubled every time",
            f"{retrying.CALL_PAUSE:g} s to {retrying.MAX_CALL_PAUSE:g} s",
        ),
        (
            "Longest time between two documents while an event is handled, even with long-polls",
            f"{agent.POLL_WITHIN:g} s",
        ),
        (
            "Time that the endpoint may be silent before the log reports it",
            f"{agent.ENDPOINT_PATIENCE:g} s",
        ),
        (
            "Length of one environment variable of a command, cut after a whole word; standard"
            " input has all of it",
            f"{command.MAX_VARIABLE:,} characters",
        ),
        (
            "Time until the agent reads the identity of its machine again",
            f"{agent.IDENTITY_EVERY / 60:g} min",
        ),
        (
            "Events handled at once; further ones wait, and the log reports it",
            f"{open_cases.MAX_CASES:,}",
        ),
        ("Events that are kept when they are over", f"{store.KEPT_CASES}"),
        ("Time for which they are kept", f"{store.KEPT_FOR.days} d"),
        ("Size of the configuration", f"{read.MAX_CONFIG_BYTES // 1024**2} MiB"),
    ],
)
def test_every_limit_is_as_the_page_of_the_agent_says(limit: str, value: str) -> None:
    assert f"| {limit} | {value} |" in PAGE
