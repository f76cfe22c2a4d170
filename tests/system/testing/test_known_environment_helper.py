"""The tests themselves run in the same way, whatever they were started with."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from helpers.known_environment import known
from helpers.paths import ROOT, TESTS

HOSTILE = """
import os, signal, sys
numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
for number in numbers:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
os.umask(0o077)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
SHOW = """
import helpers.known_environment, os, subprocess
subprocess.run("umask; date +%Z; grep -E '^Sig(Blk|Ign)' /proc/self/status", shell=True, check=True)
"""


def test_what_started_them_is_not_inherited() -> None:
    output = subprocess.run(
        [sys.executable, "-c", HOSTILE, "-c", SHOW],
        env={**os.environ, "PYTHONPATH": str(TESTS), "TZ": "Asia/Kathmandu"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    mask, zone, *signals = output.splitlines()
    assert (mask, zone) == ("0022", "UTC")
    assert [int(line.split()[1], 16) & 0x7FFF_FFFF for line in signals] == [0, 0]


def test_only_what_tests_need_is_left_of_the_environment() -> None:
    dropped = {
        "LC_ALL": "C",
        "PYTHONWARNINGS": "error",
        "FOREWARN_URL": "http://192.0.2.1",
        "PGHOST": "192.0.2.1",
        "XDG_RUNTIME_DIR": "/run",
        "NOTIFY_SOCKET": "@x",
        "https_proxy": "http://192.0.2.1:3128",
        "PYTHONPATH": "/elsewhere",
        "TMPDIR": "/var/tmp/with a space",
    }
    found = known({**dropped, "CI": "true"})
    assert found["CI"] == "true"
    assert found["PIP_PROXY"] == dropped["https_proxy"]
    assert not dropped.keys() & found.keys()
    portable = str(ROOT / "tools/portable")
    assert known({"PYTHONPATH": f"{portable}:/elsewhere"})["PYTHONPATH"] == portable


def test_a_directory_for_temporary_files_is_used_if_all_who_need_it_can_reach_it() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as private:
        found = known({"TMPDIR": private})
        assert ("TMPDIR" in found) == (os.geteuid() != 0)
        Path(private).chmod(0o1777)
        assert known({"TMPDIR": private})["TMPDIR"] == private
    assert "TMPDIR" not in known({"TMPDIR": private})  # it is gone
