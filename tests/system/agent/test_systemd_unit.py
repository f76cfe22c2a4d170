"""The agent's systemd unit: valid, confined, in agreement with its configuration; and an agent that
does all it has to within what the unit allows."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forewarn.agent.config.read import read
from forewarn.agent.telemetry.health import BEAT, LOOP_PATIENCE
from forewarn.cli.commands.agent import DEFAULT_CONFIG
from forewarn.testing import Service
from helpers.clean_root import needed
from helpers.notify_socket import NotifySocket
from helpers.paths import HELPERS, ROOT
from helpers.running_agent import configured, running_agent
from helpers.waiting import LIMIT, until

DEPLOY = ROOT / "deploy/agent"
UNIT = DEPLOY / "forewarn-agent.service"
DROP_IN = DEPLOY / "forewarn-agent.service.d/hooks.conf.example"
MOST_EXPOSED = 2.0  # of 10


def service() -> configparser.SectionProxy:
    made = configparser.RawConfigParser(strict=False, delimiters=["="], comment_prefixes=["#"])
    made.optionxform = str  # type: ignore[assignment,method-assign]
    made.read(UNIT)
    return made["Service"]


def analyze(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("needs systemd-analyze: tools/test-packages as root")
        pytest.skip("needs systemd-analyze: apt-get install systemd")
    argv = ("systemd-analyze", *argv)
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=LIMIT)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The unit, with a program that is there."""
    (tmp_path / UNIT.name).write_text(UNIT.read_text().replace("/usr/bin/forewarn", "/bin/true"))
    return tmp_path


@pytest.mark.parametrize("drop_in", [False, True], ids=["alone", "with all of the drop-in"])
def test_systemd_analyze_verifies_the_agent_unit_without_warnings(
    directory: Path, drop_in: bool
) -> None:
    if drop_in:
        used = re.sub(r"^#(?=[A-Z]\w+=)", "", DROP_IN.read_text(), flags=re.MULTILINE)
        (directory / f"{UNIT.name}.d").mkdir()
        (directory / f"{UNIT.name}.d/hooks.conf").write_text(used)
    checked = analyze("verify", f"./{UNIT.name}", cwd=directory)
    ours = [line for line in checked.stderr.splitlines() if "forewarn" in line]
    assert (checked.returncode, ours) == (0, [])


def test_the_agent_unit_has_the_documented_exposure_level(directory: Path) -> None:
    found = analyze("security", "--offline=true", "--no-pager", f"./{UNIT.name}", cwd=directory)
    level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", found.stdout)
    assert level is not None, found.stderr
    assert float(level[1]) < MOST_EXPOSED
    promised = re.search(
        r"rates it ([0-9.]+)", (ROOT / "docs/applications/agent-operations.md").read_text()
    )
    assert promised is not None
    assert promised[1] == level[1]


def test_the_agent_unit_agrees_with_the_shipped_configuration() -> None:
    output = service()
    config = read(DEPLOY / "agent.toml")
    assert config.warnings == ()
    assert str(config.state) == f"/var/lib/{output['StateDirectory'].split()[0]}"
    assert output["Environment"] == f"TMPDIR=/var/lib/{output['StateDirectory'].split()[1]}"
    assert output["ExecStart"] == f"/usr/bin/forewarn agent --config {DEFAULT_CONFIG}"
    assert output["User"] in (DEPLOY / "sysusers.conf").read_text()
    assert {rule.approve for rule in config.rules} == {"never"}  # nothing is done unless one says


def test_everything_in_the_example_configuration_is_valid(tmp_path: Path) -> None:
    example = (DEPLOY / "agent.toml").read_text().replace('hooks = ["note"]\n', "", 1)
    used = tmp_path / "agent.toml"
    used.write_text(re.sub(r"^#(?=[a-z\[])", "", example, flags=re.MULTILINE))
    config = read(used)
    assert set(config.hooks) == {"note", "drain", "app", "mine"}
    (warning,) = config.warnings
    assert warning.startswith(f"{used}: hook.mine: ")


def test_hooks_under_way_survive_a_restart_of_the_agent() -> None:
    """systemd ends the agent alone; with a real one, that is test_agent_booted's."""
    assert service()["KillMode"] == "process"


def test_the_watchdog_timeout_exceeds_the_agents_own_health_limits() -> None:
    assert int(service()["WatchdogSec"].removesuffix("s")) > LOOP_PATIENCE > BEAT


def test_the_agent_works_within_the_sandbox_of_its_unit(tmp_path: Path) -> None:
    """Also a hook of the user's own, and a ready-made one, which it starts."""
    needed("systemd-analyze", "mount")
    config = configured(
        tmp_path,
        '[[rule]]\nname = "all"\nhooks = ["mine", "note"]\napprove = "when-done"',
        "[hook.mine]",
        f'prepare = ["/bin/sh", "-c", "env > {tmp_path}/env; touch {tmp_path}/drained"]',
        f'undo = ["/bin/rm", "{tmp_path}/drained"]',
        '[hook.note]\nlog = { to = "syslog", address = "127.0.0.1:9" }',
    )
    before = [sys.executable, str(HELPERS / "systemd_sandbox.py"), str(UNIT), str(tmp_path), ""]
    env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "3000000"}
    drained = tmp_path / "drained"
    with (
        Service() as fleet,
        NotifySocket(env["NOTIFY_SOCKET"]) as manager,
        running_agent(
            machine := fleet.scale_set("web", 1)[0], config, before=before, env=env
        ) as agent,
    ):
        assert manager.until("READY")["READY"] == "1"
        assert agent.get("/readyz")[0] == 200
        assert agent.metrics()["forewarn_agent_ready"] == 1
        event = machine.restart()
        until(lambda: event.status == "Started")  # both are done, and it is approved
        assert drained.exists()
        reported = (tmp_path / "env").read_text()
        for name in ("NOTIFY_SOCKET", "WATCHDOG_"):
            assert name not in reported
        fleet.clock.advance("30m")
        until(lambda: agent.metrics()["forewarn_agent_cases"] == 0)
        assert not drained.exists()
        manager.drain()
        manager.until("WATCHDOG")
        agent.running.process.terminate()
        manager.until("STOPPING")
        assert agent.running.wait() == 0
