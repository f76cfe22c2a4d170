"""The unit that loads the guests' rules, run by a real systemd within all that it denies itself."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from helpers.clean_root import needed
from helpers.paths import ROOT
from helpers.systemd_boot import BootedSystemd

DEPLOY = ROOT / "deploy/network"
UNIT = "forewarn-network.service"
TARGET = "[Unit]\nDefaultDependencies=no\n"
TABLES = {"table bridge forewarn", "table arp forewarn", "table inet forewarn"}


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BootedSystemd]:
    needed("nft", "systemctl")
    directory = tmp_path_factory.mktemp("network")
    shutil.copy(DEPLOY / "forewarn.nft", directory)
    unit = (DEPLOY / UNIT).read_text()
    # The same unit, with commands that try what it must not be able to do.
    before, _, after = unit.partition("ExecStart=")
    after = after.partition("\n")[2]
    tried = {
        "write.service": "/usr/bin/touch /etc/written",
        "socket.service": "/usr/bin/perl -MSocket -e 'socket(S,PF_INET,SOCK_STREAM,0) or exit 1'",
        "mount.service": "/usr/bin/mount -t tmpfs tmpfs /mnt",
        "own.service": "/usr/bin/chown 1:1 /run/units",
        "nothing.service": "/bin/true",
    }
    units = {name: f"{before}ExecStart={command}\n{after}" for name, command in tried.items()}
    machine = BootedSystemd(directory, {UNIT: unit, "network-pre.target": TARGET, **units})
    try:
        machine.done("mkdir", "-p", "/etc/forewarn")
        machine.done("cp", str(directory / "forewarn.nft"), "/etc/forewarn/")
        yield machine
    finally:
        machine.close()


def test_the_rules_are_loaded_and_loaded_again_within_what_the_unit_allows(
    booted: BootedSystemd,
) -> None:
    booted.done("systemctl", "start", UNIT)
    assert set(booted.done("nft", "list", "tables").splitlines()) == TABLES
    booted.done("nft", "delete", "table", "inet", "forewarn")
    booted.done("systemctl", "reload", UNIT)
    assert set(booted.done("nft", "list", "tables").splitlines()) == TABLES


@pytest.mark.parametrize("name", ["write", "socket", "mount", "own"])
def test_the_sandbox_of_the_firewall_unit_is_effective(booted: BootedSystemd, name: str) -> None:
    booted.done("systemctl", "start", "nothing.service")
    assert booted.run("systemctl", "start", f"{name}.service").returncode != 0
