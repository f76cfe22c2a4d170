"""`forewarn` on a machine whose wall clock is wrong by as many seconds as a file says."""

from __future__ import annotations

import runpy
import sys
import time  # noqa: TID251 - which is what is wrong
from pathlib import Path

FILE = Path(sys.argv.pop(1))
real = time.time_ns


def wrong() -> int:
    return real() + int(float(FILE.read_text() or 0) * 1e9)


time.time_ns = wrong
time.time = lambda: wrong() / 1e9
runpy.run_module("forewarn", run_name="__main__", alter_sys=True)
