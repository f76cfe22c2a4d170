"""`forewarn fenced`: the file with the highest number, the lock, and the command that is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn.cli.commands import fenced
from helpers.waiting import LIMIT, until

fcntl = pytest.importorskip("fcntl")

FORK = [sys.executable, "-P", "-c"]
# A process that has imported what it needs, and stands for `forewarn fenced`.
CALLS = """
import os, sys, json, typer
from forewarn.cli.app import app
for words in json.loads(sys.argv[1]):
    if not (pid := os.fork()):
        try:
            app(words, prog_name="forewarn")
        except SystemExit as exit:
            os._exit(exit.code)
    print("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
assert not {"sqlalchemy", "litestar", "asyncio"} & sys.modules.keys(), sys.modules
"""


def call(fence: int | str, *command: str, key: str = "web_0", dir: str = "fences") -> list[str]:
    options = ["--dir", dir, "--key", key, "--fence", str(fence)]
    return ["fenced", *options, "--", *command]


def run(directory: Path, *calls: list[str]) -> tuple[list[int], str]:
    """Return the exit code of each call, and what all of them have printed."""
    import json

    done = subprocess.run(
        [*FORK, CALLS, json.dumps(calls)],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    codes = [int(line.split()[1]) for line in lines if line.startswith("status ")]
    others = [line for line in lines if not line.startswith("status ")]
    return codes, "\n".join(others) + done.stderr


def test_a_late_command_is_refused_and_an_equal_one_is_not(tmp_path: Path) -> None:
    codes, output = run(
        tmp_path,
        call(7, "sh", "-c", "echo seven >> done; exit 3"),
        call(7, "sh", "-c", "echo again >> done"),
        call(6, "sh", "-c", "echo late >> done"),
        call(1, "sh", "-c", "echo other >> done", key="web_1"),
        call(12, "sh", "-c", "echo twelve >> done"),
        call(8, "sh", "-c", "echo late >> done"),
    )
    assert codes == [3, 0, fenced.REFUSED, 0, 0, fenced.REFUSED]
    assert (tmp_path / "done").read_text().split() == ["seven", "again", "other", "twelve"]
    assert re.search(r"^forewarn: refused: .*'web_0' .*6, .*7 ", output, re.M)
    assert (tmp_path / "fences" / "web_0").read_text() == f"{12:020}\n"


def test_an_unusable_key_number_or_directory_is_refused_and_nothing_runs(tmp_path: Path) -> None:
    (tmp_path / "fences").mkdir()
    (tmp_path / "fences" / "torn").write_text("12")
    run_it = ("touch", "done")
    codes, output = run(
        tmp_path,
        call(7, *run_it, key="torn"),
        call(7, *run_it, dir="no/such"),
        call(7, *run_it, key="../web_0"),
        call(7, *run_it, key=""),
        call(0, *run_it),
        call("seven", *run_it),
        call(10**20, *run_it),
        call(7, "no-such-program"),
        call(7, "./fences"),
    )
    unusable, usage = fenced.UNUSABLE, 2
    assert codes == [unusable, unusable, *[usage] * 5, fenced.NOT_FOUND, fenced.CANNOT_RUN]
    assert not (tmp_path / "done").exists()
    assert "torn does " in output
    assert "'../web_0' " in output
    assert "Traceback" not in output
    assert {file.name for file in (tmp_path / "fences").iterdir()} == {"torn", "web_0"}


def test_a_missing_command_is_not_found_whatever_cannot_be_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like a directory of PATH that the user may not search, a directory with the name of the
    command makes an exec fail for a lack of permission."""
    (tmp_path / "bin" / "no-such-program").mkdir(parents=True)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    assert run(tmp_path, call(7, "no-such-program"))[0] == [fenced.NOT_FOUND]


def test_a_command_keeps_the_lock_until_it_has_ended(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "may_go_on")
    script = "echo begun > begun; cat may_go_on; echo first >> done"
    argv = [sys.executable, "-m", "forewarn"]
    with subprocess.Popen([*argv, *call(7, "sh", "-c", script)], cwd=tmp_path) as first:
        until((tmp_path / "begun").exists)
        second_call = [*argv, *call(9, "sh", "-c", "echo second >> done")]
        with subprocess.Popen(second_call, cwd=tmp_path) as second:
            file = (tmp_path / "fences" / "web_0").open()
            with file, pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (tmp_path / "may_go_on").write_text("")
            assert (first.wait(LIMIT), second.wait(LIMIT)) == (0, 0)
    assert (tmp_path / "done").read_text().split() == ["first", "second"]
