"""Where a log goes, when nobody reads it, reads it late, or is not there."""

from __future__ import annotations

import fcntl
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from forewarn.service.telemetry import stderr as outlet
from forewarn.service.telemetry.stderr import StderrWriter

F_SETPIPE_SZ = 1031
ROOM = 4_096  # bytes that a pipe is made to hold


class End:
    """Of something that is read, or not."""

    def __init__(self, reader: int, writer: int) -> None:
        self.reader = reader
        self.stderr = os.fdopen(writer, "w")

    def read(self, wanted: int) -> bytes:
        got = b""
        while len(got) < wanted:
            got += os.read(self.reader, 65_536)
        return got


@pytest.fixture(params=["pipe", "socket"])
def end(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[End]:
    if request.param == "pipe":
        reader, writer = os.pipe()
        fcntl.fcntl(writer, F_SETPIPE_SZ, ROOM)
    else:
        one, other = socket.socketpair()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
        reader, writer = other.detach(), one.detach()
    made = End(reader, writer)
    monkeypatch.setattr(outlet, "sys", SimpleNamespace(stderr=made.stderr))
    yield made
    os.close(reader)
    made.stderr.close()


def numbered(n: int) -> str:
    return f"{n:06d} {'x' * 92}\n"


def test_lines_that_are_not_read_do_not_block_and_are_read_later_in_order(end: End) -> None:
    out = StderrWriter(lambda _: None)
    for n in range(1_000):
        assert out.write(numbered(n)) == 100
    assert end.read(100_000).decode() == "".join(map(numbered, range(1_000)))
    out.wait()


def test_lines_beyond_the_limit_are_dropped_and_counted_once_there_is_a_reader(end: End) -> None:
    reported, lost = threading.Event(), []

    def count(lines: int) -> None:
        lost.append(lines)
        reported.set()

    out = StderrWriter(count)
    output = 2 * outlet.MAX_WAITING // 100
    for n in range(output):
        out.write(numbered(n))
    text = b""
    while not reported.is_set() or text.count(b"\n") + sum(lost) < output:
        if select.select([end.reader], [], [], 0.05)[0]:
            text += os.read(end.reader, 65_536)
    lines = text.decode().splitlines()
    assert sum(lost) > 0
    assert len(lines) + sum(lost) == output
    assert lines == [numbered(n).strip() for n in range(len(lines))]  # the first ones are kept


def test_a_line_that_is_longer_than_a_pipe_is_whole(end: End) -> None:
    out = StderrWriter(lambda _: None)
    long = "y" * 300_000 + "\n"
    out.write("before\n")
    out.write(long)
    out.write("after\n")
    assert end.read(300_014).decode() == f"before\n{long}after\n"
    out.wait()


def test_a_file_is_written_at_once_and_one_that_is_replaced_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = StderrWriter(lambda _: None)
    for name in ("one", "two"):
        with (tmp_path / name).open("w") as file:
            monkeypatch.setattr(outlet, "sys", SimpleNamespace(stderr=file))
            out.write(f"{name}\n")
            assert (tmp_path / name).read_text() == f"{name}\n"


@pytest.mark.parametrize("stderr", [None, SimpleNamespace(fileno=lambda: 987_654)])
def test_a_closed_stderr_is_ignored(stderr: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlet, "sys", SimpleNamespace(stderr=stderr))
    assert StderrWriter(lambda _: None).write("hello\n") == 6


def test_a_process_writes_its_last_lines_and_exits_even_if_they_are_not_read() -> None:
    says = (
        "from forewarn.service.telemetry.stderr import StderrWriter\n"
        "out = StderrWriter(lambda _: None)\n"
        "for n in range(3000): out.write('x' * 99 + '\\n')\n"
    )
    command = [sys.executable, "-c", says]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert len(done.stderr) == 300_000
    reader, writer = os.pipe()
    assert subprocess.run(command, stderr=writer, timeout=60).returncode == 0
    os.close(reader)
    os.close(writer)
