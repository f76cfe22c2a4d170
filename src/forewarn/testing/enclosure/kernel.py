"""The few calls to Linux that Python does not have yet, or only from 3.12 on.

Namespaces, capabilities, and an address on the loopback interface. Nothing here knows what it is
for. Each function raises OSError with the kernel's reason.
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
    _checked(_libc.unshare(kinds))


def setns(fd: int, kind: int) -> None:
    _checked(_libc.setns(fd, kind))


def drop_capabilities() -> None:
    """All of them, for good; and let others of the same user look at this process again."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    _checked(_libc.capset(header, bytes(24)))
    _checked(_libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0))


def has_capability(number: int) -> bool:
    """Whether this process has it, in the user namespace that it is in."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False


def be_oneself(uid: int, gid: int) -> None:
    """In a user namespace that was just made: have the user and group that one had outside."""
    for name, said in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        Path(f"/proc/self/{name}").write_text(said)


def loopback_up(address: str) -> None:
    """The loopback interface of the namespace we are in, with one more address on it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fd = any_socket.fileno()
        asked = fcntl.ioctl(fd, _SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))
        (flags,) = struct.unpack_from("h", asked, 16)
        fcntl.ioctl(fd, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
        fcntl.ioctl(fd, _SIOCSIFADDR, _with_address(address))
        fcntl.ioctl(fd, _SIOCSIFNETMASK, _with_address("255.255.255.255"))


def _with_address(address: str) -> bytes:
    """An ifreq for an alias: the first address stays."""
    return struct.pack("16sHH4s8x", b"lo:0", socket.AF_INET, 0, socket.inet_aton(address))


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
