"""The packages of the agent: built, installed into a clean root, and used there with each Python
that they are for and that this machine has."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.testing import Service
from helpers.clean_root import DPKG, CleanRoot, needed
from helpers.empty_environment import PROJECT
from helpers.next_deb import make_next
from helpers.paths import ROOT
from helpers.process import Running
from helpers.pythons import find_python
from helpers.waiting import BUILD_LIMIT, until

PYTHONS = (ROOT / "packaging/agent/pythons").read_text().split()
LIB = "/usr/lib/forewarn-agent"
CONFIG = "/etc/forewarn/agent.toml"
INSTALLED = [
    CONFIG,
    "/usr/bin/forewarn",
    f"{LIB}/bin/python",
    "/usr/lib/systemd/system/forewarn-agent.service",
    "/usr/lib/sysusers.d/forewarn-agent.conf",
    "/usr/share/doc/forewarn/applications/agent.md",
    "/usr/share/doc/forewarn/examples/agent/agent.toml",
    "/usr/share/man/man1/forewarn.1.gz",
]
# What a distribution with an older Python of its own has: RHEL 9.2 and later, for example.
DISTRIBUTION = """
Name: distribution
Version: 9
Release: 1
Summary: What a distribution has
License: none
BuildArch: noarch
Provides: glibc = 2.34, systemd = 252, /bin/sh, python3 = 3.9.18{more}
%description
%files
"""
APPROVING = """
[agent]
state = "/var/lib/forewarn-agent"
endpoint = "{url}"
listen = ""

[[rule]]
name = "all"
hooks = ["mark"]
approve = "when-done"

[hook.mark]
prepare = ["/usr/bin/touch", "/var/lib/forewarn-agent/prepared"]
"""


@pytest.fixture(scope="module")
def packages(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The paths of the packages, by kind."""
    needed("dpkg-deb", "rpmbuild", "systemd-sysusers", "systemd-analyze", "unshare", "nsenter")
    out = tmp_path_factory.mktemp("agent")
    built = subprocess.run(
        [ROOT / "tools/build-agent", PROJECT, out, "deb", "rpm"],
        env={**os.environ, "FOREWARN_WHEEL": str(wheel), "PACKAGE_COMPRESSION": "1"},
        capture_output=True,
        text=True,
        timeout=BUILD_LIMIT,
    )
    assert built.returncode == 0, built.stderr
    paths = [Path(line) for line in built.stdout.splitlines()]
    return {path.suffix[1:]: path for path in paths}


@pytest.fixture(scope="module")
def debian(
    packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CleanRoot]:
    root = CleanRoot(tmp_path_factory.mktemp("root"))
    try:
        root.done(*DPKG, "--install", root.bring(packages["deb"]))
        yield root
    finally:
        root.close()


@pytest.fixture(scope="module")
def red_hat(
    packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CleanRoot]:
    """A root whose rpm knows of a python3.11 beside an older python3."""
    root = CleanRoot(tmp_path_factory.mktemp("root"))
    try:
        package = root.bring(packages["rpm"])
        root.done("rpm", "--install", distribution(root, ""))
        refused = root.run("rpm", "--install", package)
        assert refused.returncode != 0
        assert "(python3.13 or python3.12 or python3.11) is needed" in refused.stderr
        root.done("rpm", "--upgrade", "--force", distribution(root, ", python3.11 = 3.11.9"))
        root.done("rpm", "--install", package)
        yield root
    finally:
        root.close()


def distribution(root: CleanRoot, more: str) -> str:
    root.done("sh", "-c", 'printf %s "$0" > /tmp/it.spec', DISTRIBUTION.format(more=more))
    root.done(
        "rpmbuild", "-bb", "--quiet", "--define=_rpmdir /tmp", "/tmp/it.spec", env={"HOME": "/tmp"}
    )
    return "/tmp/noarch/distribution-9-1.noarch.rpm"


def output(*argv: str | Path) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def test_both_packages_have_the_same_files_and_what_is_compiled_for_every_python(
    packages: dict[str, Path],
) -> None:
    rpm = set(output("rpm", "--query", "--list", "--package", packages["rpm"]).split())
    listed = output("dpkg-deb", "--contents", packages["deb"]).splitlines()
    deb = {line.split()[5].removeprefix(".").rstrip("/") for line in listed}
    assert deb >= set(INSTALLED)
    assert rpm >= set(INSTALLED)
    differ = {re.sub(r"/[^/]*$", "", path) for path in rpm ^ deb if "site-packages" in path}
    assert differ == set()
    for package in ("msgspec/_core", "pydantic_core/_pydantic_core"):
        compiled = [path for path in rpm if f"/{package}." in path and path.endswith(".so")]
        tags = {"".join(re.findall(r"\.cpython-3(\d+)-", path)) for path in compiled}
        assert tags == {minor.partition(".")[2] for minor in PYTHONS}
    assert [path for path in rpm | deb if "__pycache__" in path or path.endswith(".pyc")] == []
    assert [line for line in listed if "root/root" not in line] == []
    owners = output(
        "rpm",
        "--query",
        "--queryformat=[%{FILEUSERNAME}:%{FILEGROUPNAME}\n]",
        "--package",
        packages["rpm"],
    )
    assert set(owners.split()) == {"root:root"}


def test_the_packages_depend_on_any_supported_python(
    packages: dict[str, Path],
) -> None:
    depends = output("dpkg-deb", "--field", packages["deb"], "Depends").split(", ")
    pythons = ["python3.13", "python3.12", "python3.11"]
    assert depends[0] == " | ".join(pythons)
    requires = output("rpm", "--query", "--requires", "--package", packages["rpm"]).splitlines()
    assert f"({' or '.join(pythons)})" in requires
    assert [need for need in [*depends[1:], *requires[1:]] if "python" in need] == []


def test_what_is_compiled_runs_with_the_oldest_glibc_that_the_packages_allow(
    debian: CleanRoot,
) -> None:
    symbols = f"find {LIB} -name '*.so' -exec grep -aoh 'GLIBC_[0-9.]*' {{}} +"
    versions = set(debian.done("sh", "-c", symbols).split())
    assert versions
    newest = max(tuple(map(int, re.findall(r"\d+", version))) for version in versions)
    assert newest <= (2, 17)


@pytest.mark.parametrize("kind", ["debian", "red_hat"])
def test_installing_makes_the_user_and_its_directory_and_starts_nothing(
    kind: str, request: pytest.FixtureRequest
) -> None:
    root: CleanRoot = request.getfixturevalue(kind)
    assert root.done("forewarn", "--version", user="daemon").startswith("forewarn 0.")
    assert "nologin" in root.done("getent", "passwd", "forewarn-agent")
    owner = root.done("stat", "-c", "%U:%G %a", "/var/lib/forewarn-agent")
    assert owner == "forewarn-agent:forewarn-agent 700\n"
    assert root.done("find", "/etc/systemd/system", "-name", "*forewarn*") == ""
    unit = "/usr/lib/systemd/system/forewarn-agent.service"
    checked = root.run("systemd-analyze", "verify", unit)
    ours = [line for line in checked.stderr.splitlines() if "forewarn" in line]
    assert (checked.returncode, ours) == (0, [])
    assert root.done("find", LIB, "-name", "agent.cpython-*.pyc") != ""
    if kind == "debian":
        assert root.done("dpkg", "--verify", "forewarn-agent") == ""
    else:
        assert root.run("rpm", "--verify", "--nodeps", "forewarn-agent").stdout == ""


def test_the_installed_agent_handles_an_event_as_its_user(red_hat: CleanRoot) -> None:
    with Service(real_time=True) as service:
        machine = service.scale_set("web", 1)[0]
        red_hat.done("sh", "-c", f'printf %s "$0" > {CONFIG}', APPROVING.format(url=machine.url))
        checked = red_hat.done("forewarn", "agent", "check", user="forewarn-agent")
        assert "identity: web_0" in checked
        argv = red_hat.argv(["forewarn", "agent"], user="forewarn-agent")
        pipe = subprocess.PIPE
        agent = Running(subprocess.Popen(argv, stdout=pipe, stderr=pipe, text=True), argv)
        try:
            event = service.schedule("Reboot", machine.name)
            until(lambda: event.status == "Started")
        finally:
            agent.stop()
    marked = red_hat.done("stat", "-c", "%U", "/var/lib/forewarn-agent/prepared")
    assert marked == "forewarn-agent\n"


def test_the_agent_runs_on_every_python_that_the_packages_are_for(red_hat: CleanRoot) -> None:
    """The newest is used, so they are added from the oldest on."""
    found = {minor: path for minor in reversed(PYTHONS) if (path := find_python(minor))}
    assert found
    for minor, path in found.items():
        red_hat.run("ln", "-s", str(path), f"/usr/bin/python{minor}")
        program = "import sys, forewarn.client as c; print(sys.version_info[:2], c.Client.__name__)"
        printed = red_hat.done(f"{LIB}/bin/python", "-I", "-c", program)
        assert printed == f"({minor.replace('.', ', ')}) Client\n"
        assert red_hat.done("forewarn", "--version").startswith("forewarn 0.")


def test_without_a_supported_python_the_command_lists_those_it_needs(red_hat: CleanRoot) -> None:
    red_hat.done("sh", "-c", "mkdir /tmp/away; mv /usr/bin/python3* /tmp/away")
    ended = red_hat.run("forewarn", "agent")
    red_hat.done("sh", "-c", "mv /tmp/away/* /usr/bin")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ": python3.11 python3.12 python3.13" in ended.stderr


def test_an_upgrade_keeps_the_configuration_and_removing_keeps_the_state(
    debian: CleanRoot, packages: dict[str, Path], tmp_path: Path
) -> None:
    debian.done("sh", "-c", f"echo '#mine' >> {CONFIG}; touch /var/lib/forewarn-agent/kept")
    printed = debian.done(*DPKG, "--install", debian.bring(make_next(packages["deb"], tmp_path)))
    assert "still the old" in printed
    assert debian.done("tail", "-n", "1", CONFIG) == "#mine\n"
    debian.done(*DPKG, "--remove", "forewarn-agent")
    assert debian.run("test", "-e", LIB).returncode == 1
    debian.done("test", "-e", "/var/lib/forewarn-agent/kept")
    debian.done(*DPKG, "--purge", "forewarn-agent")
    for path in ("/var/lib/forewarn-agent", "/etc/forewarn", "/usr/share/doc/forewarn-agent"):
        assert debian.run("test", "-e", path).returncode == 1, path


def test_removing_the_rpm_keeps_the_state_and_a_changed_configuration(red_hat: CleanRoot) -> None:
    red_hat.done("sh", "-c", f"echo '#mine' >> {CONFIG}; touch /var/lib/forewarn-agent/kept")
    red_hat.done("rpm", "--erase", "forewarn-agent")
    for path in (LIB, "/usr/bin/forewarn", CONFIG):
        assert red_hat.run("test", "-e", path).returncode == 1, path
    assert red_hat.done("tail", "-n", "1", f"{CONFIG}.rpmsave") == "#mine\n"
    red_hat.done("test", "-e", "/var/lib/forewarn-agent/kept")
