"""The state file that the settings name: may the service take it up, who else can get at it, and is
there in it what the other settings need. Only looks, also while a service is at work on it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from forewarn.core.access import Role, Token
from forewarn.node import Address, Config
from forewarn.node.listening.sockets import local
from forewarn.node.preflight.finding import Finding, fatal, warning
from forewarn.node.settings import LoadedSettings
from forewarn.store import StoreUnusable
from forewarn.store.engines import stored_state
from forewarn.support import guard

MADE_BY_THE_UNIT = {"state": Path("/var/lib"), "upstream": Path("/run")}  # directories in these


def state_findings(said: LoadedSettings, config: Config) -> Iterator[Finding]:
    state = config.state
    if state is None:
        return
    yield from directory_findings(said, "state", state)
    unusable = ""
    if state.is_dir():
        unusable = f"{state} is a directory; name a file in it"
    elif state.exists() and not os.access(state, os.R_OK | os.W_OK):
        unusable = f"{state} cannot be read and written by {_whoami()}"
    elif state.exists() and stat.S_IMODE(state.stat().st_mode) & 0o077:
        yield warning(said, "state", f"{state} can be read by others: chmod 600 {state}")
    unusable = unusable or stored_state(state).problem()
    if unusable:
        yield fatal(said, "state", unusable)
    elif config.control is not None and not local(config.control.host):
        yield from _exposed(said, config.control, state)
    if state.parent.is_dir() and writable_by_others(state.parent):
        yield warning(
            said,
            "state",
            f"the directory {state.parent.absolute()} can be written by others, who could put"
            " another state in its place: chmod go-w it",
        )


def directory_findings(said: LoadedSettings, key: str, path: Path | None) -> Iterator[Finding]:
    """Of the directory that a file is to be made in."""
    if path is None:
        return
    directory = path.parent.absolute()
    above = MADE_BY_THE_UNIT.get(key)
    if not directory.is_dir() and above is not None and directory.parent == above:
        yield warning(
            said,
            key,
            f"there is no directory {directory} yet: the systemd unit makes it; without that,"
            " create it, or name another",
        )
    elif not directory.is_dir():
        yield fatal(said, key, f"there is no directory {directory}; create it, or name another")
    elif not os.access(directory, os.W_OK | os.X_OK):
        yield fatal(said, key, f"{_whoami()} may not write in {directory}")


def _exposed(said: LoadedSettings, control: Address, state: Path) -> Iterator[Finding]:
    tokens, now = _tokens(state), guard.wall_us()
    how = f"forewarn token create NAME --role admin --state {state}"
    if not tokens:
        yield fatal(
            said,
            "control",
            f"{control} can be reached from beyond this machine, and no token has ever been"
            f" created: create one first ({how})",
        )
    elif not any(token.role is Role.ADMIN and token.valid(now) for token in tokens):
        yield warning(
            said,
            "control",
            "there is no valid token of an admin in the state, so nobody can make tokens or"
            f" copies; while no service runs: {how}",
        )


def _tokens(state: Path) -> list[Token]:
    if not state.exists():
        return []
    try:
        return [token for token, _ in stored_state(state).tokens()]
    except StoreUnusable:
        return []  # what cannot be read lets nobody in


def writable_by_others(path: Path) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    return bool(found.st_mode & 0o022) and not sticky


def _whoami() -> str:
    return f"user {os.geteuid()}"
