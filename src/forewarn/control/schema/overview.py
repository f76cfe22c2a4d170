"""The overview of a fleet in the control API."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from forewarn.control.schema import types as w
from forewarn.control.schema.types import doc, documented

RowStateName: TypeAlias = Annotated[str, documented(enum="RowState")]


class MachineCounts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Machines, counted by what happens to them. Each is counted once: in the first of these states
    that applies. Numbers that are 0 are left out."""

    gone: Annotated[int, doc("Evicted or deleted.")] = 0
    held: Annotated[int, doc("An event waits for an operator: its outcome is not known.")] = 0
    started: Annotated[int, doc("An event has started.")] = 0
    scheduled: Annotated[int, doc("An event is announced.")] = 0
    silent: Annotated[int, doc("Has not asked for its events in the last hour, or never.")] = 0
    quiet: Annotated[int, doc("Nothing is planned, and it asks for its events.")] = 0


class DomainCounts(MachineCounts, kw_only=True, omit_defaults=True):
    """Machines of one update domain, counted by what happens to them. Each is counted once: in the
    first of these states that applies. Numbers that are 0 are left out."""

    update_domain: Annotated[int, doc("Number of the update domain.")]


class RowCounts(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Hosts or groups, counted by what is most notable about them. Each is counted once: in the
    first of these states that applies. Numbers that are 0 are left out."""

    unhealthy: Annotated[int, doc("A host that is degraded, failed or unreachable.")] = 0
    held: Annotated[int, doc("It has a machine in the state `held`.")] = 0
    started: Annotated[int, doc("It has a machine in the state `started`.")] = 0
    scheduled: Annotated[int, doc("It has a machine in the state `scheduled`.")] = 0
    cordoned: Annotated[int, doc("A host that is cordoned.")] = 0
    silent: Annotated[int, doc("It has a machine in the state `silent`.")] = 0
    quiet: Annotated[int, doc("None of these.")] = 0


class OverviewRow(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A host or a group in the overview, or all of them with one value of a label."""

    name: Annotated[str, doc("Name, or value of the label; empty: those that do not have it.")]
    state: Annotated[RowStateName, doc("What is most notable about it.")]
    counts: Annotated[RowCounts | None, doc("Of a sum: its hosts or groups, by state.")] = None
    health: Annotated[w.HealthName | None, doc("Health of the host.")] = None
    cordoned: Annotated[bool, doc("Whether the host is cordoned.")] = False
    unreachable: Annotated[
        bool, doc("Whether the node of the host, or its driver process, is disconnected.")
    ] = False
    machines: Annotated[MachineCounts, doc("Its machines.")]
    domains: Annotated[
        list[DomainCounts], doc("Its machines, by update domain; empty for a sum.")
    ] = []


class Overview(msgspec.Struct, kw_only=True):
    """What happens to the machines of a fleet, as numbers."""

    at: Annotated[w.Moment, doc("The service's time.")]
    counts: Annotated[RowCounts, doc("All selected hosts or groups, by state.")]
    machines: Annotated[MachineCounts, doc("Their machines, by state.")]
    rows: Annotated[list[OverviewRow], doc("Hosts, groups or sums of them.")]
    left_out: Annotated[int, doc("How many later rows are left out.")]
    labels: Annotated[list[str], doc("Labels by which the rows can be summed.")]
