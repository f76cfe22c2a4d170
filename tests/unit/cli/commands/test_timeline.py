"""`forewarn timeline`: any recording becomes a picture, and what is none is refused in one line."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.testing import Service


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("timeline") / "run.jsonl"
    with Service(record=path) as service:
        service.scale_set("web", 2)
        service.document("web_0")
        event = service.schedule("Reboot", "web_0")
        service.document("web_0")
        service.approve("web_0", event.id)
        service.get("web_1", headers={"Metadata": "no"})
        service.clock.advance("20m")
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["timeline", *map(str, arguments)], env={"COLUMNS": "200"})


def test_without_a_terminal_it_is_plain_text(recording: Path) -> None:
    result = run(recording)
    assert result.exit_code == 0
    assert result.stdout.startswith("run.jsonl  2027-01-15 08:20:00Z, 20 min in\n")
    assert "█" in result.stdout
    assert "\x1b" not in result.stdout


def test_signs_that_cannot_be_encoded_are_replaced_by_letters(recording: Path) -> None:
    words = ["timeline", str(recording), "--title", "Ein Neustart \N{SNOWMAN}"]
    result = CliRunner(charset="cp1252").invoke(app, words)
    assert result.exit_code == 0, result.exception
    assert result.stdout.startswith("Ein Neustart ?  2027-01-15")
    assert "A*###" in result.stdout


@pytest.mark.parametrize("name", ["out.html", "out.txt"])
def test_the_file_extension_selects_the_format(recording: Path, name: str) -> None:
    output = recording.parent / name
    result = run(recording, "-o", output, "--title", "A <reboot>")
    assert (result.exit_code, result.stdout) == (0, "")
    drawn = output.read_text()
    if output.suffix == ".html":
        assert drawn.startswith("<!doctype html>")
        assert "missing-header" in drawn  # the verdict on the same lines
    else:
        assert drawn.startswith("A <reboot>  2027-01-15")


def test_an_unknown_extension_is_wrong_usage_and_writes_nothing(recording: Path) -> None:
    output = recording.parent / "out.png"
    result = run(recording, "-o", output)
    assert result.exit_code == 2
    assert "should end in .html or .txt" in result.stderr
    assert not output.exists()


def test_a_file_that_is_not_a_trace_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("a\nb\nc\n")
    assert "3 lines" in run(other).stderr
    other.write_text(json.dumps({"kind": "poem", "t": 1}) + "\n")
    assert "empty" in run(other).stderr
    assert run(other).exit_code == 1
    assert f"none: {os.strerror(errno.ENOENT)}" in run(tmp_path / "none").stderr


def test_a_torn_last_line_is_ignored(recording: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(recording.read_bytes() + b'{"kind":"exch')
    assert run(torn).exit_code == 0


def test_an_output_that_cannot_be_written_is_reported(recording: Path, tmp_path: Path) -> None:
    (tmp_path / "out.txt").mkdir()
    result = run(recording, "-o", tmp_path / "out.txt")
    assert result.exit_code == 1
    assert f"out.txt: {os.strerror(errno.EISDIR)}" in result.stderr
