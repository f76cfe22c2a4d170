"""A program in C# finds the endpoint by DHCP option 245: a real server hands it out, a real client
takes the lease, and the program reads what that has written down.
"""

from __future__ import annotations

import functools
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyroute2 import IPRoute  # type: ignore[import-untyped]

from forewarn.node import Address, Config, Node
from forewarn.service.fleet import read
from forewarn.testing.session import Session
from helpers.guest_firewall import DEPLOY, give, within
from helpers.netns import METADATA_ADDRESS, Namespace, needs_root, require
from helpers.paths import PUBLISHED_CLIENTS
from helpers.waiting import LIMIT

PROGRAMS = {
    "dnsmasq": "dnsmasq-base",
    "dhclient": "isc-dhcp-client",
    "ip": "iproute2",
}
HOST, ELSEWHERE = "10.0.0.1", "10.0.0.2"
PLACES = (HOST, 80), (HOST, 8080), (ELSEWHERE, 8080)  # where the endpoint is
DISCOVERY = PUBLISHED_CLIENTS / "discovery.cs"

# dhclient's own script would write to /etc. One gets the option on request, the other always.
GUESTS = {
    "port 80": """
        echo 'option forewarn-endpoint code 245 = ip-address;' > $ROOM/dhclient.conf
        echo 'also request forewarn-endpoint;' >> $ROOM/dhclient.conf
        mount --bind $ROOM/dhclient.conf /etc/dhcp/dhclient.conf
        mount -t tmpfs tmpfs /var/lib/dhcp
        dhclient -4 -1 -q -sf $ROOM/script eth0
    """,
    "port 8080": """
        mount -t tmpfs tmpfs /var/lib/dhcp
        dhclient -4 -1 -q -sf $ROOM/script eth0
    """,
}
SCRIPT = """#!/bin/sh
case $reason in BOUND) ip address add "$new_ip_address/24" dev "$interface" ;; esac
"""
MACS = {name: f"52:54:00:00:00:1{number}" for number, name in enumerate(GUESTS)}
TAGS = {"port 80": "asks", "port 8080": "elsewhere"}
SHIPPED = f"dhcp-option-force=245,{METADATA_ADDRESS}\n"
SETTINGS = f"""dhcp-option=tag:asks,245,{HOST}
dhcp-option-force=tag:elsewhere,245,{ELSEWHERE}
"""


class Site:
    """The host with its DHCP server and the endpoint, and a guest for each client."""

    def __init__(self, room: Path) -> None:
        self.room = room
        self.host = Namespace("host")
        self.guests = {name: Namespace(f"guest{n}") for n, name in enumerate(GUESTS)}
        self.listeners: list[socket.socket] = []
        (room / "script").write_text(SCRIPT)
        (room / "script").chmod(0o755)

    def build(self) -> None:
        within(self.host, lambda ip: ip.link("add", ifname="br0", kind="bridge", state="up"))
        for address in (HOST, ELSEWHERE):
            give(self.host, "br0", address, 24)
        for number, (name, guest) in enumerate(self.guests.items()):
            inside = {"ifname": "eth0", "net_ns_fd": guest.fd, "address": MACS[name]}
            within(self.host, functools.partial(_plug_in, port=f"vnet{number}", peer=inside))
            within(guest, lambda ip: ip.link("set", index=_index(ip, "eth0"), state="up"))
        # Who has no way to 169.254.169.254 says so, rather than nothing.
        self.host.call(Path("/proc/sys/net/ipv4/ip_forward").write_text, "1")
        for place in PLACES:
            self.listeners.append(self.host.call(socket.create_server, place))

    def serve_dhcp(self) -> None:
        reported = (DEPLOY / "dnsmasq-forewarn.conf").read_text().replace(SHIPPED, SETTINGS)
        for number, (name, mac) in enumerate(MACS.items()):
            reported += f"dhcp-host={mac},set:{TAGS[name]},10.0.0.1{number}\n"
        (self.room / "dnsmasq.conf").write_text(reported)
        words = [f"--conf-file={self.room}/dnsmasq.conf", f"--dhcp-leasefile={self.room}/leases"]
        more = ["--no-daemon", "--port=0", "--no-ping", "--user=root", "--pid-file="]
        self.host.popen(["dnsmasq", *words, *more])

    def run(self, client: str, program: str) -> str:
        """Take the lease, and then run this as a program of that guest's: what it prints."""
        answer, log = self.room / "answer", self.room / "log"
        whole = "\n".join(
            [
                # Not to our pipes: a DHCP client that goes on would hold them open.
                f"set -e; export ROOM='{self.room}'; exec > '{log}' 2>&1",
                "mount -t tmpfs tmpfs /run",
                GUESTS[client],
                f"exec {program} > '{answer}'",
            ]
        )
        argv = ["env", "-u", "FOREWARN_METADATA", "unshare", "--mount", "sh", "-c", whole]
        ended = self.guests[client].run(argv, check=False, timeout=LIMIT)
        assert ended.returncode == 0, (ended.stderr, log.read_text())
        return answer.read_text()

    def close(self) -> None:
        for listener in self.listeners:
            listener.close()
        for namespace in (*self.guests.values(), self.host):
            namespace.close()


def _plug_in(ip: IPRoute, port: str, peer: dict[str, object]) -> None:
    ip.link("add", ifname=port, kind="veth", peer=peer, master=_index(ip, "br0"), state="up")


def _index(ip: IPRoute, name: str) -> int:
    [index] = ip.link_lookup(ifname=name)
    assert isinstance(index, int)
    return index


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    needs_root()
    for program, package in PROGRAMS.items():
        require(shutil.which(program), f"{program} (apt-get install {package})")
    machines = "\n".join(f"  - {{name: web_{n}, address: 10.0.0.1{n}}}" for n in range(len(MACS)))
    fleet = read.parse(f"groups:\n- name: web\n  kind: scale-set\n  machines:\n{machines}\n")
    site = Site(tmp_path_factory.mktemp("leases"))
    try:
        site.build()
        site.serve_dhcp()
        config = Config(
            fleet=fleet,
            metadata=Address(*PLACES[0]),
            more_metadata=tuple(Address(*place) for place in PLACES[1:]),
            metadata_fds=tuple(listener.fileno() for listener in site.listeners),
        )
        with Session(Node(config)):
            yield site
    finally:
        site.close()


@pytest.fixture(scope="module")
def discovery(site: Site) -> str:
    """The program in C#, compiled, and where it finds the leases."""
    require(shutil.which("mcs") and shutil.which("mono"), "Mono (apt-get install mono-mcs)")
    subprocess.run(["mcs", f"-out:{site.room}/discovery.exe", DISCOVERY], check=True, timeout=LIMIT)
    return f"mono '{site.room}/discovery.exe' /var/lib/dhcp"


PATH = "/metadata/scheduledEvents"


@pytest.mark.parametrize(
    ("client", "says"),
    [
        ("port 80", [f"found http://{HOST}{PATH}?api-version=2017-08-01"]),
        (
            "port 8080",
            [
                f"http://{ELSEWHERE}{PATH}?api-version=2017-08-01: ConnectFailure",
                f"found http://{ELSEWHERE}:8080{PATH}?api-version=2017-08-01",
            ],
        ),
    ],
)
def test_a_client_in_another_language_finds_it_on_either_port(
    site: Site, discovery: str, client: str, says: list[str]
) -> None:
    """And is told 404 where it escapes the question mark: that is a path, and nothing is there."""
    address = ELSEWHERE if "8080" in client else HOST
    escaped = f"escaped http://{address}:8080{PATH}%3Fapi-version=2017-08-01 404"
    assert site.run(client, discovery).splitlines() == [*says, escaped]


def test_the_shipped_servers_name_the_endpoint() -> None:
    networkd = (DEPLOY / "networkd/10-forewarn-bridge.network").read_text()
    assert f"\nSendOption=245:ipv4address:{METADATA_ADDRESS}\n" in networkd
    dnsmasq = (DEPLOY / "dnsmasq-forewarn.conf").read_text()
    assert f"\ndhcp-option-force=245,{METADATA_ADDRESS}\n" in dnsmasq
