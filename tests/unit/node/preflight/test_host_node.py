"""What is found about the settings of a node before it is started."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.core import Durations
from forewarn.metadata.publishing.journal import Journal
from forewarn.metadata.publishing.messages import Welcome
from forewarn.node.config import Tls
from forewarn.node.listening.unix_socket import open_unix_socket
from helpers.certificates import Authority

RUNNER = CliRunner()
Checks = Callable[..., Any]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates: of the node of h1, of that of h2, of h1 in the past, and of a stranger."""
    directory = tmp_path_factory.mktemp("files")
    authority = Authority(directory)
    for name, host, until in (("h1", "h1", 2120), ("h2", "h2", 2120), ("old", "h1", 2021)):
        into = Tls(directory / f"{name}.pem", directory / f"{name}.key")
        authority.issue(f"forewarn:node:{host}", into=into, until=datetime(until, 1, 1, tzinfo=UTC))
    stranger = Authority(directory, "stranger")
    into = Tls(directory / "foreign.pem", directory / "foreign.key")
    stranger.issue("forewarn:node:h1", into=into)
    return directory


@pytest.fixture
def check(files: Path, tmp_path: Path) -> Checks:
    """`forewarn node check`, with these settings instead of ones with which nothing is wrong."""

    def run(**settings: str) -> Any:
        usual = {"host": "h1", "control": "c1.example.net:8171", "journal": f"{tmp_path}/journal"}
        usual |= {"certificate": f"{files}/h1.pem", "key": f"{files}/h1.key"}
        usual |= {"authority": f"{files}/authority.pem"}
        usual |= {"metadata": "127.0.0.1:0", "status": "127.0.0.1:0"}
        if settings.get("control", "").startswith("/"):
            settings |= {"certificate": "", "key": "", "authority": ""}
        file = tmp_path / "node.toml"
        file.write_text("".join(f'{key} = "{v}"\n' for key, v in (usual | settings).items()))
        clean = {name: None for name in os.environ if name.startswith("FOREWARN_")}
        return RUNNER.invoke(app, ["node", "check", "--config", str(file)], env=clean)

    return run


def test_usable_settings_have_no_problems_and_change_nothing(check: Checks, tmp_path: Path) -> None:
    found = check()
    assert (found.exit_code, found.stderr) == (0, "")
    assert "valid" in found.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["node.toml"]


@pytest.mark.parametrize(
    ("settings", "line", "problem"),
    [
        ({"host": "h3"}, 4, "{files}/h1.pem .*'h3'"),
        ({"key": "{files}/h2.key"}, 4, "{files}/h2.key .*{files}/h1.pem"),
        ({"key": "{files}/none"}, 4, f"{{files}}/none: {os.strerror(errno.ENOENT)}"),
        (
            {"certificate": "{files}/foreign.pem", "key": "{files}/foreign.key"},
            4,
            "{files}/foreign.pem .*{files}/authority.pem",
        ),
        ({"authority": "{files}/h1.key"}, 4, "{files}/h1.key .*no certificate"),
        ({"control": "c1"}, 2, "control: 'c1' "),
        ({"control": "{files}"}, 2, "control = {files}: .*not a socket"),
        ({"journal": "/no/such"}, 3, "/no/such does not exist"),
        ({"journal": "{files}/h1.pem"}, 3, "{files}/h1.pem does not exist"),
        ({"record": "{files}"}, 9, "{files} is a directory"),
    ],
)
def test_unusable_settings_are_reported_with_their_line(
    check: Checks, files: Path, settings: dict[str, str], line: int, problem: str
) -> None:
    found = check(**{key: value.format(files=files) for key, value in settings.items()})
    assert (found.exit_code, found.stdout) == (1, "")
    assert f"node.toml:{line}: " in found.stderr
    assert re.search(problem.format(files=files), found.stderr)


def test_settings_that_control_will_refuse_are_warnings(
    check: Checks, files: Path, tmp_path: Path
) -> None:
    expired = check(certificate=f"{files}/old.pem", key=f"{files}/old.key")
    assert expired.exit_code == 0
    assert f"{files}/old.pem has expired" in expired.stderr
    absent = check(metadata="169.254.1.99:80")
    assert "169.254.1.99 is not" in absent.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        there = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"status: {there} is in use." in check(status=there).stderr
        (tmp_path / "journal").mkdir()
        journal = Journal(tmp_path / "journal", "h1")
        assert check(status=there).stderr == ""  # that is the node itself
        journal.close()
    readable = tmp_path / "readable.key"
    shutil.copy(files / "h1.key", readable)
    readable.chmod(0o644)
    assert f"chmod o= {readable}" in check(key=str(readable)).stderr


def test_the_socket_of_control_on_this_host_is_looked_at(
    check: Checks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "nodes"
    absent = check(control=str(path))
    assert absent.exit_code == 0
    assert f"{path} does not exist yet; control opens it" in absent.stderr
    with open_unix_socket(path, "nodes"):
        found = check(control=str(path))
        assert (found.exit_code, found.stderr) == (0, "")
        own = os.access
        monkeypatch.setattr(os, "access", lambda file, mode: file != path and own(file, mode))
        refused = check(control=str(path))
    assert refused.exit_code == 1
    assert f"{path} cannot be opened by user {os.geteuid()}: it belongs to user" in refused.stderr


def test_the_journal_of_another_host_is_found(check: Checks, tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    journal = Journal(tmp_path / "journal", "h2")
    journal.replace([Welcome(protocol=1, version="1", rules=Durations())])
    journal.close()
    found = check()
    assert found.exit_code == 0
    assert "host 'h2', format 1" in found.stderr
