"""A path that cannot even be looked at is one line of error, whichever command it was given to."""

from __future__ import annotations

import errno
import os
import re
import sys
from pathlib import Path

import pytest

from forewarn import cli

LONG = "x" * 256  # one more than a name may have


def output(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setattr(sys, "argv", ["forewarn", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    if isinstance(ended.value.code, str):  # which Python prints, and exits with 1
        return ended.value.code
    assert ended.value.code in (1, 2)
    return capsys.readouterr().err.strip()


@pytest.mark.parametrize(
    "command",
    [
        ["upgrade", "--state"],
        ["token", "list", "--state"],
        ["token", "create", "who", "--role", "viewer", "--state"],
        ["clock", "accept", "--state"],
        ["scenario", "run"],
    ],
    ids=" ".join,
)
def test_a_path_that_is_too_long_is_reported(
    command: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / LONG
    says = output(capsys, monkeypatch, *command, str(path))
    assert says == f"forewarn: {path}: {os.strerror(errno.ENAMETOOLONG)}"


@pytest.mark.parametrize(
    "command",
    [["upgrade", "--state"], ["token", "create", "who", "--role", "viewer", "--state"]],
    ids=" ".join,
)
def test_a_loop_of_links_is_reported(
    command: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "one"
    path.symlink_to(tmp_path / "other")
    (tmp_path / "other").symlink_to(path)
    says = output(capsys, monkeypatch, *command, str(path))
    assert says.startswith("forewarn: ")
    assert "\n" not in says


@pytest.mark.parametrize("key", ["state", "fleet", "tls_key"])
def test_a_nul_in_the_settings_is_reported(
    key: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "forewarn.toml"
    file.write_text(f'history = "1d"\n{key} = "a\\u0000b"\n')
    says = output(capsys, monkeypatch, "config", "check", "--config", str(file))
    assert re.match(f"forewarn: {file}:2: {key}: .*NUL", says)


@pytest.mark.parametrize(
    "command",
    [["apply"], ["scenario", "check"], ["dev", "--fleet"], ["config", "check", "--config"]],
    ids=" ".join,
)
def test_a_file_that_is_not_text_is_reported(
    command: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "image"
    path.write_bytes(b"GIF89a\xff\x00")
    says = output(capsys, monkeypatch, *command, str(path))
    assert says == f"forewarn: {path}: not UTF-8 text (byte 7)"


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["scenario", "run", "user-reboot"], "--timeline"),
        (["scenario", "run", "user-reboot"], "--junit"),
        (["scenario", "run", "user-reboot"], "--record"),
        (["verdict"], "--junit"),
        (["timeline", "trace.jsonl"], "--output"),
    ],
)
def test_a_file_in_a_directory_that_does_not_exist_is_refused_at_the_start(
    command: list[str],
    option: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "none" / "report.html"
    words = [*command, option, str(path), *(["--", "true"] if "run" in command else [])]
    says = " ".join(output(capsys, monkeypatch, *words).split())
    assert option in says
    assert "does not exist" in says


@pytest.mark.parametrize("command", ["conformance", "verdict"])
def test_a_file_that_is_not_a_trace_is_refused(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    says = output(capsys, monkeypatch, command, __file__)
    assert re.match(f"forewarn: {__file__}: .*not a trace", says)
