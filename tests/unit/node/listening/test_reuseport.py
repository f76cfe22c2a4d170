"""One address, several sockets: the same caller always reaches the same one."""

from __future__ import annotations

import contextlib
import ipaddress
import select
import socket
from collections.abc import Iterator, Sequence

import pytest

from forewarn.node.config import Address
from forewarn.node.listening import reuseport
from forewarn.node.listening.reuseport import Instruction, open_several, program
from forewarn.node.listening.sockets import CannotListen, open_socket


@contextlib.contextmanager
def several(count: int, host: str = "127.0.0.1") -> Iterator[list[socket.socket]]:
    sockets = open_several(Address(host, 0), count)
    try:
        yield sockets
    finally:
        for one in sockets:
            one.close()


def reached(sockets: Sequence[socket.socket], source: str) -> int:
    """Which of them a caller from there reaches."""
    place = sockets[0].getsockname()[:2]
    with socket.create_connection(place, timeout=10, source_address=(source, 0)):
        (found,), _, _ = select.select(sockets, [], [], 10)
        found.accept()[0].close()
    return sockets.index(found)


def interpreted(code: Sequence[Instruction], packet: bytes) -> int:
    """What the kernel would find: its filter language, as far as the program uses it."""
    a = x = at = 0
    while True:
        op, so, not_so, k = code[at]
        at += 1
        offset = k - reuseport.NETWORK
        match op:
            case reuseport.LOAD_BYTE:
                a = packet[offset]
            case reuseport.LOAD_WORD:
                a = int.from_bytes(packet[offset : offset + 4], "big")
            case reuseport.TO_X:
                x = a
            case reuseport.EQUAL:
                at += so if a == k else not_so
            case reuseport.ALWAYS:
                at += k
            case reuseport.SHIFT:
                a >>= k
            case reuseport.MULTIPLY:
                a = a * k & 0xFFFFFFFF
            case reuseport.MODULO:
                a %= k
            case reuseport.XOR_X:
                a ^= x
            case reuseport.RETURN:
                return a
            case _:
                raise AssertionError(f"no such instruction: {op:#x}")


def header(source: str) -> bytes:
    address = ipaddress.ip_address(source)
    if address.version == 4:
        return bytes([0x45]) + bytes(11) + address.packed + bytes(4)
    return bytes([0x60]) + bytes(7) + address.packed + bytes(16)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_machine_always_meets_the_same_worker_and_all_workers_meet_some(count: int) -> None:
    with several(count) as sockets:
        code = program(count)
        met = []
        for n in range(60):
            source = f"127.1.{n % 7}.{1 + 4 * n}"
            first, again = reached(sockets, source), reached(sockets, source)
            assert first == again == interpreted(code, header(source))
            met.append(first)
    assert set(met) == set(range(count))


def test_addresses_of_the_newer_family_are_spread_as_well() -> None:
    code = program(4)
    addresses = [f"fd00:0:0:{n:x}::{1 + n % 3}" for n in range(400)]
    met = [interpreted(code, header(address)) for address in addresses]
    assert all(met.count(n) > 60 for n in range(4))
    with several(3, "::1") as sockets:
        there = interpreted(program(3), header("::1"))
        assert [reached(sockets, "::1") for _ in range(5)] == [there] * 5


def test_addresses_at_regular_distances_do_not_all_meet_the_same_worker() -> None:
    code = program(2)
    for distance in (2, 4, 16, 256):
        sources = [str(ipaddress.ip_address("10.0.0.2") + distance * n) for n in range(200)]
        share = sum(interpreted(code, header(source)) for source in sources) / 200
        assert 0.3 < share < 0.7, distance


def test_an_address_that_somebody_else_has_is_not_shared() -> None:
    with several(2) as sockets:
        taken = Address("127.0.0.1", sockets[0].getsockname()[1])
        with pytest.raises(CannotListen, match="is in use"):
            open_several(taken, 2)
        with pytest.raises(CannotListen, match="is in use"):
            open_socket(taken)


def test_a_system_that_cannot_spread_callers_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reuseport, "ATTACH", 9_999)
    with pytest.raises(
        CannotListen, match=r"cannot distribute callers over 2 workers.*workers = 1"
    ):
        open_several(Address("127.0.0.1", 0), 2)
    open_several(Address("127.0.0.1", 0), 1)[0].close()
