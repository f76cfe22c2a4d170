"""A real systemd as the first process of namespaces of its own, with the units that a test gives it
and no others. It shares this machine's files, and its changes below /etc and /run go to the grave
with it. Needs root."""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from helpers.netns import require
from helpers.notify_socket import NotifySocket
from helpers.waiting import LIMIT

SYSTEMD = Path("/usr/lib/systemd/systemd")

_BOOT = """
set -e
echo $$ > "$1/cgroup.procs"
exec unshare --pid --fork --kill-child --mount --cgroup --uts --ipc --net sh -ec '
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=0755 tmpfs /run
mkdir /run/etc /run/etc/upper /run/etc/work /run/generators
mount -t overlay -o lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work overlay /etc
[ -s /etc/machine-id ] || echo 0123456789abcdef0123456789abcdef > /etc/machine-id
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
cp -r "$2" /run/units
exec env -i container=forewarn PATH=/usr/sbin:/usr/bin:/sbin:/bin NOTIFY_SOCKET="$3" \\
    SYSTEMD_UNIT_PATH=/run/units SYSTEMD_GENERATOR_PATH=/run/generators \\
    "$0" --system --unit=ready.target --log-target=null --show-status=no
' "$0" "$@"
"""
_MORTAL = ("setpriv", "--pdeathsig", "KILL", "--")  # it ends with us, also if we are killed
_READY = "[Unit]\nDefaultDependencies=no\n"


class BootedSystemd:
    """`units` by name; each has to say `DefaultDependencies=no`, as nothing else is there."""

    def __init__(self, directory: Path, units: Mapping[str, str]) -> None:
        require(os.geteuid() == 0, "root")
        require(SYSTEMD.exists(), "systemd: tools/test-packages as root")
        self._group = _groups() / f"forewarn-test-{os.getpid()}-{secrets.token_hex(4)}"
        self._group.mkdir()
        written = directory / "units"
        written.mkdir()
        for name, text in {**units, "ready.target": _READY}.items():
            (written / name).write_text(text)
        with NotifySocket(str(directory / "told")) as manager:
            self._outer = subprocess.Popen(
                [*_MORTAL, "sh", "-c", _BOOT, SYSTEMD, self._group, written, manager.address],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            try:
                manager.until("READY")
            except TimeoutError:
                self.close()
                raise AssertionError("systemd is not ready") from None
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children")
        [self.pid] = [int(pid) for pid in children.read_text().split()]

    def enter(self) -> list[str]:
        """What a command there begins with, here."""
        return ["nsenter", f"--target={self.pid}", "--all"]

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.enter(), *argv], capture_output=True, text=True, timeout=LIMIT, check=False
        )

    def done(self, *argv: str) -> str:
        ended = self.run(*argv)
        assert ended.returncode == 0, (argv, ended.stdout, ended.stderr)
        return ended.stdout

    def states(self, *units: str) -> list[str]:
        return self.run("systemctl", "is-active", *units).stdout.split()

    def close(self) -> None:
        first = getattr(self, "pid", 0)
        pidfd = os.pidfd_open(first) if first else -1
        self._outer.send_signal(signal.SIGKILL)  # and with it the first process, and so all
        self._outer.wait()
        if first:
            with selectors.DefaultSelector() as ended:
                ended.register(pidfd, selectors.EVENT_READ)
                ended.select(20)
            os.close(pidfd)
        for group, _, _ in os.walk(self._group, topdown=False):
            Path(group).rmdir()


def _groups() -> Path:
    """Where the control groups of the second version are."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup2" and "rw" in options.split(","):
            return Path(place)
    require(False, "control groups, version 2")
    raise AssertionError


def as_user(uid: int) -> Sequence[str]:
    """A prefix: somebody without rights, but that the project can be read wherever it lies."""
    read = "+dac_read_search"
    who = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return [*who, f"--inh-caps={read}", f"--ambient-caps={read}"]
