"""However forewarn was started, what it starts ignores and blocks no signals, but for a SIGHUP that
was ignored. Which signals these are is in tests/unit/support/test_child_signals.py."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.testing import SAMPLE, Service
from helpers.netns import needs_root
from helpers.process import Running
from helpers.running_agent import configured, running_agent
from helpers.serve_process import FOREWARN, environment, running_service, write_settings
from helpers.waiting import LIMIT, until

HOSTILE = """
import os, signal, sys
numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
for number in numbers:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
os.execv(sys.argv[1], sys.argv[1:])
"""
BEFORE = [sys.executable, "-I", "-S", "-c", HOSTILE]
SHOW = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]
HANG_UP = 1 << (signal.SIGHUP - 1)
# Those that a process without a terminal never gets are inherited where they do no harm.
ON_A_TERMINAL = sum(1 << (n - 1) for n in (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU))


def masks(output: str) -> list[int]:
    """What is blocked and ignored; beyond 31 are those of the C library."""
    return [int(line.split()[1], 16) & 0x7FFF_FFFF for line in output.splitlines()]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service(SAMPLE, sockets=True) as service:
        yield service


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A program that keeps what it was started with in a file beside it."""
    path = tmp_path / "program"
    path.write_text(
        f"#!/bin/sh\n{' '.join(SHOW[:2])} '{SHOW[2]}' {SHOW[3]} > {tmp_path}/new\n"
        f"mv {tmp_path}/new {tmp_path}/signals\n"
    )
    path.chmod(0o755)
    return path


def kept(script: Path) -> list[int]:
    """The masks without those of a terminal, once they are there."""
    path = script.with_name("signals")
    until(path.exists)
    blocked, ignored = masks(path.read_text())
    return [blocked, ignored & ~ON_A_TERMINAL]


@pytest.mark.parametrize("options", [["--network", "none"], ["--no-netns"]])
def test_run_starts_a_program_with_inherited_signals(service: Service, options: list[str]) -> None:
    if "--no-netns" not in options:
        needs_root()
    words = ["run", "--url", service.control_url, "--machine", "web_0", *options, "--", *SHOW]
    ended = subprocess.run(
        [*BEFORE, *FOREWARN, *words], capture_output=True, text=True, check=False, timeout=LIMIT
    )
    assert ended.returncode == 0, ended.stderr
    assert masks(ended.stdout) == [0, HANG_UP]


def test_fenced_starts_a_program_with_inherited_signals(tmp_path: Path) -> None:
    words = ["fenced", "--dir", str(tmp_path), "--key", "web_0", "--fence", "1", "--", *SHOW]
    ended = subprocess.run(
        [*BEFORE, *FOREWARN, *words], capture_output=True, text=True, check=True, timeout=LIMIT
    )
    assert masks(ended.stdout) == [0, HANG_UP]


def test_serve_starts_a_driver_program_with_inherited_signals(tmp_path: Path, script: Path) -> None:
    settings = write_settings(tmp_path, f'driver = "command"\n[command]\nprogram = ["{script}"]\n')
    with running_service(tmp_path, settings, before=BEFORE) as running:
        event = running.post("/v1/events", {"type": "Reboot", "machines": ["web-0"]})
        running.post(f"/v1/events/{event['id']}/approve")
        assert kept(script) == [0, 0]  # serve has a use for SIGHUP


def test_the_agent_starts_a_hook_with_inherited_signals(
    service: Service, tmp_path: Path, script: Path
) -> None:
    rest = ["[[rule]]", 'hooks = ["save"]', "[hook.save]", f'prepare = ["{script}"]']
    machine = service["sql-0"]
    with running_agent(machine, configured(tmp_path, *rest), before=BEFORE):
        event = service.schedule("Reboot", "sql-0")
        assert kept(script) == [0, HANG_UP]
        event.cancel()


def test_watch_starts_its_command_with_inherited_signals(
    service: Service, tmp_path: Path, script: Path
) -> None:
    argv = [*BEFORE, *FOREWARN, "watch", "--json", "--exec", str(script)]
    pipe = subprocess.PIPE
    env = {**environment(tmp_path), **service["sql-1"].env}
    process = subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True, env=env)
    running = Running(process, argv)
    try:
        event = service.schedule("Reboot", "sql-1")
        assert kept(script) == [0, HANG_UP]
        event.cancel()
    finally:
        running.stop()
