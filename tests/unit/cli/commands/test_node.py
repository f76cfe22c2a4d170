"""`forewarn node` with settings that cannot be used."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from helpers.certificates import Authority


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="nodes run on Linux")
def test_each_problem_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.getsignal(signal.SIGHUP)
    monkeypatch.setenv("FOREWARN_NODE_KEY", str(tmp_path / "other.key"))
    try:
        missing = CliRunner().invoke(app, ["node", "--metadata", "127.0.0.1:0"])
        assert missing.exit_code == 1
        assert [line.partition(" ")[0] for line in missing.stderr.splitlines()] == ["forewarn:"] * 3
        authority, other = Authority(tmp_path), Authority(tmp_path, "other")
        pair = other.issue("forewarn:node:h1")
        monkeypatch.setenv("FOREWARN_NODE_KEY", str(pair.key))
        monkeypatch.setenv("FOREWARN_NODE_CERTIFICATE", str(pair.certificate))
        monkeypatch.setenv("FOREWARN_NODE_AUTHORITY", str(authority.path))
        flags = ["--host", "h1", "--control", "127.0.0.1:9", "--metadata", "127.0.0.1:0"]
        foreign = CliRunner().invoke(app, ["node", *flags])
    finally:
        signal.signal(signal.SIGHUP, before)
    assert foreign.exit_code == 1
    assert re.search(f"{pair.certificate} .*{authority.path}", foreign.stderr)
