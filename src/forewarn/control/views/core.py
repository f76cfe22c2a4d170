"""Conversion of machines, groups, events, hosts and backups to the types of the control API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from forewarn.control.schema import core as s
from forewarn.core import Event, Group, Machine, Time
from forewarn.core.deciding.holds import Hold
from forewarn.core.fleet import DOMAINS, NO_CAPACITY, NO_SIZE, REVOKED, Capacity, Host, Size
from forewarn.core.labels import labels_of
from forewarn.core.time import SECOND
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


def machines(
    pairs: Iterable[tuple[Group, Machine]],
    polls: Callable[[str], MachinePolls | None],
    url: Callable[[Machine], str],
    now: Time,
    drift: Mapping[str, Difference],
) -> list[s.Machine]:
    """Convert many machines. Machines of a group must be adjacent, so that the events of the group
    are searched only once."""
    views: list[s.Machine] = []
    current: Group | None = None
    events: dict[str, list[str]] = {}
    for group, member in pairs:
        if group is not current:
            current, events = group, {}
            for event in group.events:
                for name in event.resources:
                    events.setdefault(name, []).append(event.id)
        own = events.get(member.name, [])
        found = drift.get(member.name)
        views.append(machine(group, member, polls(member.name), url, now, own, found))
    return views


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
    return s.Machine(
        name=machine.name,
        group=group.name,
        kind=group.kind.value,
        update_domain=machine.update_domain,
        fault_domain=machine.fault_domain,
        addresses=list(machine.addresses),
        host=machine.host,
        inventory_host=machine.inventory_host,
        disputed=bool(machine.disputed) and not machine.disputed_by_poll,
        polls_on=machine.disputed if machine.disputed_by_poll else "",
        drift=drift.kind.value if drift else None,
        seen_on=list(drift.hosts) if drift else [],
        spot=machine.spot,
        computer_name=machine.computer_name,
        vm_id=machine.vm_id,
        tags=machine.tags,
        gone=machine.gone,
        labels=dict(labels_of(group, machine)),
        size=_size(machine.size),
        metadata_url=url(machine),
        polls=polls.count if polls else 0,
        last_poll=to_datetime(polls.last) if polls else None,
        api_version=polls.version if polls else "",
        coverage=coverage_of(polls, now).value,
        not_back=None
        if machine.not_back is None
        else s.NotBack(event=machine.not_back.event, since=to_datetime(machine.not_back.since)),
        ignored_events=polls.ignored if polls else 0,
        last_answer=to_datetime(polls.answered) if polls and polls.answered is not None else None,
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
    return s.ControlNode(
        name=node.name,
        address=node.address,
        version=node.version,
        role="leads" if node.leads else "away" if node.away else "follows",
        lease=node.lease,
        commit=node.commit,
        lag=node.lag,
        started=to_datetime(node.started),
        seen=to_datetime(node.seen),
    )


def status_problem(problem: Problem) -> s.StatusProblem:
    return s.StatusProblem(
        kind=problem.kind.value,
        subject=problem.subject,
        message=problem.message,
        since=None if problem.since is None else to_datetime(problem.since),
        expires=None if problem.expires is None else to_datetime(problem.expires),
        advice=problem.advice,
    )


def coverage(counts: CoverageCounts) -> s.Coverage:
    return s.Coverage(**msgspec.structs.asdict(counts))


def group(group: Group, counts: CoverageCounts) -> s.Group:
    return s.Group(
        name=group.name,
        kind=group.kind.value,
        enabled=group.enabled,
        incarnation=group.incarnation,
        machines=[machine.name for machine in group.machines],
        spot=sum(machine.spot and machine.alive for machine in group.machines),
        labels=group.labels,
        location=group.place.location,
        zone=group.place.zone,
        resource_group=group.place.resource_group,
        subscription=group.place.subscription,
        scale_set=group.place.scale_set,
        flexible=group.place.flexible,
        events=[event.id for event in group.events],
        user_event_limit=group.policy.user_event_limit,
        auto_approve=[type.value for type in group.policy.auto_approve],
        all_instances_down=group.policy.all_instances_down,
        event_grid=group.policy.event_grid,
        terminate_notice=group.policy.terminate_notice / SECOND
        if group.policy.terminate_notice is not None
        else None,
        image_notice=group.policy.image_notice / SECOND
        if group.policy.image_notice is not None
        else None,
        coverage=coverage(counts),
        windows=[window.text for window in group.policy.windows],
        blackouts=[blackout.text for blackout in group.policy.blackouts],
        may_postpone=None if group.policy.may_postpone is None else str(group.policy.may_postpone),
        over_when=None if group.policy.over_when is None else group.policy.over_when.value,
        back_within=None if (back := group.policy.back_within) is None else back / SECOND,
    )


def event(event: Event) -> s.Event:
    return s.Event(
        id=event.id,
        group=event.group,
        type=event.type.value,
        status=event.status.value,
        source=event.source.value,
        machines=list(event.resources),
        update_domain=event.domain % DOMAINS,
        not_before=to_datetime(event.not_before),
        description=event.description,
        ticket=event.ticket,
        duration=event.duration,
        raised_at=to_datetime(event.raised_at),
        raised_by=event.by,
        listed=event.listed,
        unannounced=event.unannounced,
        host=event.host,
        cause=event.cause,
        joint=event.joint.id if event.joint else "",
        ready=[readiness.machine for readiness in event.ready],
        ignore_windows=event.ignore_windows,
        postponed=[
            s.Postponement(
                by=item.by,
                group=item.group,
                at=to_datetime(item.at),
                before=to_datetime(item.before),
                after=to_datetime(item.after),
            )
            for item in event.postponed
        ],
        waits_for=list(event.waiting.machines)
        if event.waiting is not None and not event.status.over
        else [],
        not_back=list(event.not_back),
        away=event.away,
        held=event.attempt.note if event.attempt is not None and event.attempt.stuck else "",
        targets=event.attempt.targets
        if event.attempt is not None and not event.status.over
        else {},
        approved=s.Approval(by=event.approved.by, at=to_datetime(event.approved.at))
        if event.approved
        else None,
        started_at=to_datetime(event.started_at) if event.started_at is not None else None,
        expected_end=to_datetime(end) if (end := event.expected_end) is not None else None,
        ended_at=to_datetime(event.ended_at) if event.ended_at is not None else None,
        ending=event.ending,
    )


def event_details(
    details: Event, shown: Shown, progress: str, polls: Callable[[str], MachinePolls | None]
) -> s.EventDetails:
    fields = msgspec.structs.asdict(event(details))
    not_warned, started = None, details.started_at
    if started is not None and shown.complete:
        not_warned = [n for n in details.resources if shown.since.get(n, started + 1) > started]
    done = details.waiting.since if details.waiting is not None else details.ended_at
    back = [] if done is None or started is None else _polled_since(details.resources, done, polls)
    return s.EventDetails(
        **fields,
        seen_by=_moments(shown.since),
        not_warned=not_warned,
        back=back,
        progress=progress,
    )


def _polled_since(
    names: Iterable[str], at: Time, polls: Callable[[str], MachinePolls | None]
) -> list[str]:
    known = {name: polls(name) for name in names}
    return [name for name, found in known.items() if found is not None and found.last >= at]


def _moments(times: Mapping[str, Time]) -> dict[str, datetime]:
    return {name: to_datetime(at) for name, at in times.items()}


def outcome(outcome: p.Outcome) -> s.Outcome:
    fields = msgspec.structs.asdict(event(outcome.event))
    return s.Outcome(**fields, notes=list(outcome.notes))


def outcomes(outcomes: p.Outcomes) -> s.Outcomes:
    return s.Outcomes(events=[event(item) for item in outcomes.events], notes=list(outcomes.notes))


def hosts(hosts: Iterable[Host], groups: Iterable[Group], known: Hosts) -> list[s.Host]:
    """Convert hosts, with their machines and events among these groups."""
    machines: dict[str, list[Machine]] = {}
    events: dict[str, list[Event]] = {}
    for group in groups:
        for machine in group.machines:
            if machine.host and machine.alive:
                machines.setdefault(machine.host, []).append(machine)
        for event in group.events:
            if event.host:
                events.setdefault(event.host, []).append(event)
    return [
        host(
            item,
            sorted(machines.get(item.name, []), key=lambda machine: machine.name),
            sorted(events.get(item.name, []), key=lambda e: (e.raised_at, e.group, e.id)),
            known,
        )
        for item in hosts
    ]


def host_node(node: HostNode) -> s.HostNode:
    return s.HostNode(
        state=node.state.value,
        since=None if node.since is None else to_datetime(node.since),
        version=node.version or None,
        lag=None if node.lag is None else node.lag / SECOND,
        heard=None if node.heard is None else to_datetime(node.heard),
        ended=node.ended or None,
    )


def host_driver(driver: HostDriver) -> s.HostDriver:
    return s.HostDriver(
        state=(NodeState.JOINED if driver.joined else NodeState.DISCONNECTED).value,
        since=to_datetime(driver.since),
        name=driver.name or None,
        version=driver.version or None,
    )


def _size(size: Size) -> s.Size | None:
    return None if size == NO_SIZE else s.Size(memory=size.memory, cpus=size.cpus)


def _capacity(capacity: Capacity) -> s.Capacity | None:
    if capacity == NO_CAPACITY:
        return None
    return s.Capacity(**msgspec.structs.asdict(capacity))


def host(host: Host, machines: list[Machine], events: list[Event], known: Hosts) -> s.Host:
    node, driver = known.node_of(host), known.driver_of(host)
    return s.Host(
        name=host.name,
        labels=host.labels,
        capacity=_capacity(host.capacity),
        health=host.health.value,
        since=to_datetime(host.since) if host.since is not None else None,
        note=host.note,
        cordoned=bool(host.cordoned),
        cordon_note=host.cordon_note,
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
    return s.HostExplanation(
        name=report.host.name,
        health=report.host.health.value,
        message=report.message,
        machines=list(report.machines),
        plans=[
            s.HostPlan(
                events=[event(item) for item in plan.events],
                message=plan.message,
                holds=[hold(item) for item in plan.holds],
            )
            for plan in report.plans
        ],
        others=[event(item) for item in report.others],
        if_drained=report.if_drained,
    )


def explanation(explanation: EventExplanation, operations: list[str]) -> s.Explanation:
    return s.Explanation(
        event=event(explanation.event),
        message=explanation.message,
        holds=[hold(item) for item in explanation.holds],
        seen_by=_moments(explanation.seen_by),
        advice=[
            s.Advice(kind=item.kind.value, event=item.event, moved=list(item.moved))
            for item in explanation.advice
        ],
        not_listening={
            name: None if at is None else to_datetime(at)
            for name, at in explanation.not_listening.items()
        },
        unheard=explanation.unheard,
        operations=operations,
    )


def hold(hold: Hold) -> s.Hold:
    return s.Hold(
        kind=hold.kind.value,
        message=hold.message,
        since=to_datetime(hold.since),
        until=to_datetime(hold.until) if hold.until is not None else None,
        waits_for=list(hold.waits_for),
        unblocked_by=hold.unblocked_by,
    )


def backup_contents(contents: Contents) -> s.BackupContents:
    return s.BackupContents(
        schema=contents.schema,
        commit=contents.commit,
        until=None if contents.at is None else to_datetime(contents.at),
        copied_at=None if contents.copied_at is None else to_datetime(contents.copied_at),
        groups=contents.groups,
        machines=contents.machines,
        active_events=contents.active_events,
        tokens=contents.tokens,
    )
