"""The service's units in a real systemd: its sockets are opened before it, the second port only if
somebody enables it, and a restart refuses no poll on either. A reload with wrong settings fails.
A control node reaches its database as the documentation says. Control and a node share a
machine."""

from __future__ import annotations

import contextlib
import pwd
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import postgres
from helpers.netns import METADATA_ADDRESS
from helpers.paths import ROOT
from helpers.process import Running
from helpers.systemd_boot import BootedSystemd
from helpers.waiting import until

DEPLOY = ROOT / "deploy/systemd"
NODE_DEPLOY = ROOT / "deploy/node"
NODE = ["forewarn-node.socket", "forewarn-node.service"]
SERVICE, OPTIONAL = "forewarn.service", "forewarn-metadata-8080.socket"
LOCAL_NODE, NODES_PATH = "forewarn-nodes.socket", "/run/forewarn-nodes.sock"
SOCKETS = ["forewarn-metadata.socket", "forewarn-control.socket"]
GUEST = "10.0.0.10"
SETTINGS_FILE = Path("/etc/forewarn/forewarn.toml")

SETTINGS = f"""
fleet = "fleet.yaml"
state = "/var/lib/forewarn/forewarn.db"
metadata = ["{METADATA_ADDRESS}:80", "{METADATA_ADDRESS}:8080"]
"""
FLEET = f"groups: [{{name: web, kind: standalone, machines: [{{name: web, address: {GUEST}}}]}}]"

# What the test changes: where the project lies has to be there and readable.
READABLE = f"""
BindReadOnlyPaths="{ROOT}" "{sys.prefix}" "{sys.base_prefix}"
ProtectHome=no
PrivateUsers=no
AmbientCapabilities=CAP_DAC_READ_SEARCH
CapabilityBoundingSet=CAP_DAC_READ_SEARCH
"""
# One poll of each port for each line that it is sent, and what came of them.
POLLER = f"""
import http.client, sys
def poll(port):
    line = http.client.HTTPConnection("{METADATA_ADDRESS}", port, 60, ("{GUEST}", 0))
    try:
        line.request("GET", "/metadata/scheduledevents?api-version=2020-07-01",
                     headers={{"Metadata": "true"}})
        return str(line.getresponse().status)
    except OSError as error:
        return type(error).__name__
    finally:
        line.close()
print("ready", flush=True)
for _ in sys.stdin:
    print(poll(80), poll(8080), flush=True)
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BootedSystemd]:
    units = {}
    for name in (SERVICE, *SOCKETS, OPTIONAL, LOCAL_NODE, *NODE):
        unit = ((NODE_DEPLOY if name in NODE else DEPLOY) / name).read_text()
        unit = unit.replace("[Unit]", "[Unit]\nDefaultDependencies=no")
        unit = unit.replace(" network.target local-fs.target", "").replace(" time-sync.target", "")
        unit = unit.replace("/usr/bin/forewarn-node", "/usr/bin/forewarn node")
        unit = re.sub(  # by way of a shell, since systemd looks for it without that capability
            r"(Exec\w+)=/usr/bin/forewarn (.*)",
            rf"""\1=/bin/sh -c 'exec "{sys.executable}" -m forewarn \2'""",
            unit,
        ).replace("[Service]", f"[Service]{READABLE}")
        # The unit's own lines come after those of the test, and would win.
        unit = re.sub(r"(?m)^(CapabilityBoundingSet|AmbientCapabilities)=\n", "", unit)
        units[name] = re.sub(r"(?m)^(ProtectHome|PrivateUsers)=yes\n", "", unit)
    machine = BootedSystemd(tmp_path_factory.mktemp("systemd"), units)
    try:
        machine.done("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", "/var/lib")
        machine.done("ip", "link", "set", "lo", "up")
        for address in (METADATA_ADDRESS, GUEST):
            machine.done("ip", "address", "add", f"{address}/32", "dev", "lo")
        for directory in (DEPLOY, NODE_DEPLOY):
            machine.done("systemd-sysusers", str(directory / "sysusers.conf"))
        etc = Path(f"/proc/{machine.pid}/root/etc/forewarn")
        etc.mkdir(exist_ok=True)
        (etc / "forewarn.toml").write_text(SETTINGS)
        (etc / "fleet.yaml").write_text(FLEET)
        yield machine
    finally:
        machine.close()


class Poller:
    def __init__(self, machine: BootedSystemd) -> None:
        argv = [*machine.enter(), sys.executable, "-c", POLLER]
        pipe = subprocess.PIPE
        process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        self.running = Running(process, argv)
        assert self.running.line() == "ready"

    def ask(self) -> None:
        assert self.running.process.stdin
        self.running.process.stdin.write("\n")
        self.running.process.stdin.flush()

    def answers(self) -> list[str]:
        return self.running.line().split()


def test_the_second_port_is_handed_over_once_it_is_enabled_and_outlives_a_restart(
    machine: BootedSystemd,
) -> None:
    poller = Poller(machine)
    try:
        machine.done("systemctl", "start", SERVICE)
        assert machine.states(*SOCKETS, OPTIONAL) == ["active", "active", "inactive"]
        poller.ask()
        assert poller.answers() == ["200", "ConnectionRefusedError"]
        # As docs/operate/install.md has it.
        machine.done("systemctl", "stop", *SOCKETS, OPTIONAL, SERVICE)
        machine.done("systemctl", "start", *SOCKETS, OPTIONAL, SERVICE)
        poller.ask()
        assert poller.answers() == ["200", "200"]
        machine.done("systemctl", "stop", SERVICE)
        for _ in range(3):  # they wait in the kernel, and start it again
            poller.ask()
        machine.done("systemctl", "restart", SERVICE)
        assert [poller.answers() for _ in range(3)] == [["200", "200"]] * 3
        both = f"http://{METADATA_ADDRESS}:80, http://{METADATA_ADDRESS}:8080"
        assert both in status_text(machine)
    finally:
        assert poller.running.process.stdin
        poller.running.process.stdin.close()
        poller.running.wait()


def test_a_reload_with_settings_that_cannot_be_used_fails_and_changes_nothing(
    machine: BootedSystemd,
) -> None:
    file = Path(f"/proc/{machine.pid}/root/etc/forewarn/forewarn.toml")
    check = (sys.executable, "-m", "forewarn", "config", "check", "--config", str(SETTINGS_FILE))
    machine.done("systemctl", "start", SERVICE)
    try:
        file.write_text(f"{SETTINGS}silence = 'long'\n")
        assert machine.run("systemctl", "reload", SERVICE).returncode != 0
        assert machine.states(SERVICE) == ["active"]
        # Somebody who sends the signal by hand is told by the status.
        machine.done("systemctl", "kill", "--signal=HUP", "--kill-whom=main", SERVICE)
        until(lambda: "the previous ones stay in force" in status_text(machine))
        assert "silence" in status_text(machine)
        file.write_text(f"{SETTINGS}silence = '20h'\n")
        machine.done("systemctl", "reload", SERVICE)
        until(lambda: "guests at" in status_text(machine))
        assert "runs as forewarn" in machine.run(*check).stderr
    finally:
        file.write_text(SETTINGS)


# As docs/operate/several-control-nodes.md has it: the password is in a file of the service's user.
CONTROL_NODE = """
name = "c1"
state = "{url}"
local_directory = "/var/lib/forewarn"
"""
OPERATORS = "http://127.0.0.1:8170"
OVER_TCP = "postgresql://forewarn@127.0.0.1/postgres"
OVER_UNIX_SOCKET = "postgresql://forewarn@/postgres?host=/run/postgresql"
PASSWORDS = "*:5432:postgres:forewarn:secret"
WITH_PASSWORD = """\
local all all scram-sha-256
host all all 127.0.0.1/32 scram-sha-256
"""


@pytest.fixture
def database(machine: BootedSystemd) -> Iterator[None]:
    """PostgreSQL inside, on loopback and on a Unix socket; both ask for a password."""
    postgres.needed()
    with tempfile.TemporaryDirectory(prefix="forewarn-postgres-") as directory:
        server = postgres.Server(Path(directory))
        server.create()
        with running_inside(machine, server):
            yield


@contextlib.contextmanager
def running_inside(machine: BootedSystemd, server: postgres.Server) -> Iterator[None]:
    user = pwd.getpwnam(postgres.USER)
    who = "setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"
    ctl = (*who, f"{server.programs}/pg_ctl", "-D", str(server.data))
    options = "-c listen_addresses=127.0.0.1 -c unix_socket_directories=/run/postgresql"
    machine.done("install", "-d", "-o", postgres.USER, "/run/postgresql")
    machine.done(*ctl, "-w", "-l", str(server.log), "-o", options, "start")
    try:
        ours = "psql", "-h", "/run/postgresql", "-U", "forewarn", "postgres"
        machine.done(*ours, "-c", "ALTER ROLE forewarn PASSWORD 'secret'")
        (server.data / "pg_hba.conf").write_text(WITH_PASSWORD)
        machine.done(*ctl, "reload")
        yield
    finally:
        machine.done(*ctl, "-m", "immediate", "stop")


def test_a_control_node_reaches_its_database_within_what_the_unit_allows(
    machine: BootedSystemd, database: None
) -> None:
    etc = Path(f"/proc/{machine.pid}/root/etc/forewarn")
    owner = "-o", "forewarn", "-g", "forewarn"
    machine.done("install", "-d", "-m", "700", *owner, "/var/lib/forewarn")
    (etc / "passwords").write_text(PASSWORDS)
    target = "/var/lib/forewarn/.pgpass"
    machine.done("install", "-m", "600", *owner, "/etc/forewarn/passwords", target)
    try:
        for url in (OVER_TCP, OVER_UNIX_SOCKET):
            (etc / "forewarn.toml").write_text(CONTROL_NODE.format(url=url))
            machine.done("systemctl", "restart", SERVICE)
            until(lambda: machine.run("curl", "-sf", f"{OPERATORS}/leaderz").returncode == 0)
            fleet = machine.run(
                sys.executable, "-m", "forewarn", "apply", "/etc/forewarn/fleet.yaml"
            )
            assert fleet.returncode == 0, fleet.stderr
    finally:
        machine.done("systemctl", "stop", SERVICE)
        (etc / "forewarn.toml").write_text(SETTINGS)


def status_text(machine: BootedSystemd, unit: str = SERVICE) -> str:
    return machine.done("systemctl", "show", "-P", "StatusText", unit)


BESIDE = """
fleet = "hosts.yaml"
state = "/var/lib/forewarn/nodes.db"
"""
HOSTS = FLEET.replace("groups:", "hosts: [host-a]\ngroups:").replace(
    "name: web, a", "host: host-a, name: web, a"
)


def shown(name: str) -> str:
    """Return settings of docs/operate/install.md."""
    page = (ROOT / "docs/operate/install.md").read_text()
    (block,) = re.findall(rf"```toml {name}\n(.*?)```", page, re.DOTALL)
    return textwrap.dedent(block)


@pytest.fixture
def control(machine: BootedSystemd) -> Iterator[Path]:
    """Settings of control and of the node beside it. The service's socket for guests is masked."""
    inside = Path(f"/proc/{machine.pid}/root")
    etc, unit = inside / "etc/forewarn", inside / "run/units" / SOCKETS[0]
    (etc / "hosts.yaml").write_text(HOSTS)
    (etc / "node.toml").write_text(shown("beside-node"))
    machine.done("systemctl", "stop", *SOCKETS, OPTIONAL, SERVICE)
    kept = unit.rename(unit.with_suffix(".kept"))
    try:
        (etc / "forewarn.toml").write_text(BESIDE + shown("beside-control"))
        unit.symlink_to("/dev/null")
        machine.done("systemctl", "daemon-reload")
        yield etc
    finally:
        machine.done("systemctl", "stop", *NODE, SOCKETS[1], LOCAL_NODE, SERVICE)
        kept.replace(unit)
        machine.done("systemctl", "daemon-reload")
        (etc / "forewarn.toml").write_text(SETTINGS)


def test_control_and_a_node_share_a_machine_and_no_poll_is_refused_while_one_of_them_restarts(
    machine: BootedSystemd, control: Path
) -> None:
    socket, service = NODE
    poller = Poller(machine)

    def answered() -> bool:
        poller.ask()
        return poller.answers() == ["200", "ConnectionRefusedError"]

    def joined() -> bool:
        return "host host-a: joined" in status_text(machine, service)

    try:
        machine.done("systemctl", "start", LOCAL_NODE, SERVICE, *NODE)
        assert machine.states(*SOCKETS, *NODE) == ["inactive", "active", "active", "active"]
        assert f"nodes at {NODES_PATH}" in status_text(machine)
        for user, exit_code in (("forewarn-node", 0), ("forewarn", 1), ("nobody", 1)):
            who = f"--reuid={user}", "--clear-groups", "test", "-w", NODES_PATH
            assert machine.run("setpriv", *who).returncode == exit_code, user
        assert answered()  # this may wait until control has told the node everything
        until(joined)
        machine.done("systemctl", "kill", "--signal=KILL", SERVICE)
        assert answered()
        machine.done("systemctl", "stop", SERVICE)
        until(lambda: machine.states(SERVICE) == ["active"])  # the node waits at its socket
        until(joined)
        machine.done("systemctl", "stop", service)
        assert answered()  # it waits in the kernel, and starts the node again
        (control / "node.toml").write_text("control = []\n")
        assert machine.run("systemctl", "reload", service).returncode != 0
        assert machine.states(socket, service) == ["active", "active"]
    finally:
        assert poller.running.process.stdin
        poller.running.process.stdin.close()
        poller.running.wait()
