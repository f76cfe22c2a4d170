"""A small process beside a service with a lease: it ends the programs of the service when the lease
has run out, even if the service stands still or was killed.

It is started with the first program, as `python -I -m forewarn.support.guardian PID UNTIL`. Until
when the lease lasts, in boot time, which all processes of a machine share, comes through its
standard input whenever that changes, and standard input ends with the service.
"""

from __future__ import annotations

import contextlib
import os
import select
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence

from forewarn.support import guard
from forewarn.support.process_mark import end_marked

# Seconds between two looks at the clock, whose time passes while the machine is suspended, and at
# the programs of a service without a lease: it may just have been about to start another one.
LOOK_EVERY = 0.5
CHUNK = 4_096  # bytes
_until = struct.Struct("d")


class Guardian:
    """The service's side. Its methods may be called in any thread."""

    def __init__(self, service_pid: int) -> None:
        self._service_pid = service_pid
        self._lease_until = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._changing = threading.Lock()

    def renew(self, until: float) -> None:
        """Let programs run until this time, in boot time."""
        with self._changing:
            self._lease_until = until
            if self._process is not None:
                assert self._process.stdin is not None
                # If it stands still, the pipe may be full; if it has ended, another is started.
                with contextlib.suppress(BlockingIOError, BrokenPipeError):
                    os.write(self._process.stdin.fileno(), _until.pack(until))

    def start(self) -> None:
        """Start the process, unless it is running. Raises OSError."""
        with self._changing:
            if self._process is not None and self._process.poll() is None:
                return
            self._close()
            words = [sys.executable, "-I", "-m", __name__]
            self._process = subprocess.Popen(
                [*words, str(self._service_pid), repr(self._lease_until)],
                stdin=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
            assert self._process.stdin is not None
            os.set_blocking(self._process.stdin.fileno(), False)

    def close(self) -> None:
        """End the process. The service has ended its programs."""
        with self._changing:
            self._close()

    def _close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.kill()
            self._process.wait()
            self._process = None


def main(arguments: Sequence[str]) -> None:
    service_pid, until = int(arguments[0]), float(arguments[1])
    service_runs, over = True, False
    while service_runs or not over:
        wait = LOOK_EVERY if over else max(0.0, min(until - guard.boottime(), LOOK_EVERY))
        readable, _, _ = select.select([sys.stdin] if service_runs else [], [], [], wait)
        if readable:
            renewals = os.read(sys.stdin.fileno(), CHUNK)
            service_runs = bool(renewals)
            if renewals:
                (until,) = _until.unpack(renewals[-_until.size :])
        over = guard.boottime() >= until
        if over:
            end_marked(service_pid)


if __name__ == "__main__":
    main(sys.argv[1:])
