"""The shipped files for systemd-networkd, sysctl and dnsmasq do what docs/operate/networking.md
says: a real networkd makes the host's side of it, and a guest gets its address and its route by
DHCP."""

from __future__ import annotations

import ipaddress
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyroute2 import IPRoute  # type: ignore[import-untyped]

from forewarn.wire.extensions import MAX_WAIT
from helpers.ethernet import BROADCAST, IP, ethernet, mac, send, udp
from helpers.guest_firewall import (
    DEPLOY,
    FILLER,
    NFT,
    RULES,
    dropped,
    give,
    knock,
    let_in,
    mac_of,
    needs_rules,
    within,
)
from helpers.netns import METADATA_ADDRESS, Namespace, require
from helpers.waiting import until

NETWORKD = Path("/usr/lib/systemd/systemd-networkd")
HOST, GUEST = "10.0.0.1", "10.0.0.10"
ROUTES = [(f"{METADATA_ADDRESS}/32", HOST), ("0.0.0.0/0", HOST)]
OPTION_ROUTES = 121

# networkd takes a read-only /sys for "no udev here", and finds its files in /run.
START = f"""
mount --make-rprivate / && mount -t sysfs -o ro sysfs /sys && mount -t tmpfs tmpfs /run &&
mkdir -p /run/systemd/network && install -m 644 -t /run/systemd/network '{DEPLOY}'/networkd/* &&
exec {NETWORKD}
"""


class Made:
    """A host as networkd makes it, and one guest, with its port on the bridge."""

    def __init__(self) -> None:
        self.host, self.guest = Namespace("host"), Namespace("guest")

    def close(self) -> None:
        for namespace in (self.guest, self.host):
            namespace.close()

    def plug_in(self) -> None:
        peer = {"ifname": "eth0", "net_ns_fd": self.guest.fd}
        within(self.host, lambda ip: ip.link("add", ifname="vnet0", kind="veth", peer=peer))
        within(self.guest, up)

    def addresses(self) -> set[str]:
        def look(ip: IPRoute) -> set[str]:
            return {f"{a.get('address')}/{a['prefixlen']}" for a in ip.get_addr()}

        return within(self.host, look)

    def remembers(self) -> float:
        """For how many seconds the bridge knows at which port a MAC is."""

        def look(ip: IPRoute) -> float:
            kept = ip.link("get", ifname="br0")[0].get_nested("IFLA_LINKINFO", "IFLA_INFO_DATA")
            return float(kept.get("IFLA_BR_AGEING_TIME")) / 100

        return within(self.host, look)

    def on_bridge(self) -> bool:
        def look(ip: IPRoute) -> bool:
            port = ip.link("get", ifname="vnet0")[0]
            return port.get("master") in ip.link_lookup(ifname="br0") and port["state"] == "up"

        return within(self.host, look)


@pytest.fixture
def made() -> Iterator[Made]:
    needs_rules()
    require(NETWORKD.exists(), "systemd-networkd (apt-get install systemd)")
    made = Made()
    try:
        made.host.run([NFT, "-f", RULES])  # as forewarn-network.service: before anything else
        made.plug_in()
        networkd = made.host.popen(["unshare", "--mount", "sh", "-c", START])
        wanted = {f"{METADATA_ADDRESS}/32", f"{HOST}/24", "fe80::1/64"}

        def ready() -> bool:
            assert networkd.process.poll() is None, networkd.failure("has ended")
            return wanted <= made.addresses() and made.on_bridge()

        until(ready)
        yield made
    finally:
        made.close()


def test_networkd_makes_the_bridge_and_a_guest_finds_the_endpoint_by_dhcp(
    made: Made, tmp_path: Path
) -> None:
    own = mac_of(made.guest)
    (tmp_path / "ports").write_text(f"host {HOST} fe80::1\nvnet0 {own} web_0\n")
    (tmp_path / "machines").write_text(f'[{{"name":"web_0","addresses":["{GUEST}"]}}]')
    fill = f"'{FILLER}' '{tmp_path}/ports' --machines '{tmp_path}/machines' | {NFT} -f -"
    made.host.run(["sh", "-c", fill])
    made.host.run([NFT, "reset", "counters"])

    offered, routes = ask_for_address(made.guest, own)

    assert ipaddress.ip_address(offered) in ipaddress.ip_network("10.0.0.0/24")
    assert routes == ROUTES
    give(made.guest, "eth0", GUEST, 24)
    within(made.guest, lambda ip: [ip.route("add", dst=to, gateway=by) for to, by in routes])
    with (
        made.host.call(socket.create_server, (METADATA_ADDRESS, 80)),
        knock(made.guest, (METADATA_ADDRESS, 80)) as knocking,
    ):
        assert let_in(knocking)
    assert dropped(made.host) == {}


def test_the_bridge_remembers_a_guest_for_longer_than_it_may_wait(made: Made) -> None:
    """Or the answer to a long wait would go to every port."""
    assert made.remembers() > MAX_WAIT


def test_dnsmasq_has_the_same_routes() -> None:
    text = (DEPLOY / "dnsmasq-forewarn.conf").read_text()
    (output,) = re.findall(r"^dhcp-option=option:classless-static-route,(.*)$", text, re.MULTILINE)
    words = output.split(",")
    assert list(zip(words[::2], words[1::2], strict=True)) == ROUTES


def test_every_sysctl_exists(made: Made) -> None:
    lines = (DEPLOY / "90-forewarn-network.conf").read_text().splitlines()
    keys = [line.split("=") for line in lines if line and not line.startswith("#")]
    assert len(keys) > 8
    for key, value in keys:
        path = Path("/proc/sys") / key.strip().replace(".", "/")
        made.host.call(path.write_text, value.strip())


def ask_for_address(guest: Namespace, own: str) -> tuple[str, list[tuple[str, str]]]:
    """What a DHCP server offers: an address, and the routes of option 121."""
    head = struct.pack("!BBBBLHH", 1, 1, 6, 0, 0x77777777, 0, 0x8000) + bytes(16) + mac(own)
    options = b"\x63\x82\x53\x63" + b"\x35\x01\x01" + bytes([55, 1, OPTION_ROUTES]) + b"\xff"
    asked = udp(("0.0.0.0", 68), ("255.255.255.255", 67), head.ljust(236, b"\0") + options)
    with guest.call(socket.socket, socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind(("", 68))
        client.settimeout(1)
        for _ in range(20):  # the server may begin a moment after the address is there
            send(guest, ethernet(own, BROADCAST, IP, asked))
            try:
                answer = client.recv(2_000)
            except TimeoutError:
                continue
            return str(ipaddress.IPv4Address(answer[16:20])), routes_in(options_in(answer[240:]))
    raise AssertionError("no DHCP server answers")


def options_in(data: bytes) -> dict[int, bytes]:
    found = {}
    while data and data[0] != 255:
        size = data[1]
        found[data[0]], data = data[2 : 2 + size], data[2 + size :]
    return found


def routes_in(options: dict[int, bytes]) -> list[tuple[str, str]]:
    found, data = [], options[OPTION_ROUTES]
    while data:
        size = (data[0] + 7) // 8
        network = ipaddress.IPv4Address(data[1 : 1 + size].ljust(4, b"\0"))
        gateway = ipaddress.IPv4Address(data[1 + size : 5 + size])
        found.append((f"{network}/{data[0]}", str(gateway)))
        data = data[5 + size :]
    return found


def up(ip: IPRoute) -> None:
    ip.link("set", index=ip.link_lookup(ifname="eth0")[0], state="up")
