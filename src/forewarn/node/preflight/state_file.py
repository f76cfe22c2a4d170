"""Checks the state file that the settings name: whether the service can use it, whether other users
can read or replace it, and whether it has the tokens that an exposed API needs.

Changes nothing, and works while a service uses the file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from forewarn.core.access import Role, Token
from forewarn.node import Config
from forewarn.node.listening.sockets import local
from forewarn.node.preflight.finding import fatal, warning
from forewarn.node.settings import LoadedSettings
from forewarn.store import StoreUnusable
from forewarn.store.engines import State, shown, stored_state
from forewarn.support import guard
from forewarn.support.finding import Finding

# Settings whose directory is created by the systemd unit, if it is directly in one of these.
CREATED_BY_UNIT = {
    "state": Path("/var/lib"),
    "journal": Path("/var/lib"),
}


def state_findings(loaded: LoadedSettings, config: Config) -> Iterator[Finding]:
    state = config.state
    if state is None:
        return
    problem = ""
    if isinstance(state, Path):
        yield from directory_findings(loaded, "state", state)
        problem = file_problem(state)
        if not problem and state.exists() and stat.S_IMODE(state.stat().st_mode) & 0o077:
            yield warning(loaded, "state", f"{state} can be read by other users: chmod 600 {state}")
    problem = problem or stored_state(state).problem()
    if problem:
        yield fatal(loaded, "state", problem)
    else:
        for text in stored_state(state).warnings(managed=config.replicated == "managed"):
            yield warning(loaded, "state", text)
        yield from _window_findings(loaded, state)
        yield from _token_findings(loaded, config, state)
    if isinstance(state, Path) and state.parent.is_dir() and writable_by_others(state.parent):
        yield warning(
            loaded,
            "state",
            f"the directory {state.parent.absolute()} can be written by other users, who could"
            f" replace the state file: chmod go-w {state.parent.absolute()}",
        )


def file_problem(file: Path) -> str:
    """Return why the service cannot write a file that may exist already, or ""."""
    if file.is_dir():
        return f"{file} is a directory; pass a file in it"
    if file.exists() and not os.access(file, os.R_OK | os.W_OK):
        return f"{file} cannot be read and written by {_current_user()}"
    return ""


def directory_findings(loaded: LoadedSettings, key: str, path: Path | None) -> Iterator[Finding]:
    """Check the directory in which the service creates a file."""
    if path is None:
        return
    directory = path.parent.absolute()
    created_in = CREATED_BY_UNIT.get(key)
    if not directory.is_dir() and created_in is not None and directory.parent == created_in:
        yield warning(
            loaded,
            key,
            f"the directory {directory} does not exist yet: the systemd unit creates it; without"
            " the unit, create it, or choose another",
        )
    elif not directory.is_dir():
        yield fatal(
            loaded, key, f"the directory {directory} does not exist; create it, or choose another"
        )
    elif not os.access(directory, os.W_OK | os.X_OK):
        yield fatal(loaded, key, f"{_current_user()} cannot write to {directory}")


def _window_findings(loaded: LoadedSettings, state: State) -> Iterator[Finding]:
    """Check that this computer knows the time zones of the windows in the state."""
    try:
        windows = stored_state(state).windows() if _exists(state) else []
    except StoreUnusable:
        return  # reported by the check of the file itself
    for owner, window in windows:
        if not window.zone_known:
            yield warning(
                loaded,
                "state",
                f"the window '{window.text}' of {owner} stays closed, because this computer does"
                f" not know the time zone '{window.zone}': install current time zone data (tzdata),"
                " or change the window",
            )


def _token_findings(loaded: LoadedSettings, config: Config, state: State) -> Iterator[Finding]:
    """Check the tokens of APIs that can be reached from other machines."""
    apis = {"control": config.control, "arm": config.arm and config.arm.address}
    exposed = {key: where for key, where in apis.items() if where and not local(where.host)}
    if not exposed:
        return
    tokens, now = _tokens(state), guard.wall_us()
    oidc = config.oidc
    command = f"forewarn token create NAME --role admin --state {shown(state)}"
    if not tokens and oidc is None:
        for key, where in exposed.items():
            yield fatal(
                loaded,
                key,
                f"{where} can be reached from other machines, and no token has ever been created:"
                f" create one first ({command})",
            )
    elif not (oidc and oidc.has_admins) and not any(
        token.role is Role.ADMIN and token.valid(now) for token in tokens
    ):
        yield warning(
            loaded,
            next(iter(exposed)),
            "the state has no valid admin token, so nobody can create tokens or backups; run this"
            f" while the service is stopped: {command}",
        )


def _tokens(state: State) -> list[Token]:
    if not _exists(state):
        return []
    try:
        return [token for token, _ in stored_state(state).tokens()]
    except StoreUnusable:
        return []  # reported by the check of the file itself


def _exists(state: State) -> bool:
    return not isinstance(state, Path) or state.exists()


def writable_by_others(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    sticky = stat.S_ISDIR(mode) and mode & stat.S_ISVTX
    return bool(mode & 0o022) and not sticky


def _current_user() -> str:
    return f"user {os.geteuid()}"
