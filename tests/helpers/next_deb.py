"""The next version of a Debian package, to upgrade to: the same scripts and settings, and little to
unpack and to compile."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

KEPT = ("./etc", "./usr/bin", "./usr/lib/sysusers.d", "./usr/lib/systemd")


def make_next(package: Path, directory: Path) -> Path:
    root = directory / "root"
    root.mkdir(parents=True)
    subprocess.run(["dpkg-deb", "--control", package, root / "DEBIAN"], check=True)
    subprocess.run(
        [
            *("sh", "-c", 'dpkg-deb --fsys-tarfile "$0" | tar -x -C "$@"'),
            *(package, root, "--wildcards", *KEPT, "./usr/lib/*/bin"),
        ],
        check=True,
    )
    control = root / "DEBIAN/control"
    control.write_text(re.sub(r"(?m)^(Version: .*)-1$", r"\1-2", control.read_text()))
    (root / "DEBIAN/md5sums").unlink()
    path = directory / f"next-{package.name}"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "-Znone", "--build", root, path],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return path
