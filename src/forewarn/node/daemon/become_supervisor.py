"""`forewarn serve` with workers: open the sockets, or take those that are handed over, and become
the supervisor. The process stays the same one, so that whoever started it need not know.
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

from forewarn.cli.output import fail, fail_all, say

if TYPE_CHECKING:
    from forewarn.node import Config
    from forewarn.node.listening.handed_over import HandedOverSockets
    from forewarn.node.settings import LoadedSettings

PROGRAM = "forewarn.node.daemon.supervisor_main"


def take_sockets() -> HandedOverSockets:
    """What whoever started us has opened for us."""
    from forewarn.node import CannotListen
    from forewarn.node.listening.handed_over import HandedOverSockets

    try:
        return HandedOverSockets.taken_from(os.environ)
    except CannotListen as error:
        fail(str(error))


def tell_of_missing(made: Config, handed: HandedOverSockets) -> None:
    """Print a note for each address in the settings on which nothing will listen."""
    from forewarn.node.listening.open_all import not_handed_over

    for address in not_handed_over(made, handed):
        say(
            f"note: metadata lists {address}, but none of the sockets that were handed over is"
            " bound to it, so guests get no answer there; enable a socket unit for it, or remove it"
            " from the settings",
            err=True,
        )


def become_if_wanted(
    config: Path | None, flags: Mapping[str, Any], migrate: bool, handed: HandedOverSockets
) -> None:
    """Does not return if the settings want workers. Settings that are wrong are somebody else's
    to complain of."""
    from forewarn.node import settings as s

    try:
        if not s.gather(config, os.environ, flags).settings.workers:
            return
    except s.SettingsError:
        return
    try:
        # The fleet is read by the process that needs it.
        said, made = s.load(config, os.environ, flags, with_fleet=False)
    except s.SettingsError as error:
        fail_all(error.problems)
    become(said, made, handed, config=config, flags=flags, migrate=migrate)


def become(
    said: LoadedSettings,
    made: Config,
    handed: HandedOverSockets,
    *,
    config: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    migrate: bool = False,
    speed: float = 1.0,
) -> NoReturn:
    import msgspec

    from forewarn.node import CannotListen
    from forewarn.node.listening.open_all import open_all
    from forewarn.node.processes.child import interpreter

    tell_of_missing(made, handed)
    try:
        opened = open_all(made, handed, said.settings.allow_other_addresses)
    except CannotListen as error:
        fail(str(error))
    spec = {
        "workers": made.workers,
        "metadata": [str(address) for address in opened.metadata],
        "control": str(opened.control),
        "metadata_fds": opened.metadata_fds,
        "control_fd": opened.control_fd,
        "outlived": bool(handed.metadata),
        "settings": msgspec.to_builtins(said.settings),
        "config": str(config) if config else None,
        "flags": {key: _text(value) for key, value in (flags or {}).items()},
        "migrate": migrate,
        "speed": speed,
    }
    told = os.memfd_create("forewarn", 0)
    os.write(told, json.dumps(spec).encode())
    os.lseek(told, 0, os.SEEK_SET)
    os.dup2(told, 0)
    os.close(told)
    for fd in (*chain(*opened.metadata_fds), opened.control_fd):
        os.set_inheritable(fd, True)
    sys.stdout.flush()
    sys.stderr.flush()
    # The next program has no handler yet, and would die of it. What comes until it has one waits.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    os.execv(sys.executable, [*interpreter(), "-m", PROGRAM])


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
