"""What handlers work with: the `Context` of the API, and the `CallContext` of one request.

A handler takes `call: Call`: the operations of the platform, bound to the caller (for the history
and for the limit of its token), to its idempotency key and to its precondition. Everything else it
reads from `context()`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from contextvars import ContextVar
from ipaddress import IPv4Network, IPv6Network
from typing import Any, Protocol, TypeAlias, TypeVar

import msgspec
from litestar.di import NamedDependency

from forewarn.control.http import paging
from forewarn.control.http.access.token_attempts import TokenAttempts
from forewarn.control.schema.notify import NotifyState, NotifyTest
from forewarn.core import Machine, Refused, Time
from forewarn.core.access import Limit, Role, Session
from forewarn.service.access.access_tokens import AccessTokens
from forewarn.service.access.machine_tokens import MachineTokens
from forewarn.service.access.oidc import Identity
from forewarn.service.access.sessions import Sessions
from forewarn.service.access.tokens import LOCAL_NAME, Tokens
from forewarn.service.engine.feed import Feed
from forewarn.service.engine.virtual_time import VirtualTime
from forewarn.service.engine.writer import Check, RequestContext
from forewarn.service.faults.registry import Faults
from forewarn.service.fleet.apply import FleetApply
from forewarn.service.fleet.follow import FollowedInventory
from forewarn.service.indexes.overview import Overview
from forewarn.service.platform.configurations import Configurations
from forewarn.service.platform.enrollment import Enrollments
from forewarn.service.platform.halts import Halts
from forewarn.service.platform.hosts import Hosts
from forewarn.service.platform.platform import Platform
from forewarn.service.platform.removals import Removals
from forewarn.service.rollouts.rollouts import Rollouts
from forewarn.service.telemetry.health import ServiceHealth
from forewarn.service.telemetry.metrics import ServiceMetrics
from forewarn.service.telemetry.samples import Histograms, Sample
from forewarn.service.upkeep.clock_acceptance import ClockAcceptance
from forewarn.service.upkeep.history import History
from forewarn.store.port import Copy, Key, Member, NotLeading, Store
from forewarn.verdict.observer import Observer


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The authenticated caller of a request: its token's name, role and limit."""

    name: str
    role: Role
    limit: Limit = Limit()
    # The id of the token, or who a token of the OIDC issuer stands for; empty: a local program,
    # while no tokens are needed.
    token: str = ""
    identity: Identity | None = None  # with a token of the OIDC issuer
    session: Session | None = None  # in a browser in which somebody has logged in with a token


LOCAL = Caller(name=LOCAL_NAME, role=Role.ADMIN)


class Notifications(Protocol):
    """What the API shows of notifications, which `forewarn.notify` sends."""

    def states(self) -> list[NotifyState]: ...

    async def test(self, name: str) -> NotifyTest | Refused: ...


class Subscriptions(Protocol):
    """Notifications that are asked for through the API."""

    async def subscribe(self, name: str, asked: dict[str, Any]) -> str: ...

    async def unsubscribe(self, name: str) -> None: ...


class Context(msgspec.Struct, frozen=True):
    """The parts of one service that its control API works with."""

    store: Store
    platform: Platform
    removals: Removals
    hosts: Hosts
    enrollments: Enrollments
    overview: Overview
    rollouts: Rollouts
    halts: Halts
    configurations: Configurations
    history: History
    clock_acceptance: ClockAcceptance
    fleet_apply: FleetApply
    inventory: FollowedInventory
    tokens: Tokens
    sessions: Sessions
    access_tokens: AccessTokens
    machine_tokens: MachineTokens | None  # None: machines have no identities
    host_names: Callable[
        [], Collection[str]
    ]  # accepted in Host headers, in addition to the address
    # Reverse proxies whose Forwarded and X-Forwarded headers are believed.
    proxies: Callable[[], Collection[IPv4Network | IPv6Network]]
    metadata_urls: Callable[[], list[str]]  # of the metadata endpoint; may be empty
    arm_url: Callable[[], str]  # of the API for az and Azure's SDKs; empty: there is none
    metadata_url_of: Callable[[Machine], str]
    next_due: Callable[[], Time | None]
    virtual_time: VirtualTime | None  # None: the clock is real
    samples: Callable[[], Iterable[Sample | Histograms]]
    certificate_expiry: Callable[[], Time | None]  # None: there is no certificate
    copy: Callable[[Time], Awaitable[Copy | None]]  # makes a backup; None: the state is in memory
    faults: Faults
    observer: Observer | None  # None: the service does not observe its clients
    feed: Feed
    notifications: Callable[[], Notifications | None]  # None: nothing is to be notified
    subscriptions: Callable[[], Subscriptions]
    metrics: ServiceMetrics
    health: ServiceHealth
    node: Member  # this control node
    started: Time  # of this control node, by the wall clock
    portal: bool = True  # is it served?
    attempts: TokenAttempts = msgspec.field(default_factory=TokenAttempts)
    open_streams: Counter[str] = msgspec.field(default_factory=Counter)  # and long-polls, by token
    backup_lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)  # one backup at a time

    @property
    def decides(self) -> bool:
        """Whether this control node decides, rather than follow another one."""
        return self.store.leadership is None or self.health.deciding

    def call(
        self,
        caller: Caller,
        headers: MutableMapping[str, str],
        key: Key | None = None,
        precondition: Check | None = None,
        target: tuple[str, bytes] = ("", b""),
    ) -> CallContext:
        """Bind the platform to one request."""
        platform, removals = self.platform, self.removals
        hosts, rollouts = self.hosts, self.rollouts
        if key is not None or precondition is not None:
            request = RequestContext(key, precondition)
            platform, removals = platform.for_request(request), removals.for_request(request)
            hosts, rollouts = hosts.for_request(request), rollouts.for_request(request)
        return CallContext(
            caller, platform, removals, hosts, rollouts, self.tokens, headers, precondition, target
        )


# The handlers are shared by all services of a process, because building them takes most of the time
# that the API needs to start. The variable holds the service whose request is being answered.
current_context: ContextVar[Context] = ContextVar("current_context")
context = current_context.get


def require_known_hosts() -> None:
    """Raise NotLeading if what holds an event depends on which nodes of hosts are connected, which
    only the control node knows that decides."""
    here = context()
    leadership = here.store.leadership
    if leadership is None or here.decides or not any(host.node for host in here.hosts.hosts()):
        return
    leader = leadership.leader()
    raise NotLeading(leader if leader and leader.held else None)


T = TypeVar("T")


class CallContext(msgspec.Struct, frozen=True):
    """The operations of the platform, bound to one request."""

    caller: Caller
    platform: Platform
    removals: Removals
    hosts: Hosts
    rollouts: Rollouts
    tokens: Tokens
    headers: MutableMapping[str, str]  # of the response
    precondition: Check | None = None  # for changes that do not go through `platform`
    target: tuple[str, bytes] = ("", b"")  # of the request: its path and query

    @property
    def by(self) -> str:
        return self.caller.name

    @property
    def limited(self) -> bool:
        return not self.caller.limit.none

    def sees(self, group: str) -> bool:
        """Whether the group, with its current labels, is within the caller's limit."""
        return not self.limited or self.tokens.allows(self.caller.limit, group)

    def page(
        self,
        items: Iterable[T],
        limit: int,
        key: Callable[[T], paging.Cursor],
        after: paging.Cursor | None,
    ) -> list[T]:
        """Return the items after a cursor, of those that are ordered by their keys."""
        later = (item for item in items if after is None or tuple(key(item)) > tuple(after))
        return self.take_page(later, limit, key)

    def take_page(
        self, items: Iterable[T], limit: int, key: Callable[[T], paging.Cursor]
    ) -> list[T]:
        """Return the first `limit` items. If there are more, link to the next page."""
        page, more = paging.take_page(items, limit)
        if more:
            self.add_next_link(key(page[-1]))
        return page

    def add_next_link(self, last: paging.Cursor, key: str = "after") -> None:
        paging.add_next_link(self.headers, *self.target, last, key)


Call: TypeAlias = NamedDependency[CallContext]
