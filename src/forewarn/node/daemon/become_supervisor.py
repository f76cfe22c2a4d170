"""`forewarn serve` with workers: opens the sockets, or adopts those that were handed over, and
replaces this program by the supervisor. The process id stays the same, as service managers expect.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from forewarn.node import Config
    from forewarn.node.listening.socket_activation import HandedOverSockets
    from forewarn.node.settings import LoadedSettings

PROGRAM = "forewarn.node.daemon.supervisor_main"


def socket_notes(config: Config, handed_over: HandedOverSockets) -> list[str]:
    """Return a note for each address in the settings on which nothing will listen."""
    from forewarn.node.listening.socket_activation import not_handed_over

    notes = []
    for address in not_handed_over(config, handed_over):
        notes.append(
            f"note: metadata lists {address}, but none of the sockets that were handed over is"
            " bound to it, so guests get no answer there; enable a socket unit for it, or remove it"
            " from the settings"
        )
    return notes


def load_if_workers(
    path: Path | None, flags: Mapping[str, Any]
) -> tuple[LoadedSettings, Config] | None:
    """Return the settings and the configuration if they ask for workers.

    Settings that cannot be read at all count as without workers: they are reported when they are
    loaded as such. Raises SettingsError."""
    from forewarn.node import settings as s

    try:
        if not s.gather(path, os.environ, flags).settings.workers:
            return None
    except s.SettingsError:
        return None
    # The fleet is read by the process that needs it.
    return s.load(path, os.environ, flags, with_fleet=False)


def become_supervisor(
    loaded: LoadedSettings,
    config: Config,
    handed_over: HandedOverSockets,
    *,
    path: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    migrate: bool = False,
    speed: float = 1.0,
) -> NoReturn:
    """Open the sockets and replace this program by the supervisor. Raises CannotListen.

    `path` and `flags` are where the settings came from, for reloading them."""
    import msgspec

    from forewarn.node.listening.socket_activation import open_all
    from forewarn.node.processes.child import interpreter

    opened = open_all(config, handed_over, loaded.settings.allow_other_addresses)
    spec = {
        "workers": config.workers,
        "metadata": [str(address) for address in opened.metadata],
        "control": str(opened.control),
        "metadata_fds": opened.metadata_fds,
        "control_fd": opened.control_fd,
        "outlived": bool(handed_over.metadata),
        "settings": msgspec.to_builtins(loaded.settings),
        "config": str(path) if path else None,
        "flags": {key: _text(value) for key, value in (flags or {}).items()},
        "migrate": migrate,
        "speed": speed,
    }
    spec_fd = os.memfd_create("forewarn", 0)
    os.write(spec_fd, json.dumps(spec).encode())
    os.lseek(spec_fd, 0, os.SEEK_SET)
    os.dup2(spec_fd, 0)
    os.close(spec_fd)
    for fd in (*chain(*opened.metadata_fds), opened.control_fd):
        os.set_inheritable(fd, True)
    sys.stdout.flush()
    sys.stderr.flush()
    # Without a handler yet, the next program would be killed by SIGHUP; blocked, it stays pending.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    os.execv(sys.executable, [*interpreter(), "-m", PROGRAM])


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
