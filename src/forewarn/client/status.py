"""How a client stands with its endpoint, for whoever wants to know."""

from __future__ import annotations

from datetime import datetime

import msgspec


class EndpointStatus(msgspec.Struct, frozen=True, kw_only=True):
    endpoint: str | None  # None: not found yet
    version: str  # the api-version in use
    long_poll: bool  # is it told of changes, or does it ask every second?
    trouble: str  # empty if the last answer was as it should be
    since: datetime  # since when it has been so, by the service's clock
    answers: int
    troubles: int
    kinds: dict[str, int] = {}  # how often each kind of trouble was met; see `steps.TROUBLES`
