"""The rest of the network, for a namespace that has none: pasta or slirp4netns, if they are there.

Both are programs without privileges that pass on what a namespace sends, as connections of their
own; nothing about this machine's network or firewall is changed.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from forewarn.testing.enclosure import kernel, start
from forewarn.testing.enclosure.anchor import Anchor

NETWORK_WITHIN = 10.0  # seconds that pasta or slirp4netns may take to be ready
MAX_COMPLAINT = 400  # characters of what it said if it is not

_LOOK_EVERY = 5  # ms


class NoNetwork(Exception):
    """What it said, or that there is none."""


class Uplink:
    """A program that is the rest of the network, from when it is ready."""

    def __init__(self, name: str, process: subprocess.Popen[bytes]) -> None:
        self.name = name
        self.process = process

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def available() -> list[str]:
    """Which of them there are, the better one first."""
    return [name for name in ("pasta", "slirp4netns") if shutil.which(name)]


def surround(name: str, anchor: Anchor) -> Uplink:
    return (_pasta if name == "pasta" else _slirp4netns)(anchor)


def _pasta(anchor: Anchor) -> Uplink:
    """The same addresses and routes as outside. What listens on loopback outside, now or later,
    can be reached on loopback inside; nothing can be reached from outside. The gateway is the
    gateway, and not this machine as pasta would have it."""
    with tempfile.TemporaryDirectory(prefix="forewarn-run-") as directory:
        ready = Path(directory) / "pid"
        options = ["--config-net", "--foreground", "--quiet", "--no-map-gw", "--pid", str(ready)]
        ports = ["-t", "none", "-u", "none", "-T", "auto", "-U", "auto"]
        where = ["--netns", f"/proc/{anchor.pid}/ns/net"]
        if _enters_by_itself(anchor):
            where += ["--userns", f"/proc/{anchor.pid}/ns/user"]
        argv = ["pasta", *options, *ports, *where]
        with _started(argv, anchor) as process:
            _until(process, lambda: ready.exists() and ready.stat().st_size > 0)
            return Uplink("pasta", process)


def _slirp4netns(anchor: Anchor) -> Uplink:
    seen, shown = os.pipe()
    options = ["--configure", "--mtu=65520", f"--ready-fd={shown}", "--netns-type=path"]
    if _enters_by_itself(anchor):
        options.append(f"--userns-path=/proc/{anchor.pid}/ns/user")
    argv = ["slirp4netns", *options, f"/proc/{anchor.pid}/ns/net", "tap0"]
    try:
        with _started(argv, anchor, shown) as process:
            _until(process, lambda: bool(select.select([seen], [], [], 0)[0]))
            return Uplink("slirp4netns", process)
    finally:
        os.close(seen)
        os.close(shown)


@contextlib.contextmanager
def _started(argv: list[str], anchor: Anchor, *fds: int) -> Iterator[subprocess.Popen[bytes]]:
    """Started in the network that is outside, and where it does not enter the user namespace by
    itself, as a process that is there already."""
    with tempfile.TemporaryFile() as said:
        namespaces = []
        if anchor.user is not None and not _enters_by_itself(anchor):
            namespaces.append((anchor.user, kernel.NEW_USER))
        process = start.start(
            argv, namespaces, stdin=subprocess.DEVNULL, stdout=said, stderr=said, pass_fds=fds
        )
        try:
            anchor.entrust(process.pid)
            yield process
        except BaseException as error:
            process.kill()
            process.wait()
            said.seek(0)
            complaint = _without_syslog(said.read().decode(errors="replace"))
            if isinstance(error, NoNetwork) and complaint:
                raise NoNetwork(f"{argv[0]}: {complaint[-MAX_COMPLAINT:]}") from None
            raise


def _enters_by_itself(anchor: Anchor) -> bool:
    """Root must not: pasta would rather be nobody, who is not let in. Others must: a program that
    is started inside has no rights there, unless its user is root."""
    return anchor.user is not None and os.geteuid() != 0


def _until(process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
    ending = select.poll()
    ended = os.pidfd_open(process.pid)
    try:
        ending.register(ended, select.POLLIN)
        for _ in range(int(NETWORK_WITHIN * 1000 / _LOOK_EVERY)):
            if ready():
                return
            if ending.poll(_LOOK_EVERY):
                raise NoNetwork("ended without a word")
    finally:
        os.close(ended)
    raise NoNetwork(f"not ready after {NETWORK_WITHIN:g} s")


def _without_syslog(text: str) -> str:
    """pasta complains on standard error that it cannot complain to the system's log."""
    lines = [line for line in text.splitlines() if line.strip() and "to syslog" not in line]
    return "; ".join(lines)
