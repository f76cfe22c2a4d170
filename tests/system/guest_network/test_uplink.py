"""A bridge with an uplink, and somebody behind it who says to be a guest, the host or the endpoint:
believed on a bare bridge, dropped under the shipped rules. What is honest passes both ways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from helpers import ethernet as frames
from helpers.ethernet import ARP, BROADCAST, IP, IP6, REQUEST, VLAN, claim, ethernet, send, udp
from helpers.guest_firewall import (
    HOST,
    LIAR,
    PEER,
    SIX,
    VICTIM,
    believed,
    dropped,
    ear,
    get_to_know,
    give,
    mac_of,
    needs_rules,
    nft,
    on_link,
    owner,
    stranger_to,
    three_guarded_guests,
    three_guests,
)
from helpers.netns import METADATA_ADDRESS, Lab, Namespace

EAR = 4077
ENDPOINT6 = "fd00:a9fe:a9fe::254"
UNKNOWN_CALLER, STRANGER6 = "10.77.200.1", "fd00:77::200"

Uplinked = tuple[Lab, Namespace]


@pytest.fixture(scope="module")
def bare() -> Iterator[Uplinked]:
    needs_rules()
    with three_guests() as lab, stranger_to(lab, bridged=True) as stranger:
        on_link(lab.guests[VICTIM], METADATA_ADDRESS)
        yield lab, stranger


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Uplinked]:
    needs_rules()
    with (
        three_guarded_guests(tmp_path_factory.mktemp("rules")) as lab,
        stranger_to(lab, bridged=True) as stranger,
    ):
        on_link(lab.guests[VICTIM], METADATA_ADDRESS)
        yield lab, stranger


@dataclass(frozen=True)
class Lie:
    source: str = UNKNOWN_CALLER
    to: str = VICTIM
    tags: Sequence[int] = ()
    as_peer: bool = False  # under the peer's MAC
    counter: str = "claimed_elsewhere"


LIES = {
    "the peer's address": Lie(PEER),
    "the host's address": Lie(HOST),
    "the endpoint's address": Lie(METADATA_ADDRESS),
    "the peer's MAC": Lie(as_peer=True),
    "the peer's address behind a tag": Lie(PEER, tags=[VLAN]),
    "a tag for a guest": Lie(tags=[VLAN], counter="kept_from_guests"),
    "the peer's IPv6 address": Lie(SIX[PEER], SIX[VICTIM]),
    "the endpoint's IPv6 address": Lie(ENDPOINT6, SIX[VICTIM]),
}


def datagram(source: str, to: str = VICTIM, data: bytes = b"forged") -> bytes:
    return udp((source, 999), (to, EAR), data)


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
def test_machines_beyond_an_uplink_are_no_guests(
    bare: Uplinked, guarded: Uplinked, lie: Lie
) -> None:
    kind, own_address = (IP6, STRANGER6) if ":" in lie.to else (IP, UNKNOWN_CALLER)
    nft(guarded[0], "reset", "counters")
    for lab, stranger in (bare, guarded):
        own, to = mac_of(stranger), mac_of(lab.guests[VICTIM])
        source = mac_of(lab.guests[PEER]) if lie.as_peer else own
        forged = ethernet(source, to, kind, datagram(lie.source, lie.to), lie.tags)
        honest = ethernet(own, to, kind, datagram(own_address, lie.to, b"honest"))
        with ear(lab.guests[VICTIM], EAR, lie.to) as victim:
            send(stranger, forged, honest)
            assert victim.recv(100) == (b"forged" if lab is bare[0] else b"honest")
    assert dropped(guarded[0].host).keys() == {lie.counter}  # once for each port it would go to


@pytest.mark.parametrize("claimed", [METADATA_ADDRESS, HOST, PEER])
def test_nobody_beyond_an_uplink_answers_arp_for_those_who_are_here(
    bare: Uplinked, guarded: Uplinked, claimed: str
) -> None:
    nft(guarded[0], "reset", "counters")
    for lab, stranger in (bare, guarded):
        forget(lab)
        get_to_know(lab, claimed)
        send(stranger, claim(mac_of(stranger), claimed))
        wait_for_honest(lab, stranger)
        believes = believed(lab, claimed)
        assert believes == (mac_of(stranger) if lab is bare[0] else owner(lab, claimed))
    assert dropped(guarded[0].host) == {"claimed_elsewhere": 1}


def test_nobody_beyond_an_uplink_answers_arp_in_a_tagged_frame(
    bare: Uplinked, guarded: Uplinked
) -> None:
    """The host takes a tag for VLAN 0 off, and would believe what is behind it."""
    nft(guarded[0], "reset", "counters")
    for lab, stranger in (bare, guarded):
        forget(lab)
        get_to_know(lab, HOST)
        own, to = mac_of(stranger), mac_of(lab.host, "br0")
        lie = frames.arp(REQUEST, (own, VICTIM), ("00:00:00:00:00:00", VICTIM))
        send(stranger, ethernet(own, to, ARP, lie, [VLAN]))
        wait_for_honest(lab, stranger)
        believes = believed(lab, VICTIM, by=lab.host)
        assert believes == (own if lab is bare[0] else mac_of(lab.guests[VICTIM]))
    assert dropped(guarded[0].host) == {"claimed_elsewhere": 1}


def test_nobody_beyond_an_uplink_answers_neighbour_discovery(
    bare: Uplinked, guarded: Uplinked
) -> None:
    nft(guarded[0], "reset", "counters")
    for lab, stranger in (bare, guarded):
        forget(lab)
        get_to_know(lab, SIX[PEER])
        own, to = mac_of(stranger), mac_of(lab.guests[VICTIM])
        lie = frames.neighbour_advert(STRANGER6, SIX[VICTIM], SIX[PEER], own)
        send(stranger, ethernet(own, to, IP6, lie))
        wait_for_honest(lab, stranger)
        assert believed(lab, SIX[PEER]) == (own if lab is bare[0] else owner(lab, SIX[PEER]))
    assert dropped(guarded[0].host) == {"claimed_elsewhere": 1}


def test_nothing_for_the_endpoint_goes_from_port_to_port(bare: Uplinked, guarded: Uplinked) -> None:
    """A guest that has been told a wrong way gets no answer, rather than a wrong one."""
    nft(guarded[0], "reset", "counters")
    for lab, _ in (bare, guarded):
        victim, liar = lab.guests[VICTIM], lab.guests[LIAR]
        give(liar, "lo", METADATA_ADDRESS, 32)
        with ear(liar, EAR) as impostor:
            for to, data in ((METADATA_ADDRESS, b"misled"), (LIAR, b"meant for it")):
                asked = udp((VICTIM, 999), (to, EAR), data)
                send(victim, ethernet(mac_of(victim), mac_of(liar), IP, asked))
            assert impostor.recv(100) == (b"misled" if lab is bare[0] else b"meant for it")
    assert dropped(guarded[0].host).keys() == {"endpoint_bridged"}


def wait_for_honest(lab: Lab, stranger: Namespace) -> None:
    """What the stranger said before has been dealt with when this arrives."""
    victim = lab.guests[VICTIM]
    with ear(victim, EAR) as heard:
        honest = ethernet(
            mac_of(stranger), BROADCAST, IP, datagram(UNKNOWN_CALLER, "10.77.255.255", b"true")
        )
        send(stranger, honest)
        assert heard.recv(100) == b"true"


def forget(lab: Lab) -> None:
    for place in (lab.host, lab.guests[VICTIM]):
        place.run(["ip", "neigh", "flush", "all"])
