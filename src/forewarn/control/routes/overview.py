"""The overview of the fleet in the control API: numbers instead of machines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping

from litestar import Response

from forewarn.control.http.access import authorization
from forewarn.control.http.context import Call, CallContext, context
from forewarn.control.http.errors import RefusedError, encode_in_thread, parse_selector
from forewarn.control.http.operation import route
from forewarn.control.http.parameters import Parameters
from forewarn.control.operations import fleet as operations
from forewarn.control.schema import overview as s
from forewarn.control.schema import queries as q
from forewarn.control.views.overview import Member
from forewarn.control.views.overview import overview as view
from forewarn.core.labels import matches
from forewarn.core.refusal import unknown_name
from forewarn.service.indexes.overview import OverviewBy, RowOrder, RowState, count

HOSTS = OverviewBy.HOST.value


@route(operations.GET_OVERVIEW)
async def get_overview(call: Call, given: Parameters[q.OverviewQuery]) -> Response[bytes]:
    """Counts the machines of each host, or of each group, by update domain; with `sums`, of all of
    them that have the same value of a label. A token that is limited to groups gets only the
    numbers of its own machines. The label selects hosts or groups."""
    by_host, name, labels = given.by == HOSTS, given.name, parse_selector(given.label) or ()
    row_name, names = row_names(call, given.sums, by_host=by_host)
    platform, at = context().platform, context().platform.writer.now().at
    groups = [group for group in platform.machine_index.groups() if call.sees(group.name)]
    overview = context().overview
    await overview.refresh(at)
    of_hosts, of_groups = overview.hosts.copy(), overview.groups.copy()
    hosts = authorization.visible_hosts(call)
    if by_host and call.limited and hosts:
        of_hosts, _ = await asyncio.to_thread(count, groups, platform.poll_index, at)
    unreachable = context().hosts.unreachable()
    known = {each.name for each in (hosts if by_host else groups)}
    if name is not None and name not in known:
        raise RefusedError(unknown_name(given.by, name, known))

    def members() -> Iterator[Member]:
        if not by_host:
            for group in groups:
                if name in (None, group.name) and matches(labels, group.labels):
                    domains = of_groups.get(group.name, {})
                    yield Member(group.name, row_name(group.name), domains)
            return
        for host in hosts:
            if name in (None, host.name) and matches(labels, host.labels):
                yield Member(
                    host.name,
                    row_name(host.name),
                    of_hosts.get(host.name, {}),
                    host.health,
                    bool(host.cordoned),
                    host.name in unreachable,
                )

    def build() -> s.Overview:
        return view(
            members(),
            names,
            summed=given.sums is not None,
            state=None if given.state is None else RowState(given.state),
            order=RowOrder(given.order),
            limit=given.limit,
            at=at,
        )

    return await encode_in_thread(build)


def row_names(
    call: CallContext, label: str | None, *, by_host: bool
) -> tuple[Callable[[str], str], frozenset[str]]:
    """Return the name of the row that a host, or a group, is in: its own, or the value that it has
    for a label; and the labels by which rows can be summed."""
    labels: dict[str, Mapping[str, str]]
    if by_host:
        labels = {host.name: host.labels for host in authorization.visible_hosts(call)}
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
