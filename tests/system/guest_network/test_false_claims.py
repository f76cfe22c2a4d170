"""What others come to believe of a guest that claims what is not its own: neighbours' tables, the
bridge's own, routes. Each claim is believed on a bare bridge and does nothing under the rules.

A claim has been taken or not when something honest that was sent behind it has arrived.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyroute2 import IPRoute  # type: ignore[import-untyped]

from helpers import ethernet as frames
from helpers.ethernet import (
    ARP,
    BROADCAST,
    IP,
    IP6,
    LLDP,
    REPLY,
    REQUEST,
    claim,
    ethernet,
    send,
    udp,
)
from helpers.guest_firewall import (
    DEPLOY,
    HOST,
    LIAR,
    PEER,
    SIX,
    VICTIM,
    believed,
    dropped,
    ear,
    fill,
    get_to_know,
    mac_of,
    needs_rules,
    on_link,
    owner,
    three_guarded_guests,
    three_guests,
    within,
)
from helpers.netns import METADATA_ADDRESS, Lab, Namespace

EAR = 4077


@pytest.fixture(autouse=True)
def _rules() -> None:
    needs_rules()


@pytest.fixture
def bare() -> Iterator[Lab]:
    with three_guests() as lab:
        yield lab


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Lab]:
    with three_guarded_guests(tmp_path) as lab:
        yield lab


@pytest.mark.parametrize("claimed", [HOST, METADATA_ADDRESS, PEER])
def test_nobody_answers_arp_for_another(bare: Lab, guarded: Lab, claimed: str) -> None:
    for lab in (bare, guarded):
        on_link(lab.guests[VICTIM], METADATA_ADDRESS)
        get_to_know(lab, claimed)
        liar = lab.guests[LIAR]
        send(liar, claim(mac_of(liar), claimed))
        wait_for_honest(lab)

    assert believed(bare, claimed) == mac_of(bare.guests[LIAR])
    assert believed(guarded, claimed) == owner(guarded, claimed)
    assert dropped(guarded.host) == {"forged_arp": 1}


@pytest.mark.parametrize("claimed", [SIX[HOST], SIX[PEER]])
def test_nobody_answers_neighbour_discovery_for_another(
    bare: Lab, guarded: Lab, claimed: str
) -> None:
    for lab in (bare, guarded):
        get_to_know(lab, claimed)
        liar, victim = lab.guests[LIAR], lab.guests[VICTIM]
        lie = frames.neighbour_advert(SIX[LIAR], SIX[VICTIM], claimed, mac_of(liar))
        send(liar, ethernet(mac_of(liar), mac_of(victim), IP6, lie))
        wait_for_honest(lab)

    assert believed(bare, claimed) == mac_of(bare.guests[LIAR])
    assert believed(guarded, claimed) == owner(guarded, claimed)
    assert dropped(guarded.host) == {"forged_neighbour": 1}


def test_nobody_is_kept_from_its_ipv6_address_by_one_who_says_it_is_about_to_take_it(
    bare: Lab, guarded: Lab
) -> None:
    """Whoever is just taking it too would give it up."""
    for lab in (bare, guarded):
        liar, victim = lab.guests[LIAR], lab.guests[VICTIM]
        with victim.call(socket.socket, socket.AF_PACKET, socket.SOCK_RAW) as wire:
            wire.bind(("eth0", IP6))
            wire.settimeout(10)
            reported = [
                ethernet(mac_of(liar), "33:33:00:00:00:01", IP6, frames.address_probe(address))
                for address in (SIX[VICTIM], SIX[LIAR])
            ]
            send(liar, *reported)
            while (heard := wire.recv(200)) not in reported:
                pass  # others may say something of their own
            assert heard == reported[0 if lab is bare else 1]
    assert dropped(guarded.host) == {"forged_neighbour": 1}


def test_no_guest_is_anothers_router(bare: Lab, guarded: Lab) -> None:
    for lab in (bare, guarded):
        liar = lab.guests[LIAR]
        lie = frames.router_advert("fe80::bad", "ff02::1")
        send(liar, ethernet(mac_of(liar), "33:33:00:00:00:01", IP6, lie))
        wait_for_honest(lab)

    assert default_routers(bare.guests[VICTIM]) == ["fe80::bad"]
    assert default_routers(guarded.guests[VICTIM]) == []
    assert dropped(guarded.host) == {"rogue_servers": 1}


def test_the_bridge_does_not_learn_a_guests_mac_at_another_port(bare: Lab, guarded: Lab) -> None:
    for lab in (bare, guarded):
        steal_mac(lab, mac_of(lab.host, "br0"))

    assert learnt_at(bare) == bare.ports[LIAR]
    assert learnt_at(guarded) == guarded.ports[VICTIM]
    assert dropped(guarded.host) == {"forged_mac": 1}


def test_a_locked_bridge_port_does_not_learn_a_guests_mac_from_unfiltered_frames(
    guarded: Lab,
) -> None:
    steal_mac(guarded, LLDP)
    assert learnt_at(guarded) == guarded.ports[LIAR]  # why the bridge has to be told

    rule = (DEPLOY / "90-forewarn-network.rules").read_text()
    [command] = re.findall(r'RUN\+="(.*)"', rule)
    guarded.host.run(command.split())
    steal_mac(guarded, LLDP)
    assert learnt_at(guarded) == guarded.ports[VICTIM]


def test_broadcasts_without_an_address_reach_the_host_only(bare: Lab, guarded: Lab) -> None:
    asked = udp(("0.0.0.0", 68), ("255.255.255.255", 67), b"discover")
    for lab, heard in ((bare, b"discover"), (guarded, b"honest")):
        liar = lab.guests[LIAR]
        with ear(lab.host, 67) as host, ear(lab.guests[VICTIM], 67) as victim:
            honest = udp((LIAR, 999), (VICTIM, 67), b"honest")
            send(
                liar,
                ethernet(mac_of(liar), BROADCAST, IP, asked),
                ethernet(mac_of(liar), mac_of(lab.guests[VICTIM]), IP, honest),
            )
            assert host.recv(100) == b"discover"
            assert victim.recv(100) == heard
    assert dropped(guarded.host) == {"kept_from_guests": 2}  # one for each of the others


def test_an_unregistered_port_passes_nothing(guarded: Lab, tmp_path: Path) -> None:
    fill(guarded, tmp_path, {a: [a, SIX[a]] for a in (VICTIM, PEER)})
    liar, peer = guarded.guests[LIAR], guarded.guests[PEER]
    with ear(guarded.host, EAR) as host:
        for guest, address in ((liar, LIAR), (peer, PEER)):
            output = udp((address, 999), (HOST, EAR), address.encode())
            send(guest, ethernet(mac_of(guest), mac_of(guarded.host, "br0"), IP, output))
        assert host.recv(100) == PEER.encode()
    assert dropped(guarded.host).keys() == {"forged_mac"}


def test_a_guest_may_choose_a_link_local_address_that_is_nobodys(guarded: Lab) -> None:
    """As those do that do not make it from their MAC."""
    liar, victim = guarded.guests[LIAR], guarded.guests[VICTIM]
    chosen = udp(("fe80::1234", 999), (SIX[VICTIM], EAR), b"mine")
    hosts = udp(("fe80::1", 999), (SIX[VICTIM], EAR), b"the host's")
    found = frames.neighbour_advert("fe80::1234", SIX[VICTIM], "fe80::1234", mac_of(liar))
    with ear(victim, EAR, SIX[VICTIM]) as heard:
        for output in (hosts, found, chosen):
            send(liar, ethernet(mac_of(liar), mac_of(victim), IP6, output))
        assert heard.recv(100) == b"mine"
    assert dropped(guarded.host) == {"forged_ip6": 1}


def test_a_guest_may_ask_whether_an_address_is_free_before_it_takes_it(guarded: Lab) -> None:
    """RFC 5227: asked in nobody's name. The host answers for its own."""
    guest, host = guarded.guests[PEER], mac_of(guarded.host, "br0")
    nobody = "00:00:00:00:00:00"
    with guest.call(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ARP)) as wire:
        wire.bind(("eth0", ARP))
        wire.settimeout(10)
        probe = frames.arp(REQUEST, (mac_of(guest), "0.0.0.0"), (nobody, HOST))
        send(guest, ethernet(mac_of(guest), BROADCAST, ARP, probe))
        answer = frames.arp(REPLY, (host, HOST), (mac_of(guest), "0.0.0.0"))
        assert wire.recv(100)[14:42] == answer
    assert dropped(guarded.host) == {}


def wait_for_honest(lab: Lab, by: str = VICTIM) -> None:
    """The liar says something true; what it said before has been dealt with when it arrives."""
    liar, listener = lab.guests[LIAR], lab.guests[by]
    with ear(listener, EAR) as heard:
        honest = udp((LIAR, 999), (by, EAR), b"honest")
        send(liar, ethernet(mac_of(liar), mac_of(listener), IP, honest))
        assert heard.recv(100) == b"honest"


def default_routers(guest: Namespace) -> list[str]:
    def look(ip: IPRoute) -> list[str]:
        found = ip.get_default_routes(family=socket.AF_INET6)
        return [str(route.get("gateway")) for route in found if route.get("gateway")]

    return within(guest, look)


def steal_mac(lab: Lab, target: str) -> None:
    """The bridge knows where the victim is, and then the liar says that it is the victim."""
    quiet = Path("/proc/sys/net/ipv6/conf/eth0/disable_ipv6")
    lab.guests[VICTIM].call(quiet.write_text, "1")  # or it would be heard of again by itself
    get_to_know(lab, HOST)
    lie = udp((LIAR, 999), (HOST, EAR), b"forged")
    send(lab.guests[LIAR], ethernet(mac_of(lab.guests[VICTIM]), target, IP, lie))
    wait_for_honest(lab, PEER)  # the victim might be out of reach now


def learnt_at(lab: Lab) -> str:
    """The port at which the bridge believes the victim to be."""
    victim = mac_of(lab.guests[VICTIM])

    def look(ip: IPRoute) -> str:
        [index] = {e["ifindex"] for e in ip.fdb("dump") if e.get("lladdr") == victim}
        return str(ip.get_links(index)[0].get("ifname"))

    return within(lab.host, look)
