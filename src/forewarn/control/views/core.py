"""Conversion of machines, groups, events, hosts and backups to the types of the control API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from forewarn.control.schema import core as s
from forewarn.control.views.shape import moment, seconds, view
from forewarn.core import Event, Group, Machine, Time
from forewarn.core.deciding.holds import Hold
from forewarn.core.fleet import DOMAINS, NO_CAPACITY, NO_SIZE, REVOKED, Host
from forewarn.core.labels import labels_of
from forewarn.service.indexes.coverage import CoverageCounts, coverage_of
from forewarn.service.indexes.host_drivers import HostDriver
from forewarn.service.indexes.polls import MachinePolls, Shown
from forewarn.service.indexes.sightings import Difference
from forewarn.service.indexes.unknown_callers import UnknownCaller
from forewarn.service.platform import platform as p
from forewarn.service.platform.explain import EventExplanation
from forewarn.service.platform.hosts import HostNode, HostReport, Hosts, NodeState
from forewarn.service.telemetry.attention import Problem
from forewarn.store.port import Contents, ControlNode
from forewarn.support.instants import to_datetime

E = TypeVar("E", bound=s.Event)


def machines(
    pairs: Iterable[tuple[Group, Machine]],
    polls: Callable[[str], MachinePolls | None],
    url: Callable[[Machine], str],
    now: Time,
    drift: Mapping[str, Difference],
) -> list[s.Machine]:
    """Convert many machines. The events of a group are searched only once."""
    views: list[s.Machine] = []
    events: dict[str, dict[str, list[str]]] = {}
    for group, member in pairs:
        if group.name not in events:
            events[group.name] = events_of(group)
        own = events[group.name].get(member.name, [])
        found = drift.get(member.name)
        views.append(machine(group, member, polls(member.name), url, now, own, found))
    return views


def events_of(group: Group) -> dict[str, list[str]]:
    """Return the ids of the events of each machine of a group that has any."""
    events: dict[str, list[str]] = {}
    for event in group.events:
        for name in event.resources:
            events.setdefault(name, []).append(event.id)
    return events


def machine(
    group: Group,
    machine: Machine,
    polls: MachinePolls | None,
    url: Callable[[Machine], str],
    now: Time,
    events: list[str] | None = None,
    drift: Difference | None = None,
) -> s.Machine:
    """Convert a machine. `events` are the ids of its events, if they are already known."""
    if events is None:
        events = [event.id for event in group.events if machine.name in event.resources]
    return view(
        s.Machine,
        machine,
        group=group.name,
        kind=group.kind.value,
        disputed=bool(machine.disputed) and not machine.disputed_by_poll,
        polls_on=machine.disputed if machine.disputed_by_poll else "",
        drift=drift.kind.value if drift else None,
        seen_on=list(drift.hosts) if drift else [],
        labels=dict(labels_of(group, machine)),
        size=None if machine.size == NO_SIZE else view(s.Size, machine.size),
        metadata_url=url(machine),
        polls=polls.count if polls else 0,
        last_poll=moment(polls.last) if polls else None,
        api_version=polls.version if polls else "",
        coverage=coverage_of(polls, now).value,
        ignored_events=polls.ignored if polls else 0,
        last_answer=moment(polls.answered) if polls else None,
        events=events,
    )


def machine_drift(found: Difference, problem: str) -> s.MachineDrift:
    """Convert a difference; `problem` is why the inventory does not follow."""
    seen = found.seen
    return s.MachineDrift(
        machine=found.machine,
        drift=found.kind.value,
        since=to_datetime(found.since),
        group=found.group or (seen.group if seen else ""),
        host=found.known,
        seen_on=list(found.hosts),
        state=seen.state.value if seen else "",
        reason=seen.reason if seen else "",
        problem=problem,
    )


def unknown_caller(caller: UnknownCaller, having: Sequence[Machine]) -> s.UnknownCaller:
    """Convert an unknown caller. `having` are the machines that have, or had, its address."""
    here = [machine for machine in having if caller.host in ("", machine.host)]
    elsewhere = [machine for machine in having if machine.alive] if not here else []
    return s.UnknownCaller(
        address=caller.address,
        first=to_datetime(caller.first),
        last=to_datetime(caller.last),
        requests=caller.requests,
        machine=here[0].name if here else elsewhere[0].name if len(elsewhere) == 1 else "",
        host=caller.host,
        known_host=elsewhere[0].host if len(elsewhere) == 1 else "",
    )


def control_node(node: ControlNode) -> s.ControlNode:
    role = "leads" if node.leads else "away" if node.away else "follows"
    return view(s.ControlNode, node, role=role)


def status_problem(problem: Problem) -> s.StatusProblem:
    return view(s.StatusProblem, problem)


def coverage(counts: CoverageCounts) -> s.Coverage:
    return view(s.Coverage, counts)


def group(group: Group, counts: CoverageCounts) -> s.Group:
    policy = group.policy
    return view(
        s.Group,
        group,
        policy,
        group.place,
        machines=[machine.name for machine in group.machines],
        spot=sum(machine.spot and machine.alive for machine in group.machines),
        events=[event.id for event in group.events],
        terminate_notice=seconds(policy.terminate_notice),
        image_notice=seconds(policy.image_notice),
        coverage=coverage(counts),
        windows=[window.text for window in policy.windows],
        blackouts=[blackout.text for blackout in policy.blackouts],
        may_postpone=None if policy.may_postpone is None else str(policy.may_postpone),
        back_within=seconds(policy.back_within),
    )


def event(event: Event) -> s.Event:
    return _event(s.Event, event)


def event_details(
    details: Event, shown: Shown, progress: str, polls: Callable[[str], MachinePolls | None]
) -> s.EventDetails:
    not_warned, started = None, details.started_at
    if started is not None and shown.complete:
        not_warned = [n for n in details.resources if shown.since.get(n, started + 1) > started]
    done = details.waiting.since if details.waiting is not None else details.ended_at
    back = [] if done is None or started is None else _polled_since(details.resources, done, polls)
    return _event(
        s.EventDetails,
        details,
        seen_by=_moments(shown.since),
        not_warned=not_warned,
        back=back,
        progress=progress,
    )


def _event(shape: type[E], event: Event, **others: Any) -> E:
    attempt, over = event.attempt, event.status.over
    return view(
        shape,
        event,
        machines=list(event.resources),
        update_domain=event.domain % DOMAINS,
        raised_by=event.by,
        joint=event.joint.id if event.joint else "",
        ready=[readiness.machine for readiness in event.ready],
        waits_for=[] if event.waiting is None or over else list(event.waiting.machines),
        held=(attempt.note or "its outcome is not known") if attempt and event.held else "",
        targets={} if attempt is None or over else attempt.targets,
        **others,
    )


def _polled_since(
    names: Iterable[str], at: Time, polls: Callable[[str], MachinePolls | None]
) -> list[str]:
    known = {name: polls(name) for name in names}
    return [name for name, found in known.items() if found is not None and found.last >= at]


def _moments(times: Mapping[str, Time]) -> dict[str, datetime]:
    return {name: to_datetime(at) for name, at in times.items()}


def outcome(outcome: p.Outcome) -> s.Outcome:
    return _event(s.Outcome, outcome.event, notes=list(outcome.notes))


def outcomes(outcomes: p.Outcomes) -> s.Outcomes:
    return s.Outcomes(events=[event(item) for item in outcomes.events], notes=list(outcomes.notes))


class OnHosts(msgspec.Struct, frozen=True):
    """Machines and events of hosts, by the names of the hosts."""

    machines: dict[str, list[Machine]]
    events: dict[str, list[Event]]


def on_hosts(groups: Iterable[Group]) -> OnHosts:
    """Return what of these groups is on, or affects, hosts."""
    found = OnHosts({}, {})
    for group in groups:
        for machine in group.machines:
            if machine.host and machine.alive:
                found.machines.setdefault(machine.host, []).append(machine)
        for event in group.events:
            if event.host:
                found.events.setdefault(event.host, []).append(event)
    return found


def hosts(hosts: Iterable[Host], of: OnHosts, known: Hosts) -> list[s.Host]:
    return [
        host(
            item,
            sorted(of.machines.get(item.name, []), key=lambda machine: machine.name),
            sorted(of.events.get(item.name, []), key=lambda e: (e.raised_at, e.group, e.id)),
            known,
        )
        for item in hosts
    ]


def host_node(node: HostNode) -> s.HostNode:
    return view(
        s.HostNode,
        node,
        version=node.version or None,
        lag=seconds(node.lag),
        ended=node.ended or None,
    )


def host_driver(driver: HostDriver) -> s.HostDriver:
    return view(
        s.HostDriver,
        driver,
        state=(NodeState.JOINED if driver.joined else NodeState.DISCONNECTED).value,
        name=driver.name or None,
        version=driver.version or None,
    )


def host(host: Host, machines: list[Machine], events: list[Event], known: Hosts) -> s.Host:
    node, driver = known.node_of(host), known.driver_of(host)
    return view(
        s.Host,
        host,
        capacity=None if host.capacity == NO_CAPACITY else view(s.Capacity, host.capacity),
        cordoned=bool(host.cordoned),
        node=None if node is None else host_node(node),
        driver=None if driver is None else host_driver(driver),
        enrollment=_enrollment(host),
        machines=[machine.name for machine in machines],
        events=[event.id for event in events],
    )


def _enrollment(host: Host) -> str:
    if host.enrollment and not host.enrollment.used_from:
        return "open"
    return REVOKED if host.node_key == REVOKED else "enrolled" if host.node_key else ""


def host_explanation(report: HostReport) -> s.HostExplanation:
    return view(
        s.HostExplanation,
        report,
        report.host,
        plans=[
            view(s.HostPlan, plan, events=[event(item) for item in plan.events])
            for plan in report.plans
        ],
        others=[event(item) for item in report.others],
    )


def explanation(explanation: EventExplanation, operations: list[str]) -> s.Explanation:
    return view(
        s.Explanation,
        explanation,
        event=event(explanation.event),
        seen_by=_moments(explanation.seen_by),
        not_listening={name: moment(at) for name, at in explanation.not_listening.items()},
        operations=operations,
    )


def hold(hold: Hold) -> s.Hold:
    return view(s.Hold, hold)


def backup_contents(contents: Contents) -> s.BackupContents:
    return view(s.BackupContents, contents, until=moment(contents.at))
