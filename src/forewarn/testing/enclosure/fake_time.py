"""`FakeTime`: sets the clock of a program under test, with libfaketime.

Only the time of day is changed: it stands still until it is set again, while sleeping, timeouts and
the monotonic clock stay real. The owner of the service's clock calls `set` when it moves;
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

from forewarn.support.system import linux_problem

LIBRARY = "FAKETIME_LIB"  # environment variable: the path of libfaketime, if it is not found

PROBE_TIMEOUT = 20.0  # seconds after which `time.sleep(0)` is considered to hang

_NAME = "libfaketimeMT.so.1"  # for programs with threads, but works for others too
_DIRECTORIES = (
    "/usr/lib/{machine}-linux-gnu/faketime",
    "/usr/lib/faketime",
    "/usr/lib64/faketime",
    "/usr/local/lib/faketime",
    "/usr/local/lib64/faketime",
)
_PROBE = "import time; time.sleep(0)"  # uses clock_nanosleep with an absolute monotonic time
_SHARED_MEMORY = ("faketime_shm_{}", "sem.faketime_sem_{}")
_SLEEP_BROKEN = (
    "this libfaketime is older than 0.9.11: programs cannot sleep until a time of the monotonic"
    " clock, and Python's time.sleep, for example, fails with 'Invalid argument'. Install a newer"
    " one, or a C compiler (cc), with which forewarn builds a workaround"
)


class NoFakeTime(Exception):
    """libfaketime is missing; the message says what to install."""


class FakeTime:
    """The clock of programs that are started with `environment()`.

    `with FakeTime(at) as fake: Popen(argv, env=fake.environment()); fake.set(later)`. Times are
    microseconds since 1970 UTC, as everywhere in the service. `notes` are remarks for the user.
    """

    def __init__(self, at: int) -> None:
        self._at = at
        self._directory = Path()
        self._preload = ""
        self.notes: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        library = find_library()
        self._directory = _make_directory()
        try:
            self._directory.chmod(0o755)  # the program may change its user
            self.set(self._at)
            self._preload = str(library)
            if not self._sleep_works():
                self._build_workaround(library)
        except BaseException:
            self.close()
            raise
        return self

    def set(self, at: int) -> None:
        """Set the time that the program sees."""
        self._at = at
        seconds, fraction = divmod(at, 1_000_000)
        new = self._directory / "now.new"
        # libfaketime parses a floating point number; half a microsecond prevents rounding down.
        new.write_text(f"{seconds}.{fraction:06}5\n" if fraction else f"{seconds}\n")
        new.chmod(0o644)  # whatever our umask is
        new.replace(self._directory / "now")

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return an environment (by default ours) in which a program has this clock."""
        environment = dict(os.environ if base is None else base)
        for name in [
            name for name in environment if name.startswith("FAKETIME") and name != LIBRARY
        ]:
            del environment[name]  # would override ours
        preloaded = environment.get("LD_PRELOAD", "")
        return {
            **environment,
            "LD_PRELOAD": f"{self._preload}:{preloaded}" if preloaded else self._preload,
            "FAKETIME_TIMESTAMP_FILE": str(self._directory / "now"),
            "FAKETIME_FMT": "%s",
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",  # do not change the times of files
        }

    def forget(self, pid: int) -> None:
        """Remove what libfaketime leaves behind of a program that was killed."""
        for name in _SHARED_MEMORY:
            Path("/dev/shm", name.format(pid)).unlink(missing_ok=True)

    def close(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def _sleep_works(self) -> bool:
        argv = [sys.executable, "-I", "-S", "-c", _PROBE]
        try:
            subprocess.run(
                argv, env=self.environment(), capture_output=True, check=True, timeout=PROBE_TIMEOUT
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return False
        return True

    def _build_workaround(self, library: Path) -> None:
        workaround = self._directory / "sleeping.so"
        source = Path(__file__).with_name("sleeping.c")
        compiler = shutil.which("cc")
        if compiler:
            argv = [compiler, "-O2", "-shared", "-fPIC", "-o", str(workaround), str(source), "-ldl"]
            with contextlib.suppress(OSError):
                subprocess.run(argv, capture_output=True, check=False)
        if workaround.exists():
            workaround.chmod(0o755)
            self._preload = f"{workaround}:{library}"
        if not self._sleep_works():
            self._preload = str(library)
            self.notes = (_SLEEP_BROKEN,)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _make_directory() -> Path:
    """Make a directory for files that are named in LD_PRELOAD, where names are separated by spaces
    and colons and nothing can be quoted."""
    usable = not set(tempfile.gettempdir()) & {" ", ":"}
    return Path(tempfile.mkdtemp(prefix="forewarn-time-", dir=None if usable else "/tmp"))


def find_library() -> Path:
    """Return the path of libfaketime."""
    if problem := linux_problem("--fake-time", "without it, the program has the real time"):
        raise NoFakeTime(problem)
    if path := os.environ.get(LIBRARY):
        if Path(path).is_file():
            return Path(path)
        raise NoFakeTime(f"{LIBRARY} is {path}, but there is no such file")
    directories = [Path(directory.format(machine=platform.machine())) for directory in _DIRECTORIES]
    for directory in directories:
        if (directory / _NAME).is_file():
            return directory / _NAME
    raise NoFakeTime(
        "libfaketime is not installed: apt-get install libfaketime, dnf install libfaketime;"
        f" or set {LIBRARY}=/path/to/{_NAME}"
    )
