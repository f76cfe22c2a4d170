"""tools/run-tests, on small suites of its own: what failed is run once more, alone."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from pathlib import Path
from typing import IO

import pytest

from helpers.small_suite import SmallSuite
from helpers.waiting import LIMIT, until

ALONE = "'PYTEST_PROCESS' not in os.environ"


@pytest.fixture
def suite(tmp_path: Path) -> SmallSuite:
    return SmallSuite(tmp_path)


def test_a_run_with_a_test_that_passes_only_alone_passes_and_ends_with_its_failure(
    suite: SmallSuite,
) -> None:
    suite.add(
        "tests/system/test_dev.py",
        f"def test_a():\n    assert {ALONE}, 'somebody was here'\ndef test_b():\n    pass\n",
    )
    status, lines = suite.run()
    assert status == 0
    test = "tests/system/test_dev.py::test_a"
    assert lines[-2:] == ["passed only alone: 1", test]
    last = "\n".join(lines).partition("will be run once more, alone")[2]
    assert "AssertionError: somebody was here" in last
    assert suite.runs() == [test, "tests/system/test_dev.py::test_b", test]
    table = lines[lines.index("seconds  tests  slowest files") + 1].split()
    assert table[1:] == ["2", "tests/system/test_dev.py"]


def test_tests_with_odd_names_are_run_again(suite: SmallSuite) -> None:
    names = ["a b", "x[y]::z", "ü/'\"$@", "-k", "c\nd"]
    suite.add(
        "tests/a b/test_é.py",
        f"@pytest.mark.parametrize('value', range(2), ids={names[:2]})\n"
        f"def test_a(value):\n    assert {ALONE}\n"
        f"@pytest.mark.parametrize('value', range(3), ids={names[2:]})\n"
        f"def test_b(value):\n    pass\n",
    )
    status, lines = suite.run()
    assert status == 0, lines
    assert lines[-3] == "passed only alone: 2"
    assert suite.runs()[5:] == suite.runs()[:2] == lines[-2:]


def test_a_run_with_three_tests_that_pass_only_alone_fails(suite: SmallSuite) -> None:
    suite.add(
        "test_a.py",
        f"@pytest.mark.parametrize('value', range(3))\ndef test_a(value):\n    assert {ALONE}\n",
    )
    status, lines = suite.run()
    assert status == 1
    assert "passed only alone: 3" in lines
    assert len(suite.runs()) == 6


def test_a_run_with_a_test_that_fails_alone_as_well_fails(suite: SmallSuite) -> None:
    suite.add(
        "test_a.py",
        f"def test_a():\n    assert {ALONE}\n"
        "@pytest.fixture\ndef broken_setup():\n    assert 0\n"
        "def test_setup(broken_setup):\n    pass\n"
        "@pytest.fixture\ndef broken_teardown():\n    yield\n    assert 0\n"
        "def test_teardown(broken_teardown):\n    pass\n",
    )
    status, lines = suite.run()
    assert status == 1
    assert lines[-3:] == [
        "failed alone as well: 2",
        "test_a.py::test_setup",
        "test_a.py::test_teardown",
    ]
    assert lines[-6:-4] == ["passed only alone: 1", "test_a.py::test_a"]


def test_what_does_not_depend_on_what_runs_beside_it_is_not_run_again(suite: SmallSuite) -> None:
    folders = ["ports", "simulation", "unit/core", "wire"]
    for folder in (*folders, "system"):
        suite.add(f"tests/{folder}/test_a.py", f"def test_a():\n    assert {ALONE}\n")
    status, lines = suite.run()
    assert status == 1
    assert lines[-5] == "tools/run-tests: nothing is run again: these depend on nothing beside them"
    assert lines[-4:] == [f"tests/{folder}/test_a.py::test_a" for folder in folders]
    assert len(suite.runs()) == 5


def test_a_run_in_which_many_fail_fails_at_once(suite: SmallSuite) -> None:
    suite.add(
        "test_a.py",
        f"@pytest.mark.parametrize('value', range(11))\ndef test_a(value):\n    assert {ALONE}\n",
    )
    status, lines = suite.run()
    assert status == 1
    assert "nothing is run again: 11 failed" in lines[-1]
    assert len(suite.runs()) == 11


def test_a_test_that_ends_its_process_is_run_again(suite: SmallSuite) -> None:
    suite.add(
        "test_a.py",
        f"def test_a():\n    {ALONE} or os._exit(1)\ndef test_b():\n    pass\n",
    )
    status, lines = suite.run()
    assert status == 0
    assert lines[-2:] == ["passed only alone: 1", "test_a.py::test_a"]
    assert "exit status 1" in "\n".join(lines[-6:])


@pytest.mark.parametrize(
    ("source", "arguments", "status"),
    [
        pytest.param("import nowhere", [], 2, id="cannot be collected"),
        pytest.param("", [], 5, id="no tests"),
        pytest.param("def test_a():\n    assert 0", ["--exitfirst"], 1, id="interrupted"),
        pytest.param("def test_a():\n    pass", ["--no-such-option"], 4, id="usage"),
        pytest.param("def test_a():\n    pass", ["-p", "broken"], 3, id="internal error"),
    ],
)
def test_a_run_that_is_not_whole_has_the_status_of_pytest(
    suite: SmallSuite, source: str, arguments: list[str], status: int
) -> None:
    suite.add("test_a.py", source)
    suite.add("broken.py", "def pytest_sessionstart():\n    raise RuntimeError('broken')\n")
    ended, lines = suite.run(*arguments, PYTHONPATH=str(suite.folder))
    assert ended == status, lines
    assert "once more" not in "\n".join(lines)


def test_what_tests_start_does_not_see_the_runner(suite: SmallSuite) -> None:
    suite.add(
        "test_a.py",
        "import json\n"
        "def test_a():\n"
        "    pathlib.Path('environment').write_text(json.dumps(dict(os.environ)))\n",
    )
    environment = {"PYTHONPATH": "one:two", "MAKEFLAGS": "-j", "TEST_BESIDE": "yes"}
    assert suite.run(**environment)[0] == 0
    seen = json.loads((suite.folder / "environment").read_text())
    assert seen["PYTHONPATH"] == "one:two"
    assert [name for name in seen if name.startswith(("TEST_", "MAKE"))] == []
    environment.pop("PYTHONPATH")
    assert suite.run(**environment)[0] == 0
    assert json.loads((suite.folder / "environment").read_text()).get("PYTHONPATH", "") == ""


def test_what_failed_waits_for_runs_beside_it(suite: SmallSuite) -> None:
    suite.add("test_a.py", f"def test_a():\n    assert {ALONE}\n")
    waiting = "tools/run-tests: waiting for the tests beside these to end"
    with (suite.tools / "run-tests").open() as beside:
        fcntl.flock(beside, fcntl.LOCK_SH)
        process = suite.start(TEST_BESIDE="yes")
        until(lambda: waiting in suite.lines() or process.poll() is not None)
        assert len(suite.runs()) == 1
        assert process.poll() is None
    assert process.wait(LIMIT) == 0
    assert len(suite.runs()) == 2


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whoever_ends_the_runner_ends_its_tests(suite: SmallSuite, ending: signal.Signals) -> None:
    os.mkfifo(suite.folder / "started")
    suite.add(
        "test_a.py",
        "def test_a():\n"
        "    with open('started', 'w') as started:\n"
        "        print(os.getppid(), file=started, flush=True)\n"
        "        signal.pause()\n",
    )
    process = suite.start()
    started: IO[str]
    with (suite.folder / "started").open() as started:
        pid = int(started.readline())
        # As a terminal does it for ctrl-C, and make for the others.
        if ending == signal.SIGINT:
            os.kill(pid, ending)
        process.send_signal(ending)
        assert process.wait(LIMIT) == 128 + ending
        assert started.read() == ""  # the process of the test has ended as well
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert suite.left() == []


def test_another_process_goes_on_with_the_file_of_one_that_was_killed(suite: SmallSuite) -> None:
    suite.add(
        "test_a.py",
        "def test_a():\n    os.kill(os.getpid(), signal.SIGKILL)\ndef test_b():\n    pass\n",
    )
    suite.add("test_c.py", "def test_c():\n    pass\n")
    status, lines = suite.run()
    assert status != 0
    assert "SIGKILL" in "\n".join(lines)
    assert {"test_a.py::test_b", "test_c.py::test_c"} <= set(suite.runs())


def test_what_a_session_shares_is_made_once_by_each_process(suite: SmallSuite) -> None:
    fixture = (
        "@pytest.fixture(scope='session')\n"
        "def shared():\n"
        "    yield str(os.getpid())\n"
        "    pathlib.Path('torn-down').open('a').write(f'{os.getpid()}\\n')\n"
    )
    suite.add("conftest.py", fixture)
    for name in "abcdef":
        suite.add(f"test_{name}.py", "def test(shared):\n    assert shared == str(os.getpid())\n")
    status, _ = suite.run()
    assert status == 0
    processes = (suite.folder / "torn-down").read_text().split()
    assert len(processes) == len(set(processes)) <= 2


def test_a_run_that_is_terminated_ends_what_its_tests_have_set_up(suite: SmallSuite) -> None:
    suite.add(
        "test_a.py",
        "@pytest.fixture\n"
        "def server():\n"
        "    yield\n"
        "    pathlib.Path('down').touch()\n"
        "def test_a(server):\n"
        "    pathlib.Path('up').touch()\n"
        "    while True:\n"
        "        time.sleep(0.01)\n",
    )
    suite.add("test_b.py", "def test_b():\n    pass\n")
    process = suite.start()
    until((suite.folder / "up").exists)
    process.terminate()
    assert process.wait(LIMIT) != 0
    assert (suite.folder / "down").exists()
