"""A service that was forked for a test is to the system what one is that was really started."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.forked_cli import FOREWARN, Forked, run, start
from helpers.forked_path import forked_bin
from helpers.process import Running
from helpers.waiting import LIMIT

STATUS = ("SigBlk", "SigIgn", "SigCgt", "Umask", "Uid", "Gid", "NoNewPrivs", "Seccomp")


def _life(kind: type[subprocess.Popen[Any]], room: Path, end: signal.Signals) -> dict[str, Any]:
    room.mkdir()
    argv = [*FOREWARN, "dev", "--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"]
    pipe, env = subprocess.PIPE, {**os.environ, "XDG_RUNTIME_DIR": str(room)}
    running = Running(kind(argv, stdout=pipe, stderr=pipe, text=True, cwd=room, env=env), argv)
    assert running.line().startswith("ready ")
    there = Path(f"/proc/{running.process.pid}")
    lines = dict(line.split(":", 1) for line in (there / "status").read_text().splitlines())
    found: dict[str, Any] = {key: lines[key].split() for key in STATUS}
    found["at home"] = (there / "cwd").resolve() == room
    found["its group"] = os.getpgid(running.process.pid)
    found["its session"] = os.getsid(running.process.pid)
    found["its limits"] = (there / "limits").read_text()
    found["what it may use"] = len(list((there / "fd").iterdir()))
    running.process.send_signal(end)
    found["its end"] = running.wait()
    found["its words"] = re.sub(r":\d+", ":port", "".join(running.stderr))
    return found


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_forked_service_runs_and_ends_like_a_started_one(
    tmp_path: Path, end: signal.Signals
) -> None:
    forked = _life(Forked, tmp_path / "forked", end)
    assert forked["at home"]
    assert forked == _life(subprocess.Popen, tmp_path / "started", end)


def test_a_forked_command_prints_and_returns_the_same(tmp_path: Path) -> None:
    words = [*FOREWARN, "config", "check", "--config", "none.toml"]
    wrong = run(words, capture_output=True, cwd=tmp_path)
    really = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=LIMIT)
    assert (wrong.returncode, wrong.stdout, wrong.stderr) == (1, really.stdout, really.stderr)
    assert "none.toml" in wrong.stderr


def test_options_that_need_a_real_start_are_refused() -> None:
    with pytest.raises(ValueError, match="by subprocess"):
        Forked([*FOREWARN, "--version"], process_group=0)
    with start([*FOREWARN, "--version"], start_new_session=True, stdout=subprocess.DEVNULL) as real:
        assert type(real) is subprocess.Popen
        assert real.wait(LIMIT) == 0


PROGRAM = """
import atexit, json, os, signal, sys, threading, time

atexit.register(print, "at exit")
print(__name__, __file__, sys.argv, sys.path[0], sys.modules["__main__"].__file__)
print(os.getcwd(), os.environ.get("NAME"), os.getsid(0) == os.getpgid(0) == os.getpid())
print(sys.stdin.read(), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
threading.Thread(target=lambda: (time.sleep(0.01), print("a thread"))).start()
{end}
"""


@pytest.mark.parametrize(
    "end", ["", "sys.exit(3)", "sys.exit('a reason')", "os.kill(os.getpid(), 15)"]
)
@pytest.mark.parametrize("options", [[], ["-S"]])
def test_a_forked_program_does_the_same(end: str, options: list[str], tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(end=end))
    argv = [sys.executable, *options, str(file), "one", "two"]
    ends = []
    for kind in (Forked, subprocess.Popen):
        with kind(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={"NAME": "value"},
            start_new_session=True,
        ) as process:
            ends.append((*process.communicate("typed", timeout=LIMIT), process.returncode))
    forked, started = ends
    assert forked == started
    assert ("at exit" in forked[0]) is ("kill" not in end)


def test_an_error_of_a_forked_program_is_printed(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text("print('before')\nraise LookupError('nothing')\n")
    ended = run([sys.executable, file], capture_output=True)
    assert (ended.returncode, ended.stdout) == (1, "before\n")
    assert f'File "{file}", line 2, in <module>' in ended.stderr
    assert ended.stderr.endswith("LookupError: nothing\n")


def _typed(words: str, room: Path) -> subprocess.Popen[str]:
    path = f"{forked_bin()}:{os.environ['PATH']}"
    return subprocess.Popen(
        ["bash", "-c", f"exec forewarn {words}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=room,
        env={**os.environ, "PATH": path, "XDG_RUNTIME_DIR": str(room)},
    )


def test_a_forked_command_on_a_terminal_does_the_same(tmp_path: Path) -> None:
    with _typed("config check --config none.toml", tmp_path) as typed:
        out, err = typed.communicate(timeout=LIMIT)
    really = run([*FOREWARN, *["config", "check", "--config", "none.toml"]], capture_output=True)
    assert (typed.returncode, out, err) == (1, really.stdout, really.stderr)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_forked_command_ends_with_its_terminal(tmp_path: Path, end: signal.Signals) -> None:
    ports = "--metadata 127.0.0.1:0 --control 127.0.0.1:0"
    process = _typed(f"dev {ports}", tmp_path)
    running = Running(process, ["forewarn", "dev"])
    assert running.line().startswith("ready ")
    process.send_signal(end)
    assert running.wait() == (-end if end == signal.SIGKILL else 0)  # the streams are closed, too
    with start([*FOREWARN, "--version"], stdout=subprocess.DEVNULL) as still:
        assert still.wait(LIMIT) == 0  # there is a fork server for the next one
