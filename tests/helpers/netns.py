"""A host and its guests as Linux network namespaces, for tests that need the real address.

The host owns a bridge and 169.254.169.254; every guest has its own network address, its own host
name and a route to that address through the host, so a server in the host sees who is asking.
The namespaces have no names: each is held open by one thread of this process and by the processes
started in it, so nothing can collide and nothing is left behind, even when a test is killed.
Nothing here knows what is served or asked.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import ipaddress
import operator
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

import pytest
from pyroute2 import IPRoute  # type: ignore[import-untyped]

from helpers.forked_cli import FOREWARN, fork_server, start
from helpers.process import Running, end
from helpers.waiting import LIMIT

METADATA_ADDRESS = "169.254.169.254"

P = ParamSpec("P")
T = TypeVar("T")

_KINDS = {"net": 0x40000000, "uts": 0x04000000}  # CLONE_NEWNET, CLONE_NEWUTS
_libc = ctypes.CDLL(None, use_errno=True)  # os.unshare and os.setns came with Python 3.12


def require(present: object, what: str) -> None:
    """Skip the test, saying in one line what it needs; where CI=true, fail instead."""
    if present:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"needs {what}", pytrace=False)
    pytest.skip(f"needs {what}")


def needs_root() -> None:
    """Call first in a test or fixture that builds a `Lab`."""
    require(_can_make_namespaces(), "root and the right to make network namespaces")


@functools.cache
def _can_make_namespaces() -> bool:
    if os.geteuid() != 0:
        return False
    try:
        Namespace("probe").close()
    except OSError:
        return False
    return True


class Namespace:
    """One network (and host name) namespace, and the thread that lives in it."""

    def __init__(self, hostname: str) -> None:
        self.hostname = hostname
        self.running: list[Running] = []
        self._home: list[int] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"netns-{hostname}")
        try:
            self.fd = self.call(self._leave_home)
        except BaseException:
            self._thread.shutdown()
            for fd in self._home:
                os.close(fd)
            raise
        self.inode = os.fstat(self.fd).st_ino

    def _leave_home(self) -> int:
        for kind in _KINDS:
            self._home.append(os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY))
        _check(_libc.unshare(functools.reduce(operator.or_, _KINDS.values())))
        socket.sethostname(self.hostname)
        with IPRoute() as ip:
            ip.link("set", index=_index(ip, "lo"), state="up")
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY)

    def _go_home(self) -> None:
        # The thread ends a moment after it is joined; the namespace must not wait for that.
        for fd, kind in zip(self._home, _KINDS.values(), strict=True):
            _check(_libc.setns(fd, kind))
            os.close(fd)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function inside the namespace. A socket made there stays there:
        `host.call(socket.create_server, (METADATA_ADDRESS, 80))` listens inside and is served
        from this process."""
        return self._thread.submit(function, *args, **kwargs).result()

    def popen(
        self,
        argv: Iterable[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
    ) -> Running:
        """Start a process inside; it dies with the lab. `env` is added to our own environment."""
        command = [str(word) for word in argv]
        before = _die_with_parent()
        if tuple(command[:3]) == FOREWARN:
            fork_server()  # here, not inside
            before = ()
        process = self.call(
            start,
            [*before, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            text=True,
        )
        running = Running(process, command)
        self.running.append(running)
        return running

    def run(
        self,
        argv: Iterable[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        check: bool = True,
        timeout: float = LIMIT,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside to its end. Its status must be 0 unless `check` is false."""
        running = self.popen(argv, env=env, cwd=cwd)
        status = running.wait(timeout)
        if check and status != 0:
            raise running.failure(f"status {status}")
        return subprocess.CompletedProcess(
            running.argv, status, "".join(running.stdout), "".join(running.stderr)
        )

    def close(self) -> None:
        """End every process inside and let go of the namespace."""
        end_everything_in([self])
        self.call(self._go_home)
        self._thread.shutdown()
        os.close(self.fd)


def end_everything_in(namespaces: Collection[Namespace]) -> None:
    """Ask every process in these namespaces to end, then make it, whoever started it."""
    inodes = {namespace.inode for namespace in namespaces}
    for signum in (signal.SIGTERM, signal.SIGKILL):
        end(_processes_in(inodes), signum)
    for namespace in namespaces:
        for running in namespace.running:
            running.wait()
        namespace.running.clear()


class Lab:
    """A host namespace and its guests, by address: `with Lab(["10.77.0.11"]) as lab: …`.

    Guests are given as addresses or as a mapping from address to host name. Their ports on the
    host's bridge are `ports` and a number. A guest of another lab can be the host of this one.
    """

    def __init__(
        self,
        guests: Iterable[str] | Mapping[str, str],
        network: str = "10.77.0.0/16",
        ports: str = "guest",
        host: Namespace | None = None,
    ) -> None:
        self.network = ipaddress.IPv4Network(network)
        self.gateway = str(self.network[1])
        names = dict(guests) if isinstance(guests, Mapping) else {a: _hostname(a) for a in guests}
        for address in names:
            if ipaddress.IPv4Address(address) not in self.network or address == self.gateway:
                raise ValueError(f"a guest's address lies in {network}, after {self.gateway}")
        self._names = names
        self.ports = {address: f"{ports}{number}" for number, address in enumerate(names)}
        self._closing = contextlib.ExitStack()
        self.guests: dict[str, Namespace] = {}
        self.host: Namespace
        self._given = host

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            self.host = self._given or Namespace("host")
            if self._given is None:
                undo.callback(self.host.close)
            for address, hostname in self._names.items():
                guest = self.guests[address] = Namespace(hostname)
                undo.callback(guest.close)
            self.host.call(self._build_host)
            for address, guest in self.guests.items():
                guest.call(self._build_guest, address)
            undo.callback(self._end_everything)  # called first: all are asked at once
            self._closing = undo.pop_all()
        return self

    def _end_everything(self) -> None:
        hosts = [] if self._given else [self.host]
        end_everything_in([*hosts, *self.guests.values()])

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.close()

    def _build_host(self) -> None:
        with IPRoute() as ip:
            ip.addr("add", index=_index(ip, "lo"), address=METADATA_ADDRESS, prefixlen=32)
            ip.link("add", ifname="br0", kind="bridge")
            bridge = _index(ip, "br0")
            ip.addr("add", index=bridge, address=self.gateway, prefixlen=self.network.prefixlen)
            ip.link("set", index=bridge, state="up")
            for address, guest in self.guests.items():
                inside = {"ifname": "eth0", "net_ns_fd": guest.fd}
                ip.link(
                    "add",
                    ifname=self.ports[address],
                    kind="veth",
                    peer=inside,
                    master=bridge,
                    state="up",
                )

    def _build_guest(self, address: str) -> None:
        with IPRoute() as ip:
            link = _index(ip, "eth0")
            ip.addr("add", index=link, address=address, prefixlen=self.network.prefixlen)
            ip.link("set", index=link, state="up")
            ip.route("add", dst=f"{METADATA_ADDRESS}/32", gateway=self.gateway)


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _index(ip: IPRoute, name: str) -> int:
    [index] = ip.link_lookup(ifname=name)
    assert isinstance(index, int)
    return index


def _hostname(address: str) -> str:
    return "guest-" + address.replace(".", "-")


@functools.cache
def _die_with_parent() -> tuple[str, ...]:
    """A prefix that ties a process to its namespace's thread, also when that is killed."""
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()


def _processes_in(inodes: Container[int]) -> list[int]:
    """A pidfd for each process inside these namespaces."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # it may end while we look
                if (entry / "ns/net").stat().st_ino in inodes:
                    found.append(os.pidfd_open(int(entry.name)))
    return found
