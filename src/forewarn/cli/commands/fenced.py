"""`forewarn fenced`: run a command on the target of a driver, unless a later call came before it.

The highest fence number of a key is the content of a file, which stays locked while a command runs.
The command takes the place of this process and inherits the lock, so nothing can end the one
without the other, and its exit code is that of the command.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from forewarn.support import child_signals

# Exit codes, in the ranges of sysexits.h and of a shell.
REFUSED = 77  # a call with a higher fence number came before; the command was not run
UNUSABLE = 74  # the number could not be read or stored; the command was not run
CANNOT_RUN = 126  # the command exists and cannot be executed
NOT_FOUND = 127  # there is no such command
DIGITS = 20  # of a stored number: always as many, so that it is written as a whole or not at all


def fenced(
    command: Annotated[
        list[str], typer.Argument(help="Command to run, and its arguments.", metavar="CMD")
    ],
    dir: Annotated[
        Path,
        typer.Option(
            help="Directory in which the highest number of each key is kept. It is created if its"
            " parent exists, and must survive a reboot.",
        ),
    ],
    key: Annotated[
        str, typer.Option(help="What the command changes, such as the name of a machine or host.")
    ],
    fence: Annotated[
        int, typer.Option(min=1, help="Fence number of the call: FOREWARN_FENCE of the driver.")
    ],
) -> None:
    """Run a command, unless one with a higher fence number was run for the same key.

    Commands for one key run one after the other. Exits with the exit code of the command, with 77
    if it was refused because it is late, and with 74 if the number could not be stored.
    """
    if not key or key in (".", "..") or "/" in key or "\0" in key:
        raise typer.BadParameter(
            f"'{key}' cannot be the name of a file; use the name of a machine or host",
            param_hint="--key",
        )
    if fence >= 10**DIGITS:
        raise typer.BadParameter(f"must have at most {DIGITS} digits", param_hint="--fence")
    try:
        import fcntl

        dir.mkdir(mode=0o700, exist_ok=True)
        file = os.open(dir / key, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        highest = _read(file)
        if fence > highest:
            _store(file, fence, dir)
    except ModuleNotFoundError:
        fail("forewarn fenced needs Linux or another Unix", UNUSABLE)
    except ValueError:
        fail(f"{dir / key} does not contain a fence number; nothing was run", UNUSABLE)
    except OSError as error:
        fail(f"{error.filename or dir / key}: {error.strerror}; nothing was run", UNUSABLE)
    if fence < highest:
        fail(
            f"refused: the call for '{key}' has the fence number {fence}, and one with {highest}"
            " came before it; nothing was run",
            REFUSED,
        )
    _execute(command, file)


def _read(file: int) -> int:
    """Return the stored number; 0 if there is none yet. Raises ValueError."""
    content = os.pread(file, DIGITS + 2, 0)
    if not content:
        return 0
    if len(content) != DIGITS + 1 or not content[:DIGITS].isdigit():
        raise ValueError(content)
    return int(content)


def _store(file: int, fence: int, directory: Path) -> None:
    """Write a number, and return when it is on disk, together with the name of the file."""
    os.pwrite(file, f"{fence:0{DIGITS}}\n".encode(), 0)
    os.fsync(file)
    names = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(names)
    finally:
        os.close(names)


def _execute(command: list[str], lock: int) -> NoReturn:
    """Become the command, which keeps the lock until it has ended."""
    os.set_inheritable(lock, True)
    sys.stdout.flush()
    child_signals.reset()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        if isinstance(error, FileNotFoundError) or not _is_there(command[0]):
            fail(f"there is no program '{command[0]}'", NOT_FOUND)
        fail(f"{command[0]}: {error.strerror}", CANNOT_RUN)


def _is_there(program: str) -> bool:
    """Return whether a program that cannot be executed is there: the reason may be a directory of
    PATH that cannot be searched."""
    import shutil

    return "/" in program or shutil.which(program, mode=os.F_OK) is not None


def fail(message: str, code: int) -> NoReturn:
    from forewarn.support.text import visible

    typer.echo(visible(f"forewarn: {message}"), err=True)
    raise typer.Exit(code)
