"""tools/stress-tests, on small suites of its own: it finds races, and leaves nothing running."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from pathlib import Path

import pytest

from helpers.small_suite import SmallSuite
from helpers.waiting import LIMIT, until

TOOL = "stress-tests"


@pytest.fixture
def suite(tmp_path: Path) -> SmallSuite:
    return SmallSuite(tmp_path)


def load(suite: SmallSuite) -> list[int]:
    """The processes that the tool has started to keep the machine busy."""
    (line,) = [line for line in suite.lines() if line.startswith("load: processes ")]
    return [int(word) for word in line.split()[2:]]


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"  # whoever adopted it may reap it late


def test_a_race_is_found_and_shown_in_the_table(suite: SmallSuite) -> None:
    suite.add(
        "test_a.py",
        "count = 0\n"
        "def increased(value):\n    return value + 1\n"
        "def increase(start):\n"
        "    global count\n"
        "    start.wait()\n"
        "    for _ in range(300_000):\n        count = increased(count)\n"
        "def test_count():\n"
        "    global count\n"
        "    count, start = 0, threading.Barrier(2)\n"
        "    threads = [threading.Thread(target=increase, args=(start,)) for _ in range(2)]\n"
        "    [thread.start() for thread in threads]\n"
        "    [thread.join() for thread in threads]\n"
        "    assert count == 600_000\n"
        "def test_nothing():\n    pass\n",
    )
    status, lines = suite.run("test_a.py", tool=TOOL, TIMES="2", SEED="9", LOAD="1")
    assert status == 1
    heading = lines.index("failed  ran  test, and how it failed first")
    assert lines[heading - 1] == "2 tests were run 4 times"
    failed, ran, test = lines[heading + 1].split()
    assert (ran, test) == ("2", "test_a.py::test_count")
    assert 1 <= int(failed) <= 2
    assert lines[heading + 2].strip().startswith("assert ")
    assert lines[heading + 3 :] == []
    assert not any(is_running(pid) for pid in load(suite))


def test_files_and_tests_are_shuffled_the_same_way_by_the_same_seed(suite: SmallSuite) -> None:
    for name in "abc":
        suite.add(
            f"test_{name}.py",
            "@pytest.mark.parametrize('n', range(9))\ndef test_a(n):\n    pass\n",
        )
    for seed in (1, 2, 2):
        assert suite.run(f"--shuffle={seed}", TEST_PROCESSES="1")[0] == 0
    runs = suite.runs()
    first, second, again = runs[:27], runs[27:54], runs[54:]
    assert first != second == again
    assert sorted(first) == sorted(second) != first
    files = [test.partition(":")[0] for test in first]
    assert len(list(dict.fromkeys(files))) == sum(a != b for a, b in pairwise(["", *files]))


def test_a_test_that_hangs_is_ended_in_time(suite: SmallSuite) -> None:
    suite.add("test_a.py", "def test_a():\n    signal.pause()\n")
    for minutes in ("0.1", "0.5", "2", "4"):  # on a busy machine, pytest begins late
        status, lines = suite.run(".", tool=TOOL, MINUTES=minutes, LOAD="0")
        assert status == 1
        if (suite.folder / "runs").exists():
            break
    assert "stopped before its end; these tests were running:" in lines


def test_load_ends_with_a_tool_that_is_killed(suite: SmallSuite) -> None:
    os.mkfifo(suite.folder / "end")
    suite.add("test_a.py", "def test_a():\n    pathlib.Path('end').read_text()\n")
    process = suite.start(".", tool=TOOL, TIMES="1", LOAD="1")
    with (suite.folder / "end").open("w"):  # once the test is there
        processes = load(suite)
        assert all(is_running(pid) for pid in processes)
        process.send_signal(signal.SIGKILL)
        process.wait(LIMIT)
        until(lambda: not any(is_running(pid) for pid in processes), "the end of the load")
    until(lambda: "1 passed" in "\n".join(suite.lines()), "the end of pytest")
    assert [name for name in suite.left() if name.startswith("stress-load.")] == []
