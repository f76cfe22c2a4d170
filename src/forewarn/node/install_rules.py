"""Installs the network rules of a host with a node, as "Networking for guests" in the documentation
describes it: the files that come with the package, and the units that load them.

Nothing that is there is replaced. Which machine is at which port has to be known first: from then
on, a guest's port that is not listed passes no traffic.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PACKAGED = Path(sys.executable).parent.parent / "network"
PORTS = ("etc/forewarn/ports", "etc/forewarn/list-ports")  # one of them says who is at which port
ENVIRONMENT = "etc/forewarn/ports.env"
UNITS = ("forewarn-network.service", "forewarn-ports.path", "forewarn-ports.timer")
FILES = {  # by directory: files of the package
    "etc/forewarn": ("forewarn.nft",),
    "usr/local/sbin": ("forewarn-guests", "forewarn-ports"),
    "etc/sysctl.d": ("90-forewarn-network.conf",),
    "etc/udev/rules.d": ("90-forewarn-network.rules",),
    "etc/systemd/system": (*UNITS, "forewarn-ports.service"),
}
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("sysctl", "--quiet", "--system"),
    ("udevadm", "control", "--reload"),
    ("systemctl", "daemon-reload"),
    ("systemctl", "enable", *UNITS, "forewarn-ports.service"),
    ("systemctl", "start", *UNITS),
    # It tries again until the node knows its machines.
    ("systemctl", "start", "--no-block", "forewarn-ports.service"),
)


def problem(source: Path = PACKAGED, root: Path = Path("/")) -> str:
    """Return why the rules cannot be installed, or ""."""
    if not (source / "forewarn.nft").exists():
        return "the rules come with the package of a node, which is not installed"
    if not any((root / path).exists() for path in PORTS):
        return (
            f"{root / PORTS[0]} does not exist: it says which machine is at which port. Without it,"
            ' the rules would cut off every guest; see "Networking for guests" in the'
            " documentation"
        )
    return ""


def install(config: Path, source: Path = PACKAGED, root: Path = Path("/")) -> list[Path]:
    """Copy the files, and return those that were not there before."""
    new = []
    for directory, names in FILES.items():
        (root / directory).mkdir(parents=True, exist_ok=True)
        for name in names:
            target = root / directory / name
            if not target.exists():
                shutil.copy(source / name, target)
                new.append(target)
    environment = root / ENVIRONMENT
    if not environment.exists():
        environment.write_text(f"FOREWARN_NODE_CONFIG={config}\n")
        new.append(environment)
    return new


def run(commands: Sequence[Sequence[str]] = COMMANDS) -> str:
    """Run commands, such as those that load the rules. Returns what has gone wrong, or ""."""
    for command in commands:
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, errors="replace"
            )
        except OSError as error:
            return f"{command[0]}: {error.strerror}"
        if done.returncode != 0:
            return f"{' '.join(command)}: {done.stderr.strip() or 'failed'}"
    return ""
