"""Linux system calls that Python does not offer, or only from 3.12 on.

Namespaces, capabilities, and the loopback interface. Each function raises OSError if the kernel
refuses.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

NEW_USER = 0x10000000
NEW_NET = 0x40000000
CAP_SYS_ADMIN = 21

_PR_SET_DUMPABLE = 4
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_SIOCSIFADDR, _SIOCSIFNETMASK = 0x8916, 0x891C
_IFF_UP = 0x1
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(kinds: int) -> None:
    _check(_libc.unshare(kinds))


def setns(fd: int, kind: int) -> None:
    _check(_libc.setns(fd, kind))


def drop_capabilities() -> None:
    """Drop all capabilities for good, and let processes of the same user inspect this one again."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    _check(_libc.capset(header, bytes(24)))
    _check(_libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0))


def has_capability(number: int) -> bool:
    """Return whether this process has a capability in its user namespace."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False


def keep_identity(uid: int, gid: int) -> None:
    """Map the user and group to themselves, in a new user namespace."""
    for name, value in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        Path(f"/proc/self/{name}").write_text(value)


def bring_up_loopback(address: str) -> None:
    """Bring up the loopback interface of this namespace, and add an address to it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fd = any_socket.fileno()
        reply = fcntl.ioctl(fd, _SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))
        (flags,) = struct.unpack_from("h", reply, 16)
        fcntl.ioctl(fd, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
        fcntl.ioctl(fd, _SIOCSIFADDR, _ifreq(address))
        fcntl.ioctl(fd, _SIOCSIFNETMASK, _ifreq("255.255.255.255"))


def _ifreq(address: str) -> bytes:
    """Return an ifreq for the alias lo:0, which leaves the first address as it is."""
    return struct.pack("16sHH4s8x", b"lo:0", socket.AF_INET, 0, socket.inet_aton(address))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
