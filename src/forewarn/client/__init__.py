"""Inside a machine: what is about to happen to it, on forewarn and on Azure alike.

    from forewarn.client import Client

    with Client() as client:
        me = client.identity()
        for change in client.watch():
            if change.kind == "appeared" and any(map(me.is_named, change.event.resources)):
                ...
                client.approve(change.event)

`AsyncClient` is the same for programs with a loop. Neither needs anything of the service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forewarn.client.client import Client
from forewarn.client.errors import (
    BadEndpoint,
    ClientError,
    Closed,
    NoEndpoint,
    NotApproved,
    Unavailable,
)
from forewarn.client.events import Change, Document, Event, Kind, Look
from forewarn.client.identity import Identity
from forewarn.client.rules import Readiness
from forewarn.client.scale_sets import host_name, instance_name
from forewarn.client.status import EndpointStatus

if TYPE_CHECKING:
    from forewarn.client.async_client import AsyncClient as AsyncClient

__all__ = [
    "AsyncClient",
    "BadEndpoint",
    "Change",
    "Client",
    "ClientError",
    "Closed",
    "Document",
    "EndpointStatus",
    "Event",
    "Identity",
    "Kind",
    "Look",
    "NoEndpoint",
    "NotApproved",
    "Readiness",
    "Unavailable",
    "host_name",
    "instance_name",
]


def __getattr__(name: str) -> Any:
    if name == "AsyncClient":  # brings asyncio along, which whoever blocks has no use for
        from forewarn.client.async_client import AsyncClient

        return AsyncClient
    raise AttributeError(f"module 'forewarn.client' has no attribute '{name}'")
