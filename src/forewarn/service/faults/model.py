"""One fault, and the account of what it has met so far.

All faults of a service are `registry.py`.
"""

from __future__ import annotations

import random
from collections.abc import Collection

import msgspec

from forewarn.core import Time
from forewarn.service.faults.kinds import KINDS, FaultKind, FaultTraits

STATES = ("waiting", "active", "used up", "over")
MAX_COUNTED_MACHINES = 1_000  # machines for which one fault counts how often it has met them


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault to inject, with defaults filled in."""

    id: str
    kind: FaultKind
    machines: tuple[str, ...]
    groups: tuple[str, ...]  # if both are empty: every machine
    method: str  # GET or POST; empty: either
    times: int | None  # None: until it is cleared
    skip: int  # matching requests or events before the first that it meets
    begins: Time
    ends: Time | None
    probability: float
    seed: int
    seconds: float | None
    status: int | None
    body: str | None
    takes_effect: bool
    added_at: Time
    by: str

    @property
    def traits(self) -> FaultTraits:
        return KINDS[self.kind]

    @property
    def everybody(self) -> bool:
        return not self.machines and not self.groups

    def concerns(self, machines: Collection[str], group: str) -> bool:
        if self.everybody or group in self.groups:
            return True
        return any(machine in self.machines for machine in machines)


class FaultAccount(msgspec.Struct, frozen=True, kw_only=True):
    """A fault, and what it has met so far."""

    fault: Fault
    state: str  # waiting, active, used up or over
    matched: int  # requests or events that it could be applied to
    consumed: int  # those of them that it was applied to
    by_machine: dict[str, int]
    last_at: Time | None

    @property
    def left(self) -> int | None:
        return None if self.fault.times is None else self.fault.times - self.consumed

    @property
    def consumption(self) -> str:
        """How much of the fault is consumed, as text."""
        of = "" if self.fault.times is None else f" of {self.fault.times}"
        return f"{self.consumed}{of} consumed"


class ActiveFault:
    """A fault with its counters: the only mutable thing here."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.random = random.Random(fault.seed)  # reproducible, not secret
        self.matched = self.consumed = 0
        self.by_machine: dict[str, int] = {}
        self.last_at: Time | None = None

    def state(self, now: Time) -> str:
        fault = self.fault
        if fault.times is not None and self.consumed >= fault.times:
            return "used up"
        if fault.ends is not None and now >= fault.ends:
            return "over"
        return "waiting" if now < fault.begins else "active"

    def meets(self) -> bool:
        """Count a request or event that matches. Does the fault meet it?"""
        self.matched += 1
        if self.matched <= self.fault.skip:
            return False
        return self.fault.probability >= 1 or self.random.random() < self.fault.probability

    def met(self, machines: Collection[str], at: Time) -> None:
        self.consumed += 1
        self.last_at = at
        for machine in machines:
            if machine in self.by_machine or len(self.by_machine) < MAX_COUNTED_MACHINES:
                self.by_machine[machine] = self.by_machine.get(machine, 0) + 1

    def give_back(self, machines: Collection[str]) -> None:
        self.consumed -= 1
        for machine in machines:
            if left := self.by_machine.get(machine, 0) - 1:
                self.by_machine[machine] = left
            else:
                self.by_machine.pop(machine, None)

    def account(self, now: Time) -> FaultAccount:
        return FaultAccount(
            fault=self.fault,
            state=self.state(now),
            matched=self.matched,
            consumed=self.consumed,
            by_machine=dict(self.by_machine),
            last_at=self.last_at,
        )
