"""The configuration of a node, whatever it was made from: settings, flags of `forewarn dev`, or a
test. The settings of `forewarn serve` are in `node.settings`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

import msgspec

from forewarn.control.server.connections import MAX_OPERATOR_CONNECTIONS
from forewarn.core import Duration, Durations, Time
from forewarn.core.fleet import Placement
from forewarn.core.time import SECOND
from forewarn.drivers.registry import DriverConfig
from forewarn.metadata.endpoint.callers import Identity
from forewarn.metadata.endpoint.limits import Limits
from forewarn.notify.config import Notify
from forewarn.service.access.oidc import Oidc
from forewarn.service.engine.clock import ClockLimits
from forewarn.service.fleet.addresses import ANY_ADDRESS, AddressRules, guest_addresses, is_loopback
from forewarn.service.fleet.read import Fleet
from forewarn.service.fleet.removal_limit import RemovalLimit
from forewarn.service.platform.enrollment import CERTIFICATE_LIFE
from forewarn.service.upkeep.history import HISTORY
from forewarn.store.engines import State

LOOPBACK = "127.0.0.1"


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or "/" in host or not port.isdecimal() or int(port) > 65_535:
            raise ValueError(f"'{text}' is not HOST:PORT")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Addresses(enum.StrEnum):
    """How the machines of a fleet on one computer are told apart."""

    AUTO = "auto"  # as LOOPBACK where there is more than one loopback address, otherwise as PORTS
    LOOPBACK = "loopback"  # each machine has a loopback address of its own
    PORTS = "ports"  # each machine has a port of its own on 127.0.0.1


class Tls(msgspec.Struct, frozen=True):
    certificate: Path  # with its chain, as PEM
    key: Path


class NodeConnections(msgspec.Struct, frozen=True):
    """Where nodes on other hosts connect to, and how both sides prove who they are."""

    address: Address
    tls: Tls | None  # of control; None: the authority in `keeps` issues it
    authority: Path  # of the nodes' certificates, as PEM
    keeps: Path | None = None  # the directory of an authority with which hosts are enrolled
    addresses: tuple[Address, ...] = ()  # of all control nodes, for nodes; empty: `address`
    certificate_life: Duration = CERTIFICATE_LIFE  # of certificates that control issues


class LocalConnection(msgspec.Struct, frozen=True):
    """Where the node on control's own host connects to. Whoever can open the socket is that node:
    the owner and the mode of its file decide."""

    path: Path
    host: str


class ArmListener(msgspec.Struct, frozen=True):
    """Where clients of Azure Resource Manager connect to, which insist on TLS."""

    address: Address
    tls: Tls


class Config(msgspec.Struct, frozen=True, kw_only=True):
    fleet: Fleet | None = None  # applied at the start; None: the inventory stays as it is
    fleet_file: str = ""  # the path that `fleet` was read from, for messages
    placement: Placement | None = None  # which source counts if a fleet file contradicts a move
    inventory: str = "off"  # what drivers see of machines: off, report, follow
    inventory_groups: tuple[str, ...] = ("*",)  # to which machines may be added: patterns
    restart_crashed: bool = False  # machines, if the inventory follows what is seen
    record_moves: bool = True  # of machines that are heard by the node of another host
    removal_limit: RemovalLimit | None = None  # how many machines a change may remove; None: all
    force_fleet: bool = True  # apply it even if machines with an active event are removed
    state: State | None = None  # None: nothing is stored
    name: str = ""  # of this control node, among several; empty: the name of the machine
    lease: Duration = 6 * SECOND  # of the control node that decides, if there are several
    replicated: str = ""  # "managed": whoever runs the database keeps every commit twice
    local_directory: Path = Path()  # for files of this machine, if the state is no file
    migrate: bool = True  # upgrade the schema of an older state file
    rules: Durations = Durations()
    clock: ClockLimits | None = None  # how far the wall clock is trusted; None: always
    virtual: Time | None = None  # start of a virtual clock; None: real time
    identity: Identity = Identity.SOURCE
    speak_as: str | None = None  # with Identity.TARGET: the machine of every unassigned address
    limits: Limits = Limits()
    operator_connections: int = MAX_OPERATOR_CONNECTIONS  # lowered if open files are scarce
    metadata: Address | None = None  # for guests; None: no socket is opened at the start
    more_metadata: tuple[Address, ...] = ()  # further addresses for guests
    whole_loopback: bool = False  # listen on every loopback address, and nowhere else
    addresses: Addresses = Addresses.LOOPBACK  # of machines, with `whole_loopback`
    control: Address | None = None  # for operators; None: no socket is opened at the start
    # Reverse proxies before the control API.
    control_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    control_names: tuple[str, ...] = ()  # host names of the control API, beside its address
    tls: Tls | None = None  # of the control API
    arm: ArmListener | None = None  # for clients of Azure Resource Manager; None: no socket
    identities: bytes = b""  # the secret with which tokens of machines are signed; empty: none
    allow_plain_control: bool = False  # allow plain HTTP beyond loopback
    oidc: Oidc | None = None  # whose tokens the control API accepts beside its own
    nodes: NodeConnections | None = None  # for nodes on other hosts
    local_node: LocalConnection | None = None  # for the node on this host
    metadata_fds: tuple[int, ...] = ()  # listening sockets for guests that were handed over
    control_fd: int | None = None  # the same for operators
    nodes_fd: int | None = None  # the same for the node on this host
    record: Path | None = None  # a trace of all requests, answers and events
    ui: bool = True  # serve the portal with the control API
    observe: bool = False  # keep what guests do in memory, for the verdict
    driver: DriverConfig = DriverConfig()  # carries events out
    history: Duration | None = HISTORY  # how long it is kept; None: forever
    faults: bool = False  # allow fault injection
    front: bool = True  # answer ordinary polls in Front, unless requests are recorded or observed
    gates: dict[str, tuple[str, ...]] = {}  # commands of rollouts' gates, by name
    notify: tuple[Notify, ...] = ()  # who is told what

    @property
    def guest_addresses(self) -> tuple[Address, ...]:
        """All addresses for guests; empty if no socket is opened at the start."""
        return () if self.metadata is None else (self.metadata, *self.more_metadata)

    @property
    def has_nodes(self) -> bool:
        """Whether guests are answered by nodes on hosts, and not here."""
        return self.nodes is not None or self.local_node is not None

    @property
    def address_rules(self) -> AddressRules:
        """Which addresses machines of the inventory can have."""
        if self.identity is not Identity.SOURCE:
            return ANY_ADDRESS
        return address_rules(self.guest_addresses, self.nodes, self.local_node)


def address_rules(
    guests: Iterable[Address], nodes: NodeConnections | None, local_node: LocalConnection | None
) -> AddressRules:
    """Return which addresses guests can have, given those of the endpoint and those for nodes."""
    own = [address.host for address in guests]
    # Nodes on this computer may be tried out with guests on it.
    if nodes is not None and is_loopback(nodes.address.host):
        own.append(nodes.address.host)
    elif nodes is None and local_node is not None:
        own.append(LOOPBACK)
    return guest_addresses(own, per_host=nodes is not None or local_node is not None)


class DriverProcessConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of `forewarn driver`."""

    hosts: tuple[str, ...]  # on which it acts
    control: tuple[Address, ...]  # of control nodes
    tls: Tls  # of this process
    authority: Path  # of control's certificate, as PEM
    directory: Path  # for fence numbers, and the files of the driver
    driver: DriverConfig
    at_once: int  # calls of the driver


class HostNodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of `forewarn node`."""

    host: str  # that it is on
    control: tuple[Address | Path, ...]  # of control nodes, tried in turn; a path: on this host
    tls: Tls | None = None  # of this node, for addresses
    authority: Path | None = None  # of control's certificate, as PEM
    journal: Path  # the directory for what it was told
    status: Address | None = None  # for health and metrics; None: no socket is opened
    endpoint: Config  # for guests: addresses, limits, recording
