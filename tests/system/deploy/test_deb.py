"""The Debian package: built, installed into a clean root, used, upgraded, removed, purged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.clean_root import DPKG, CleanRoot, needed
from helpers.next_deb import make_next
from helpers.paths import ROOT
from helpers.process import Running
from helpers.serve_process import ServeProcess

PYTHON = "/usr/bin/python3"
SETTINGS = "/etc/forewarn/forewarn.toml"


@pytest.fixture(scope="module")
def package(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    needed("dpkg-deb", "systemd-sysusers", "systemd-analyze", "python3", "unshare", "nsenter")
    out = tmp_path_factory.mktemp("deb")
    built = subprocess.run(
        [ROOT / "tools/build-deb", Path(sys.executable).parents[1], PYTHON, out],
        env={**os.environ, "FOREWARN_WHEEL": str(wheel), "DEB_COMPRESSION": "1"},  # it goes nowhere
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert built.returncode == 0, built.stderr
    return Path(built.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def root(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CleanRoot]:
    root = CleanRoot(tmp_path_factory.mktemp("root"))
    root.done(*DPKG, "--install", root.bring(package))
    yield root
    root.close()


def test_the_package_has_what_it_should_and_nothing_that_can_be_written(package: Path) -> None:
    listed = subprocess.run(
        ["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    files = {line.split()[5]: line.split()[0] for line in listed}
    for path in [
        "./usr/bin/forewarn",
        "./usr/lib/systemd/system/forewarn.service",
        "./usr/lib/systemd/system/forewarn-metadata.socket",
        "./usr/lib/systemd/system/forewarn-metadata-8080.socket",
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
        assert path in files
    assert [line for line in listed if "root/root" not in line] == []
    writable = [p for p, mode in files.items() if mode[0] in "-d" and (mode[5] + mode[8]) != "--"]
    assert writable == []
    assert [path for path in files if "__pycache__" in path or path.endswith(".pyc")] == []
    places = subprocess.run(
        ["sh", "-c", f"dpkg-deb --fsys-tarfile {package} | grep -c -a {ROOT}"],
        capture_output=True,
        text=True,
    )
    assert places.stdout.strip() == "0"  # where it was built is nobody's business


def test_installing_makes_the_user_and_its_directory_and_starts_nothing(root: CleanRoot) -> None:
    assert root.done("forewarn", "--version", user="daemon").startswith("forewarn 0.")
    assert root.done("stat", "-c", "%U:%G %a", "/var/lib/forewarn") == "forewarn:forewarn 700\n"
    assert "nologin" in root.done("getent", "passwd", "forewarn")
    assert "nologin" in root.done("getent", "passwd", "forewarn-agent")
    enabled = root.done("find", "/etc/systemd/system", "-name", "*forewarn*")
    assert enabled == ""
    assert root.done("dpkg", "--verify", "forewarn") == ""


def test_the_installed_units_name_what_is_there(root: CleanRoot) -> None:
    sockets = "forewarn-metadata.socket", "forewarn-control.socket", "forewarn-metadata-8080.socket"
    units = "forewarn.service", *sockets, "forewarn-agent.service"
    checked = root.run(
        "systemd-analyze", "verify", *(f"/usr/lib/systemd/system/{unit}" for unit in units)
    )
    ours = [line for line in checked.stderr.splitlines() if "forewarn" in line]
    assert (checked.returncode, ours) == (0, [])


def test_the_installed_settings_can_be_used_by_the_services_user(root: CleanRoot) -> None:
    checked = root.done("forewarn", "config", "check", "--config", SETTINGS, user="forewarn")
    assert "the settings are valid" in checked
    shown = root.done("forewarn", "config", "show", "--config", SETTINGS, "--json", user="forewarn")
    (state,) = [one for one in json.loads(shown) if one["key"] == "state"]
    assert state["value"] == "/var/lib/forewarn/forewarn.db"
    assert state["from"].startswith(f"{SETTINGS}:")


def test_the_driver_for_postgresql_is_installed_too(root: CleanRoot) -> None:
    nowhere = "FOREWARN_STATE=postgresql://forewarn@127.0.0.1:1/forewarn"
    check = "forewarn", "config", "check", "--config", SETTINGS
    checked = root.run(nowhere, *check, user="forewarn")
    assert checked.returncode == 1
    assert "127.0.0.1:1/forewarn cannot be used as state: connection failed" in checked.stderr


def test_the_installed_service_serves_as_its_user(root: CleanRoot) -> None:
    """With two workers: they are started with the package's own Python."""
    words = ["FOREWARN_METADATA=127.0.0.1:0", "FOREWARN_CONTROL=127.0.0.1:0", "FOREWARN_WORKERS=2"]
    words += ["FOREWARN_UPSTREAM=/var/lib/forewarn/upstream", "XDG_RUNTIME_DIR=/var/lib/forewarn"]
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
        word, _, urls = running.line(60).partition(" ")
        assert word == "ready"
        service = ServeProcess(running, json.loads(urls))
        assert service.get("/v1/machines") is not None
        assert Path(f"/proc/{process.pid}").stat().st_uid != 0
    finally:
        running.stop()
    assert root.done("stat", "-c", "%U %a", "/var/lib/forewarn/forewarn.db") == "forewarn 600\n"


def test_an_upgrade_keeps_settings_and_state_and_says_that_the_old_still_runs(
    root: CleanRoot, package: Path, tmp_path: Path
) -> None:
    root.done("sh", "-c", f"echo '#mine' >> {SETTINGS}; touch /var/lib/forewarn/kept")
    said = root.done(*DPKG, "--install", root.bring(make_next(package, tmp_path)))
    assert "what runs is still the old" in said
    assert "upgraded from 0." in said
    assert root.done("tail", "-n", "1", SETTINGS) == "#mine\n"
    root.done("test", "-e", "/var/lib/forewarn/kept")


def test_removing_keeps_settings_and_state_and_purging_leaves_nothing(root: CleanRoot) -> None:
    root.done(*DPKG, "--remove", "forewarn")
    assert root.run("test", "-e", "/usr/lib/forewarn").returncode == 1
    root.done("test", "-e", "/var/lib/forewarn/kept")
    root.done("test", "-e", SETTINGS)
    # A state on a file system of its own goes, and what it is mounted on stays.
    root.done("mount", "-t", "tmpfs", "tmpfs", "/var/lib/forewarn")
    root.done("sh", "-c", "mkdir /var/lib/forewarn/deep; touch /var/lib/forewarn/deep/state")
    purged = root.run("sh", "/var/lib/dpkg/info/forewarn.postrm", "purge")
    assert (purged.returncode, purged.stderr) == (
        0,
        "forewarn: /var/lib/forewarn is a mount point and stays\n",
    )
    assert root.done("ls", "-A", "/var/lib/forewarn") == ""
    root.done("umount", "/var/lib/forewarn")
    root.done("test", "-e", "/var/lib/forewarn/kept")
    root.done(*DPKG, "--purge", "forewarn")
    for path in ("/var/lib/forewarn", "/etc/forewarn", "/usr/share/doc/forewarn"):
        assert root.run("test", "-e", path).returncode == 1, path
