"""Metrics of the fleet, counted with every commit instead of by walking through the fleet.

The numbers of machines, groups, hosts, rollouts and events, and what has become of events since
the process started. No name or id is ever a label.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from forewarn.core import Event, EventType, Group, Machine, Status
from forewarn.core.changes import EventMoved
from forewarn.core.events import Source
from forewarn.core.fleet import Health, Host
from forewarn.core.lifecycle import Move
from forewarn.core.registry import HostPut, HostRemoved, RolloutPut, RolloutRemoved
from forewarn.core.rollouts.model import BY_ITSELF, Rollout
from forewarn.core.time import SECOND, Time
from forewarn.service.indexes.coverage import Coverage, CoverageCounts, count_all
from forewarn.service.indexes.polls import PollIndex
from forewarn.service.telemetry.samples import Histogram, Histograms, Sample, counter, gauge
from forewarn.store.port import Commit, Store

NOTICES = (30.0, 60.0, 300.0, 600.0, 900.0, 3_600.0, 21_600.0, 86_400.0, 604_800.0)  # seconds
TYPES = tuple(type.value for type in EventType)
ACTIVE = ("scheduled", "started")
ENDINGS = ("finished", "withdrawn")
APPROVERS = ("guest", "operator", "policy", "nobody")
ROLLOUTS = ("running", "paused", "aborted", "ended")
# Machines of a group; whether it is enabled; and how many are alive, gone, have addresses, and are
# not back.
Counted: TypeAlias = tuple[tuple[Machine, ...], bool, int, int, int, int]


class FleetCounts:
    def __init__(self, store: Store, poll_index: PollIndex) -> None:
        self._store = store
        self._poll_index = poll_index
        self._groups: dict[str, Counted] = {}
        self._enabled: Counter[bool] = Counter()
        self._machines: Counter[str] = Counter()
        self._callers = 0
        self.not_back = 0  # machines
        self._hosts: dict[str, Health] = {}
        self._health: Counter[Health] = Counter()
        self._cordoned: set[str] = set()
        self._rollouts: dict[str, str] = {}
        self._events: dict[str, tuple[str, str]] = {}  # active ones: state and type
        self._active: Counter[tuple[str, str]] = Counter()
        self._held: set[str] = set()  # wait for an operator
        self._expected_ends: dict[str, Time] = {}  # of started events
        self._self_paused: set[str] = set()  # rollouts
        self._not_before: dict[str, Time] = {}  # of scheduled events
        self._deadlines: dict[str, list[tuple[Time, str]]] = {type: [] for type in TYPES}
        self._raised: Counter[tuple[str, str]] = Counter()
        self._ended: Counter[tuple[str, str]] = Counter()
        self._approvals: Counter[str] = Counter()
        self._notice = {type: Histogram(NOTICES) for type in TYPES}
        store.on_commit(self._on_commit)

    def load(self) -> None:
        for group in self._store.groups.values():
            self._count(group)
            for event in group.events:
                self._count_event(event)
        for host in self._store.registry.hosts.values():
            self._host(host.name, host)
        for rollout in self._store.registry.rollouts.values():
            self._rollout(rollout)

    def notice_left(self, now: Time) -> Iterator[tuple[str, float]]:
        """Yield the seconds until the first NotBefore of scheduled events, by type; fewer than 0 if
        it has passed."""
        for type, heap in self._deadlines.items():
            while heap and self._not_before.get(heap[0][1]) != heap[0][0]:
                heapq.heappop(heap)
            if heap:
                yield type, (heap[0][0] - now) / SECOND

    def coverage(self, now: Time) -> CoverageCounts:
        return count_all(self._poll_index, self._machines["present"], now)

    def readings(self, now: Time) -> Iterator[Sample | Histograms]:
        yield gauge(
            "forewarn_groups",
            "Groups that have machines, by whether they listen",
            {("true",): self._enabled[True], ("false",): self._enabled[False]},
            "enabled",
        )
        yield gauge(
            "forewarn_machines",
            "Machines in the inventory, by whether they are present or gone",
            {(state,): self._machines[state] for state in ("present", "gone")},
            "state",
        )
        coverage = self.coverage(now)
        yield gauge(
            "forewarn_machine_coverage",
            "Machines by whether they have asked in the last hour, before that, or never",
            {
                (Coverage.LISTENING.value,): coverage.listening,
                (Coverage.SILENT.value,): coverage.silent,
                (Coverage.NEVER_POLLED.value,): coverage.never_polled,
            },
            "coverage",
        )
        yield gauge(
            "forewarn_machines_never_approving",
            "Machines that were shown events of their own and have never approved one",
            {(): coverage.never_approves},
        )
        yield gauge(
            "forewarn_machines_not_back",
            "Machines that have not polled since an event was carried out on them",
            {(): self.not_back},
        )
        yield gauge(
            "forewarn_callers",
            "Addresses from which machines may query the endpoint",
            {(): self._callers},
        )
        yield gauge(
            "forewarn_hosts",
            "Hosts, by health",
            {(health.value,): self._health[health] for health in Health},
            "health",
        )
        yield gauge(
            "forewarn_hosts_cordoned",
            "Hosts to which no machine is moved",
            {(): len(self._cordoned)},
        )
        yield gauge(
            "forewarn_rollouts",
            "Rollouts in the state, by state",
            {(s,): list(self._rollouts.values()).count(s) for s in ROLLOUTS},
            "state",
        )
        yield gauge(
            "forewarn_rollouts_self_paused",
            "Rollouts that have paused themselves and wait for an operator",
            {(): len(self._self_paused)},
        )
        yield gauge(
            "forewarn_unknown_callers",
            "Addresses that belong to no machine and have asked in the last hour",
            {(): self._poll_index.unknown_callers.recent(now)},
        )
        yield gauge(
            "forewarn_halts",
            "Halts that stand: what they cover does not start",
            {(): len(self._store.registry.halts)},
        )
        yield from self._event_metrics(now)

    def _event_metrics(self, now: Time) -> Iterator[Sample | Histograms]:
        yield gauge(
            "forewarn_events",
            "Events that are not over, by state and type",
            {(state, type): self._active[state, type] for state in ACTIVE for type in TYPES},
            "state",
            "type",
        )
        yield gauge(
            "forewarn_events_held",
            "Events of which it is unknown whether they were carried out",
            {(): len(self._held)},
        )
        first_end = min(self._expected_ends.values(), default=now)
        yield gauge(
            "forewarn_started_overdue_seconds",
            "Longest time since a started event should have been over; 0 if there is none",
            {(): max(0, now - first_end) / SECOND},
        )
        yield gauge(
            "forewarn_notice_left_seconds",
            "Time until the first NotBefore of a scheduled event, by type; negative if past",
            {(type,): left for type, left in self.notice_left(now)},
            "type",
        )
        yield Histograms(
            "forewarn_notice_seconds",
            "Notice with which events were announced, by type",
            ("type",),
            [((type,), histogram) for type, histogram in self._notice.items()],
        )
        yield counter(
            "forewarn_events_raised",
            "Events that were announced, or started without notice, by type and source",
            {(t, s.value): self._raised[t, s.value] for t in TYPES for s in Source},
            "type",
            "source",
        )
        yield counter(
            "forewarn_events_ended",
            "Events that are over, by type and ending",
            {(type, ending): self._ended[type, ending] for type in TYPES for ending in ENDINGS},
            "type",
            "ending",
        )
        yield counter(
            "forewarn_approvals",
            "Approvals of events, by who gave them",
            {(by,): self._approvals[by] for by in APPROVERS},
            "by",
        )

    def _on_commit(self, commit: Commit, changed: Mapping[str, Group]) -> None:
        for group in changed.values():
            self._count(group)
        for put in commit.puts:
            match put:
                case HostPut(host=host):
                    self._host(host.name, host)
                case HostRemoved(name=name):
                    self._host(name, None)
                case RolloutPut(rollout=rollout):
                    self._rollout(rollout)
                case RolloutRemoved(id=id):
                    self._rollouts.pop(id, None)
                    self._self_paused.discard(id)
        for entry in commit.entries:
            for item in entry.items:
                if isinstance(item, EventMoved):
                    self._moved(item)

    def _moved(self, item: EventMoved) -> None:
        event = item.event
        type = event.type.value
        if item.what in (Move.RAISE, Move.FAIL):
            self._raised[type, event.source.value] += 1
        if item.what is Move.RAISE:
            self._notice[type].add((event.not_before - event.raised_at) / SECOND)
        may_approve = item.what is Move.APPROVE or item.what is Move.RAISE
        if may_approve and event.approved is not None:
            self._approvals[event.approved.kind.value] += 1
        self._count_event(event)

    def _count_event(self, event: Event) -> None:
        before = self._events.get(event.id)
        if before is not None:
            self._active[before] -= 1
        state, type = event.status.value.lower(), event.type.value
        if event.status.over:
            if self._events.pop(event.id, None) is not None:
                self._ended[type, state] += 1
        else:
            self._events[event.id] = state, type
            self._active[state, type] += 1
        if event.status is not Status.SCHEDULED:
            self._not_before.pop(event.id, None)
        elif self._not_before.get(event.id) != event.not_before:  # new, or postponed
            self._not_before[event.id] = event.not_before
            heapq.heappush(self._deadlines[type], (event.not_before, event.id))
        carried_out = event.waiting is not None
        if event.status is Status.STARTED and event.expected_end is not None and not carried_out:
            self._expected_ends[event.id] = event.expected_end
        else:
            self._expected_ends.pop(event.id, None)
        (self._held.add if event.held else self._held.discard)(event.id)

    def _count(self, group: Group) -> None:
        before = self._groups.get(group.name)
        if before is not None and before[0] is group.machines and before[1] is group.enabled:
            return
        if before is not None:
            self._sum(before, -1)
            del self._groups[group.name]
        if not group.machines:
            return
        if before is not None and before[0] is group.machines:
            counted = (group.machines, group.enabled, *before[2:])
        else:
            alive = [machine for machine in group.machines if machine.alive]
            callers = sum(len(machine.addresses) for machine in alive)
            gone = len(group.machines) - len(alive)
            lost = sum(machine.not_back is not None for machine in alive)
            counted = (group.machines, group.enabled, len(alive), gone, callers, lost)
        self._groups[group.name] = counted
        self._sum(counted, +1)

    def _sum(self, counted: Counted, sign: int) -> None:
        _, enabled, alive, gone, callers, lost = counted
        self._enabled[enabled] += sign
        self._machines["present"] += sign * alive
        self._machines["gone"] += sign * gone
        self._callers += sign * callers
        self.not_back += sign * lost

    def _rollout(self, rollout: Rollout) -> None:
        state = self._rollouts[rollout.id] = _state(rollout)
        by_itself = rollout.paused is not None and rollout.paused.by == BY_ITSELF
        waits = state == "paused" and by_itself
        (self._self_paused.add if waits else self._self_paused.discard)(rollout.id)

    def _host(self, name: str, host: Host | None) -> None:
        before = self._hosts.pop(name, None)
        if before is not None:
            self._health[before] -= 1
        self._cordoned.discard(name)
        if host is not None:
            self._hosts[name] = host.health
            self._health[host.health] += 1
            if host.cordoned:
                self._cordoned.add(name)


def _state(rollout: Rollout) -> str:
    if rollout.ended_at is not None:
        return "ended"
    if rollout.aborted is not None:
        return "aborted"
    return "paused" if rollout.paused is not None else "running"
