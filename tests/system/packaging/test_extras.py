"""The wheel in empty environments: what works with which extra, and what is said where packages are
missing."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from helpers.empty_environment import EmptyEnvironment
from helpers.paths import ROOT
from helpers.process import Running
from helpers.waiting import LIMIT

EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
NEEDS_TEST = "needs the packages of the test kit: pip install 'forewarn[test]'"
NEEDS_NODE = "needs the packages of a node: pip install 'forewarn[node]'"
NEEDS_SERVER = "needs the server packages: pip install 'forewarn[server]'"

# Follows its machine's events with the client, and approves what it is asked to.
PROGRAM = """
import os
from forewarn.client import Client

with Client() as client:
    for change in client.watch():
        if change.kind == "appeared" and os.environ["FOREWARN_MACHINE"] in change.event.resources:
            client.approve(change.event)
"""

KIT = """
import re
import pytest
from forewarn.client import Client
from forewarn.testing import Service


def test_the_client_over_a_socket(forewarn):
    web = forewarn.scale_set("web", 2)
    event = web[0].restart()
    with Client(web[0].url) as client:
        (seen,) = client.events()
        client.approve(seen)
    assert event.status == "Started"
    with forewarn.clock.patch():
        forewarn.clock.advance("1h")
    assert web[1].document()["Events"] == []
    forewarn.verdict().check()
    assert "web_0" in forewarn.report()


def test_what_needs_the_server_says_so(forewarn, tmp_path):
    with pytest.raises(ImportError, match=re.escape("the control API NEEDS")):
        forewarn.control_url
    with pytest.raises(ImportError, match=re.escape("a state in an SQLite file NEEDS")):
        Service(state=tmp_path / "state.db")
    web = forewarn.scale_set("web", 1)
    assert web[0].document()["Events"] == []
""".replace("NEEDS", NEEDS_SERVER)


SAY_WHAT_TO_INSTALL = {
    "dev": NEEDS_SERVER,
    "serve": NEEDS_SERVER,
    "node": NEEDS_NODE,
    "node check": NEEDS_NODE,
    "node rules": NEEDS_NODE,
    "node join 127.0.0.1:1 token": NEEDS_NODE,
    "control authority here": NEEDS_SERVER,
    "config check": NEEDS_SERVER,
    "config show": NEEDS_SERVER,
    "upgrade --state pyvenv.cfg": NEEDS_SERVER,
    "restore pyvenv.cfg --state state.db": NEEDS_SERVER,
    "backup copy.db --state pyvenv.cfg": NEEDS_SERVER,
    "token list --state pyvenv.cfg": NEEDS_SERVER,
    "clock accept --state pyvenv.cfg": NEEDS_SERVER,
    "scenario list": NEEDS_TEST,
    "scenario show spot-eviction": NEEDS_TEST,
    "scenario schema": NEEDS_TEST,
    "scenario check pyvenv.cfg": NEEDS_TEST,
    "scenario run spot-eviction -- true": NEEDS_TEST,
}
WORK_WITHOUT_EXTRAS = {
    "--help": "Usage",
    "--version": "forewarn 0.",
    "fault kinds": "gone",
    "verdict --rules": "missing-header",
    "apply --schema": "$schema",
    "agent check --config pyvenv.cfg": "configuration",
}
# Executes each command that it is given in a process of its own, which need not start Python and
# import what most of them need again.
TYPE = """
import json, os, sys, tempfile
import forewarn.cli.app, forewarn.cli.output

def run(line):
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        if not (child := os.fork()):
            os.dup2(output.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            sys.argv = ["forewarn", *line.split()]
            forewarn.cli.main()
            sys.exit()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        errors.seek(0)
        return code, output.read(), errors.read()

outcomes = {line: run(line) for line in sys.argv[1:]}
print(json.dumps(outcomes))
"""


def readme_test() -> str:
    """The test in README.md."""
    text = (ROOT / "README.md").read_text()
    (test,) = re.findall(r"```python\n(def test_.*?)```", text, re.DOTALL)
    return str(test)


@pytest.fixture(scope="module")
def base(make_environment: Callable[[str], EmptyEnvironment]) -> EmptyEnvironment:
    environment = make_environment("base")
    environment.done("pip", "install", "forewarn", "pytest")
    return environment


@pytest.fixture(scope="module")
def kit(make_environment: Callable[[str], EmptyEnvironment]) -> EmptyEnvironment:
    environment = make_environment("kit")
    environment.done("pip", "install", "forewarn[test]", "pytest")
    return environment


@pytest.fixture(scope="module")
def server(make_environment: Callable[[str], EmptyEnvironment]) -> EmptyEnvironment:
    environment = make_environment("server")
    environment.done("pip", "install", "forewarn[server]")
    return environment


def test_the_fixture_of_the_base_install_says_what_to_install(
    base: EmptyEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "test_readme.py").write_text(readme_test())
    ended = base.run("python", "-m", "pytest", "-q", tmp_path)
    assert ended.returncode == 1
    lines = ended.stdout.splitlines()
    assert f"the fixture 'forewarn' {NEEDS_TEST}" in lines
    assert "Traceback" not in ended.stdout
    assert "ModuleNotFoundError" not in ended.stdout + ended.stderr


def test_importing_the_kit_from_the_base_install_says_what_to_install(
    base: EmptyEnvironment,
) -> None:
    ended = base.run("python", "-c", "from forewarn.testing import Service")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].endswith(
        f"MissingExtraError: forewarn.testing {NEEDS_TEST}"
    )


@pytest.fixture(scope="module")
def commands(base: EmptyEnvironment) -> Mapping[str, Sequence[Any]]:
    """The exit code, the output and the errors of every command below, by command."""
    lines = [*SAY_WHAT_TO_INSTALL, *WORK_WITHOUT_EXTRAS]
    ended = base.run(
        *("python", "-c", TYPE, *lines), environ={"FOREWARN_METADATA": "http://127.0.0.1:9"}
    )
    assert ended.returncode == 0, ended.stderr
    outcomes: dict[str, Sequence[Any]] = json.loads(ended.stdout)
    return outcomes


@pytest.mark.parametrize(("command", "needs"), SAY_WHAT_TO_INSTALL.items())
def test_commands_of_the_base_install_say_what_to_install(
    commands: Mapping[str, Sequence[Any]], command: str, needs: str
) -> None:
    assert commands[command] == [1, "", f"forewarn: this command {needs}\n"]


@pytest.mark.parametrize(("command", "printed"), WORK_WITHOUT_EXTRAS.items())
def test_what_the_base_install_can_do_it_does(
    commands: Mapping[str, Sequence[Any]], command: str, printed: str
) -> None:
    _, output, errors = commands[command]
    assert printed in output + errors
    assert "Traceback" not in errors
    assert "pip install" not in errors


def test_the_program_is_installed_as_a_command(base: EmptyEnvironment) -> None:
    assert base.done("forewarn", "--version").startswith("forewarn 0.")


def test_the_kit_works_with_what_the_extra_for_tests_installs(
    kit: EmptyEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "test_readme.py").write_text(readme_test())
    (tmp_path / "test_kit.py").write_text(KIT)
    ended = kit.run("python", "-m", "pytest", "-q", "-W", "error", tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "3 passed" in ended.stdout


def test_the_extra_for_tests_installs_nothing_of_the_server(kit: EmptyEnvironment) -> None:
    installed = kit.packages()
    assert {"uvicorn", "httptools", "pyyaml", "structlog", "time-machine"} <= installed
    assert not installed & {"alembic", "faker", "litestar", "polyfactory", "sqlalchemy", "uvloop"}


def test_a_scenario_runs_with_what_the_extra_for_tests_installs(
    kit: EmptyEnvironment, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ended = kit.run("forewarn", "scenario", "run", "user-reboot", "--", "python", program)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "scenario user-reboot: passed" in ended.stdout
    assert kit.run("forewarn", "dev").stderr == f"forewarn: this command {NEEDS_SERVER}\n"


def test_the_service_answers_with_what_the_extra_for_servers_installs(
    server: EmptyEnvironment, tmp_path: Path
) -> None:
    argv = ["forewarn", "dev", "--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"]
    argv += ["--state", str(tmp_path / "state.db")]
    process = subprocess.Popen(
        argv, env=server.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    running = Running(process, argv)
    try:
        line = running.line()
        while not line.startswith("ready "):
            line = running.line()
        urls = json.loads(line.removeprefix("ready "))
        request = Request(urls["metadata"] + EVENTS, headers={"Metadata": "true"})
        with urlopen(request, timeout=LIMIT) as answer:
            assert json.load(answer)["Events"] == []
        commands = server.run(
            *("forewarn", "event", "schedule", "Reboot", "web_0", "--json"),
            environ={"FOREWARN_URL": urls["control"]},
        )
        assert commands.returncode == 0, commands.stderr
        process.send_signal(signal.SIGINT)
        assert running.wait(LIMIT) == 0
    finally:
        running.stop()


def test_scenarios_need_nothing_but_the_extra_for_servers(server: EmptyEnvironment) -> None:
    assert "spot-eviction" in server.done("forewarn", "scenario", "list")
