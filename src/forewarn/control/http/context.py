"""What the handlers are given: the desk of a service, and what one request is asked through.

`Asked` binds the verbs to whoever asks: `by` for the history, what a token is limited to, the key
that the caller has given its request, and what it expects to find. Handlers take it as their
parameter `ask: Ask`; where it comes from is `ask.py`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from contextvars import ContextVar
from typing import TypeAlias

import msgspec
from litestar.di import NamedDependency

from forewarn.core import Machine, Time
from forewarn.core.access import Limit, Role
from forewarn.service.access.tokens import LOCAL_NAME, Tokens
from forewarn.service.engine.feed import Feed
from forewarn.service.engine.virtual_time import VirtualTime
from forewarn.service.engine.writer import Check, RequestContext
from forewarn.service.faults.registry import Faults
from forewarn.service.fleet.apply import FleetApply
from forewarn.service.platform.hosts import Hosts
from forewarn.service.platform.platform import Platform
from forewarn.service.platform.removals import Removals
from forewarn.service.rollouts.rollouts import Rollouts
from forewarn.service.telemetry.health import ServiceHealth
from forewarn.service.telemetry.metrics import ServiceMetrics
from forewarn.service.telemetry.samples import Histograms, Sample
from forewarn.service.upkeep.clock_acceptance import ClockAcceptance
from forewarn.service.upkeep.history import History
from forewarn.store.port import Copy, Key, Store
from forewarn.verdict.observer import Observer


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and what that one may."""

    name: str
    role: Role
    limit: Limit = Limit()
    token: str = ""  # its id; empty: a local program, while there are no tokens


LOCAL = Caller(name=LOCAL_NAME, role=Role.ADMIN)


class Context(msgspec.Struct, frozen=True):
    """What the API is given: the platform, and the few things a node alone knows."""

    store: Store
    platform: Platform
    removals: Removals
    hosts: Hosts
    rollouts: Rollouts
    history: History
    clock_acceptance: ClockAcceptance
    fleet_apply: FleetApply
    tokens: Tokens
    names: Callable[[], Collection[str]]  # that the API may be asked under, beside its address
    metadata: Callable[[], list[str]]  # where guests ask; there may be nowhere yet
    url_of: Callable[[Machine], str]
    next_due: Callable[[], Time | None]
    virtual_time: VirtualTime | None  # where the clock is virtual
    readings: Callable[[], Iterable[Sample | Histograms]]
    copy: Callable[[Time], Awaitable[Copy | None]]  # of the state
    faults: Faults
    observer: Observer | None  # who keeps account of what guests do, if anybody does
    feed: Feed
    metrics: ServiceMetrics
    health: ServiceHealth
    held: Counter[str] = msgspec.field(default_factory=Counter)  # streams, long-polls, by token
    making: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)  # a copy: one at a time

    def ask(self, caller: Caller, key: Key | None = None, unless: Check | None = None) -> Asked:
        if key is None and unless is None:
            return Asked(
                caller, self.platform, self.removals, self.hosts, self.rollouts, self.tokens
            )
        request = RequestContext(key, unless)
        return Asked(
            caller,
            self.platform.for_request(request),
            self.removals.for_request(request),
            self.hosts.for_request(request),
            self.rollouts.for_request(request),
            self.tokens,
            key,
            unless,
        )


# The handlers are made once for all services of a process: making them is most of what a service
# with this API takes to start. Which desk a request has come to is known while it is answered.
AtHand: TypeAlias = Callable[[], Context]
came_to: ContextVar[Context] = ContextVar("the desk that a request has come to")


class Asked(msgspec.Struct, frozen=True):
    """One request's way to the verbs."""

    caller: Caller
    platform: Platform
    removals: Removals
    hosts: Hosts
    rollouts: Rollouts
    tokens: Tokens
    key: Key | None = None
    unless: Check | None = None  # what the caller expects, for those who do not go by `platform`
    heads: MutableMapping[str, str] = {}  # headers that the answer is to have

    @property
    def by(self) -> str:
        return self.caller.name

    @property
    def limited(self) -> bool:
        return not self.caller.limit.none

    def sees(self, group: str) -> bool:
        """Is it within what the caller is limited to, as the group is labelled now?"""
        return not self.limited or self.tokens.allows(self.caller.limit, group)


Ask: TypeAlias = NamedDependency[Asked]
