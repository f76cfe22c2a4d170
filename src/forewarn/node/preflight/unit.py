"""Checks the settings against the systemd unit that runs the service, or the node, with them, if
there is one on this machine: its sockets are used instead of those that would be opened otherwise,
and its user has to be able to read what the settings name.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from forewarn.node.listening.socket_activation import METADATA, check_socket_count
from forewarn.node.listening.sockets import CannotListen
from forewarn.node.preflight.finding import fatal
from forewarn.node.settings import LoadedSettings
from forewarn.support.finding import Finding, note

SYSTEMCTL_TIMEOUT = 10.0  # seconds

Properties = list[tuple[str, str]]  # of one unit; a property may occur several times


def unit_findings(
    loaded: LoadedSettings, path: Path | None, *, unit: str, check: str
) -> Iterator[Finding]:
    """Check nothing unless the unit runs with this settings file. `check` is the command that its
    user can run."""
    if path is None:
        return
    properties = dict(
        _properties([unit], "ExecStart", "User", "TriggeredBy", "Requires", "Wants")[0]
    )
    if str(path.absolute()) not in properties.get("ExecStart", ""):
        return
    user = properties.get("User", "")
    if os.geteuid() == 0 and user not in ("", "root", "0"):
        yield note(
            unit,
            f"the permissions of files were checked for root, but the service runs as {user}: sudo"
            f" -u {user} {check} --config {path.absolute()}",
        )
    started_with_it = f"{properties.get('Requires', '')} {properties.get('Wants', '')}".split()
    sockets = properties.get("TriggeredBy", "").split()
    for address, count in _metadata_sockets(sockets, started_with_it).items():
        try:
            check_socket_count(count, address)
        except CannotListen as error:
            yield fatal(loaded, "metadata", str(error))


def _metadata_sockets(sockets: list[str], started_with_it: list[str]) -> Counter[str]:
    """Return how many sockets for guests systemd hands over, by their address."""
    counts: Counter[str] = Counter()
    names = ("Id", "ActiveState", "FileDescriptorName", "Listen")
    for properties in _properties(sockets, *names) if sockets else []:
        first = dict(properties)
        opened = first.get("ActiveState") == "active" or first.get("Id") in started_with_it
        if opened and first.get("FileDescriptorName") == METADATA:
            listens = (value.partition(" ")[0] for name, value in properties if name == "Listen")
            counts.update(listens)
    return counts


def _properties(units: list[str], *names: str) -> list[Properties]:
    """Return properties of units, as systemd has loaded them; empty without systemd."""
    command = ["systemctl", "show", "--property", ",".join(names), "--", *units]
    try:
        shown = subprocess.run(
            command, capture_output=True, text=True, timeout=SYSTEMCTL_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return [[]]
    return [
        [(name, value) for name, _, value in (line.partition("=") for line in part.splitlines())]
        for part in shown.stdout.split("\n\n")
    ]
