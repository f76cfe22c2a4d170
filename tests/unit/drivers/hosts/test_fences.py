"""The highest fence numbers outlive a driver process, however it ends."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn.drivers.hosts import fences as module
from forewarn.drivers.hosts.fences import Fences, FencesUnusable
from helpers.driver_processes import fences
from helpers.power_cut import PowerCut

ADMITTING = """
import asyncio, sys
from pathlib import Path
from forewarn.drivers.hosts.fences import Fences

async def main():
    fences = Fences(Path(sys.argv[1]))
    for number in range(1, 100_000):
        assert not await fences.admit("E", ["web_0", "web_1"], number)
        print(number, flush=True)

asyncio.run(main())
"""


def admit(kept: Fences, fence: int, *machines: str, task: str = "E") -> int:
    return asyncio.run(kept.admit(task, machines or ("web_0",), fence))


def test_a_lower_number_is_refused_also_by_the_next_process(tmp_path: Path) -> None:
    with fences(tmp_path) as kept:
        assert admit(kept, 7, "web_0", "web_1") == 0
        assert admit(kept, 7) == 0
        assert admit(kept, 6) == 7
        assert admit(kept, 6, "web_2") == 0
    with fences(tmp_path) as kept:
        assert admit(kept, 6, "web_2", "web_1") == 7
        assert admit(kept, 8) == 0
    with fences(tmp_path) as kept:
        assert admit(kept, 7) == 8


def test_another_task_of_a_machine_does_not_end_one_that_is_under_way(tmp_path: Path) -> None:
    with fences(tmp_path) as kept:
        assert admit(kept, 7, task="Freeze") == 0
        assert admit(kept, 9, task="Terminate") == 0
        assert admit(kept, 7, task="Freeze") == 0
        assert admit(kept, 6, task="Freeze") == 9
        assert admit(kept, 10, task="Freeze") == 0  # of another control node
        assert admit(kept, 7, task="Freeze") == 10


def test_the_numbers_of_very_many_machines_become_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_KEPT", 10)
    with fences(tmp_path) as kept:
        for number in range(1, 12):
            assert admit(kept, number, f"web_{number}", task=str(number)) == 0
        assert len(kept._kept.fences) == 10
        assert admit(kept, 1, "web_20", task="late") == 0
        assert admit(kept, 0, "web_21", task="later") == 1


def test_nothing_is_admitted_that_cannot_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    with fences(tmp_path) as kept:
        with monkeypatch.context() as failing:
            failing.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="full"):
                admit(kept, 7)
        assert admit(kept, 6) == 0


def test_a_number_that_was_admitted_outlives_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    power_cut = PowerCut(monkeypatch)
    with fences(tmp_path) as kept:
        assert admit(kept, 7) == 0
    file = tmp_path / module.FILE
    assert power_cut.left(file) == file.read_bytes()


def test_a_file_that_cannot_be_used_is_an_error_at_the_start(tmp_path: Path) -> None:
    with fences(tmp_path), pytest.raises(FencesUnusable, match="another driver process uses"):
        Fences(tmp_path)
    (tmp_path / module.FILE).write_text("nonsense")
    for _ in range(2):  # the lock is given back
        with pytest.raises(FencesUnusable, match="does not contain fence numbers"):
            Fences(tmp_path)
    with pytest.raises(FencesUnusable, match="gone"):
        Fences(tmp_path / "gone")


def test_a_number_that_was_admitted_outlives_kill_9(tmp_path: Path) -> None:
    highest = 0
    for _ in range(3):
        command = [sys.executable, "-c", ADMITTING.replace("range(1,", f"range({highest + 1},")]
        with subprocess.Popen([*command, str(tmp_path)], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(random.randint(1, 20)):
                highest = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            highest = max([highest, *map(int, process.stdout.read().split())])
        with fences(tmp_path) as kept:
            assert admit(kept, highest - 1, "web_1") >= highest
            assert admit(kept, highest, "web_1") in (0, highest + 1)
