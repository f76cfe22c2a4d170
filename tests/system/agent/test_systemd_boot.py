"""The agent's unit in a real systemd: as its own user, confined, and restarted in the middle of a
hook, which goes on and is undone."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.paths import ROOT
from helpers.process import Running
from helpers.running_agent import RunningAgent
from helpers.systemd_boot import BootedSystemd
from helpers.waiting import until

DEPLOY = ROOT / "deploy/agent"
HERE = "/var/lib/forewarn-agent"  # of the agent, there

CONFIG = f"""
[agent]
state = "{HERE}"
endpoint = "URL"
listen = "/run/forewarn-agent/socket"

[[rule]]
name = "all"
hooks = ["slow"]

[hook.slow]
prepare = ["/bin/sh", "-c", "id -un; touch /usr/no; echo $$ > {HERE}/pid; \
while [ ! -e {HERE}/go ]; do sleep 0.02; done; echo $TMPDIR; mktemp"]
undo = ["/bin/rm", "{HERE}/pid"]
"""

# What the test changes: where the project lies, which may be somebody's home or below /tmp, of
# which the unit has its own, has to be there and readable.
READABLE = f"""
BindReadOnlyPaths="{ROOT}" "{sys.prefix}" "{sys.base_prefix}"
ProtectHome=no
PrivateUsers=no
AmbientCapabilities=CAP_DAC_READ_SEARCH
CapabilityBoundingSet=CAP_DAC_READ_SEARCH
"""

FLEET = """
import sys
from forewarn.testing import Service
with Service(real_time=True) as service:
    machine = service.scale_set("web", 1)[0]
    print(machine.url, flush=True)
    sys.stdin.readline()
    event = service.schedule("Reboot", machine.name)
    sys.stdin.readline()
    event.cancel()
    sys.stdin.readline()
"""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[BootedSystemd]:
    unit = (DEPLOY / "forewarn-agent.service").read_text()
    unit = unit.replace("[Unit]", "[Unit]\nDefaultDependencies=no")
    unit = unit.replace("After=network.target local-fs.target time-sync.target", "")
    # By way of a shell, since systemd itself looks for the program without that capability.
    unit = re.sub(
        r"ExecStart=/usr/bin/forewarn (.*)",
        rf"""ExecStart=/bin/sh -c 'exec "{sys.executable}" -m forewarn \1'""",
        unit,
    )
    unit = unit.replace("[Install]", f"{READABLE}\n[Install]")
    machine = BootedSystemd(tmp_path, {"forewarn-agent.service": unit})
    try:
        machine.done("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", "/var/lib")
        machine.done("ip", "link", "set", "lo", "up")
        machine.done("systemd-sysusers", str(DEPLOY / "sysusers.conf"))
        yield machine
    finally:
        machine.close()


def test_a_hook_outlives_a_restart_of_its_agent_and_is_undone_by_the_next(
    machine: BootedSystemd, tmp_path: Path
) -> None:
    argv = [*machine.enter(), sys.executable, "-c", FLEET]
    pipe = subprocess.PIPE
    fleet = Running(subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True), argv)

    def step() -> None:
        assert fleet.process.stdin
        fleet.process.stdin.write("\n")
        fleet.process.stdin.flush()

    def show(name: str) -> str:
        return machine.done("systemctl", "show", "-P", name, "forewarn-agent").strip()

    inside = Path(f"/proc/{machine.pid}/root")
    agent = RunningAgent(fleet, inside / "run/forewarn-agent/socket")

    def status() -> dict[str, Any]:
        try:
            return agent.json("/status")
        except (OSError, ValueError):  # it is being started
            return {}

    def case() -> dict[str, Any]:
        cases: list[dict[str, Any]] = status().get("cases", [])
        return cases[0] if cases else {}

    try:
        config = CONFIG.replace("URL", fleet.line())
        (inside / "etc/forewarn").mkdir(exist_ok=True)
        (inside / "etc/forewarn/agent.toml").write_text(config)
        machine.done("systemctl", "start", "forewarn-agent")
        until(lambda: status().get("machine") == "web_0")
        step()
        pid = inside / f"{HERE[1:]}/pid"
        until(pid.exists)
        first = show("MainPID")
        machine.done("systemctl", "restart", "forewarn-agent")
        assert show("MainPID") != first
        machine.done("kill", "-0", pid.read_text().strip())  # the hook is still there
        until(lambda: bool(case()))
        assert [run["state"] for run in case()["runs"]] == ["running"]
        (inside / f"{HERE[1:]}/go").touch()
        until(lambda: [run["state"] for run in case()["runs"]] == ["done"])
        (run,) = case()["runs"]  # it was run once
        assert (run["outcome"], run["code"]) == ("ended", 0)
        (output,) = (inside / HERE[1:]).glob("cases/*/runs/*/output")
        who, refused, place, made = output.read_text().splitlines()
        assert (who, place) == ("forewarn-agent", f"{HERE}/tmp")
        assert "Read-only file system" in refused
        assert made.startswith(f"{HERE}/tmp/")
        step()
        until(lambda: case()["closed"] is not None)
        assert not pid.exists()
        assert (show("ActiveState"), show("NRestarts")) == ("active", "0")
        assert show("StatusText")
    finally:
        assert fleet.process.stdin
        fleet.process.stdin.close()  # what it waits for
        fleet.wait()
