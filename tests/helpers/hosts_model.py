"""A service with a node on each host, as a model of a few lines that writes its own trace: lines to
hosts are cut and healed, and life goes on elsewhere. Honest, unless a test breaks it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from helpers.judge_traces import FLEET, T0, Event, Recording, event, started

NOTICE: Final = 900.0
GRACE: Final = 60.0
READ_LEASE: Final = 9.0  # for how long control goes on relying on a node that it does not hear
MACHINES: Final = ("web_0", "web_1", "web_2")  # each on a host of its own
DOMAINS: Final = {name: FLEET["machines"][name]["update_domain"] for name in MACHINES}
HOSTS: Final = {name: f"h{number}" for number, name in enumerate(MACHINES)}


@dataclass
class Planned:
    """An event, as control knows it."""

    id: str
    machine: str
    not_before: float
    approved: bool = False
    started: bool = False
    carried_out: bool = False

    def shown(self) -> Event:
        listed = event(self.id, resources=[self.machine], not_before=self.not_before)
        return started(listed) if self.started else listed


@dataclass
class Node:
    """A node, and the documents that it was told, the last of which it shows."""

    reported: list[tuple[int, tuple[Event, ...]]] = field(default_factory=lambda: [(1, ())])
    cut: bool = False
    disconnected: bool = False  # as the node itself knows
    known_at: float | None = None  # when control knows
    back: float | None = None  # when it joined again


class World:
    """`broken` is what this service does wrong."""

    def __init__(self, seed: int, broken: str = "") -> None:
        self._random = Random(seed)
        self._broken = broken
        self._t = T0
        self._incarnation = 1
        self._events: list[Planned] = []
        self._raised = 0
        self._nodes = {name: Node() for name in MACHINES}
        self.recording = Recording(grace=GRACE).hosts(T0 - 5, **HOSTS)

    def run(self, steps: int = 150) -> Recording:
        actions: list[tuple[Callable[[str], None], int]] = [
            (self._poll, 8),
            (self._raise, 2),
            (self._approve, 3),
            (self._finish, 3),
            (self._withdraw, 1),
            (self._cut, 1),
            (self._heal, 2),
            (self._restart, 1),
        ]
        for _ in range(steps):
            self._pass(self._random.choice((0.3, 1.0, 5.0, 30.0, 120.0)))
            (action,) = self._random.choices(*zip(*actions, strict=True))
            action(self._random.choice(MACHINES))
            self._settle()
        return self.recording

    # Time.

    def _pass(self, seconds: float) -> None:
        self._t += seconds
        for name, node in self._nodes.items():
            if node.cut and not node.disconnected:  # its promise has run out
                node.disconnected = True
                self.recording.disconnected(self._t, name, host=HOSTS[name])
        self._settle()

    def _is_known(self, node: Node) -> bool:
        return node.known_at is not None and node.known_at <= self._t

    # What control decides.

    def _settle(self) -> None:
        """Start what nothing holds, and carry out what is shown on the host of its machine."""
        while event := next((event for event in self._events if self._may_start(event)), None):
            event.started = True
            self.recording.moved(self._t, "start", event.id, machines=[event.machine])
            self._publish()
        for event in self._events:
            reached = not self._nodes[event.machine].cut or self._broken == "carries out unshown"
            if event.started and not event.carried_out and reached:
                event.carried_out = True
                self._t += self._random.choice((1, 10))
                self.recording.impact(self._t, event.id, [event.machine])

    def _may_start(self, event: Planned) -> bool:
        node = self._nodes[event.machine]
        domain, machine = DOMAINS[event.machine], event.machine
        others = [other.machine for other in self._events if other.started]
        if event.started or any(machine == o or domain != DOMAINS[o] for o in others):
            return False
        if self._is_known(node) and self._broken != "starts while disconnected":
            return False
        grace = 0.0 if node.back is None or self._broken == "gives no grace" else node.back + GRACE
        due = self._t >= max(event.not_before, grace)
        return event.approved or due

    def _publish(self) -> None:
        """Show a change everywhere, when those that are not heard can be left out."""
        self._incarnation += 1
        silent = [node.known_at for node in self._nodes.values() if node.known_at is not None]
        self._pass(max(0.0, *(at - self._t for at in silent), 0.0))
        document = self._incarnation, tuple(event.shown() for event in self._events)
        for node in self._nodes.values():
            if not node.cut:
                node.reported.append(document)

    def _raise(self, machine: str) -> None:
        self._raised += 1
        id = f"{self._raised:08X}-0000-4000-8000-000000000000"
        event = Planned(id, machine, float(int(self._t) + 1 + NOTICE + READ_LEASE))
        self._events.append(event)
        self.recording.moved(self._t, "raise", id, machines=[machine])
        self._publish()

    def _finish(self, _machine: str) -> None:
        self._end("finish", [event for event in self._events if event.carried_out])

    def _withdraw(self, _machine: str) -> None:
        self._end("withdraw", [event for event in self._events if not event.started])

    def _end(self, move: str, events: list[Planned]) -> None:
        if events:
            event = self._random.choice(events)
            self._events.remove(event)
            self.recording.moved(self._t, move, event.id, machines=[event.machine])
            self._publish()

    # What guests ask.

    def _exchanged(self, machine: str) -> dict[str, Any]:
        self._t += 0.01
        return {"machine": machine, "host": HOSTS[machine]}

    def _poll(self, machine: str) -> None:
        incarnation, events = self._nodes[machine].reported[-1]
        self.recording.see(self._t, incarnation, *events, **self._exchanged(machine))

    def _approve(self, machine: str) -> None:
        node = self._nodes[machine]
        listed = [entry["EventId"] for entry in node.reported[-1][1] if entry["NotBefore"] != ""]
        if not listed:
            return
        id = self._random.choice(listed)
        if node.cut and self._broken != "accepts while disconnected":
            self.recording.approve(self._t, id, status=500, **self._exchanged(machine))
            return
        asked = self._t
        if not node.cut:
            for event in self._events:
                event.approved = event.approved or event.id == id
            self._settle()
        self.recording.approve(self._t, id, asked=asked, **self._exchanged(machine))

    # What becomes of lines and nodes.

    def _cut(self, machine: str) -> None:
        node = self._nodes[machine]
        if not node.cut:
            node.cut, node.known_at = True, self._t + READ_LEASE

    def _heal(self, machine: str) -> None:
        node = self._nodes[machine]
        if not (node.cut and node.disconnected and self._is_known(node)):
            return
        node.cut = node.disconnected = False
        node.known_at, node.back = None, self._t
        if self._broken != "joins without what it missed":
            document = self._incarnation, tuple(event.shown() for event in self._events)
            node.reported.append(document)
        self.recording.joined(self._t, machine, host=HOSTS[machine])
        self._t += 0.01

    def _restart(self, machine: str) -> None:
        node = self._nodes[machine]
        self.recording.note({"kind": "up", "t": self._t, "host": HOSTS[machine]})
        if node.disconnected:  # it goes on with its journal, and says again that it is disconnected
            self.recording.disconnected(self._t, machine, host=HOSTS[machine])
            if self._broken == "forgets its journal":
                del node.reported[len(node.reported) // 2 :]
                node.reported = node.reported or [(1, ())]
