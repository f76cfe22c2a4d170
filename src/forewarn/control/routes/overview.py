"""The overview of the fleet in the control API: numbers instead of machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, TypeAlias

from litestar import Response
from litestar.params import QueryParameter

from forewarn.control.http.access import authorization
from forewarn.control.http.context import Call, CallContext, context
from forewarn.control.http.errors import (
    RefusedError,
    encode_in_thread,
    parse_enum,
    parse_selector,
)
from forewarn.control.http.operation import route
from forewarn.control.http.paging import MAX_PAGE
from forewarn.control.http.parameters import ByLabel, query
from forewarn.control.operations import fleet as operations
from forewarn.control.schema import overview as s
from forewarn.control.views.overview import Member
from forewarn.control.views.overview import overview as view
from forewarn.core.fleet import Host
from forewarn.core.labels import matches
from forewarn.core.refusal import unknown_name
from forewarn.service.indexes.overview import OverviewBy, RowOrder, RowState, count
from forewarn.service.platform.hosts import NodeState

By: TypeAlias = Annotated[str, query("What the rows are.", enum="OverviewBy")]
Sums: TypeAlias = Annotated[
    str | None, query("Name of a label of hosts, or of groups: a row for each of its values.")
]


@route(operations.GET_OVERVIEW)
async def get_overview(
    call: Call,
    by: By = "host",
    sums: Sums = None,
    label: ByLabel = None,
    name: Annotated[str | None, query("Name of a host or group; only this one.")] = None,
    state_: Annotated[
        str | None,
        query(
            "Only hosts or groups to which this applies, also if something else is more notable.",
            name="state",
            enum="RowState",
        ),
    ] = None,
    order: Annotated[
        str, query("By name, or what is most notable first.", enum="RowOrder")
    ] = "name",
    limit: Annotated[
        int | None, QueryParameter(ge=1, le=MAX_PAGE, description="Maximum number of rows.")
    ] = None,
) -> Response[bytes]:
    """Counts the machines of each host, or of each group, by update domain; with `sums`, of all of
    them that have the same value of a label. A token that is limited to groups gets only the
    numbers of its own machines. The label selects hosts or groups."""
    rows_are, labels = parse_enum(OverviewBy, "by", by), parse_selector(label) or ()
    row_name, names = row_names(call, rows_are, sums)
    wanted = None if state_ is None else parse_enum(RowState, "state", state_)
    ordered = parse_enum(RowOrder, "order", order)
    platform, at = context().platform, context().platform.writer.now().at
    groups = [group for group in platform.machine_index.groups() if call.sees(group.name)]
    if call.limited:
        by_host, by_group = count(groups, platform.poll_index, at)
    else:
        overview = context().overview
        await overview.refresh(at)
        by_host, by_group = overview.hosts.copy(), overview.groups.copy()
    hosts = [h for h in context().hosts.hosts() if authorization.host_visible(call, h.name)]
    unreachable = {host.name for host in hosts if host.node and _is_unreachable(host)}
    known = {each.name for each in (hosts if rows_are is OverviewBy.HOST else groups)}
    if name is not None and name not in known:
        raise RefusedError(unknown_name(rows_are.value, name, known))

    def members() -> Iterator[Member]:
        if rows_are is OverviewBy.GROUP:
            for group in groups:
                if name in (None, group.name) and matches(labels, group.labels):
                    domains = by_group.get(group.name, {})
                    yield Member(group.name, row_name(group.name), domains)
            return
        for host in hosts:
            if name in (None, host.name) and matches(labels, host.labels):
                yield Member(
                    host.name,
                    row_name(host.name),
                    by_host.get(host.name, {}),
                    host.health,
                    bool(host.cordoned),
                    host.name in unreachable,
                )

    def build() -> s.Overview:
        return view(
            members(),
            names,
            summed=sums is not None,
            state=wanted,
            order=ordered,
            limit=limit,
            at=at,
        )

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
    names = frozenset[str]().union(*labels.values())
    if label is None:
        return str, names
    if label not in names:
        raise RefusedError(unknown_name("label", label, names))
    values = {name: of_one.get(label, "") for name, of_one in labels.items()}
    return lambda name: values.get(name, ""), names


def _is_unreachable(host: Host) -> bool:
    node = context().hosts.node_of(host)
    return node is not None and node.state is NodeState.DISCONNECTED
