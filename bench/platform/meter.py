"""Time, processor and memory, of this process or of another."""

from __future__ import annotations

import os
import re
import time  # noqa: TID251 - a measurement
from pathlib import Path


def stopwatch() -> float:
    """Seconds, on a clock that all processes share."""
    return time.monotonic()


def cpu() -> float:
    """Seconds that the threads of this process have run."""
    return time.process_time()


def resident(pid: int | None = None) -> int:
    """Bytes in memory now."""
    text = Path(f"/proc/{pid or os.getpid()}/status").read_text()
    (kib,) = re.findall(r"VmRSS:\s+(\d+) kB", text)
    return int(kib) * 1024


def pause(seconds: float) -> None:
    time.sleep(seconds)
