"""`FakeTime`: a program's clock shows the time that it is told, by libfaketime.

The time of day alone: it stands still until it is set anew, while sleeping, timeouts and the
monotonic clock stay real. Whoever has the service's clock at hand calls `set` when it moves;
`follow_clock.py` does so for a service in another process.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

LIBRARY = "FAKETIME_LIB"  # an environment variable: where libfaketime is, if nowhere usual

PROBE_WITHIN = 20.0  # seconds after which a program that sleeps for none is taken to sleep for ever

_NAME = "libfaketimeMT.so.1"  # for programs with threads; right for others too
_PLACES = (
    "/usr/lib/{machine}-linux-gnu/faketime",
    "/usr/lib/faketime",
    "/usr/lib64/faketime",
    "/usr/local/lib/faketime",
    "/usr/local/lib64/faketime",
)
_PROBE = "import time; time.sleep(0)"  # until a moment of the monotonic clock
_SHARED = ("faketime_shm_{}", "sem.faketime_sem_{}")
_NOT_MENDED = (
    "this libfaketime is older than 0.9.11 and lets no program sleep until a moment of the"
    " monotonic clock: Python's time.sleep, for one, fails with 'Invalid argument'. Install a"
    " newer one, or a C compiler (cc), with which that can be mended"
)


class NoFakeTime(Exception):
    """No library that could do it; the message says what to install."""


class FakeTime:
    """`with FakeTime(at) as fake: Popen(argv, env=fake.environment()); fake.set(later)`.

    Times are microseconds since 1970 UTC, as everywhere in the service."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._directory = Path()
        self._preload = ""
        self.notes: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        library = find()
        self._directory = Path(tempfile.mkdtemp(prefix="forewarn-time-"))
        try:
            self._directory.chmod(0o755)  # the program may become somebody else
            self.set(self._at)
            self._preload = str(library)
            if not self._sleeps():
                self._mend(library)
        except BaseException:
            self.close()
            raise
        return self

    def set(self, at: int) -> None:
        """From now on this is the time, wherever the program looks."""
        self._at = at
        seconds, fraction = divmod(at, 1_000_000)
        new = self._directory / "now.new"
        # It is read as a floating point number: half a microsecond more is no microsecond less.
        new.write_text(f"{seconds}.{fraction:06}5\n" if fraction else f"{seconds}\n")
        new.replace(self._directory / "now")

    def environment(self, around: Mapping[str, str] | None = None) -> dict[str, str]:
        """An environment (ours, if none is given) in which a program has this clock."""
        given = dict(os.environ if around is None else around)
        for name in [name for name in given if name.startswith("FAKETIME") and name != LIBRARY]:
            del given[name]  # somebody else's clock, which would come before ours
        others = given.get("LD_PRELOAD", "")
        return {
            **given,
            "LD_PRELOAD": f"{self._preload}:{others}" if others else self._preload,
            "FAKETIME_TIMESTAMP_FILE": str(self._directory / "now"),
            "FAKETIME_FMT": "%s",
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",  # the times of files are what they are
        }

    def forget(self, pid: int) -> None:
        """Remove what libfaketime leaves behind of a program that was killed."""
        for name in _SHARED:
            Path("/dev/shm", name.format(pid)).unlink(missing_ok=True)

    def close(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def _sleeps(self) -> bool:
        argv = [sys.executable, "-I", "-S", "-c", _PROBE]
        try:
            subprocess.run(
                argv, env=self.environment(), capture_output=True, check=True, timeout=PROBE_WITHIN
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return False
        return True

    def _mend(self, library: Path) -> None:
        made = self._directory / "sleeping.so"
        source = Path(__file__).with_name("sleeping.c")
        compiler = shutil.which("cc")
        if compiler:
            argv = [compiler, "-O2", "-shared", "-fPIC", "-o", str(made), str(source), "-ldl"]
            with contextlib.suppress(OSError):
                subprocess.run(argv, capture_output=True, check=False)
        if made.exists():
            self._preload = f"{made}:{library}"
        if not self._sleeps():
            self._preload = str(library)
            self.notes = (_NOT_MENDED,)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def find() -> Path:
    """Where libfaketime is."""
    if sys.platform != "linux":
        raise NoFakeTime(f"a program's clock can be moved on Linux, and this is {sys.platform}")
    if named := os.environ.get(LIBRARY):
        if Path(named).is_file():
            return Path(named)
        raise NoFakeTime(f"{LIBRARY} is {named}, and there is no such file")
    places = [Path(place.format(machine=platform.machine())) for place in _PLACES]
    for place in places:
        if (place / _NAME).is_file():
            return place / _NAME
    raise NoFakeTime(
        "libfaketime is not installed: apt-get install libfaketime, dnf install libfaketime;"
        f" or say where it is: {LIBRARY}=/path/to/{_NAME}"
    )
