"""The machines, clients and events that a verdict knows, each within a bound.

What there is no room for is forgotten, beginning with what has been over longest, and counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from forewarn.traces import lines
from forewarn.verdict.clients import Client
from forewarn.verdict.event_courses import EventCourse, MachineCourse
from forewarn.verdict.values import Unannounced

MAX_CLIENTS = 20_000  # machines
MAX_COURSES = 50_000  # machines' courses through events; half of them of machines that only look on
MAX_EVENTS = 5_000  # events; as many again that were carried out unannounced
KEPT_OUTAGES = 64  # moments at which the service went or came, or its clock was stepped


class Known:
    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.events: dict[str, EventCourse] = {}
        self.active: dict[str, dict[str, EventCourse]] = {}  # by group
        self.spot: frozenset[str] = frozenset()
        self.outages: deque[float] = deque(maxlen=KEPT_OUTAGES)
        self.nobody_polled = True  # no client has polled yet
        self.strangers = 0  # requests from addresses that are no machine's
        self.forgotten_courses = 0
        self.crowded_out = 0  # requests of machines that there was no room for
        self._groups: dict[str, str] = {}  # of machines
        self._addresses: dict[str, str] = {}  # to machines
        self.unannounced: dict[str, Unannounced] = {}
        self._over: dict[str, None] = {}  # ids of events that are over, in that order
        self._courses = self._onlookers = 0

    def fleet(self, line: Mapping[str, Any]) -> None:
        machines = line.get("machines")
        if not isinstance(machines, dict):
            return
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

    def group_of(self, machine: str) -> str:
        return self._groups.get(machine, "")

    def client(self, machine: str, source: str) -> Client | None:
        """Return the client of a machine; None if it is unknown, or if there is no room for it."""
        name = machine or self._addresses.get(source, "")
        if not name:
            self.strangers += 1
            return None
        client = self.clients.get(name)
        if client is None:
            if len(self.clients) >= MAX_CLIENTS:
                self.crowded_out += 1
                return None
            client = self.clients[name] = Client(name, self.group_of(name))
        return client

    def event_course(self, id: str, group: str, *, recorded: bool) -> EventCourse:
        event_course = self.events.get(id)
        if event_course is None:
            if len(self.events) >= MAX_EVENTS:
                self._forget_one()
            event_course = self.events[id] = EventCourse(id, group, recorded=recorded)
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
                client.paused = True

    def machine_course(self, event: EventCourse, machine: str) -> MachineCourse | None:
        """Return a machine's course through an event; None if there is no room for it."""
        course = event.machine_courses.get(machine)
        if course is None:
            looks_on = machine not in event.machines
            while self._courses >= MAX_COURSES or (
                looks_on and self._onlookers >= MAX_COURSES // 2
            ):
                if not self._over:
                    self.forgotten_courses += 1
                    return None
                self._forget_one()
            if event.id not in self.events:
                return None  # the event itself was forgotten
            self._courses += 1
            self._onlookers += looks_on
            course = event.machine_course(machine, self.clients.get(machine))
        return course

    def over(self, event: EventCourse) -> None:
        if event.id in self.events:
            self._over[event.id] = None
        of_group = self.active.get(event.group, {})
        of_group.pop(event.id, None)
        if not of_group:
            self.active.pop(event.group, None)

    def forget(self) -> None:
        """Forget what is over and how clients polled; keep what is active."""
        for id in [id for id, event in self.events.items() if event.over is not None]:
            self._drop(id)
        self.unannounced = {
            id: event for id, event in self.unannounced.items() if event.over is None
        }
        kept = {name: client.documents for name, client in self.clients.items()}
        self.clients = {name: Client(name, self.group_of(name)) for name in kept}
        for name, client in self.clients.items():
            client.documents = kept[name]
        for event in self.events.values():
            for machine_course in event.machine_courses.values():
                machine_course.polls_visible = 0
                machine_course.polls_started = None if event.started is None else 0
        self.nobody_polled = False  # from now on that is no complaint
        self.strangers = self.forgotten_courses = self.crowded_out = 0

    def remarks(self) -> Iterator[str]:
        if self.strangers:
            came = "request came" if self.strangers == 1 else "requests came"
            yield f"{self.strangers} {came} from addresses that are no machine's"
        if self.crowded_out:
            yield (
                f"{self.crowded_out} requests of machines beyond the first {MAX_CLIENTS:,} are"
                " left out"
            )
        if self.forgotten_courses:
            yield (
                f"{self.forgotten_courses} times the course of a machine through an event was"
                f" forgotten or left out; there is room for {MAX_COURSES:,}"
            )

    def _forget_one(self) -> None:
        """Forget the event that has been over longest or, if none is over, the oldest."""
        event = self._drop(next(iter(self._over or self.events)))
        self.over(event)
        self.forgotten_courses += len(event.machine_courses)

    def _drop(self, id: str) -> EventCourse:
        event = self.events.pop(id)
        self._over.pop(id, None)
        self._courses -= len(event.machine_courses)
        self._onlookers -= sum(
            not machine_course.concerned for machine_course in event.machine_courses.values()
        )
        return event
