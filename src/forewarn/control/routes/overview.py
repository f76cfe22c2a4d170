"""The overview of the fleet in the control API: numbers instead of machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, TypeAlias

from litestar import Response

from forewarn.control.http.access import authorization
from forewarn.control.http.context import Call, CallContext, context
from forewarn.control.http.errors import (
    RefusedError,
    encode_in_thread,
    parse_enum,
    parse_selector,
)
from forewarn.control.http.operation import route
from forewarn.control.http.parameters import ByLabel, query
from forewarn.control.operations import fleet as operations
from forewarn.control.schema import overview as s
from forewarn.core.fleet import Host
from forewarn.core.labels import matches
from forewarn.core.refusal import unknown_name
from forewarn.service.indexes.overview import OverviewBy, Table, count
from forewarn.service.platform.hosts import NodeState
from forewarn.support.instants import to_datetime
from forewarn.support.text import natural_key

By: TypeAlias = Annotated[str, query("What the rows are.", enum="OverviewBy")]
Sums: TypeAlias = Annotated[
    str | None, query("Name of a label of hosts, or of groups: a row for each of its values.")
]


@route(operations.GET_OVERVIEW)
async def get_overview(
    call: Call,
    by: By = "host",
    label: ByLabel = None,
) -> Response[bytes]:
    """Counts the machines of each host, or of each group, by update domain. A token that is limited
    to groups gets only the numbers of its own machines. The label selects hosts or groups."""
    rows_are, labels = parse_enum(OverviewBy, "by", by), parse_selector(label) or ()
    platform, at = context().platform, context().platform.writer.now().at
    groups = [group for group in platform.machine_index.groups() if call.sees(group.name)]
    if call.limited:
        by_host, by_group = count(groups, platform.poll_index, at)
    else:
        overview = context().overview
        await overview.refresh(at)
        by_host, by_group = overview.hosts.copy(), overview.groups.copy()
    hosts = [h for h in context().hosts.hosts() if authorization.host_visible(call, h.name)]
    unreachable = {host.name for host in hosts if _is_unreachable(host)}

    def build() -> s.Overview:
        if rows_are is OverviewBy.HOST:
            chosen = [host for host in hosts if matches(labels, host.labels)]
            rows = [
                s.OverviewRow(
                    name=host.name,
                    health=host.health.value,
                    cordoned=bool(host.cordoned),
                    unreachable=host.name in unreachable,
                    domains=_domains(by_host, host.name),
                )
                for host in chosen
            ]
        else:
            names = [group.name for group in groups if matches(labels, group.labels)]
            rows = [s.OverviewRow(name=name, domains=_domains(by_group, name)) for name in names]
        rows.sort(key=lambda row: natural_key(row.name))
        return s.Overview(at=to_datetime(at), rows=rows)

    return await encode_in_thread(build)


def row_names(
    call: CallContext, by: OverviewBy, label: str | None
) -> tuple[Callable[[str], str], frozenset[str]]:
    """Return the name of the row that a host, or a group, is in: its own, or the value that it has
    for a label; and the labels by which rows can be summed."""
    labels: dict[str, Mapping[str, str]]
    if by is OverviewBy.HOST:
        hosts = call.hosts.hosts()
        labels = {h.name: h.labels for h in hosts if authorization.host_visible(call, h.name)}
    else:
        groups = call.platform.machine_index.groups()
        labels = {group.name: group.labels for group in groups if call.sees(group.name)}
    names = frozenset(name for of_one in labels.values() for name in of_one)
    if label is None:
        return str, names
    if label not in names:
        raise RefusedError(unknown_name("label", label, names))
    values = {name: of_one.get(label, "") for name, of_one in labels.items()}
    return lambda name: values.get(name, ""), names


def _is_unreachable(host: Host) -> bool:
    node = context().hosts.node_of(host)
    return node is not None and node.state is NodeState.DISCONNECTED


def _domains(table: Table, name: str) -> list[s.DomainCounts]:
    return [
        s.DomainCounts(
            update_domain=domain,
            gone=counts.gone,
            held=counts.held,
            started=counts.started,
            scheduled=counts.scheduled,
            silent=counts.silent,
            quiet=counts.quiet,
        )
        for domain, counts in sorted(table.get(name, {}).items())
    ]
