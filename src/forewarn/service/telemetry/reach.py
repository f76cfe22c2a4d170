"""Hosts that cannot be reached, because their node is cut off, hosts without one, or without their
driver process, and machines that poll elsewhere than they are known to be: as metrics, and as
warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from forewarn.core.time import SECOND, Time
from forewarn.service.indexes.host_drivers import HostDrivers
from forewarn.service.indexes.hosts import HostIndex
from forewarn.service.indexes.sightings import DifferenceKind, Sightings
from forewarn.service.indexes.unreachable_hosts import UnreachableHosts
from forewarn.service.telemetry.samples import Sample, gauge
from forewarn.support.text import counted, utc


def reach_readings(index: HostIndex, now: Time, *, went_back: bool) -> Iterator[Sample]:
    """Yield how many hosts are unreachable, for how long the first has been, how many machines poll
    on other hosts, and whether nodes were told more than the state contains; without a sample on a
    control node that does not decide, which does not know."""
    unreachable = index.unreachable
    hosts = unreachable.all()
    longest = max((now - since for since in hosts.values()), default=0)
    yield gauge(
        "forewarn_hosts_unreachable",
        "Hosts that cannot be reached, because their node is cut off",
        {(): len(hosts)} if unreachable.known else {},
    )
    yield gauge(
        "forewarn_host_unreachable_seconds",
        "Time since the first of the hosts that cannot be reached could not be; 0 if there is none",
        {(): max(0, longest) / SECOND} if unreachable.known else {},
    )
    drivers = index.drivers
    yield gauge(
        "forewarn_drivers_disconnected",
        "Hosts with machines whose driver process is not connected",
        {(): len(drivers.disconnected())} if drivers.known else {},
    )
    yield gauge(
        "forewarn_machines_elsewhere",
        "Machines that poll on another host than the one that they are known to be on",
        {(): len(index.strayed)} if unreachable.known else {},
    )
    kinds = Counter(found.kind.value for found in index.sightings.all().values())
    yield gauge(
        "forewarn_machines_differing",
        "Machines that are not as the inventory has them, by kind, as their driver sees them",
        {(kind.value,): kinds[kind.value] for kind in DifferenceKind}
        if index.sightings.known
        else {},
        "kind",
    )
    yield gauge(
        "forewarn_state_went_back",
        "1 if the state is older than what nodes were told, so that nothing starts",
        {(): int(went_back)} if unreachable.known else {},
    )


def reach_warning(unreachable: UnreachableHosts) -> str:
    """Return a sentence for operators; empty if all hosts can be reached, or their nodes have not
    had time to join yet. It is public, so it names no host."""
    hosts = {
        host: since for host, since in unreachable.all().items() if not unreachable.is_awaited(host)
    }
    if not hosts:
        return ""
    since = utc(min(hosts.values()))
    cut_off = (
        f"its node has been cut off since {since}"
        if len(hosts) == 1
        else f"their nodes are cut off, the first since {since}"
    )
    return (
        f"{counted(len(hosts), 'host')} cannot be reached, because {cut_off}: nothing starts for"
        " the machines there; see 'forewarn host list'"
    )


def nodeless_warning(hosts: HostIndex) -> str:
    """Return a sentence for operators; empty if every host with machines is expected to have a
    node, or if this process does not know. It names no host either."""
    without = hosts.without_node() if hosts.unreachable.known else []
    if not without:
        return ""
    return (
        f"guests on {counted(len(without), 'host')} are not answered, because no node has joined"
        " there; see 'forewarn host list --node none'"
    )


def drivers_warning(drivers: HostDrivers) -> str:
    """Return a sentence for operators; empty if the driver process of every host with machines is
    connected, or has not had time to connect, or the service has another driver."""
    hosts = {} if drivers.awaited else drivers.disconnected()
    if not hosts:
        return ""
    return (
        f"the driver process of {counted(len(hosts), 'host')} has not been connected since"
        f" {utc(min(hosts.values()))}: no event is announced or carried out for the machines there;"
        " see 'forewarn host list'"
    )


def elsewhere_warning(hosts: HostIndex) -> str:
    """Return a sentence for operators; empty if every machine polls where it is known to be, as far
    as this process knows. It names no machine either."""
    if not hosts.strayed or not hosts.unreachable.known:
        return ""
    return (
        f"{counted(len(hosts.strayed), 'machine')} polls on another host than the one that it is"
        " known to be on, so that nothing starts for it; see 'forewarn caller list'"
    )


def inventory_warning(sightings: Sightings) -> str:
    """Return a sentence for operators; empty if machines are as the inventory has them, or were not
    seen. Machines that it does not have, or that do not run, need no warning."""
    kinds = DifferenceKind.ELSEWHERE, DifferenceKind.UNCLEAR, DifferenceKind.MISSING
    count = sum(found.kind in kinds for found in sightings.all().values())
    if not count:
        return ""
    verb = "is" if count == 1 else "are"
    return (
        f"{counted(count, 'machine')} {verb} not on the host that the inventory has, as the driver"
        " sees it; see 'forewarn machine list --drift'"
    )
