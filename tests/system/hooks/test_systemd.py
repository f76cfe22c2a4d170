"""The hook that stops units and starts them again, with a real systemd that has some."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.hook_runs import Hook
from helpers.netns import require
from helpers.paths import ROOT
from helpers.systemd_boot import BootedSystemd, as_user

RULES = ROOT / "deploy/agent/50-forewarn-agent.rules"
AGENT = 64_169  # the user's number, there
LOG = "/run/order"


def unit(name: str, start: str = "exec sleep infinity", more: str = "") -> str:
    """One that tells in which order it was started and stopped."""
    return f"""[Unit]
DefaultDependencies=no
[Service]
ExecStartPre=/bin/sh -c 'echo +{name} >> {LOG}'
ExecStart=/bin/sh -c '{start}'
ExecStopPost=/bin/sh -c 'echo -{name} >> {LOG}'
{more}
"""


BUS = {
    "dbus.socket": "[Unit]\nDefaultDependencies=no\n[Socket]\n"
    "ListenStream=/run/dbus/system_bus_socket\n",
    "dbus.service": "[Unit]\nDefaultDependencies=no\nRequires=dbus.socket\n[Service]\n"
    "Type=notify\nNotifyAccess=main\nExecStart=/usr/bin/dbus-daemon --system --address=systemd:"
    " --nofork --nopidfile --systemd-activation --syslog-only\n",
    "polkit.service": "[Unit]\nDefaultDependencies=no\n[Service]\nType=dbus\n"
    "BusName=org.freedesktop.PolicyKit1\nExecStart=/usr/lib/polkit-1/polkitd --no-debug\n",
}


PLACE = "/run/user-64169"
USERS = f"""[Unit]
DefaultDependencies=no
[Service]
Type=notify
Delegate=yes
Environment=XDG_RUNTIME_DIR={PLACE} SYSTEMD_UNIT_PATH=/run/units
ExecStartPre=mkdir -p {PLACE}
ExecStart=/usr/lib/systemd/systemd --user --unit=ready.target --log-target=null
"""


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BootedSystemd]:
    units = {
        "app.service": unit("app"),
        "db.service": unit("db"),
        "idle.service": unit("idle"),
        "broken.service": unit("broken", "exit 7"),
        "fragile.service": unit(
            "fragile", more="ExecStartPre=/bin/sh -c 'test ! -e /run/broken'"
        ),
        "stubborn.service": unit("stubborn", 'trap "" TERM; while :; do sleep 1; done',
                                 "TimeoutStopSec=60"),
        "manager.service": USERS,
        **BUS,
    }  # fmt: skip
    machine = BootedSystemd(tmp_path_factory.mktemp("booted"), units)
    try:
        yield machine
    finally:
        machine.close()


def order(machine: BootedSystemd) -> list[str]:
    return machine.done("sh", "-c", f"cat {LOG}; : > {LOG}").split()


def test_units_are_stopped_in_reverse_order_and_started_in_the_given_one(
    booted: BootedSystemd, tmp_path: Path
) -> None:
    booted.done("systemctl", "start", "db", "app")
    order(booted)
    hook = Hook("systemd", {"units": ["db", "app.service", "idle.service"]}, tmp_path)

    status, output = hook.program("prepare", prefix=booted.enter())
    assert status == 0
    idle, *stopped = output.splitlines()
    assert idle.startswith("idle.service is not ")
    assert stopped == ["stopped app.service", "stopped db.service"]
    assert booted.states("db", "app", "idle") == ["inactive"] * 3
    assert order(booted) == ["-app", "-db"]

    # Again, as after a crash: what was found first is what counts.
    assert hook.program("prepare", prefix=booted.enter(), attempt=2)[0] == 0
    status, output = hook.program("undo", prefix=booted.enter())
    assert (status, output.splitlines()) == (0, ["started db.service", "started app.service"])
    assert booted.states("db", "app", "idle") == ["active", "active", "inactive"]
    assert order(booted) == ["+db", "+app"]

    status, output = hook.program("undo", prefix=booted.enter())
    assert (status, ".service" in output) == (0, False)
    assert booted.states("db", "app", "idle") == ["active", "active", "inactive"]


def test_a_unit_that_is_unknown_or_masked_stops_nothing(
    booted: BootedSystemd, tmp_path: Path
) -> None:
    booted.done("systemctl", "start", "app")
    booted.done("ln", "-sf", "/dev/null", "/run/units/masked.service")
    booted.done("systemctl", "daemon-reload")
    hook = Hook("systemd", {"units": ["app", "nowhere", "masked"]}, tmp_path)
    status, output = hook.program("prepare", prefix=booted.enter())
    assert status == 1
    assert "no unit nowhere.service" in output
    assert "masked.service is masked " in output
    assert booted.states("app") == ["active"]
    assert list(tmp_path.iterdir()) == []
    script = (
        "from forewarn.agent.hooks import KINDS; k = KINDS['systemd'];"
        "[print(says) for says in k.check(k.options(units=['app', 'nowhere', 'masked']))]"
    )
    unknown, masked = booted.done(sys.executable, "-I", "-c", script).splitlines()
    assert "no unit nowhere.service; " in unknown
    assert masked.startswith("masked.service is masked ")


def test_a_unit_that_does_not_start_again_is_named_and_the_others_are_started(
    booted: BootedSystemd, tmp_path: Path
) -> None:
    booted.done("systemctl", "start", "fragile", "app")
    booted.run("systemctl", "start", "broken")
    hook = Hook("systemd", {"units": ["fragile", "broken", "app"]}, tmp_path)
    status, output = hook.program("prepare", prefix=booted.enter())
    assert (status, "broken.service is not " in output) == (0, True)
    booted.done("touch", "/run/broken")

    status, output = hook.program("undo", prefix=booted.enter())
    assert status == 1
    assert output.startswith("fragile.service did not ")
    assert ": exit-code; " in output
    assert output.endswith("; started app.service\n")
    assert booted.states("app") == ["active"]

    booted.done("rm", "/run/broken")
    assert hook.program("undo", prefix=booted.enter())[0] == 0
    assert booted.states("fragile", "broken", "app") == ["active", "failed", "active"]


def test_a_unit_that_takes_too_long_to_stop_fails_the_hook_in_time(
    booted: BootedSystemd, tmp_path: Path
) -> None:
    booted.done("systemctl", "start", "stubborn")
    hook = Hook("systemd", {"units": ["stubborn"], "timeout": "200ms"}, tmp_path)
    status, output = hook.program("prepare", prefix=booted.enter())
    assert status == 1
    assert re.match("stop of stubborn.service .* time is up", output)
    booted.done("systemctl", "kill", "--signal=KILL", "stubborn")
    hook.options["timeout"] = "5m"  # to start it may take long
    assert hook.program("undo", prefix=booted.enter())[0] == 0
    assert booted.states("stubborn") == ["active"]


def test_units_of_a_users_manager_are_stopped_and_started(
    booted: BootedSystemd, tmp_path: Path
) -> None:
    booted.done("systemctl", "stop", "app")
    booted.done("systemctl", "start", "manager")
    own = {"XDG_RUNTIME_DIR": PLACE}
    there = ["env", f"XDG_RUNTIME_DIR={PLACE}", "systemctl", "--user"]
    booted.done(*there, "start", "app")
    hook = Hook("systemd", {"units": ["app"], "scope": "user"}, tmp_path)
    assert hook.program("prepare", prefix=booted.enter(), env=own) == (0, "stopped app.service\n")
    assert booted.run(*there, "is-active", "app").stdout == "inactive\n"
    assert hook.program("undo", prefix=booted.enter(), env=own) == (0, "started app.service\n")
    assert booted.run(*there, "is-active", "app").stdout == "active\n"
    assert booted.states("app") == ["inactive"]


def test_a_user_may_stop_the_units_of_the_rule_and_no_others(
    booted: BootedSystemd, tmp_path: Path
) -> None:
    polkit = Path("/usr/lib/polkit-1/polkitd")
    require(polkit.exists(), "polkitd: tools/test-packages as root")
    passwd = f"forewarn-agent:x:{AGENT}:{AGENT}::/:/usr/sbin/nologin"
    booted.done("sh", "-c", f"echo {passwd} >> /etc/passwd")
    booted.done("install", "-Dm644", str(RULES), "/etc/polkit-1/rules.d/50-forewarn-agent.rules")
    booted.done("systemctl", "start", "dbus.socket", "dbus.service", "app", "db")
    user = [*booted.enter(), *as_user(AGENT)]
    tmp_path.chmod(0o777)
    app = Hook("systemd", {"units": ["app"]}, tmp_path / "app")
    db = Hook("systemd", {"units": ["db"]}, tmp_path / "db")
    for state in (app.state, db.state):
        state.chmod(0o777)

    status, output = db.program("prepare", prefix=user)
    assert status == 1
    assert "polkit rule" in output
    assert app.program("prepare", prefix=user) == (0, "stopped app.service\n")
    assert booted.states("app", "db") == ["inactive", "active"]
    assert app.program("undo", prefix=user) == (0, "started app.service\n")
    assert booted.states("app", "db") == ["active", "active"]
