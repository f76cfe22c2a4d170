"""What the handlers are given: the desk, the same for all, and what one request is asked through.

`Asked` binds the verbs to whoever asks: `by` for the history, what a token is limited to, and the
key that the caller has given its request. Handlers take it as their parameter
`ask: Ask`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

import msgspec
from litestar import Request
from litestar.di import NamedDependency

from forewarn.core import Machine, Time
from forewarn.core.access import Limit, Role
from forewarn.service.applying import Applying
from forewarn.service.history import History
from forewarn.service.hosts import Hosts
from forewarn.service.leaving import Leaving
from forewarn.service.platform import Platform
from forewarn.service.readings import Reading
from forewarn.service.rollouts import Rollouts
from forewarn.store.port import Key


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and what that one may."""

    name: str
    role: Role
    limit: Limit = Limit()
    token: str = ""  # its id; empty: a local program, while there are no tokens


LOCAL = Caller(name="operator", role=Role.ADMIN)


class Desk(msgspec.Struct, frozen=True):
    """What the API is given: the platform, and the few things a node alone knows."""

    platform: Platform
    leaving: Leaving
    hosts: Hosts
    rollouts: Rollouts
    history: History
    applying: Applying
    metadata: str
    url_of: Callable[[Machine], str]
    next_due: Callable[[], Time | None]
    advance: Callable[[Time], Awaitable[None]] | None  # where the clock is virtual
    readings: Callable[[], Iterable[Reading]]

    def ask(self, caller: Caller, key: Key | None = None) -> Asked:
        if key is None:
            return Asked(caller, self.platform, self.leaving, self.hosts, self.rollouts)
        platform = self.platform.under(key)
        return Asked(
            caller,
            platform,
            Leaving(platform),
            self.hosts.through(platform),
            self.rollouts.through(platform),
            key,
        )


class Asked(msgspec.Struct, frozen=True):
    """One request's way to the verbs."""

    caller: Caller
    platform: Platform
    leaving: Leaving
    hosts: Hosts
    rollouts: Rollouts
    key: Key | None = None

    @property
    def by(self) -> str:
        return self.caller.name


Ask: TypeAlias = NamedDependency[Asked]


def asking(desk: Desk) -> Callable[[Request[Any, Any, Any]], Asked]:
    """The dependency `ask`: the doorway has noted who asks, and under which key."""

    def ask(request: Request[Any, Any, Any]) -> Asked:
        return desk.ask(request.state.caller, request.state.get("key"))

    return ask
