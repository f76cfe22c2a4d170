"""A root file system that is this machine's, as far as it was there, and that takes what is done to
it to the grave: an overlay in a mount namespace of its own. Needs root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers.waiting import LIMIT

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
DPKG = ("dpkg", "--no-triggers")  # those of other packages: to index all manual pages takes longest

_SET_UP = """
set -e
mount -t tmpfs -o mode=0755 forewarn-test "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" forewarn-test "$1/root"
mount -t proc proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
mount -t tmpfs -o mode=0755 forewarn-run "$1/root/run"
mount -t tmpfs -o mode=1777 forewarn-tmp "$1/root/tmp"
echo there
exec sleep infinity
"""


def needed(*programs: str) -> None:
    """Skip, saying what to do, unless this can be had; with CI=true it has to be."""
    missing = [name for name in programs if shutil.which(name, path=PATH) is None]
    why = "needs root" if os.geteuid() != 0 else ""
    if missing:
        why = f"needs {', '.join(missing)}: tools/test-packages as root"
    if why and os.environ.get("CI") == "true":
        pytest.fail(why)
    if why:
        pytest.skip(why)


class CleanRoot:
    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _SET_UP, "sh"]
        self._holder = subprocess.Popen(
            [*self._argv, str(directory)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._holder.stdout is not None
        assert self._holder.stderr is not None
        if self._holder.stdout.readline() != "there\n":
            raise AssertionError(f"no clean root: {self._holder.stderr.read()}")
        self._root = directory / "root"
        self._upper = directory / "upper"

    def argv(self, argv: Sequence[str], user: str = "") -> list[str]:
        """As it has to be said outside, to run there."""
        inside = ["chroot", str(self._root)]
        if user:
            spec = user if ":" in user else f"{user}:{user}"
            inside = ["chroot", f"--userspec={spec}", str(self._root)]
        return [*self.outside(*inside), "/usr/bin/env", "-i", f"PATH={PATH}", *argv]

    @property
    def path(self) -> Path:
        """Where it is, for a program that runs `outside`."""
        return self._root

    def outside(self, *argv: str) -> list[str]:
        """As it has to be said to run beside it, where it can be seen: to make it the root."""
        return ["nsenter", f"--target={self._holder.pid}", "--mount", "--wd=/", *argv]

    def run(self, *argv: str, user: str = "", **more: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.argv(argv, user), capture_output=True, text=True, timeout=LIMIT, **more
        )

    def done(self, *argv: str, user: str = "", env: Mapping[str, str] | None = None) -> str:
        """What it printed, once it has succeeded."""
        words = [*(f"{key}={value}" for key, value in (env or {}).items()), *argv]
        ended = self.run(*words, user=user)
        assert ended.returncode == 0, (argv, ended.stdout, ended.stderr)
        return ended.stdout + ended.stderr

    def mount(self, directory: Path) -> None:
        """Show a directory of this machine there, at the same path."""
        target = f"{self._root}{directory}"
        for argv in (["mkdir", "-p", target], ["mount", "--bind", str(directory), target]):
            subprocess.run(self.outside(*argv), check=True)

    def bring(self, file: Path) -> str:
        """A copy of it, there; its path."""
        with file.open("rb") as source:
            subprocess.run(
                self.argv(["sh", "-c", f"cat > /tmp/{file.name}"]), stdin=source, check=True
            )
        return f"/tmp/{file.name}"

    def close(self) -> None:
        self._holder.send_signal(signal.SIGKILL)
        self._holder.communicate()
