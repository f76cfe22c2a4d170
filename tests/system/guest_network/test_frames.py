"""What a guest may put on its wire: every lie is told first on a bare bridge, where it is believed,
and then under the shipped rules, where it is dropped and counted.

Nothing waits for a frame not to come: an honest one is sent behind the forged one, and the
question is which is heard first.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers import ethernet as frames
from helpers.ethernet import IP, IP6, LLDP, PORT_ACCESS, PROVIDER_VLAN, VLAN, ethernet, send, udp
from helpers.guest_firewall import (
    HOST,
    LIAR,
    PEER,
    SIX,
    VICTIM,
    dropped,
    mac_of,
    needs_rules,
    nft,
    three_guarded_guests,
    three_guests,
)
from helpers.netns import METADATA_ADDRESS, Lab

EAR = 4077  # the port at which the one who is lied to listens


@pytest.fixture(scope="module", autouse=True)
def _rules() -> None:
    needs_rules()


@pytest.fixture(scope="module")
def bare() -> Iterator[Lab]:
    """A host that trusts its guests."""
    with three_guests() as lab:
        yield lab


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The same under the rules."""
    with three_guarded_guests(tmp_path_factory.mktemp("rules")) as lab:
        yield lab


@pytest.fixture(params=["through the IP hooks", "past the IP hooks"])
def _bridged(request: pytest.FixtureRequest, guarded: Lab) -> None:
    """Where br_netfilter is loaded, frames on a bridge pass the hooks of IP as well, unless that
    is switched off. The rules hold either way."""
    for family in ("iptables", "ip6tables"):
        switch = Path(f"/proc/sys/net/bridge/bridge-nf-call-{family}")
        if guarded.host.call(switch.exists):
            guarded.host.call(switch.write_text, str(int("through" in request.param)))


@dataclass(frozen=True)
class Wire:
    """What the liar knows: everybody's MACs."""

    host: str
    victim: str
    peer: str
    liar: str


@dataclass(frozen=True)
class Lie:
    """A forged datagram for `ear`, and the counter of the rule that drops it."""

    reported: Callable[[Wire, bytes], list[bytes]]
    counter: str
    ear: str = HOST
    port: int = EAR
    packets: int = 1


def plain(source: str, ear: str, data: bytes, sport: int = 999, port: int = EAR) -> bytes:
    return udp((source, sport), (ear, port), data)


LIES = {
    "the peer's address": Lie(
        lambda w, d: [ethernet(w.liar, w.host, IP, plain(PEER, HOST, d))], "forged_ip"
    ),
    "the peer's address, to another guest": Lie(
        lambda w, d: [ethernet(w.liar, w.victim, IP, plain(PEER, VICTIM, d))],
        "forged_ip",
        ear=VICTIM,
    ),
    "the endpoint's address, to another guest": Lie(
        lambda w, d: [ethernet(w.liar, w.victim, IP, plain(METADATA_ADDRESS, VICTIM, d, 80))],
        "forged_ip",
        ear=VICTIM,
    ),
    "the host's address, to another guest": Lie(
        lambda w, d: [ethernet(w.liar, w.victim, IP, plain(HOST, VICTIM, d))],
        "forged_ip",
        ear=VICTIM,
    ),
    "an address that is nobody's": Lie(
        lambda w, d: [ethernet(w.liar, w.host, IP, plain("10.77.9.9", HOST, d))], "forged_ip"
    ),
    "the peer's MAC": Lie(
        lambda w, d: [ethernet(w.peer, w.host, IP, plain(LIAR, HOST, d))], "forged_mac"
    ),
    "the peer's MAC and address": Lie(
        lambda w, d: [ethernet(w.peer, w.host, IP, plain(PEER, HOST, d))], "forged_mac"
    ),
    "behind a tag for VLAN 0": Lie(
        lambda w, d: [ethernet(w.liar, w.host, IP, plain(PEER, HOST, d), [VLAN])],
        "strange_frames",
    ),
    "behind a tag for VLAN 0, to another guest": Lie(
        lambda w, d: [ethernet(w.liar, w.victim, IP, plain(PEER, VICTIM, d), [VLAN])],
        "strange_frames",
        ear=VICTIM,
    ),
    "behind a provider's tag": Lie(
        lambda w, d: [ethernet(w.liar, w.host, IP, plain(PEER, HOST, d), [PROVIDER_VLAN])],
        "strange_frames",
    ),
    "behind two tags": Lie(
        lambda w, d: [
            ethernet(w.liar, w.victim, IP, plain(PEER, VICTIM, d), [PROVIDER_VLAN, VLAN])
        ],
        "strange_frames",
        ear=VICTIM,
    ),
    "in fragments": Lie(
        lambda w, d: [
            ethernet(w.liar, w.host, IP, part) for part in frames.in_two(plain(PEER, HOST, d))
        ],
        "forged_ip",
        packets=2,
    ),
    "in a frame for bridges only": Lie(
        lambda w, d: [ethernet(w.liar, PORT_ACCESS, IP, plain(PEER, HOST, d))], "strange_frames"
    ),
    "in a frame that no rule of a bridge ever sees": Lie(
        lambda w, d: [ethernet(w.liar, LLDP, IP, plain(PEER, HOST, d))], "forged"
    ),
    "as a DHCP server": Lie(
        lambda w, d: [ethernet(w.liar, w.victim, IP, plain(LIAR, VICTIM, d, 67, 68))],
        "rogue_servers",
        ear=VICTIM,
        port=68,
    ),
    "the peer's IPv6 address": Lie(
        lambda w, d: [ethernet(w.liar, w.host, IP6, plain(SIX[PEER], SIX[HOST], d))],
        "forged_ip6",
        ear=SIX[HOST],
    ),
    "the peer's IPv6 address, to another guest": Lie(
        lambda w, d: [ethernet(w.liar, w.victim, IP6, plain(SIX[PEER], SIX[VICTIM], d))],
        "forged_ip6",
        ear=SIX[VICTIM],
    ),
    "the peer's IPv6 address behind a tag": Lie(
        lambda w, d: [ethernet(w.liar, w.victim, IP6, plain(SIX[PEER], SIX[VICTIM], d), [VLAN])],
        "strange_frames",
        ear=SIX[VICTIM],
    ),
    "fragments from a link-local address, as neighbour discovery could hide in": Lie(
        lambda w, d: [
            ethernet(w.liar, w.victim, IP6, part)
            for part in frames.in_two(plain("fe80::bad", SIX[VICTIM], d))
        ],
        "strange_frames",
        ear=SIX[VICTIM],
        packets=2,
    ),
    "as a DHCPv6 server": Lie(
        lambda w, d: [ethernet(w.liar, w.victim, IP6, plain(SIX[LIAR], SIX[VICTIM], d, 547, 546))],
        "rogue_servers",
        ear=SIX[VICTIM],
        port=546,
    ),
}


@pytest.mark.usefixtures("_bridged")
@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_a_forged_frame_passes_a_bare_bridge_and_is_dropped_by_the_rules(
    bare: Lab, guarded: Lab, lie: Lie
) -> None:
    nft(guarded, "reset", "counters")

    assert first_heard(bare, lie) == b"forged"
    assert first_heard(guarded, lie) == b"honest"
    assert dropped(guarded.host) == {lie.counter: lie.packets}


def first_heard(lab: Lab, lie: Lie) -> bytes:
    """The liar lies and then says something true; what the other hears first."""
    wire = macs(lab)
    to_host = lie.ear in (HOST, SIX[HOST])
    listener = lab.host if to_host else lab.guests[VICTIM]
    family = socket.AF_INET6 if ":" in lie.ear else socket.AF_INET
    with listener.call(socket.socket, family, socket.SOCK_DGRAM) as ear:
        ear.bind((lie.ear, lie.port))
        ear.settimeout(10)
        own = SIX[LIAR] if ":" in lie.ear else LIAR
        honest = ethernet(
            wire.liar,
            wire.host if to_host else wire.victim,
            IP6 if ":" in lie.ear else IP,
            plain(own, lie.ear, b"honest", port=lie.port),
        )
        send(lab.guests[LIAR], *lie.reported(wire, b"forged"), honest)
        return ear.recv(100)


def macs(lab: Lab) -> Wire:
    guests = (mac_of(lab.guests[address]) for address in (VICTIM, PEER, LIAR))
    return Wire(mac_of(lab.host, "br0"), *guests)
