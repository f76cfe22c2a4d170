"""A client of the Scheduled Events endpoint, for forewarn and Azure alike.

    from forewarn.client import Client

    with Client() as client:
        me = client.identity()
        for change in client.watch():
            if change.kind == "appeared" and any(map(me.is_named, change.event.resources)):
                ...
                client.approve(change.event)

`AsyncClient` is the same for programs with an event loop. Neither needs any part of the service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forewarn.client.client import Client
from forewarn.client.errors import (
    BadEndpoint,
    ClientClosed,
    ClientError,
    NoEndpoint,
    NotApproved,
    Unavailable,
)
from forewarn.client.events import Change, ChangeKind, Document, EndpointStatus, Event, Snapshot
from forewarn.client.identity import Identity, host_name, instance_name
from forewarn.client.rules import Readiness

if TYPE_CHECKING:
    from forewarn.client.async_client import AsyncClient as AsyncClient

__all__ = [
    "AsyncClient",
    "BadEndpoint",
    "Change",
    "ChangeKind",
    "Client",
    "ClientClosed",
    "ClientError",
    "Document",
    "EndpointStatus",
    "Event",
    "Identity",
    "NoEndpoint",
    "NotApproved",
    "Readiness",
    "Snapshot",
    "Unavailable",
    "host_name",
    "instance_name",
]


def __getattr__(name: str) -> Any:
    if name == "AsyncClient":  # imports asyncio, which the blocking client does not need
        from forewarn.client.async_client import AsyncClient

        return AsyncClient
    raise AttributeError(f"module 'forewarn.client' has no attribute '{name}'")
