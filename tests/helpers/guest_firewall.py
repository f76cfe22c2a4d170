"""A host that guards its guests' ports with the shipped rules, loaded as an operator loads them.

Knows deploy/network and how to see what the rules have dropped. What is sent and asked is the
tests' affair.
"""

from __future__ import annotations

import contextlib
import json
import select
import shutil
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pyroute2 import IPRoute  # type: ignore[import-untyped]

from helpers.netns import Lab, Namespace, needs_root, require
from helpers.paths import ROOT

DEPLOY = ROOT / "deploy/network"
RULES = DEPLOY / "forewarn.nft"
FILLER = DEPLOY / "forewarn-guests"
NFT = Path("/usr/sbin/nft")
REMOVE = "delete table bridge forewarn; delete table arp forewarn; delete table inet forewarn"

HOST, VICTIM, PEER, LIAR = "10.77.0.1", "10.77.0.11", "10.77.0.12", "10.77.0.13"
HOST6 = "fe80::1"
SIX = {HOST: "fd00:77::1", VICTIM: "fd00:77::11", PEER: "fd00:77::12", LIAR: "fd00:77::13"}

_NO_DAD = 0x02  # IFA_F_NODAD: the address can be used at once

T = TypeVar("T")


def needs_rules() -> None:
    """Call first in a test or fixture that loads the rules."""
    needs_root()
    require(NFT.exists(), "nftables (apt-get install nftables)")
    require(shutil.which("ip"), "iproute2 (apt-get install iproute2)")


@contextlib.contextmanager
def three_guests() -> Iterator[Lab]:
    """A host and three guests with addresses of both families, and no rules yet."""
    with Lab([VICTIM, PEER, LIAR], ports="vnet") as lab:
        for address, guest in lab.guests.items():
            give(guest, "eth0", SIX[address])
        for address in (SIX[HOST], HOST6):
            give(lab.host, "br0", address)
        yield lab


@contextlib.contextmanager
def three_guarded_guests(room: Path) -> Iterator[Lab]:
    with three_guests() as lab:
        guard(lab, room, {a: [a, SIX[a]] for a in lab.guests})
        yield lab


def nft(lab: Lab, *words: str | Path) -> str:
    return lab.host.run([NFT, *words]).stdout


def guard(lab: Lab, room: Path, machines: Mapping[str, Iterable[str]]) -> None:
    """Load the rules and say who is at which port. `machines` are the inventory: the names and
    addresses of those who are at a port, by the address that the lab knows them by."""
    nft(lab, "-f", RULES)
    fill(lab, room, machines)
    nft(lab, "reset", "counters")  # what a guest said in between was from a port nobody knew


def fill(lab: Lab, room: Path, machines: Mapping[str, Iterable[str]]) -> None:
    nft(lab, "-f", elements(lab, room, machines))


def elements(lab: Lab, room: Path, machines: Mapping[str, Iterable[str]]) -> Path:
    """A file with the transaction that makes these the guests."""
    ports, inventory, made = room / "ports", room / "machines.json", room / "elements.nft"
    lines = [f"{lab.ports[a]} {mac_of(lab.guests[a])} machine-{a}" for a in machines]
    ports.write_text("\n".join([f"host {lab.gateway} {HOST6}", *lines, ""]))
    listed = [{"name": f"machine-{a}", "addresses": [*all]} for a, all in machines.items()]
    inventory.write_text(json.dumps(listed))
    made.write_text(lab.host.run([sys.executable, FILLER, ports, "--machines", inventory]).stdout)
    return made


def unguard(lab: Lab) -> None:
    nft(lab, REMOVE)


def dropped(host: Namespace) -> dict[str, int]:
    """How many packets were dropped so far, by the counter that says why."""
    output = host.run([NFT, "-j", "list", "counters"]).stdout
    listed: list[dict[str, Any]] = json.loads(output)["nftables"]
    found = [entry["counter"] for entry in listed if "counter" in entry]
    return {counter["name"]: counter["packets"] for counter in found if counter["packets"]}


def within(namespace: Namespace, work: Callable[[IPRoute], T]) -> T:
    """Do something to the network of a namespace."""

    def inside() -> T:
        with IPRoute() as ip:
            return work(ip)

    return namespace.call(inside)


def mac_of(namespace: Namespace, link: str = "eth0") -> str:
    return within(namespace, lambda ip: str(ip.link("get", ifname=link)[0].get("address")))


def give(namespace: Namespace, link: str, address: str, length: int | None = None) -> None:
    """One more address for a link."""
    prefixlen = length or (64 if ":" in address else 16)

    def add(ip: IPRoute) -> None:
        [index] = ip.link_lookup(ifname=link)
        ip.addr("add", index=index, address=address, prefixlen=prefixlen, flags=_NO_DAD)

    within(namespace, add)


def until_dropped(host: Namespace, *counters: str) -> None:
    """Wait until one of these has counted something."""
    for _ in range(1_000):
        if set(counters) & dropped(host).keys():
            return
    raise AssertionError(f"none of {counters}: {dropped(host)}")


def knock(guest: Namespace, place: tuple[str, int], source: str = "") -> socket.socket:
    """A connection that is asked for, and perhaps never made."""
    family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
    knocking = guest.call(socket.socket, family, socket.SOCK_STREAM)
    knocking.setblocking(False)
    if source:
        knocking.bind((source, 0))
    knocking.connect_ex(place)
    return knocking


def let_in(knocking: socket.socket, within: float = 10.0) -> bool:
    writable = select.select([], [knocking], [], within)[1]
    return bool(writable) and knocking.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


@contextlib.contextmanager
def stranger_to(lab: Lab, *, bridged: bool) -> Iterator[Namespace]:
    """Somebody who is no guest, behind the host's link `up0`: a port of the bridge, or not."""
    stranger = Namespace("stranger")

    def attach(ip: IPRoute) -> None:
        master = {"master": ip.link_lookup(ifname="br0")[0]} if bridged else {}
        peer = {"ifname": "eth0", "net_ns_fd": stranger.fd}
        ip.link("add", ifname="up0", kind="veth", peer=peer, state="up", **master)

    try:
        within(lab.host, attach)
        within(
            stranger, lambda ip: ip.link("set", state="up", index=ip.link_lookup(ifname="eth0")[0])
        )
        yield stranger
    finally:
        stranger.close()


@contextlib.contextmanager
def ear(place: Namespace, port: int, address: str = "") -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with place.call(socket.socket, family, socket.SOCK_DGRAM) as found:
        found.bind((address, port))
        found.settimeout(10)
        yield found


def on_link(guest: Namespace, address: str) -> None:
    """The guest asks for this address itself instead of going by the host's."""

    def replace(ip: IPRoute) -> None:
        [link] = ip.link_lookup(ifname="eth0")
        ip.route("replace", dst=f"{address}/32", oif=link, scope=253)

    within(guest, replace)


def get_to_know(lab: Lab, address: str) -> None:
    """The victim talks to the address, so that it knows a MAC for it."""
    place = lab.guests[PEER] if address in (PEER, SIX[PEER]) else lab.host
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with place.call(socket.create_server, (address, 80), family=family):
        lab.guests[VICTIM].call(socket.create_connection, (address, 80), 10).close()


def believed(lab: Lab, address: str, by: Namespace | None = None) -> str:
    """The MAC that the victim, or whoever is named, would send to."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET

    def look(ip: IPRoute) -> str:
        [found] = [n for n in ip.get_neighbours(family=family) if n.get("dst") == address]
        return str(found.get("lladdr"))

    return within(by or lab.guests[VICTIM], look)


def owner(lab: Lab, address: str) -> str:
    peers = address in (PEER, SIX[PEER])
    return mac_of(lab.guests[PEER]) if peers else mac_of(lab.host, "br0")
