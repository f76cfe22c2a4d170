"""Commands that need Linux say so elsewhere, in one line, and do nothing."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.support import system


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        (["serve"], "use forewarn dev"),
        (["run", "true"], "FOREWARN_METADATA"),
        (["run", "--no-netns", "--fake-time", "true"], "with --no-netns"),
        (["scenario", "run", "user-reboot", "--netns", "--", "true"], "FOREWARN_METADATA"),
        (["scenario", "run", "user-reboot", "--fake-time", "--", "true"], "the real time"),
    ],
)
def test_what_needs_linux_is_refused_elsewhere(
    command: list[str], instead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "ON_LINUX", False)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    line = result.stderr.splitlines()[-1]
    assert " needs Linux 5.3 " in line
    assert instead in line
