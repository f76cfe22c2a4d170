"""A client of the Scheduled Events endpoint, for forewarn and Azure alike.

    from forewarn.client import Client

    with Client() as client:
        for change in client.watch(mine=True, min_freeze=10):
            if change.kind == "appeared":
                ...  # finish what you do, let others take over
                client.approve(change.event)

`AsyncClient` is the same for programs with an event loop. Neither needs any part of the service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forewarn.client.client import Client
from forewarn.client.errors import (
    ApprovalRefusedError,
    ClientClosedError,
    ClientError,
    EndpointNotFoundError,
    EndpointUnavailableError,
    InvalidEndpointError,
)
from forewarn.client.events import (
    Change,
    ChangeKind,
    Document,
    EndpointStatus,
    Event,
    EventSource,
    EventStatus,
    EventType,
    Snapshot,
)
from forewarn.client.identity import Identity, host_name, instance_name
from forewarn.client.rules import Readiness

if TYPE_CHECKING:
    from forewarn.client.async_client import AsyncClient as AsyncClient

__all__ = [
    "ApprovalRefusedError",
    "AsyncClient",
    "Change",
    "ChangeKind",
    "Client",
    "ClientClosedError",
    "ClientError",
    "Document",
    "EndpointNotFoundError",
    "EndpointStatus",
    "EndpointUnavailableError",
    "Event",
    "EventSource",
    "EventStatus",
    "EventType",
    "Identity",
    "InvalidEndpointError",
    "Readiness",
    "Snapshot",
    "host_name",
    "instance_name",
]


def __getattr__(name: str) -> Any:
    if name == "AsyncClient":  # imports asyncio, which the blocking client does not need
        from forewarn.client.async_client import AsyncClient

        return AsyncClient
    raise AttributeError(f"module 'forewarn.client' has no attribute '{name}'")
