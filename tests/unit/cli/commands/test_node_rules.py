"""`forewarn node rules`: the machines of a journal, and what it says if there are none."""

from __future__ import annotations

import errno
import http.server
import os
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.cli.commands import node_rules
from forewarn.core import Durations, GroupKind, GroupView, Machine
from forewarn.core.fleet import Place
from forewarn.metadata.publishing.journal import Journal, JournalMessage
from forewarn.metadata.publishing.messages import (
    Changed,
    Joined,
    News,
    Publication,
    SnapshotEnd,
    SnapshotPart,
    Welcome,
)
from forewarn.metadata.upstream import GroupNews
from helpers.paths import ROOT

MAC = "52:54:00:00:00:10"
VIEW = GroupView(name="web", kind=GroupKind.SCALE_SET, enabled=True, incarnation=7, events=())
HERE = Machine(name="web_0", addresses=("10.0.0.10",))
STAGED = Machine(name="web_1", addresses=("10.0.0.11",))
GONE = Machine(name="web_2", addresses=("10.0.0.12",), gone="deleted")
MESSAGES: list[JournalMessage] = [
    Welcome(protocol=1, version="1", rules=Durations()),
    SnapshotPart((GroupNews(VIEW, (HERE,), Place()),)),
    SnapshotEnd(0),
    Joined((), 1_800_000_000_000_000),
    News((Publication(1, (Changed(VIEW, (HERE, STAGED, GONE)),)),)),  # not shown yet
]
PORTS = f"vnet0 {MAC} web_0\nvnet1 52:54:00:00:00:11 web_1\nvnet2 52:54:00:00:00:12 web_2\n"

pytestmark = pytest.mark.skipif(os.name != "posix", reason="nodes run on Linux")


@pytest.fixture(autouse=True)
def _settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(ROOT / "deploy/network"), prepend=os.pathsep)
    for key in ("CERTIFICATE", "KEY", "AUTHORITY"):
        monkeypatch.setenv(f"FOREWARN_NODE_{key}", str(tmp_path / key))
    monkeypatch.setenv("FOREWARN_NODE_HOST", "h1")
    monkeypatch.setenv("FOREWARN_NODE_CONTROL", "127.0.0.1:9")
    monkeypatch.setenv("FOREWARN_NODE_STATUS", "")
    monkeypatch.setenv("FOREWARN_NODE_JOURNAL", str(tmp_path))
    (tmp_path / "ports").write_text(PORTS)


def write(directory: Path, reported: Sequence[JournalMessage], host: str = "h1") -> None:
    journal = Journal(directory, host)
    journal.replace(reported)
    journal.close()


def rules(directory: Path, *words: str) -> tuple[int, str]:
    ran = CliRunner().invoke(app, ["node", "rules", str(directory / "ports"), *words])
    return ran.exit_code, ran.stderr


def test_the_machines_of_the_journal_are_tied_to_their_ports(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, MESSAGES)
    assert rules(tmp_path) == (0, "")
    printed = capfd.readouterr()
    assert f'"vnet0" . {MAC} . 10.0.0.10' in printed.out
    assert '"vnet1" . 52:54:00:00:00:11 . 10.0.0.11' in printed.out
    assert "vnet2" not in printed.out
    assert re.fullmatch("note: vnet2 .*'web_2'.*\n", printed.err)
    with (tmp_path / "ports").open("a") as ports:
        ports.write("vnet3 52:54:00:00:00:13 web_3 10.0.0.13\n")  # is about to move here
    assert rules(tmp_path) == (0, "")
    assert '"vnet3" . 52:54:00:00:00:13 . 10.0.0.13' in capfd.readouterr().out


def test_ports_that_the_driver_sees_are_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, MESSAGES)
    (tmp_path / "ports").write_text("host 10.0.0.1\n")
    (tmp_path / "seen").write_text(f"vnet0 {MAC} web_0\n")
    monkeypatch.setattr(node_rules, "DRIVER_PORTS", tmp_path / "seen")
    assert rules(tmp_path)[0] == 0
    assert f'"vnet0" . {MAC} . 10.0.0.10' in capfd.readouterr().out


def test_a_wrong_line_of_the_file_is_reported_and_nothing_is_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, MESSAGES)
    (tmp_path / "ports").write_text("vnet0 web_0\n")
    assert rules(tmp_path)[0] == 1
    printed = capfd.readouterr()
    assert printed.out == ""
    assert f"{tmp_path / 'ports'}:1: 'vnet0 web_0'" in printed.err


def test_without_machines_nothing_is_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def problem() -> str:
        code, text = rules(tmp_path)
        assert code == 1
        return text

    assert re.search(f"{tmp_path / 'journal'} .*{os.strerror(errno.ENOENT)}", problem())
    write(tmp_path, MESSAGES, "h2")
    assert "host 'h2', format 1" in problem()
    write(tmp_path, MESSAGES[:2])
    assert "everything yet" in problem()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "forewarn-guests" in problem()
    monkeypatch.delenv("FOREWARN_NODE_KEY")
    assert "key must" in problem()
    assert capfd.readouterr().out == ""


class _Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(int(self.server.server_name))  # type: ignore[attr-defined]

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[http.server.HTTPServer]:
    with http.server.HTTPServer(("127.0.0.1", 0), _Page) as server:
        monkeypatch.setenv("FOREWARN_NODE_STATUS", f"127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ("503", "/machines: .*everything yet"),
        ("404", "/machines: 404 .*another version"),
    ],
)
def test_an_answer_of_the_node_other_than_machines_is_reported(
    tmp_path: Path, page: http.server.HTTPServer, status: str, why: str
) -> None:
    write(tmp_path, MESSAGES)
    page.server_name = status
    code, message = rules(tmp_path)
    assert code == 1
    assert re.search(f"{page.server_port}{why}\n$", message)
