"""The machines, clients and events in the lines read so far, up to a limit each.

Beyond the limits, the events that ended first are forgotten; remarks count what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from forewarn.traces import lines
from forewarn.traces.exchanges import Stamp
from forewarn.verdict.clients import Client
from forewarn.verdict.event_courses import EventCourse, MachineCourse
from forewarn.verdict.rules import MIN_RESTART_SECONDS, RESTART_SECONDS
from forewarn.verdict.values import Unannounced

MAX_CLIENTS = 20_000  # machines
MAX_COURSES = (
    50_000  # of events on machines; at most half of them of machines that are not affected
)
MAX_EVENTS = 5_000  # events; as many again that were carried out unannounced


class Observed:
    """What an observer has learned from a trace."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.events: dict[str, EventCourse] = {}
        self.active: dict[str, dict[str, EventCourse]] = {}  # by group
        self.spot: frozenset[str] = frozenset()
        self.restart_seconds = RESTART_SECONDS  # at the service's speed
        self._disconnected: set[str] = set()  # machines whose node control cannot reach
        self.nobody_polled = True  # no client has polled yet
        self.unknown_callers = 0  # requests from addresses of no machine
        self.dropped_courses = 0
        self.dropped_requests = 0  # requests of machines beyond MAX_CLIENTS
        self._groups: dict[str, str] = {}  # machine -> group
        self._addresses: dict[str, str] = {}  # address -> machine
        self.unannounced: dict[str, Unannounced] = {}
        self._ended: dict[str, None] = {}  # ids of events that have ended, in order
        self._courses = self._unaffected_courses = 0

    def fleet(self, line: Mapping[str, Any]) -> None:
        machines = line.get("machines")
        if not isinstance(machines, dict):
            return
        speed = max(lines.number(line.get("speed")) or 1.0, 1.0)
        self.restart_seconds = max(MIN_RESTART_SECONDS, RESTART_SECONDS / speed)
        groups, addresses, spot = {}, {}, set()
        for key, facts in machines.items():
            if not (name := lines.name(key)) or not isinstance(facts, dict):
                continue
            groups[name] = lines.name(facts.get("group"))
            listed = facts.get("addresses")
            for address in listed if isinstance(listed, list | tuple) else ():
                if isinstance(address, str):
                    addresses[address] = name
            if facts.get("spot") is True:
                spot.add(name)
        self._groups, self._addresses, self.spot = groups, addresses, frozenset(spot)
        for name, client in self.clients.items():
            client.group = groups.get(name, client.group)

    def is_gone(self, machine: str) -> bool:
        """Return whether the machine was deleted. Without a fleet, none is."""
        return bool(self._groups) and machine not in self._groups

    def group_of(self, machine: str) -> str:
        return self._groups.get(machine, "")

    def client(self, machine: str, source: str) -> Client | None:
        """Return the client of a machine; None if it is unknown, or if there is no room for it."""
        name = machine or self._addresses.get(source, "")
        if not name:
            self.unknown_callers += 1
            return None
        client = self.clients.get(name)
        if client is None:
            if len(self.clients) >= MAX_CLIENTS:
                self.dropped_requests += 1
                return None
            client = self.clients[name] = Client(name, self.group_of(name))
        return client

    def events_by_machine(self) -> dict[str, list[EventCourse]]:
        """Return the events of each machine that an event names."""
        events: dict[str, list[EventCourse]] = {}
        for event in self.events.values():
            for machine in event.machines:
                events.setdefault(machine, []).append(event)
        return events

    def event_course(self, id: str, group: str) -> EventCourse:
        event_course = self.events.get(id)
        if event_course is None:
            if len(self.events) >= MAX_EVENTS:
                self._forget_one()
            event_course = self.events[id] = EventCourse(id, group, self.clients)
            self.active.setdefault(group, {})[id] = event_course
        return event_course

    def carried_out_unannounced(self, event: Unannounced) -> None:
        """Remember an unannounced event, and that its machines may be silent because of it."""
        self.unannounced.setdefault(event.event, event)
        if len(self.unannounced) > MAX_EVENTS:
            del self.unannounced[next(iter(self.unannounced))]
        for machine in event.machines:
            client = self.clients.get(machine)
            if client is not None:
                client.paused = client.away = True

    def machine_course(self, event: EventCourse, machine: str) -> MachineCourse | None:
        """Return a machine's course through an event; None if there is no room for it."""
        course = event.machine_courses.get(machine)
        if course is None:
            unaffected = machine not in event.machines
            while self._courses >= MAX_COURSES or (
                unaffected and self._unaffected_courses >= MAX_COURSES // 2
            ):
                if not self._ended:
                    self.dropped_courses += 1
                    return None
                self._forget_one()
            if event.id not in self.events:
                return None  # the event itself was forgotten
            self._courses += 1
            self._unaffected_courses += unaffected
            course = event.machine_course(machine)
            course.disconnected = machine in self._disconnected
        return course

    def set_disconnected(self, machines: Iterable[str]) -> None:
        """Excuse machines whose node control cannot reach: they may not be shown everything."""
        for machine in machines:
            if len(self._disconnected) < MAX_CLIENTS:
                self._disconnected.add(machine)
            for events in self.active.values():
                for event in events.values():
                    course = event.machine_courses.get(machine)
                    if course is not None and event.started is None:
                        course.disconnected = True

    def set_joined(self, machines: Iterable[str]) -> None:
        self._disconnected.difference_update(machines)

    def interrupt(self, now: Stamp) -> None:
        """Excuse everybody: the service stopped or started, or its clock was stepped."""
        for events in self.active.values():
            for event in events.values():
                event.interrupted = event.interrupted or event.started is None
        for client in self.clients.values():
            client.pause(now)

    def end_event(self, event: EventCourse) -> None:
        if event.id in self.events:
            self._ended[event.id] = None
        of_group = self.active.get(event.group, {})
        of_group.pop(event.id, None)
        if not of_group:
            self.active.pop(event.group, None)

    def forget(self) -> None:
        """Forget events that have ended and how clients polled; keep active events."""
        for id in [id for id, event in self.events.items() if event.over is not None]:
            self._drop(id)
        self.unannounced = {
            id: event for id, event in self.unannounced.items() if event.over is None
        }
        documents = {name: client.documents for name, client in self.clients.items()}
        for name in documents:  # in place: events know the clients, too
            client = self.clients[name] = Client(name, self.group_of(name))
            client.documents = documents[name]
        for event in self.events.values():
            for machine_course in event.machine_courses.values():
                machine_course.polls_visible = 0
        self.nobody_polled = False  # no reason to complain any more
        self.unknown_callers = self.dropped_courses = self.dropped_requests = 0

    def remarks(self) -> Iterator[str]:
        if self.unknown_callers:
            requests = "request came" if self.unknown_callers == 1 else "requests came"
            yield f"{self.unknown_callers} {requests} from addresses of no machine"
        if self.dropped_requests:
            yield (
                f"{self.dropped_requests} requests were ignored, since only {MAX_CLIENTS:,}"
                " machines are remembered"
            )
        if self.dropped_courses:
            yield (
                f"{self.dropped_courses} courses of events on machines were forgotten, since only"
                f" {MAX_COURSES:,} are remembered"
            )

    def _forget_one(self) -> None:
        """Forget the event that ended first or, if none has ended, the oldest."""
        event = self._drop(next(iter(self._ended or self.events)))
        self.end_event(event)
        self.dropped_courses += len(event.machine_courses)

    def _drop(self, id: str) -> EventCourse:
        event = self.events.pop(id)
        self._ended.pop(id, None)
        self._courses -= len(event.machine_courses)
        self._unaffected_courses -= sum(
            not machine_course.concerned for machine_course in event.machine_courses.values()
        )
        return event
