"""Ethernet by hand: frames as a guest that does not play by the rules would send them.

Only what the tests of the guests' network need: ARP, IPv4 and IPv6 with UDP or ICMPv6 in them,
VLAN tags, fragments. Nothing here knows whether a frame is honest.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterable

from helpers.netns import Namespace

BROADCAST = "ff:ff:ff:ff:ff:ff"
PORT_ACCESS = "01:80:c2:00:00:03"  # these two a bridge keeps to itself, and the second, LLDP,
LLDP = "01:80:c2:00:00:0e"  # it does not even show to its rules
IP, ARP, IP6, VLAN, PROVIDER_VLAN = 0x0800, 0x0806, 0x86DD, 0x8100, 0x88A8
REQUEST, REPLY = 1, 2
ROUTER_ADVERT, NEIGHBOUR_SOLICIT, NEIGHBOUR_ADVERT = 134, 135, 136

_UDP, _FRAGMENT, _ICMPV6 = 17, 44, 58


def send(guest: Namespace, *frames: bytes) -> None:
    """Put frames on the guest's wire, one after the other."""
    with guest.call(socket.socket, socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind(("eth0", 0))
        for frame in frames:
            wire.send(frame)


def ethernet(
    source: str, target: str, kind: int, payload: bytes, tags: Iterable[int] = ()
) -> bytes:
    """A frame; `tags` are the types of VLAN tags before it, each for VLAN 0, that is, for none."""
    tagged = b"".join(struct.pack("!HH", tag, 0) for tag in tags)
    return mac(target) + mac(source) + tagged + struct.pack("!H", kind) + payload


def arp(operation: int, source: tuple[str, str], target: tuple[str, str]) -> bytes:
    """`source` and `target` are a MAC and an address."""
    head = struct.pack("!HHBBH", 1, IP, 6, 4, operation)
    return head + b"".join(mac(m) + packed(a) for m, a in (source, target))


def claim(source: str, address: str) -> bytes:
    """A frame that tells everybody: this address is mine. Whoever knows it already believes it."""
    return ethernet(
        source, BROADCAST, ARP, arp(REQUEST, (source, address), ("00:00:00:00:00:00", address))
    )


def udp(source: tuple[str, int], target: tuple[str, int], data: bytes) -> bytes:
    """An IP packet, of whichever version the addresses are."""
    head = struct.pack("!HHH", source[1], target[1], 8 + len(data))
    return packet(source[0], target[0], _UDP, head + bytes(2) + data, checksum_at=6)


def neighbour_advert(source: str, target: str, about: str, at: str) -> bytes:
    """`about` is to be found at the MAC `at`, whatever was said before."""
    override = 0x20000000
    output = struct.pack("!BBHL", NEIGHBOUR_ADVERT, 0, 0, override) + packed(about)
    return packet(source, target, _ICMPV6, output + b"\x02\x01" + mac(at), checksum_at=2, hops=255)


def address_probe(about: str) -> bytes:
    """Does anybody have this address? I am about to take it, and have none yet."""
    output = struct.pack("!BBHL", NEIGHBOUR_SOLICIT, 0, 0, 0) + packed(about)
    return packet("::", "ff02::1", _ICMPV6, output, checksum_at=2, hops=255)


def router_advert(source: str, target: str) -> bytes:
    """I am your way to everywhere, for half an hour."""
    output = struct.pack("!BBHBBHLL", ROUTER_ADVERT, 0, 0, 64, 0, 1800, 0, 0)
    return packet(source, target, _ICMPV6, output, checksum_at=2, hops=255)


def packet(
    source: str, target: str, protocol: int, body: bytes, *, checksum_at: int, hops: int = 64
) -> bytes:
    pseudo = packed(source) + packed(target) + struct.pack("!LL", len(body), protocol)
    summed = struct.pack("!H", checksum(pseudo + body) or 0xFFFF)
    body = body[:checksum_at] + summed + body[checksum_at + 2 :]
    if ":" in source:
        head = struct.pack("!LHBB", 6 << 28, len(body), protocol, hops)
        return head + packed(source) + packed(target) + body
    return ip4(source, target, protocol, body, hops=hops)


def ip4(
    source: str, target: str, protocol: int, body: bytes, *, fragment: int = 0, hops: int = 64
) -> bytes:
    """`fragment` is the offset in units of 8 bytes, with 0x2000 if more follow."""
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 77, fragment, hops, protocol, 0)
    head += packed(source) + packed(target)
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + body


def in_two(whole: bytes) -> list[bytes]:
    """A packet as two fragments, the first as short as can be."""
    if whole[0] >> 4 == 6:
        head, body, protocol = whole[:40], whole[40:], whole[6]
        parts = [
            struct.pack("!BBHL", protocol, 0, more | offset << 3, 77) + part
            for offset, more, part in ((0, 1, body[:8]), (1, 0, body[8:]))
        ]
        return [
            head[:4] + struct.pack("!HB", len(part), _FRAGMENT) + head[7:] + part for part in parts
        ]
    source, target = (str(ipaddress.IPv4Address(whole[at : at + 4])) for at in (12, 16))
    body = whole[20:]
    return [
        ip4(source, target, whole[9], body[:8], fragment=0x2000),
        ip4(source, target, whole[9], body[8:], fragment=1),
    ]


def checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data[: len(data) & ~1]))
    total += data[-1] << 8 if len(data) % 2 else 0
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def mac(written: str) -> bytes:
    return bytes.fromhex(written.replace(":", ""))


def packed(address: str) -> bytes:
    return ipaddress.ip_address(address).packed
