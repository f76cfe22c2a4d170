"""One address, several sockets: which of them a caller reaches is decided in the kernel, by the
caller's address, so that a machine always meets the same worker.

A small program in the kernel's old filter language (classic BPF) looks at the source address of
whoever connects, of either family, mixes its bits, and names the socket. The sockets are counted in
the order in which they began to listen, and all stay open for as long as the service runs.
"""

from __future__ import annotations

import socket
import struct
from array import array
from collections.abc import Sequence

from forewarn.node.config import Address
from forewarn.node.listening.sockets import (
    BACKLOG,
    TCP,
    CannotListen,
    all_or_none,
    open_one,
    why_not,
)

ATTACH = 51  # SO_ATTACH_REUSEPORT_CBPF
NETWORK = 0xFFF00000  # SKF_NET_OFF: where the network's header begins, whatever has been read

# Instructions: load a byte or word, from the packet or a constant; jump; arithmetic; return.
LOAD_BYTE, LOAD_WORD, TO_X = 0x30, 0x20, 0x07
EQUAL, ALWAYS = 0x15, 0x05
SHIFT, AND, MULTIPLY, MODULO, XOR_X = 0x74, 0x54, 0x24, 0x94, 0xAC
RETURN = 0x16
MIX = 0x45D9F3B  # an odd number whose bits look like chance

Instruction = tuple[int, int, int, int]


def program(sockets: int) -> list[Instruction]:
    """Code, where to jump if so and if not, constant."""
    ipv6 = [instruction for at in (12, 16, 20) for instruction in _and_word(at)]
    mix = [(TO_X, 0, 0, 0), (SHIFT, 0, 0, 16), (XOR_X, 0, 0, 0), (MULTIPLY, 0, 0, MIX)]
    return [
        (LOAD_BYTE, 0, 0, NETWORK),
        (SHIFT, 0, 0, 4),
        (EQUAL, 0, 2, 4),
        (LOAD_WORD, 0, 0, NETWORK + 12),
        (ALWAYS, 0, 0, 1 + len(ipv6)),
        (LOAD_WORD, 0, 0, NETWORK + 8),
        *ipv6,
        *mix,
        *mix,
        (TO_X, 0, 0, 0),
        (SHIFT, 0, 0, 16),
        (XOR_X, 0, 0, 0),
        (MODULO, 0, 0, sockets),
        (RETURN, 0, 0, 0),
    ]


def _and_word(at: int) -> list[Instruction]:
    """Mix a word of the packet into what we have."""
    return [
        (MULTIPLY, 0, 0, MIX),
        (TO_X, 0, 0, 0),
        (LOAD_WORD, 0, 0, NETWORK + at),
        (XOR_X, 0, 0, 0),
    ]


def spread(sockets: Sequence[socket.socket]) -> None:
    """Let the kernel choose among these by who calls."""
    if len(sockets) < 2:
        return
    code = b"".join(struct.pack("HBBI", *one) for one in program(len(sockets)))
    filters = array("B", code)
    said = struct.pack("HP", len(code) // 8, filters.buffer_info()[0])
    try:
        sockets[0].setsockopt(socket.SOL_SOCKET, ATTACH, said)
    except OSError as error:
        raise CannotListen(
            f"this system cannot spread callers over {len(sockets)} workers by their address"
            f" ({error.strerror}); set workers = 1 or 0"
        ) from error


def open_several(address: Address, count: int) -> list[socket.socket]:
    """That share the address, and share it with nobody else."""
    if count < 2:
        return [open_one(address)]
    # Who else is there? Sharing would not ask.
    with open_one(address) as alone:
        port = alone.getsockname()[1]
    with all_or_none() as opened:
        try:
            for _ in range(count):
                family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
                listener = socket.socket(family, socket.SOCK_STREAM, TCP)
                opened.append(listener)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                listener.bind((address.host, port))
                listener.listen(BACKLOG)
        except OSError as error:
            raise CannotListen(why_not(address, error)) from error
        spread(opened)
    return opened
