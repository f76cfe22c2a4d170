"""What a node is told. Where the words come from (flags, a file, a test) is not its business."""

from __future__ import annotations

from pathlib import Path

import msgspec

from forewarn.control.server.connections import MAX_OPERATOR_CONNECTIONS
from forewarn.core import Duration, Durations, Time
from forewarn.drivers.registry import DriverConfig
from forewarn.metadata.endpoint.callers import Identity
from forewarn.metadata.endpoint.limits import Limits
from forewarn.service.engine.clock import ClockLimits
from forewarn.service.fleet.read import Fleet
from forewarn.service.upkeep.history import HISTORY


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not port.isdecimal() or int(port) > 65_535:
            raise ValueError(f"'{text}' is not HOST:PORT")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Tls(msgspec.Struct, frozen=True):
    certificate: Path  # with its chain
    key: Path


class Config(msgspec.Struct, frozen=True, kw_only=True):
    fleet: Fleet | None = None  # what the inventory is made at the start; None: it stays as it is
    fleet_file: str = ""  # where that was read
    insist: bool = True  # also if machines are removed that have an active event
    state: Path | None = None  # the SQLite file; None: nothing outlives the process
    migrate: bool = True  # may an older state file be brought up to date?
    rules: Durations = Durations()
    clock: ClockLimits | None = None  # how far the wall clock is trusted; None: always
    virtual: Time | None = None  # where a virtual clock begins; None: real time
    identity: Identity = Identity.SOURCE
    speak_as: str | None = None  # with Identity.ASKED: who is meant by an address of no machine
    limits: Limits = Limits()
    operator_connections: int = MAX_OPERATOR_CONNECTIONS  # fewer where open files are few
    metadata: Address | None = None  # None: not on a socket
    more_metadata: tuple[Address, ...] = ()  # further addresses where guests ask
    whole_loopback: bool = False  # listen on every loopback address, and nowhere else
    control: Address | None = None
    control_names: tuple[str, ...] = ()  # that it may be asked under, beside its address
    tls: Tls | None = None  # of the control API
    allow_plain_control: bool = False  # beyond loopback, too
    workers: int = 0  # processes that answer guests, beside the one that decides; 0: all in one
    upstream: Path | None = None  # the socket between them
    metadata_fds: tuple[int, ...] = ()  # sockets for guests that were handed over, listening
    control_fd: int | None = None  # and one for operators
    record: Path | None = None
    observe: bool = False  # keep account of what guests do, for the verdict
    driver: DriverConfig = DriverConfig()  # what carries events out
    history: Duration | None = HISTORY  # how long it is kept; None: for ever
    faults: bool = False  # may things be made to go wrong on purpose?
    front: bool = True  # answer ordinary polls the short way, where nobody records or observes
    gates: dict[str, tuple[str, ...]] = {}  # commands that a rollout's gate may name

    @property
    def guest_addresses(self) -> tuple[Address, ...]:
        """Every address where guests ask; empty if they do not ask on sockets."""
        return () if self.metadata is None else (self.metadata, *self.more_metadata)
