"""Several sockets on one address (SO_REUSEPORT), selected by the caller's address, so that a
machine is always answered by the same worker.

The kernel runs a small program (classic BPF) for each new connection. It hashes the source
address, IPv4 or IPv6, and returns the index of a socket. Sockets are numbered in the order in
which they began to listen; all of them stay open as long as the service runs.
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
    listen_problem,
    open_socket,
)

ATTACH = 51  # SO_ATTACH_REUSEPORT_CBPF
NETWORK = 0xFFF00000  # SKF_NET_OFF: offsets are counted from the network header

# Instructions: load a byte or word, from the packet or a constant; jump; arithmetic; return.
LOAD_BYTE, LOAD_WORD, TO_X = 0x30, 0x20, 0x07
EQUAL, ALWAYS = 0x15, 0x05
SHIFT, AND, MULTIPLY, MODULO, XOR_X = 0x74, 0x54, 0x24, 0x94, 0xAC
RETURN = 0x16
MIX = 0x45D9F3B  # multiplier of the hash: odd, with well spread bits

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, constant


def program(sockets: int) -> list[Instruction]:
    """Return the BPF program that selects one of this many sockets."""
    ipv6 = [instruction for offset in (12, 16, 20) for instruction in _mix_in_word(offset)]
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


def _mix_in_word(offset: int) -> list[Instruction]:
    """Return instructions that mix a word of the packet into the hash."""
    return [
        (MULTIPLY, 0, 0, MIX),
        (TO_X, 0, 0, 0),
        (LOAD_WORD, 0, 0, NETWORK + offset),
        (XOR_X, 0, 0, 0),
    ]


def spread(sockets: Sequence[socket.socket]) -> None:
    """Make the kernel distribute callers over these sockets by their address."""
    if len(sockets) < 2:
        return
    instructions = program(len(sockets))
    code = array("B", b"".join(struct.pack("HBBI", *each) for each in instructions))
    filter_program = struct.pack("HP", len(instructions), code.buffer_info()[0])
    try:
        sockets[0].setsockopt(socket.SOL_SOCKET, ATTACH, filter_program)
    except OSError as error:
        raise CannotListen(
            f"this system cannot distribute callers over {len(sockets)} workers by their address"
            f" ({error.strerror}); set workers = 1 or 0"
        ) from error


def open_several(address: Address, count: int) -> list[socket.socket]:
    """Open sockets that share an address with each other, but with no other program."""
    if count < 2:
        return [open_socket(address)]
    # With SO_REUSEPORT, an address that another program listens on would not be refused.
    with open_socket(address) as exclusive:
        port = exclusive.getsockname()[1]
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
            raise CannotListen(listen_problem(address, error)) from error
        spread(opened)
    return opened
