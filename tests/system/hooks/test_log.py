"""The hook that writes to the machine's log: a real journald, a real syslogd, and a datagram."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn.agent.hooks.contract import Failure
from helpers.hook_runs import EVENT, Hook
from helpers.netns import needs_root, require
from helpers.notify_socket import NotifySocket
from helpers.waiting import LIMIT, until

JOURNALD = Path("/usr/lib/systemd/systemd-journald")

# Either has /run and /dev/log to itself.
_JOURNAL = """
mount --make-rprivate / && mount -t tmpfs -o mode=0755 tmpfs /run
mkdir -p /run/systemd/journal /run/log/journal
printf '[Journal]\\nStorage=volatile\\nReadKMsg=no\\nAudit=no\\n' > /run/journald.conf
mount --bind /run/journald.conf /etc/systemd/journald.conf
exec env -i NOTIFY_SOCKET="$2" "$1"
"""
_SYSLOG = """
mount --make-rprivate / && mount -t tmpfs -o mode=0755 tmpfs /run
mkdir /run/shm && mount --bind /dev/shm /run/shm  # where the test's own files may be
mount -t tmpfs -o mode=0755 tmpfs /dev && mknod -m 666 /dev/null c 1 3
mkdir /dev/shm && mount --move /run/shm /dev/shm
exec busybox syslogd -n -S -O "$1"
"""


class Logging:
    """A log, and the mount namespace it has its sockets in."""

    def __init__(self, script: str, *words: str | Path) -> None:
        self._process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-ec", script, "sh", *words],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.enter = ["nsenter", f"--target={self._process.pid}", "--mount"]
        self.root = Path(f"/proc/{self._process.pid}/root")

    def done(self, *argv: str) -> str:
        return subprocess.run(
            [*self.enter, *argv], stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT
        ).stdout

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(LIMIT)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Logging]:
    needs_root()
    require(JOURNALD.exists(), "systemd: tools/test-packages as root")
    with NotifySocket(str(tmp_path / "told")) as manager:
        journal = Logging(_JOURNAL, JOURNALD, manager.address)
        try:
            manager.until("READY")
            yield journal
        finally:
            journal.close()


@pytest.fixture
def syslog(tmp_path: Path) -> Iterator[Logging]:
    needs_root()
    require(shutil.which("busybox"), "busybox: tools/test-packages as root")
    syslog = Logging(_SYSLOG, tmp_path / "messages")
    try:
        until((syslog.root / "run").exists)
        until((syslog.root / "dev/log").is_socket)
        yield syslog
    finally:
        syslog.close()


def found(journal: Logging, *match: str) -> list[dict[str, Any]]:
    journal.done("journalctl", "--sync")
    lines = journal.done("journalctl", "--output=json", *match).splitlines()
    return [json.loads(line) for line in lines]


def test_the_journal_has_a_field_for_every_fact(journal: Logging, tmp_path: Path) -> None:
    reported = {"resources": ["web_0", "web_1"], "description": "Two\nlines; MESSAGE=no\n"}
    hook = Hook("log", {"priority": "warning"}, tmp_path, **reported)
    status, output = hook.program("started", prefix=journal.enter)
    assert status == 0
    assert output.startswith("logged to journal: ")

    [entry] = found(journal, f"FOREWARN_EVENT_ID={EVENT['id']}")
    assert entry["MESSAGE"].startswith("web_0, web_1: Reboot has started")
    assert entry["MESSAGE"].endswith(" (Platform): Two\\nlines; MESSAGE=no\\n")
    assert entry["FOREWARN_EVENT_DESCRIPTION"] == "Two\nlines; MESSAGE=no\n"
    assert sorted(entry["FOREWARN_EVENT_RESOURCE"]) == ["web_0", "web_1"]
    expected = {
        "SYSLOG_IDENTIFIER": "forewarn-agent",
        "PRIORITY": "4",
        "SYSLOG_FACILITY": "3",
        "_TRANSPORT": "journal",
        "FOREWARN_STAGE": "started",
        "FOREWARN_HOOK": "mine",
        "FOREWARN_RULE": "reboots",
        "FOREWARN_MACHINE": "web_0",
        "FOREWARN_MINE": "true",
        "FOREWARN_EVENT_TYPE": "Reboot",
        "FOREWARN_EVENT_SOURCE": "Platform",
        "FOREWARN_EVENT_DURATION": "9",
    }
    assert {name: entry.get(name) for name in expected} == expected


def test_where_there_is_no_journal_syslog_has_a_line_for_every_stage(
    syslog: Logging, tmp_path: Path
) -> None:
    messages = tmp_path / "messages"
    address = str(syslog.root / "dev/log")
    here = Hook("log", {"to": "syslog", "address": address, "facility": "local3"}, tmp_path)
    for stage in ("prepare", "started", "finished"):
        assert here.here(stage).startswith("logged to syslog: ")
    assert Hook("log", {}, tmp_path).program("withdrawn", prefix=syslog.enter)[0] == 0

    until(lambda: messages.read_text().count("forewarn-agent") >= 4)
    lines = [line for line in messages.read_text().splitlines() if "forewarn-agent" in line]
    happens = (r"in \d+ d(?: \d+ (?:h|min|s))?", "has started", "is over", "is withdrawn .*")
    for line, words in zip(lines, happens, strict=True):
        output = rf"forewarn-agent\[\d+\]: web_0: Reboot {words} \(Platform\): Host server "
        assert re.search(output, line), line
        assert f'event_id="{EVENT["id"]}"' in line


def test_syslog_over_the_network_is_structured(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(LIMIT)
        where = f"127.0.0.1:{receiver.getsockname()[1]}"
        options = {"to": "syslog", "address": where, "facility": "local7", "priority": "err"}
        many = [f"web_{number}" for number in range(300)]
        odd = {"type": 'a"]\\b', "description": "x" * 5_000, "resources": many}
        hook = Hook("log", options, tmp_path, **odd)
        hook.here("prepare")
        line = receiver.recv(65_536).decode()
    found = re.fullmatch(
        r"<187>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z \S+ forewarn-agent \d+ prepare "
        r'\[forewarn@32473((?: [a-z_]+="(?:[^"\\\]]|\\["\\\]])*")+)\] web_0, web_1, .*',
        line,
    )
    assert found, line
    assert r'event_type="a\"\]\\b"' in found[1]
    assert 'event_source="Platform" event_resource="web_0" event_resource="web_1"' in found[1]
    assert len(line) == 2_000


def test_a_machine_without_a_syslog_is_a_failure_and_a_problem(tmp_path: Path) -> None:
    hook = Hook("log", {"to": "syslog", "address": str(tmp_path / "log")}, tmp_path)
    with pytest.raises(Failure, match=str(tmp_path / "log")):
        hook.here("prepare")
    (problem,) = hook.check()
    assert f"{tmp_path}/log" in problem
