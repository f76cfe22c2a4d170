"""Starting a program inside namespaces, as `subprocess.Popen` would start it outside.

A small script enters them and becomes the program (`entering`), so the process is the program: its
number, its parent, its files and its end. No code of this process is run between fork and exec.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from forewarn.testing.enclosure import enter

_SCRIPT = str(Path(enter.__file__))


def start(
    argv: Sequence[str | os.PathLike[str]],
    namespaces: Sequence[tuple[int, int]],
    *,
    pass_fds: Collection[int] = (),
    blocked: Collection[int] | None = None,
    env: Mapping[str, str] | None = None,
    **details: Any,
) -> subprocess.Popen[Any]:
    """`namespaces` are open files and their kinds; `blocked` are the signals that the program finds
    blocked, if not those that are now."""
    words = [os.fspath(word) for word in argv]
    around = dict(os.environ if env is None else env)
    preload = around.pop("LD_PRELOAD", None)  # into the program, not into our script
    if blocked is None:
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    failed, report = os.pipe()
    spec = {
        "namespaces": namespaces,
        "report": report,
        "blocked": sorted(map(int, blocked)),
        "preload": preload,
    }
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", _SCRIPT, json.dumps(spec), *words],
            env=around,
            pass_fds=(*pass_fds, *(fd for fd, _ in namespaces), report),
            **details,
        )
    except BaseException:
        os.close(failed)
        raise
    finally:
        os.close(report)
    with os.fdopen(failed, "rb") as reading:
        said = reading.read()
    if said:
        process.wait()
        number = int(said)
        raise OSError(number, os.strerror(number), words[0])
    process.args = words
    return process
