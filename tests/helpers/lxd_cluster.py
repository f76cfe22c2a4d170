"""A cluster of two LXD servers, `a` and `b`, from Debian's packages, in a root, a network and a
tree of processes of its own. Incus has the same API; Debian 12 has LXD."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.clean_root import PATH, CleanRoot
from helpers.waiting import until

PACKAGES = ("lxd", "busybox-static")
PROGRAMS = ("unshare", "nsenter", "apt-get", "ip")
POLICY = r"printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d"
INSTALL = """apt-get update --quiet && DEBIAN_FRONTEND=noninteractive \
apt-get install --yes --quiet --no-install-recommends"""
PASSWORD = "between the two"
ADDRESSES = {"a": "127.0.0.2:8443", "b": "127.0.0.3:8443"}
IMPACTS = ("Freezing container", "Stopping container", "Shutting down container")

# What an instance runs: each start is a line of /starts, which moves with it. If there is a file
# /busy, it does not shut down when it is asked to.
INIT = """#!/bin/sh
echo started >> /starts
trap '[ -e /busy ] || exit 0' PWR
while :; do sleep 1 & wait; done
"""

SET_UP = r"""
set -e
cd "$1"
mkdir -p old sys
mount --rbind /sys sys
pivot_root . old
umount -l old
cd /
mount -t proc proc /proc
mkdir -p /dev/shm
ip link set lo up
echo there
exec sleep infinity
"""

IMAGE = r"""
set -e
mkdir -p /image/rootfs/bin /image/rootfs/sbin /image/rootfs/proc /image/rootfs/sys \
    /image/rootfs/dev /image/rootfs/etc /image/rootfs/tmp
cp /bin/busybox /image/rootfs/bin/
for name in sh sleep cat echo; do ln -s busybox /image/rootfs/bin/$name; done
cat > /image/rootfs/sbin/init
chmod +x /image/rootfs/sbin/init
echo "{architecture: $(uname -m), creation_date: 1}" > /image/metadata.yaml
tar -C /image -cf /image.tar metadata.yaml rootfs
"""


class Cluster:
    """The two servers. `execute` runs a program beside them."""

    def __init__(self, first: subprocess.Popen[str]) -> None:
        self._first = first
        children = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text()
        self._inside = int(children.split()[0])
        self.servers: dict[str, subprocess.Popen[bytes]] = {}

    def argv(self, *argv: str) -> list[str]:
        enter = ["nsenter", f"--target={self._inside}", "--mount", "--pid", "--net"]
        return [*enter, "/usr/bin/env", "--chdir=/", "-i", f"PATH={PATH}", "HOME=/root", *argv]

    def execute(self, *argv: str, member: str = "a", stdin: str = "") -> str:
        words = self.argv(f"LXD_DIR=/{member}", *argv)
        ended = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, (argv, ended.stdout, ended.stderr)
        return ended.stdout

    def url(self, member: str = "a") -> str:
        return f"unix:///proc/{self._inside}/root/{member}/unix.socket"

    def start(self, member: str) -> None:
        self.execute("mkdir", "-p", f"/{member}/database")
        self.servers[member] = subprocess.Popen(
            self.argv(f"LXD_DIR=/{member}", "lxd", f"--logfile=/{member}.log", "--verbose"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.execute("lxd", "waitready", "--timeout=120", member=member)

    def set_up(self) -> None:
        self.execute("sh", "-c", IMAGE, stdin=INIT)
        for member in ADDRESSES:
            self.start(member)
        disk = {"path": "/", "pool": "default", "type": "disk"}
        first = {
            "config": {"core.https_address": ADDRESSES["a"], "core.trust_password": PASSWORD},
            "storage_pools": [{"name": "default", "driver": "dir"}],
            "profiles": [{"name": "default", "devices": {"root": disk}}],
            "cluster": {"server_name": "a", "enabled": True},
        }
        self.execute("lxd", "init", "--preseed", stdin=json.dumps(first))
        pool = {"entity": "storage-pool", "name": "default", "key": "source", "value": ""}
        joins = {
            "server_name": "b",
            "enabled": True,
            "server_address": ADDRESSES["b"],
            "cluster_address": ADDRESSES["a"],
            "cluster_certificate": self.execute("cat", "/a/cluster.crt"),
            "cluster_password": PASSWORD,
            "member_config": [pool],
        }
        preseed = json.dumps({"cluster": joins})
        self.execute("lxd", "init", "--preseed", member="b", stdin=preseed)
        self.execute("lxc", "image", "import", "/image.tar", "--alias=busybox")

    def launch(self, name: str, member: str = "a", *options: str) -> None:
        launch = ["lxc", "launch", "busybox", name, f"--target={member}", *options]
        self.execute(*launch, "--config=security.privileged=true")

    def delete(self, name: str) -> None:
        """Delete an instance, if it exists, when what nobody has waited for is over: while it is
        started it cannot be stopped, and while it is moved it can have no name."""

        def deleted() -> bool:
            if self.is_busy(name):
                return False
            names = self.execute("lxc", "list", "--format=csv", "--columns=n").split()
            if name not in names:
                return True
            words = self.argv("LXD_DIR=/a", "lxc", "delete", "--force", name)
            return subprocess.run(words, capture_output=True, check=False).returncode == 0

        until(deleted, f"the end of {name}")

    def is_busy(self, name: str) -> bool:
        """Is there an operation about an instance that is not over?"""
        by_state = json.loads(self.execute("lxc", "query", "/1.0/operations?recursion=1"))
        return any(
            f"/1.0/instances/{name}" in ((operation["resources"] or {}).get("instances") or ())
            for operations in by_state.values()
            for operation in operations
            if operation["status_code"] < 200
        )

    def state(self, name: str) -> tuple[str, str]:
        """Return what an instance does, and on which member, once that has said so."""
        listed = ""

        def is_known() -> bool:
            nonlocal listed
            listed = self.execute("lxc", "list", name, "--format=csv", "--columns=sL").strip()
            return not listed.startswith("ERROR")

        until(is_known)
        status, _, member = listed.partition(",")
        return status, member

    def starts(self, name: str) -> int:
        """Return how often an instance was started, as it knows itself."""
        return self.execute("lxc", "exec", name, "--", "cat", "/starts").count("started")

    def impacts(self, name: str) -> int:
        """Return how often an instance was disturbed, as the servers have written down."""
        lines = self.execute("cat", "/a.log", "/b.log").splitlines()
        return sum(f"instance={name} " in line and _is_impact(line) for line in lines)


def _is_impact(line: str) -> bool:
    return any(f'msg="{text}"' in line for text in IMPACTS)


@contextmanager
def lxd_cluster(directory: Path) -> Iterator[Cluster]:
    if why := _why_not():
        pytest.skip(why)
    before = set(_leftovers())
    root = CleanRoot(directory)
    try:
        root.done("sh", "-c", POLICY)
        if root.run("sh", "-c", f"{INSTALL} {' '.join(PACKAGES)}").returncode:
            pytest.skip(f"needs {' and '.join(PACKAGES)}, which cannot be fetched from Debian")
        first = subprocess.Popen(
            root.outside(
                *("unshare", "--mount", "--propagation", "private", "--net", "--pid"),
                *("--fork", "--kill-child", "sh", "-c", SET_UP, "sh", str(root.path)),
            ),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert first.stdout is not None
            assert first.stdout.readline() == "there\n"
            cluster = Cluster(first)
            try:
                cluster.set_up()
                yield cluster
            finally:
                first.send_signal(signal.SIGKILL)  # and with it everything inside
                for server in cluster.servers.values():
                    server.wait()
        finally:
            first.kill()
            first.communicate()
    finally:
        root.close()
        until(lambda: _removed(set(_leftovers()) - before), "the end of the containers")


def _why_not() -> str:
    if os.geteuid() != 0:
        return "needs root, to make namespaces"
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    return f"needs {', '.join(missing)}" if missing else ""


def _leftovers() -> Iterator[Path]:
    """Yield the control groups of containers, which outlive their processes."""
    cgroups = Path("/sys/fs/cgroup")
    for pattern in ("lxc.*", "*/lxc.*"):
        yield from cgroups.glob(pattern)


def _removed(cgroups: set[Path]) -> bool:
    for cgroup in cgroups:
        for directory, _, _ in os.walk(cgroup, topdown=False):
            try:
                Path(directory).rmdir()
            except OSError:
                return False  # its last process has not ended yet
    return True
