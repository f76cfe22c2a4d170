"""The ways to the endpoint and away from it: other interfaces, the world beyond the host, taps
without a bridge, IPv6. What is wrong works on a bare host first."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyroute2 import IPRoute  # type: ignore[import-untyped]

from helpers.ethernet import IP, ethernet, send, udp
from helpers.guest_firewall import (
    HOST,
    LIAR,
    PEER,
    SIX,
    VICTIM,
    dropped,
    ear,
    give,
    guard,
    knock,
    let_in,
    mac_of,
    needs_rules,
    on_link,
    stranger_to,
    three_guests,
    until_dropped,
    within,
)
from helpers.guest_network import GuestNetwork, poll
from helpers.netns import METADATA_ADDRESS, Lab, Namespace

NEAR, FAR = "192.0.2.1", "192.0.2.2"  # the host's other interface, and who is behind it
NEAR6, FAR6 = "2001:db8::1", "2001:db8::2"
ENDPOINT = (METADATA_ADDRESS, 80)
ENDPOINT6 = "fd00:a9fe:a9fe::254"
EAR = 4077


@pytest.fixture(autouse=True)
def _rules() -> None:
    needs_rules()


@pytest.fixture
def lab() -> Iterator[Lab]:
    with three_guests() as lab:
        give(lab.host, "lo", ENDPOINT6, 128)
        for guest in lab.guests.values():
            within(guest, lambda ip: ip.route("add", dst=f"{ENDPOINT6}/128", gateway=SIX[HOST]))
        yield lab


def everybody(lab: Lab) -> dict[str, list[str]]:
    return {address: [address, SIX[address]] for address in lab.guests}


@pytest.mark.parametrize(
    ("endpoint", "gateway", "counter"),
    [
        (METADATA_ADDRESS, NEAR, "unvouched"),
        (METADATA_ADDRESS, None, "endpoint_elsewhere"),  # asked for on the link itself
        (ENDPOINT6, NEAR6, "unvouched"),
    ],
)
def test_the_endpoint_is_not_reached_by_another_interface(
    lab: Lab, tmp_path: Path, endpoint: str, gateway: str | None, counter: str
) -> None:
    with outside(lab) as stranger, listening(lab.host, endpoint):
        route(stranger, endpoint, gateway)
        with knock(stranger, (endpoint, 80)) as knocking:
            assert let_in(knocking)

        guard(lab, tmp_path, everybody(lab))
        stranger.run(["ip", "neigh", "flush", "all"])
        with knock(stranger, (endpoint, 80)) as knocking:
            until_dropped(lab.host, counter)
            assert not let_in(knocking, within=0)
        with knock(lab.guests[VICTIM], (endpoint, 80)) as knocking:
            assert let_in(knocking)


def test_the_endpoint_is_not_reached_from_outside_with_a_guests_address(
    lab: Lab, tmp_path: Path
) -> None:
    """The answer would go to the guest, but what was asked would have been done."""
    with outside(lab) as stranger:
        to = mac_of(lab.host, "up0")

        def first_heard() -> bytes:
            with lab.host.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as ear:
                ear.bind(("", EAR))
                ear.settimeout(10)
                for address, output in ((METADATA_ADDRESS, b"forged"), (NEAR, b"honest")):
                    lie = udp((VICTIM, 999), (address, EAR), output)
                    send(stranger, ethernet(mac_of(stranger), to, IP, lie))
                return ear.recv(100)

        assert first_heard() == b"forged"
        guard(lab, tmp_path, everybody(lab))
        assert first_heard() == b"honest"
        assert dropped(lab.host) == {"unvouched": 1}


@pytest.mark.parametrize(
    ("endpoint", "near", "far"), [(METADATA_ADDRESS, NEAR, FAR), (ENDPOINT6, NEAR6, FAR6)]
)
def test_the_endpoints_address_is_not_routed_outward(
    lab: Lab, tmp_path: Path, endpoint: str, near: str, far: str
) -> None:
    """When the host has lost the address, a poll would go to whoever has it out there."""
    with outside(lab) as stranger:
        give(stranger, "lo", endpoint, 128 if ":" in endpoint else 32)
        route(stranger, "fd00:77::/64" if ":" in endpoint else "10.77.0.0/16", near)
        within(lab.host, lambda ip: ip.flush_addr(address=endpoint))
        route(lab.host, endpoint, far)
        for switch in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
            lab.host.call(Path(f"/proc/sys/net/{switch}").write_text, "1")
        with listening(stranger, endpoint):
            with knock(lab.guests[VICTIM], (endpoint, 80)) as knocking:
                assert let_in(knocking)

            guard(lab, tmp_path, everybody(lab))
            with knock(lab.guests[VICTIM], (endpoint, 80)) as knocking:
                until_dropped(lab.host, "routed")
                assert not let_in(knocking, within=0)


def test_nobody_outside_answers_for_the_endpoint(lab: Lab, tmp_path: Path) -> None:
    """The host would not believe it of an address it has; of one that it has lost, it would."""
    within(lab.host, lambda ip: ip.flush_addr(address=METADATA_ADDRESS))
    with outside(lab) as stranger:
        assert first_heard(lab, stranger, METADATA_ADDRESS, FAR) == b"forged"
        guard(lab, tmp_path, everybody(lab))
        assert first_heard(lab, stranger, METADATA_ADDRESS, FAR) == b"honest"
        assert dropped(lab.host) == {"posing": 1}


@pytest.mark.parametrize(("endpoint", "far"), [(METADATA_ADDRESS, FAR), (ENDPOINT6, FAR6)])
def test_responses_of_the_endpoint_leave_the_host_towards_guests_only(
    lab: Lab, tmp_path: Path, endpoint: str, far: str
) -> None:
    guard(lab, tmp_path, everybody(lab))
    with outside(lab), ear(lab.host, EAR, endpoint) as mouth:
        with contextlib.suppress(PermissionError):  # so a local sender hears of a drop
            mouth.sendto(b"here I am", (far, EAR))
        assert dropped(lab.host) == {"routed": 1}


def test_on_taps_without_a_bridge_a_guest_is_held_to_its_address(lab: Lab, tmp_path: Path) -> None:
    within(lab.host, lambda ip: unbridge(ip, lab.ports))
    victim, liar = lab.guests[VICTIM], lab.guests[LIAR]
    on_link(victim, METADATA_ADDRESS)
    to = mac_of(lab.host, lab.ports[LIAR])

    def first_heard() -> bytes:
        with lab.host.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as ear:
            ear.bind((HOST, EAR))
            ear.settimeout(10)
            for address, output in ((PEER, b"forged"), (LIAR, b"honest")):
                lie = udp((address, 999), (HOST, EAR), output)
                send(liar, ethernet(mac_of(liar), to, IP, lie))
            return ear.recv(100)

    assert first_heard() == b"forged"
    guard(lab, tmp_path, everybody(lab))
    assert first_heard() == b"honest"
    assert dropped(lab.host) == {"forged": 1}
    with lab.host.call(socket.create_server, ENDPOINT):
        with knock(victim, ENDPOINT) as knocking:
            assert let_in(knocking)
        give(liar, "eth0", VICTIM)
        with knock(liar, ENDPOINT, VICTIM) as knocking:
            until_dropped(lab.host, "forged")
            assert not let_in(knocking, within=0)


def test_an_endpoint_with_an_ipv6_address_is_guarded_alike(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "forewarn.toml").write_text("allow_other_addresses = true\n")
    served = GuestNetwork(lab, tmp_path)
    served.serve("--config", str(tmp_path / "forewarn.toml"), "--metadata", f"[{ENDPOINT6}]:80")
    within(lab.guests[VICTIM], lambda ip: ip.flush_addr(address=SIX[VICTIM]))
    give(served.liar, "eth0", SIX[VICTIM])
    theirs = poll(lab.guests[PEER], ENDPOINT6)
    assert theirs.status == 200
    assert poll(served.liar, ENDPOINT6, SIX[VICTIM]).body == theirs.body  # not the liar's own

    with served.rules():
        assert poll(lab.guests[PEER], ENDPOINT6).status == 200
        assert poll(served.liar, ENDPOINT6, SIX[LIAR]).status == 200
        with knock(served.liar, (ENDPOINT6, 80), SIX[VICTIM]) as knocking:
            until_dropped(lab.host, "forged_ip6")
            assert not let_in(knocking, within=0)


@contextlib.contextmanager
def outside(lab: Lab) -> Iterator[Namespace]:
    """Somebody beyond another interface of the host."""
    with stranger_to(lab, bridged=False) as stranger:
        for near, far, length in ((NEAR, FAR, 24), (NEAR6, FAR6, 64)):
            give(lab.host, "up0", near, length)
            give(stranger, "eth0", far, length)
        yield stranger


def first_heard(lab: Lab, stranger: Namespace, lie: str, truth: str) -> bytes:
    """Who is outside sends from one address and then from the other; what the host hears first."""
    with ear(lab.host, EAR) as listener:
        for address, data in ((lie, b"forged"), (truth, b"honest")):
            output = udp((address, 999), (NEAR, EAR), data)
            send(stranger, ethernet(mac_of(stranger), mac_of(lab.host, "up0"), IP, output))
        return listener.recv(100)


def listening(place: Namespace, address: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return place.call(socket.create_server, (address, 80), family=family)


def route(place: Namespace, to: str, gateway: str | None) -> None:
    def add(ip: IPRoute) -> None:
        if gateway:
            ip.route("add", dst=to, gateway=gateway)
        else:
            ip.route("add", dst=to, oif=ip.link_lookup(ifname="eth0")[0], scope=253)

    within(place, add)


def unbridge(ip: IPRoute, ports: dict[str, str]) -> None:
    """Every port stands for itself, with a route to its guest."""
    for address, port in ports.items():
        [index] = ip.link_lookup(ifname=port)
        ip.link("set", index=index, master=0)
        ip.route("add", dst=f"{address}/32", oif=index, scope=253)
