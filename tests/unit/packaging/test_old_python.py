"""On a Python that is too old, forewarn says so, and says what to do."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.paths import ROOT
from helpers.pythons import find_python

SOURCE = ROOT / "src/forewarn/__init__.py"
OLD = ("3.9", "3.10")
MESSAGE = "forewarn needs Python 3.11 or newer, and this is Python {}"


def test_the_version_check_is_valid_syntax_for_the_oldest_python_in_use() -> None:
    ast.parse(SOURCE.read_text(), feature_version=(3, 6))


@pytest.mark.parametrize("program", ["-m", "/usr/bin/forewarn"])
def test_the_command_ends_with_the_message_alone(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 18, "final", 0))
    monkeypatch.setattr(sys, "argv", [program, "agent"])
    with pytest.raises(SystemExit, match=MESSAGE.format("3.9")):
        exec(SOURCE.read_text(), {})


def test_a_program_that_imports_it_gets_an_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 12, "final", 0))
    monkeypatch.setattr(sys, "argv", ["/srv/application.py"])
    with pytest.raises(ImportError, match=MESSAGE.format("3.10")):
        exec(SOURCE.read_text(), {})


@pytest.mark.parametrize("minor", [minor for minor in OLD if find_python(minor)])
def test_an_older_python_is_refused_without_a_traceback(minor: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [str(find_python(minor)), "-m", "forewarn", "agent"],
        env={"PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(MESSAGE.format(minor))
    assert len(ended.stderr.splitlines()) == 1
    assert "forewarn-agent" in ended.stderr
