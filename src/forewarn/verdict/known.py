"""Who is who and what is going on: machines, clients and events, each within a bound.

What there is no room for is forgotten, the longest over first, and counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from forewarn.traces import lines
from forewarn.verdict.clients import Client
from forewarn.verdict.event_courses import EventCourse, MachineCourse
from forewarn.verdict.values import Unannounced

MAX_CLIENTS = 20_000  # machines that are kept account of
MAX_COURSES = 50_000  # machines' ways through events; half of them of machines that only look on
MAX_HAPPENINGS = 5_000  # events; as many again that were carried out unannounced
KEPT_OUTAGES = 64  # moments at which the service went or came, or its clock was stepped


class Known:
    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.happenings: dict[str, EventCourse] = {}
        self.active: dict[str, dict[str, EventCourse]] = {}  # by group
        self.spot: frozenset[str] = frozenset()
        self.outages: deque[float] = deque(maxlen=KEPT_OUTAGES)
        self.deserted = True  # nobody has asked for a document yet
        self.strangers = 0  # requests of nobody known
        self.forgotten_courses = 0
        self.crowded_out = 0  # requests of machines that there was no room for
        self._groups: dict[str, str] = {}  # of machines
        self._addresses: dict[str, str] = {}  # to machines
        self.unannounced: dict[str, Unannounced] = {}
        self._over: dict[str, None] = {}  # happenings that are, in that order
        self._ways = self._onlookers = 0

    def fleet(self, line: Mapping[str, Any]) -> None:
        said = line.get("machines")
        if not isinstance(said, dict):
            return
        groups, addresses, spot = {}, {}, set()
        for key, facts in said.items():
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
        """Whoever asks; None: nobody known, or nobody that there is room for."""
        name = machine or self._addresses.get(source, "")
        if not name:
            self.strangers += 1
            return None
        found = self.clients.get(name)
        if found is None:
            if len(self.clients) >= MAX_CLIENTS:
                self.crowded_out += 1
                return None
            found = self.clients[name] = Client(name, self.group_of(name))
        return found

    def happening(self, id: str, group: str, *, told: bool) -> EventCourse:
        found = self.happenings.get(id)
        if found is None:
            if len(self.happenings) >= MAX_HAPPENINGS:
                self._forget_one()
            found = self.happenings[id] = EventCourse(id, group, told=told)
            self.active.setdefault(group, {})[id] = found
        return found

    def carried_out_unannounced(self, event: Unannounced) -> None:
        """Remember an unannounced event, and that its machines may be silent because of it."""
        self.unannounced.setdefault(event.event, event)
        if len(self.unannounced) > MAX_HAPPENINGS:
            del self.unannounced[next(iter(self.unannounced))]
        for machine in event.machines:
            client = self.clients.get(machine)
            if client is not None:
                client.paused = True

    def way(self, happening: EventCourse, machine: str) -> MachineCourse | None:
        """None: there is no room for it."""
        found = happening.ways.get(machine)
        if found is None:
            looks_on = machine not in happening.machines
            while self._ways >= MAX_COURSES or (looks_on and self._onlookers >= MAX_COURSES // 2):
                if not self._over:
                    self.forgotten_courses += 1
                    return None
                self._forget_one()
            if happening.id not in self.happenings:
                return None  # it was its own turn
            self._ways += 1
            self._onlookers += looks_on
            found = happening.way(machine, self.clients.get(machine))
        return found

    def over(self, happening: EventCourse) -> None:
        if happening.id in self.happenings:
            self._over[happening.id] = None
        of_group = self.active.get(happening.group, {})
        of_group.pop(happening.id, None)
        if not of_group:
            self.active.pop(happening.group, None)

    def forget(self) -> None:
        """All that is over, and how anybody asked; what is going on is still known."""
        for id in [id for id, one in self.happenings.items() if one.over is not None]:
            self._drop(id)
        self.unannounced = {
            id: event for id, event in self.unannounced.items() if event.over is None
        }
        kept = {name: client.sights for name, client in self.clients.items()}
        self.clients = {name: Client(name, self.group_of(name)) for name in kept}
        for name, client in self.clients.items():
            client.sights = kept[name]
        for one in self.happenings.values():
            for way in one.ways.values():
                way.asks_visible = 0
                way.asks_started = None if one.started is None else 0
        self.deserted = False  # nor is that held against anybody
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
                f"{self.forgotten_courses} times a way of a machine through an event was forgotten"
                f" or left out; there is room for {MAX_COURSES:,}"
            )

    def _forget_one(self) -> None:
        """The one that has been over longest; if none is, the one that was known first."""
        found = self._drop(next(iter(self._over or self.happenings)))
        self.over(found)
        self.forgotten_courses += len(found.ways)

    def _drop(self, id: str) -> EventCourse:
        found = self.happenings.pop(id)
        self._over.pop(id, None)
        self._ways -= len(found.ways)
        self._onlookers -= sum(not way.concerned for way in found.ways.values())
        return found
