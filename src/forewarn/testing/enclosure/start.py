"""Starts a program inside namespaces, like `subprocess.Popen`.

A small script (`enter`) enters them and executes the program, so pid, parent, open files and exit
code are those of the program. No code of this process runs between fork and exec.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from forewarn.support import child_signals
from forewarn.testing.enclosure import enter

_SCRIPT = str(Path(enter.__file__))


def start(
    argv: Sequence[str | os.PathLike[str]],
    namespaces: Sequence[tuple[int, int]],
    *,
    pass_fds: Collection[int] = (),
    env: Mapping[str, str] | None = None,
    hosts: str = "",
    **details: Any,
) -> subprocess.Popen[Any]:
    """Start a program. `namespaces` are open files and their kinds; `hosts` is a file that it sees
    as /etc/hosts."""
    command = [os.fspath(argument) for argument in argv]
    environment = dict(os.environ if env is None else env)
    preload = environment.pop("LD_PRELOAD", None)  # for the program, not for our script
    reader_fd, report_fd = os.pipe()
    spec = {
        "namespaces": namespaces,
        "report": report_fd,
        "reset": child_signals.to_reset(),
        "preload": preload,
        "hosts": hosts,
    }
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", _SCRIPT, json.dumps(spec), *command],
            env=environment,
            pass_fds=(*pass_fds, *(fd for fd, _ in namespaces), report_fd),
            **details,
        )
    except BaseException:
        os.close(reader_fd)
        raise
    finally:
        os.close(report_fd)
    with os.fdopen(reader_fd, "rb") as reader:
        error_number = reader.read()
    if error_number:
        process.wait()
        number = int(error_number)
        raise OSError(number, os.strerror(number), command[0])
    process.args = command
    return process
