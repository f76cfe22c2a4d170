"""The overview of a fleet in the control API."""

from __future__ import annotations

from typing import Annotated

import msgspec

from forewarn.control.schema import types as w
from forewarn.control.schema.types import doc


class DomainCounts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Machines of one update domain, counted by what happens to them. Each is counted once: in the
    first of these states that applies. Numbers that are 0 are left out."""

    update_domain: Annotated[int, doc("Number of the update domain.")]
    gone: Annotated[int, doc("Evicted or deleted.")] = 0
    held: Annotated[int, doc("An event could start, or go on, but something holds it.")] = 0
    started: Annotated[int, doc("An event has started.")] = 0
    scheduled: Annotated[int, doc("An event is announced.")] = 0
    silent: Annotated[int, doc("Has not asked for its events in the last hour, or never.")] = 0
    quiet: Annotated[int, doc("Nothing is planned, and it asks for its events.")] = 0


class OverviewRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A host or a group in the overview."""

    name: Annotated[str, doc("Name of the host or group.")]
    health: Annotated[w.HealthName | None, doc("Health of the host.")] = None
    cordoned: Annotated[bool, doc("Whether the host is cordoned.")] = False
    unreachable: Annotated[bool, doc("Whether the node of the host is cut off.")] = False
    domains: Annotated[list[DomainCounts], doc("Its machines, by update domain.")] = []


class Overview(msgspec.Struct, kw_only=True):
    """What happens to the machines of a fleet, as numbers."""

    at: Annotated[w.Moment, doc("The service's time.")]
    rows: Annotated[list[OverviewRow], doc("All hosts or groups, ordered by name.")]
