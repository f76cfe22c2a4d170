"""The Debian packages of the service and of a node: built, installed side by side into a clean
root, used, upgraded, removed, purged."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import msgspec
import pytest

from forewarn.node import Config, Node
from forewarn.node.config import Address, NodeConnections
from forewarn.service.access.authority import CERTIFICATE, create_authority
from forewarn.service.fleet.read import parse
from forewarn.service.platform.enrollment import CreatedEnrollment, NewEnrollment
from helpers.clean_root import DPKG, CleanRoot, needed
from helpers.host_nodes import Control
from helpers.next_deb import make_next
from helpers.paths import ROOT
from helpers.process import Running
from helpers.serve_process import ServeProcess
from helpers.waiting import BUILD_LIMIT, LIMIT

PYTHON = "/usr/bin/python3"
SETTINGS = "/etc/forewarn/forewarn.toml"
NODE_SETTINGS = "/etc/forewarn/node.toml"
FLEET = """
hosts: [h1]
groups:
  - name: web
    kind: standalone
    machines: [{name: web, address: 127.0.0.1, host: h1}]
"""
SERVICES = ("forewarn", "forewarn-node")
IGNORED = "--ignore-depends=python3-libvirt"  # Debian's, which is not installed here
CERTIFICATES = ("node.pem", "node.key", "nodes-authority.pem")


@pytest.fixture(scope="module")
def packages(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The paths of the packages, by name."""
    needed("dpkg-deb", "systemd-sysusers", "systemd-analyze", "python3", "unshare", "nsenter")
    out = tmp_path_factory.mktemp("deb")
    built = subprocess.run(
        [ROOT / "tools/build-deb", Path(sys.executable).parents[1], PYTHON, out],
        env={**os.environ, "FOREWARN_WHEEL": str(wheel), "DEB_COMPRESSION": "0"},  # they go nowhere
        capture_output=True,
        text=True,
        timeout=BUILD_LIMIT,
    )
    assert built.returncode == 0, built.stderr
    return {path.name.partition("_")[0]: path for path in map(Path, built.stdout.split())}


@pytest.fixture(scope="module")
def root(
    packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CleanRoot]:
    root = CleanRoot(tmp_path_factory.mktemp("root"))
    root.done(*DPKG, IGNORED, "--install", *map(root.bring, packages.values()))
    yield root
    root.close()


def contents(package: Path) -> dict[str, str]:
    """Return the lines of the list of what a package contains, by path."""
    listed = subprocess.run(
        ["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return {line.split()[5]: line for line in listed}


def test_the_packages_have_what_they_should_and_nothing_that_can_be_written(
    packages: dict[str, Path],
) -> None:
    listed = {name: contents(package) for name, package in packages.items()}
    for path in [
        "./usr/bin/forewarn",
        "./usr/lib/systemd/system/forewarn.service",
        "./usr/lib/systemd/system/forewarn-metadata.socket",
        "./usr/lib/systemd/system/forewarn-metadata-8080.socket",
        "./usr/lib/systemd/system/forewarn-nodes.socket",
        "./usr/lib/systemd/system/forewarn-control.socket",
        "./usr/lib/sysusers.d/forewarn.conf",
        "./usr/lib/systemd/system/forewarn-agent.service",
        "./usr/lib/sysusers.d/forewarn-agent.conf",
        "./usr/share/doc/forewarn/examples/agent/agent.toml",
        "./usr/share/doc/forewarn/examples/keepalived/keepalived.conf",
        "./etc/forewarn/forewarn.toml",
        "./usr/share/doc/forewarn/copyright",
        "./usr/share/doc/forewarn/operate/install.md",
        "./usr/share/man/man1/forewarn.1.gz",
        "./usr/share/bash-completion/completions/forewarn",
        "./usr/share/zsh/vendor-completions/_forewarn",
        "./usr/share/fish/vendor_completions.d/forewarn.fish",
    ]:
        assert path in listed["forewarn"]
    for path in [
        "./usr/bin/forewarn-node",
        "./usr/lib/systemd/system/forewarn-node.service",
        "./usr/lib/systemd/system/forewarn-node.socket",
        "./usr/bin/forewarn-driver",
        "./usr/lib/systemd/system/forewarn-driver.service",
        "./usr/lib/sysusers.d/forewarn-driver.conf",
        "./etc/forewarn/driver.toml",
        "./usr/lib/sysusers.d/forewarn-node.conf",
        "./etc/forewarn/node.toml",
        "./usr/share/doc/forewarn-node/copyright",
        "./usr/share/doc/forewarn-node/operate/nodes.md",
        "./usr/share/doc/forewarn-node/examples/network/forewarn.nft",
        "./usr/share/man/man1/forewarn-node.1.gz",
    ]:
        assert path in listed["forewarn-node"]
    both = listed["forewarn"].keys() & listed["forewarn-node"].keys()
    assert [path for path in both if not path.endswith("/")] == []  # they do not collide
    lines = [*listed["forewarn"].values(), *listed["forewarn-node"].values()]
    modes = {line.split()[5]: line.split()[0] for line in lines}
    assert [line for line in lines if "root/root" not in line] == []
    writable = [p for p, mode in modes.items() if mode[0] in "-d" and (mode[5] + mode[8]) != "--"]
    assert writable == []
    assert [path for path in modes if "__pycache__" in path or path.endswith(".pyc")] == []
    for package in packages.values():
        places = subprocess.run(["grep", "-c", "-a", str(ROOT), package], capture_output=True)
        assert places.stdout == b"0\n"  # where it was built is nobody's business


def test_a_node_is_installed_without_what_only_the_service_needs(
    packages: dict[str, Path],
) -> None:
    service, node = (
        {path for path in contents(package) if path.endswith(".dist-info/")}
        for package in map(packages.__getitem__, SERVICES)
    )
    names = {path.rpartition("site-packages/")[2] for path in node}
    assert names < {path.rpartition("site-packages/")[2] for path in service}
    pinned = re.findall(r"(?m)^([a-z0-9-]+)==", (ROOT / "requirements/node.lock").read_text())
    installed = {name.partition("-")[0].replace("_", "-") for name in names} | {"colorama"}
    assert installed == {*pinned, "forewarn"}  # colorama is for Windows


def test_a_driver_process_finds_the_driver_for_libvirt(root: CleanRoot) -> None:
    """In a package of its own, with the module for libvirt from Debian's."""
    program = "import sys; from forewarn.drivers import registry; print(registry.names(), sys.path)"
    found = root.done("/usr/lib/forewarn-node/bin/python3", "-I", "-c", program)
    assert "'libvirt'" in found
    assert "/usr/lib/python3/dist-packages']" in found


def test_installing_makes_the_user_and_its_directory_and_starts_nothing(root: CleanRoot) -> None:
    assert root.done("forewarn", "--version", user="daemon").startswith("forewarn 0.")
    assert root.done("stat", "-c", "%U:%G %a", "/var/lib/forewarn") == "forewarn:forewarn 700\n"
    assert "nologin" in root.done("getent", "passwd", "forewarn")
    assert "nologin" in root.done("getent", "passwd", "forewarn-agent")
    for name in ("forewarn-node", "forewarn-driver"):
        owner = root.done("stat", "-c", "%U:%G %a", f"/var/lib/{name}")
        assert owner == f"{name}:{name} 700\n"
        assert "nologin" in root.done("getent", "passwd", name)
    assert "libvirt" in root.done("id", "-Gn", "forewarn-driver").split()
    assert "no program /usr/local" in root.run("forewarn-driver", "check").stderr
    enabled = root.done("find", "/etc/systemd/system", "-name", "*forewarn*")
    assert enabled == ""
    assert root.done("dpkg", "--verify", "forewarn", "forewarn-node") == ""


def test_the_installed_units_name_what_is_there(root: CleanRoot) -> None:
    sockets = [
        f"forewarn-{name}.socket" for name in ("metadata", "control", "metadata-8080", "nodes")
    ]
    units = ["forewarn.service", *sockets, "forewarn-agent.service"]
    units += ["forewarn-node.service", "forewarn-node.socket", "forewarn-driver.service"]
    checked = root.run(
        "systemd-analyze", "verify", *(f"/usr/lib/systemd/system/{unit}" for unit in units)
    )
    ours = [line for line in checked.stderr.splitlines() if "forewarn" in line]
    assert (checked.returncode, ours) == (0, [])


def test_the_installed_settings_can_be_used_by_the_services_user(root: CleanRoot) -> None:
    root.done("forewarn", "config", "check", "--config", SETTINGS, user="forewarn")
    shown = root.done("forewarn", "config", "show", "--config", SETTINGS, "--json", user="forewarn")
    (state,) = [one for one in json.loads(shown) if one["key"] == "state"]
    assert state["value"] == "/var/lib/forewarn/forewarn.db"
    assert state["from"].startswith(f"{SETTINGS}:")


def test_the_driver_for_postgresql_is_installed_too(root: CleanRoot) -> None:
    nowhere = "FOREWARN_STATE=postgresql://forewarn@127.0.0.1:1/forewarn"
    check = "forewarn", "config", "check", "--config", SETTINGS
    checked = root.run(nowhere, *check, user="forewarn")
    assert checked.returncode == 1
    assert "127.0.0.1:1/forewarn " in checked.stderr
    assert "connection failed" in checked.stderr


def test_the_installed_service_serves_as_its_user(root: CleanRoot) -> None:
    words = ["FOREWARN_METADATA=127.0.0.1:0", "FOREWARN_CONTROL=127.0.0.1:0"]
    words += ["XDG_RUNTIME_DIR=/var/lib/forewarn"]
    argv = root.argv([*words, "forewarn", "serve", "--config", SETTINGS], user="forewarn")
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    running = Running(process, argv)
    try:
        word, _, urls = running.line().partition(" ")
        assert word == "ready"
        service = ServeProcess(running, json.loads(urls))
        assert service.get("/v1/machines") is not None
        assert Path(f"/proc/{process.pid}").stat().st_uid != 0
    finally:
        running.stop()
    assert root.done("stat", "-c", "%U %a", "/var/lib/forewarn/forewarn.db") == "forewarn 600\n"


def test_the_installed_node_answers_a_guest_as_its_user(root: CleanRoot, tmp_path: Path) -> None:
    control = Control(tmp_path)
    control.config = msgspec.structs.replace(control.config, fleet=parse(FLEET))
    pair = control.authority.issue("forewarn:node:h1")
    files = pair.certificate, pair.key, control.authority.path
    for name, file in zip(CERTIFICATES, files, strict=True):
        copied, target = root.bring(file), f"/etc/forewarn/{name}"
        root.done("install", "-m", "640", "-g", "forewarn-node", copied, target)

    async def play() -> None:
        async with control() as service:
            await asyncio.to_thread(poll_installed_node, root, str(service.nodes_address))

    asyncio.run(play())
    journal = root.done("stat", "-c", "%U %a", "/var/lib/forewarn-node/journal")
    assert journal == "forewarn-node 600\n"
    # Its settings and what fills in the rules are found without being named.
    root.done("sh", "-c", "echo learn > /run/ports")
    node = ["FOREWARN_NODE_HOST=h1", "FOREWARN_NODE_STATUS=", "forewarn-node"]
    rules = root.done(*node, "rules", "/run/ports")
    assert "forewarn" in rules
    assert "element" in rules


def test_the_installed_node_is_enrolled_with_one_line(root: CleanRoot, tmp_path: Path) -> None:
    root.done("rm", "-f", "/var/lib/forewarn-node/journal")  # that of another control
    keeps = tmp_path / "authority"
    create_authority(keeps)
    lines = NodeConnections(Address("127.0.0.1", 0), None, keeps / CERTIFICATE, keeps)

    def join(control: str, token: str) -> None:
        line = ["forewarn-node", "join", control, token]
        refused = root.run(*line, "--rules")  # which are there, but would cut guests off
        assert refused.returncode == 1
        assert "/etc/forewarn/ports does not exist" in refused.stderr
        root.done(*line, "--no-start")
        owner = root.done("stat", "-c", "%U:%G %a", "/var/lib/forewarn-node/node.key")
        assert owner == "forewarn-node:forewarn-node 600\n"
        poll_installed_node(root, control)

    async def play() -> None:
        async with Node(Config(fleet=parse(FLEET), nodes=lines)) as service:
            created = await service.enrollments.create(NewEnrollment(host="h1"), "alice")
            assert isinstance(created, CreatedEnrollment)
            await asyncio.to_thread(join, created.addresses[0], created.token)

    asyncio.run(play())


def poll_installed_node(root: CleanRoot, control: str) -> None:
    command = ["FOREWARN_NODE_HOST=h1", f"FOREWARN_NODE_CONTROL={control}"]
    command += ["FOREWARN_NODE_METADATA=127.0.0.1:0", "FOREWARN_NODE_STATUS=", "forewarn-node"]
    root.done(*command, "check", "--config", NODE_SETTINGS, user="forewarn-node")
    argv = root.argv([*command, "--config", NODE_SETTINGS], user="forewarn-node")
    pipe = subprocess.PIPE
    process = subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True)
    running = Running(process, argv)
    try:
        word, _, urls = running.line().partition(" ")
        assert word == "ready"
        url = f"{json.loads(urls)['metadata']}/metadata/scheduledevents?api-version=2020-07-01"
        with urlopen(Request(url, headers={"Metadata": "true"}), timeout=LIMIT) as answer:
            assert json.load(answer)["Events"] == []
        assert Path(f"/proc/{process.pid}").stat().st_uid != 0
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        assert "/usr/lib/forewarn-node/" in maps
        assert "/usr/lib/forewarn/" not in maps
    finally:
        running.stop()


def test_an_upgrade_keeps_settings_and_state_and_mentions_the_restart(
    root: CleanRoot, packages: dict[str, Path], tmp_path: Path
) -> None:
    kept = "/var/lib/forewarn/kept /var/lib/forewarn-node/kept"
    root.done("sh", "-c", f"echo '#mine' | tee -a {SETTINGS} {NODE_SETTINGS}; touch {kept}")
    upgrades = [make_next(packages[name], tmp_path / name) for name in SERVICES]
    output = root.done(*DPKG, IGNORED, "--install", *map(root.bring, upgrades))
    assert output.count("still the old") == 2
    assert output.count(": upgraded from 0.") == 2
    for settings in (SETTINGS, NODE_SETTINGS):
        assert root.done("tail", "-n", "1", settings) == "#mine\n"
    root.done("ls", *kept.split())


def test_removing_keeps_settings_and_state_and_purging_leaves_nothing(root: CleanRoot) -> None:
    root.done(*DPKG, "--remove", "forewarn-libvirt", *SERVICES)
    for path in ("/usr/lib/forewarn", "/usr/lib/forewarn-node"):
        assert root.run("test", "-e", path).returncode == 1, path
    root.done("test", "-e", "/var/lib/forewarn-node/kept")
    root.done("test", "-e", NODE_SETTINGS)
    root.done("test", "-e", "/var/lib/forewarn/kept")
    root.done("test", "-e", SETTINGS)
    # A state on a file system of its own goes, and what it is mounted on stays.
    root.done("mount", "-t", "tmpfs", "tmpfs", "/var/lib/forewarn")
    root.done("sh", "-c", "mkdir /var/lib/forewarn/deep; touch /var/lib/forewarn/deep/state")
    purged = root.run("sh", "/var/lib/dpkg/info/forewarn.postrm", "purge")
    assert purged.returncode == 0
    assert purged.stderr.startswith("forewarn: /var/lib/forewarn ")
    assert root.done("ls", "-A", "/var/lib/forewarn") == ""
    root.done("umount", "/var/lib/forewarn")
    root.done("test", "-e", "/var/lib/forewarn/kept")
    root.done(*DPKG, "--purge", "forewarn")
    root.done("test", "-e", NODE_SETTINGS)
    root.done("rm", *(f"/etc/forewarn/{name}" for name in CERTIFICATES))  # which nobody installed
    root.done(*DPKG, "--purge", "forewarn-node")
    gone = "/var/lib/forewarn", "/usr/share/doc/forewarn", "/etc/forewarn"
    for path in (*gone, "/var/lib/forewarn-node", "/usr/share/doc/forewarn-node"):
        assert root.run("test", "-e", path).returncode == 1, path
