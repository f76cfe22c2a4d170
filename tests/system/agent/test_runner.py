"""The program that runs one command: once, within its time, whoever else tries to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forewarn.agent.running import runner as runner_module
from forewarn.agent.running.runner import MAX_OUTPUT
from forewarn.agent.running.runners import RUNNER
from forewarn.agent.system import durable
from forewarn.support.guard import monotonic
from helpers.waiting import until


def ordered(directory: Path, script: str, **more: Any) -> Path:
    order = {
        "argv": ["sh", "-c", script],
        "environment": {"FOREWARN_HOOK": "hook"},
        "stdin": {"hook": "hook"},
        "directory": str(directory),
        "timeout": 60.0,
        "until": None,
    }
    directory.mkdir(exist_ok=True)
    (directory / "order").write_text(json.dumps(order | more))
    return directory


def begun(directory: Path) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-I", "-S", str(RUNNER), str(directory)]
    return subprocess.Popen(argv, start_new_session=True)


def run(directory: Path, script: str, **more: Any) -> dict[str, Any]:
    with begun(ordered(directory, script, **more)) as runner:
        assert runner.wait() == 0
    result = json.loads((directory / "result").read_text())
    assert isinstance(result, dict)
    return result


def test_the_runner_records_the_result_of_its_command(tmp_path: Path) -> None:
    result = run(tmp_path, "cat; echo $FOREWARN_HOOK $FOREWARN_SECONDS_LEFT; echo no >&2; exit 7")
    assert (result["outcome"], result["code"]) == ("ended", 7)
    printed = (tmp_path / "output").read_text().splitlines()
    assert printed == ['{"hook":"hook","seconds_left":58.0}', "hook 58", "no"]


def test_a_command_that_died_of_a_signal_has_failed(tmp_path: Path) -> None:
    assert run(tmp_path, "kill -9 $$")["code"] == -signal.SIGKILL


def test_a_program_that_is_not_there_was_not_started(tmp_path: Path) -> None:
    result = run(tmp_path, "", argv=["/nowhere/at-all"])
    assert result["outcome"] == "not-started"
    assert "/nowhere/at-all" in result["message"]


def test_when_its_time_is_up_it_is_ended_politely_and_then_with_all_its_group(
    tmp_path: Path,
) -> None:
    """One heeds SIGTERM. The other does not, and neither does its child."""
    polite = ordered(
        tmp_path / "polite", "trap 'echo bye; exit 3' TERM; sleep 60 & wait", timeout=1
    )
    deaf = ordered(
        tmp_path / "deaf", "trap '' TERM; sh -c 'echo $$; exec sleep 60' & wait", timeout=1
    )
    with begun(polite) as one, begun(deaf) as other:
        one.wait()
        other.wait()
    result = json.loads((polite / "result").read_text())
    assert (result["outcome"], result["code"]) == ("timed-out", 3)
    assert (polite / "output").read_text() == "bye\n"
    result = json.loads((deaf / "result").read_text())
    assert (result["outcome"], result["code"]) == ("timed-out", -signal.SIGKILL)
    child = (deaf / "output").read_text().strip()
    until(lambda: _ended(child), "the child is killed as well")


def _ended(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_no_command_is_started_after_its_deadline(tmp_path: Path) -> None:
    result = run(tmp_path, "echo here > effect", until=monotonic() + 0.5)
    assert result["outcome"] == "no-time"
    assert not (tmp_path / "begun").exists()
    assert not (tmp_path / "effect").exists()


def test_a_deadline_shortens_the_timeout_of_a_command(tmp_path: Path) -> None:
    run(tmp_path, "echo $FOREWARN_SECONDS_LEFT", until=monotonic() + 20)
    assert (tmp_path / "output").read_text() in ("17\n", "16\n", "15\n")


def test_only_one_of_many_runners_runs_the_command(tmp_path: Path) -> None:
    ordered(tmp_path, "echo once >> effect")
    runners = [begun(tmp_path) for _ in range(6)]
    for runner in runners:
        runner.wait()
    assert (tmp_path / "effect").read_text() == "once\n"
    assert begun(tmp_path).wait() == 0  # and so it stays
    assert (tmp_path / "effect").read_text() == "once\n"


def test_the_end_of_a_long_output_is_kept(tmp_path: Path) -> None:
    run(tmp_path, "yes | head -c 1000000; echo the end")
    assert (tmp_path / "output").read_bytes().endswith(b"the end\n")
    kept = [(tmp_path / name).stat().st_size for name in ("output", "output.before")]
    assert max(kept) <= MAX_OUTPUT
    assert sum(kept) >= MAX_OUTPUT // 2


@pytest.mark.parametrize("how", ["file", "signal"])
def test_a_command_is_stopped_on_request(tmp_path: Path, how: str) -> None:
    ordered(tmp_path, "echo begun; exec sleep 60")
    with begun(tmp_path) as runner:
        output = tmp_path / "output"
        until(lambda: output.exists() and output.read_text(), "it has begun")
        assert durable.is_locked(tmp_path / "lock")
        if how == "file":
            (tmp_path / "stop").touch()
        else:
            os.kill(runner.pid, signal.SIGTERM)
        runner.wait()
    result = json.loads((tmp_path / "result").read_text())
    assert (result["outcome"], result["code"]) == ("stopped", -signal.SIGTERM)


def test_a_background_process_of_a_command_delays_nothing(tmp_path: Path) -> None:
    """Neither by the lock, which nobody inherits, nor by the output, which it still could write."""
    result = run(tmp_path, "sleep 60 & echo $!")
    assert (result["outcome"], result["code"]) == ("ended", 0)
    assert not durable.is_locked(tmp_path / "lock")
    left = int((tmp_path / "output").read_text())
    os.kill(left, signal.SIGKILL)


FULL_DISK = """
mount -t tmpfs -o size=256k tmpfs "$0" && cp -r "$1" "$0/run" && cd / &&
"$2" -I -S "$3" "$0/run"; rm "$0/full"; cp -r "$0/run/." "$1"
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small disk")
def test_a_command_that_fills_the_disk_has_its_result_written_all_the_same(tmp_path: Path) -> None:
    """There is room for it, which was taken before the command was started."""
    disk, run = tmp_path / "disk", tmp_path / "run"
    disk.mkdir()
    script = f"cat /dev/zero > {disk}/full; echo said; exit 3"
    ordered(run, script)
    words = ["unshare", "--mount", "sh", "-c", FULL_DISK, disk, run, sys.executable, RUNNER]
    subprocess.run([*map(str, words)], check=True)
    result = json.loads((run / "result").read_text())
    assert (result["outcome"], result["code"]) == ("ended", 3)
    assert not (run / ".result.new").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small disk")
def test_on_a_full_disk_no_command_is_started(tmp_path: Path) -> None:
    disk, run = tmp_path / "disk", tmp_path / "run"
    disk.mkdir()
    ordered(run, f"touch {tmp_path}/effect")
    full = FULL_DISK.replace("cd / &&", 'cd / && ! cat /dev/zero > "$0/full" 2>&- &&')
    words = ["unshare", "--mount", "sh", "-c", full, disk, run, sys.executable, RUNNER]
    subprocess.run([*map(str, words)], check=True, stderr=subprocess.DEVNULL)
    assert not (run / "begun").exists()
    assert not (tmp_path / "effect").exists()


def test_writing_a_result_is_retried_a_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    (tmp_path / "result").mkdir()  # in its place
    runner_module._report(str(tmp_path), {"outcome": "ended"}, {"begun": b"{}"})
    assert len(pauses) == runner_module.RESULT_ATTEMPTS - 1
    assert pauses == sorted(pauses)
    assert max(pauses) == runner_module.MAX_RESULT_PAUSE
