"""Connects a namespace to the rest of the network, with pasta or slirp4netns if installed.

Both are unprivileged programs that forward what a namespace sends as connections of their own;
neither the network nor the firewall of this machine is changed.
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

READY_TIMEOUT = 10.0  # seconds
MAX_OUTPUT = 400  # characters of a program's output in an error

_POLL_INTERVAL = 5  # ms


class NoNetwork(Exception):
    """The program does not work; the message is its output, or how it failed."""


class Uplink:
    """A running pasta or slirp4netns."""

    def __init__(self, name: str, process: subprocess.Popen[bytes]) -> None:
        self.name = name
        self.process = process

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def available() -> list[str]:
    """Return the names of the installed programs, the preferred one first."""
    return [name for name in ("pasta", "slirp4netns") if shutil.which(name)]


def connect(name: str, anchor: Anchor) -> Uplink:
    return (_pasta if name == "pasta" else _slirp4netns)(anchor)


def _pasta(anchor: Anchor) -> Uplink:
    """Start pasta: the namespace has the same addresses and routes as this machine.

    What listens on loopback outside, now or later, can be reached on loopback inside; nothing
    inside can be reached from outside. `--no-map-gw`: the address of the gateway is not mapped to
    this machine.
    """
    with tempfile.TemporaryDirectory(prefix="forewarn-run-") as directory:
        ready = Path(directory) / "pid"
        options = ["--config-net", "--foreground", "--quiet", "--no-map-gw", "--pid", str(ready)]
        ports = ["-t", "none", "-u", "none", "-T", "auto", "-U", "auto"]
        where = ["--netns", f"/proc/{anchor.pid}/ns/net"]
        if _joins_user_namespace(anchor):
            where += ["--userns", f"/proc/{anchor.pid}/ns/user"]
        argv = ["pasta", *options, *ports, *where]
        with _started(argv, anchor) as process:
            _wait_until_ready(process, lambda: ready.exists() and ready.stat().st_size > 0)
            return Uplink("pasta", process)


def _slirp4netns(anchor: Anchor) -> Uplink:
    ready_fd, write_fd = os.pipe()
    options = ["--configure", "--mtu=65520", f"--ready-fd={write_fd}", "--netns-type=path"]
    if _joins_user_namespace(anchor):
        options.append(f"--userns-path=/proc/{anchor.pid}/ns/user")
    argv = ["slirp4netns", *options, f"/proc/{anchor.pid}/ns/net", "tap0"]
    try:
        with _started(argv, anchor, write_fd) as process:
            _wait_until_ready(process, lambda: bool(select.select([ready_fd], [], [], 0)[0]))
            return Uplink("slirp4netns", process)
    finally:
        os.close(ready_fd)
        os.close(write_fd)


@contextlib.contextmanager
def _started(argv: list[str], anchor: Anchor, *fds: int) -> Iterator[subprocess.Popen[bytes]]:
    """Start the program in the network outside.

    If it does not join the user namespace by itself, it is started inside of that.
    """
    with tempfile.TemporaryFile() as output:
        namespaces = []
        if anchor.user is not None and not _joins_user_namespace(anchor):
            namespaces.append((anchor.user, kernel.NEW_USER))
        process = start.start(
            argv, namespaces, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=fds
        )
        try:
            anchor.kill_with_us(process.pid)
            yield process
        except BaseException as error:
            process.kill()
            process.wait()
            output.seek(0)
            text = _without_syslog(output.read().decode(errors="replace"))
            if isinstance(error, NoNetwork) and text:
                raise NoNetwork(f"{argv[0]}: {text[-MAX_OUTPUT:]}") from None
            raise


def _joins_user_namespace(anchor: Anchor) -> bool:
    """Return whether pasta or slirp4netns joins the user namespace by itself.

    As root it must not: pasta would change its user to nobody, who may not enter. As another
    user it must: a program that is started inside has no capabilities there.
    """
    return anchor.user is not None and os.geteuid() != 0


def _wait_until_ready(process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
    poller = select.poll()
    pidfd = os.pidfd_open(process.pid)
    try:
        poller.register(pidfd, select.POLLIN)
        for _ in range(int(READY_TIMEOUT * 1000 / _POLL_INTERVAL)):
            if ready():
                return
            if poller.poll(_POLL_INTERVAL):
                raise NoNetwork("it ended without any output")
    finally:
        os.close(pidfd)
    raise NoNetwork(f"it was not ready after {READY_TIMEOUT:g} s")


def _without_syslog(text: str) -> str:
    """Remove pasta's messages on standard error that it cannot write to syslog."""
    lines = [line for line in text.splitlines() if line.strip() and "to syslog" not in line]
    return "; ".join(lines)
