"""keepalived with the configuration that is shipped: the guests' address is where the control node
is that decides."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.certificates import Authority
from helpers.control_nodes import LEASE, new_state
from helpers.forked_cli import FOREWARN
from helpers.netns import METADATA_ADDRESS, Lab, Namespace, needs_root, require
from helpers.paths import ROOT
from helpers.waiting import until

SHIPPED = (ROOT / "deploy/keepalived/keepalived.conf").read_text()
PAGE = (ROOT / "docs/operate/several-control-nodes.md").read_text()
NODES = {"c1": "10.77.0.11", "c2": "10.77.0.12"}
GUEST = "10.77.0.21"
GUESTS_ADDRESS = "10.77.0.2"
FLEET = f"groups: [{{name: web, kind: standalone, machines: [{{name: web, address: {GUEST}}}]}}]"
DOCUMENT = f"http://{METADATA_ADDRESS}/metadata/scheduledevents?api-version=2020-07-01"
POLL = ("curl", "--silent", "--fail", "--max-time", "1", "-H", "Metadata:true", DOCUMENT)


def settings(name: str, directory: Path, authority: Authority, state: str) -> str:
    """Return the settings that the page shows, with the names and addresses of the lab."""
    [text] = re.findall(r"(?s)```toml\n(    state = .*?)```", PAGE)
    tls = authority.issue(f"{name}.example.net", NODES[name])
    for shown, here in (
        *(("postgresql://forewarn@db1,db2,db3/forewarn", state), ('"c1"', f'"{name}"')),
        *(("192.0.2.11", NODES[name]), ("c1.example.net", f"{name}.example.net")),
        ("/etc/forewarn/tls.pem", str(tls.certificate)),
        ("/etc/forewarn/tls.key", str(tls.key)),
        *(("/var/lib/forewarn", str(directory)), ('"15s"', f'"{LEASE}"')),
    ):
        assert shown in text
        text = text.replace(shown, here)
    return f'{text}\nlog = "json"\nmetadata = "{METADATA_ADDRESS}:80"\n'


def configuration(name: str, authority: Authority) -> str:
    """Return what is shipped, with the names and addresses of the lab."""
    others = [address for other, address in NODES.items() if other != name]
    text = re.sub(r"(?m)^( *unicast_src_ip) .*", rf"\1 {NODES[name]}", SHIPPED)
    text = re.sub(r"(unicast_peer) \{[^}]*\}", rf"\1 {{\n{others[0]}\n}}", text)
    for shipped, here in (
        *(("router_id c1", f"router_id {name}"), ("interface mgmt0", "interface eth0")),
        ("10.0.0.2/24 dev br0", f"{GUESTS_ADDRESS}/24 dev eth0"),
        *(("192.0.2.11", NODES[name]), ("c1.example.net", f"{name}.example.net")),
        ("/etc/forewarn/ca.pem", str(authority.path)),
    ):
        assert shipped in text
        text = text.replace(shipped, here)
    return text


class ControlMachine:
    """A control node and keepalived on a machine of its own."""

    def __init__(
        self, name: str, namespace: Namespace, directory: Path, state: str, authority: Authority
    ) -> None:
        self.namespace = namespace
        self.url = f"https://{NODES[name]}:8170"
        self.authority = authority
        self.directory = directory / name
        self.directory.mkdir()
        namespace.run(["ip", "address", "add", f"{METADATA_ADDRESS}/32", "dev", "lo"])
        file = self.directory / "forewarn.toml"
        file.write_text(settings(name, self.directory, authority, state))
        (self.directory / "keepalived.conf").write_text(configuration(name, authority))
        argv = [*FOREWARN, "serve", "--config", str(file)]
        self.service = namespace.popen(argv, cwd=self.directory)

    def leads(self) -> bool:
        ca = ("--cacert", str(self.authority.path))
        asked = ["curl", "--silent", "--fail", *ca, f"{self.url}/leaderz"]
        return self.namespace.run(asked, check=False).returncode == 0

    def keepalived(self, *more: str) -> list[str]:
        files = (f"--{kind}={self.directory}/{kind}" for kind in ("pid", "vrrp_pid"))
        return ["keepalived", "--vrrp", "-f", f"{self.directory}/keepalived.conf", *files, *more]

    def has_address(self) -> bool:
        shown = self.namespace.run(["ip", "-o", "-4", "address", "show", "dev", "eth0"]).stdout
        return f" {GUESTS_ADDRESS}/24 " in shown


def test_the_documentation_shows_the_check_that_is_shipped() -> None:
    (shown,) = re.findall(r"^```\n(vrrp_script .*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert shown in re.sub(r"(?m)^ *#.*\n", "", SHIPPED)


@pytest.fixture
def lab() -> Iterator[Lab]:
    needs_root()
    require(shutil.which("keepalived"), "keepalived: tools/test-packages as root")
    with Lab([*NODES.values(), GUEST], network="10.77.0.0/24") as lab:
        yield lab


@pytest.fixture
def authority() -> Iterator[Authority]:
    """One whose certificate the user of keepalived's scripts can read."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        yield Authority(Path(directory))


def test_the_guests_address_follows_the_control_node_that_decides(
    lab: Lab, tmp_path: Path, authority: Authority
) -> None:
    state = new_state()
    create = [*FOREWARN, "token", "create", "alice", "--role=admin", f"--state={state}"]
    token = lab.host.run(create).stdout.strip()
    machines = [
        ControlMachine(name, lab.guests[address], tmp_path, state, authority)
        for name, address in NODES.items()
    ]
    for machine in machines:
        checked = machine.namespace.run(machine.keepalived("--config-test"), check=False)
        assert checked.stderr == ""  # its status is that of a signal, whatever it finds
        machine.namespace.popen(machine.keepalived("--dont-fork", "--log-console"))
    until(lambda: any(machine.has_address() for machine in machines))
    first, second = sorted(machines, key=ControlMachine.has_address, reverse=True)
    assert (first.leads(), second.leads()) == (True, False)
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(FLEET)
    env = {"FOREWARN_CA": str(authority.path), "FOREWARN_TOKEN": token, "FOREWARN_URL": first.url}
    first.namespace.run([*FOREWARN, "apply", fleet], env=env)
    guest = lab.guests[GUEST]
    guest.run(["ip", "route", "replace", f"{METADATA_ADDRESS}/32", "via", GUESTS_ADDRESS])

    def answered() -> bool:
        return guest.run(POLL, check=False).returncode == 0

    until(answered)
    assert not second.has_address()
    first.service.process.kill()
    until(second.has_address)
    until(answered)
    assert not first.has_address()
