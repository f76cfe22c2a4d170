"""Real clients that poll in threads, while the clock is moved at random over random fleets.

A client that polls is never accused, and one that stops is always found.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from forewarn.testing import Event, Machine, RefusedError, Service
from forewarn.testing.names import EventType
from forewarn.verdict.verdict import Verdict
from helpers.examples import examples
from helpers.polling_threads import Client
from helpers.waiting import until

PATIENT = 60.0  # real seconds: no client that polls is given up, however busy the computer is
SHORT = 0.5  # real seconds for which a client is waited for that has stopped
STEPS = 8
NOTICED: tuple[EventType, ...] = ("Freeze", "Reboot", "Redeploy")
CLIENTS = 3
DRAINS = (0.0, 0.02, 0.3)  # real seconds for which a client drains before it approves
REACTS = 0.4  # real seconds that it gets for that; half of them never approve


class World:
    """A service with a random fleet, and clients on some of its machines."""

    def __init__(self, service: Service, chance: random.Random, timeout: float) -> None:
        self.service, self.chance, self.timeout = service, chance, timeout
        self.clients: dict[str, Client] = {}
        self.lasting = ""  # a machine that is not removed
        groups = [
            service.scale_set("web", chance.randint(1, 4)),
            service.scale_set("spot", chance.randint(1, 3), spot=True),
            service.availability_set("sql", chance.randint(1, 3)),
            [service.machine("jumpbox")],
        ]
        chosen = chance.sample(groups, chance.randint(1, len(groups)))
        self.machines = [machine for group in chosen for machine in group]

    @contextmanager
    def polled(self) -> Iterator[None]:
        with ExitStack() as stack:
            count = self.chance.randint(1, min(CLIENTS, len(self.machines)))
            for machine in self.chance.sample(self.machines, count):
                self.clients[machine.name] = stack.enter_context(self.client(machine.name))
                if self.chance.random() < 0.5:
                    machine.wait_for_poll()
            yield

    def client(self, machine: str) -> Client:
        approves = self.chance.random() < 0.5
        drains = self.chance.choice(DRAINS)
        drained: dict[str, threading.Event] = {}

        def is_drained(event: str) -> bool:
            """It drains in the background, and goes on polling."""
            if event not in drained:
                drained[event] = threading.Event()
                timer = threading.Timer(drains, drained[event].set)
                timer.daemon = True
                timer.start()
            return drained[event].is_set()

        def act(client: Client, document: Any) -> None:
            for event in document["Events"]:
                own = machine in event["Resources"] and event["EventType"] != "Freeze"
                if approves and own and (not drains or is_drained(event["EventId"])):
                    client.approve({"Events": [event]})

        return Client(
            self.service,
            machine,
            conditional=self.chance.random() < 0.5,
            pause=self.chance.choice((0.001, 0.005, 0.02)),
            act=act,
        )

    def live(self, steps: int) -> None:
        for _ in range(steps):
            if self.chance.random() < 0.7:
                self.happen()
            self.move()

    def happen(self) -> None:
        machine = self.chance.choice(self.machines)
        try:
            match self.chance.randrange(8):
                case 0 if "spot" in machine.name and machine.name != self.lasting:
                    machine.evict()
                case 1 if machine.name != self.lasting:
                    machine.delete()
                case 2:
                    machine.fail()
                case 3 if events := self.scheduled():
                    self.chance.choice(events).cancel()
                case 4:
                    machine.restart()
                case _:
                    machine.schedule(self.chance.choice(NOTICED))
        except RefusedError:  # it is gone, or has such an event already
            return

    def move(self) -> None:
        clock = self.service.clock
        span = self.chance.choice((1, 60, 600, 900, 3_600))
        match self.chance.randrange(5):
            case 0:
                clock.play(span, timeout=self.timeout, reaction_time=REACTS)
            case 1 if events := self.scheduled():
                self.try_to(self.chance.choice(events), "until_started")
            case 2 if events := self.service.events:
                self.try_to(self.chance.choice(events), "until_over")
            case 3:
                clock.play(0, timeout=self.timeout, reaction_time=REACTS)
                began = clock.now
                clock.resume(speed=3_600)
                until(lambda: (clock.now - began).total_seconds() >= 60)
                clock.pause()
            case _:
                for _ in range(self.chance.randint(1, 3)):
                    self.let_poll()
                    clock.advance(span)
        self.let_poll()

    def try_to(self, event: Event, verb: str) -> None:
        try:
            getattr(event, verb)(timeout=self.timeout, reaction_time=REACTS)
        except RefusedError:  # an approval has ended it meanwhile, or another event holds it
            return

    def let_poll(self) -> None:
        for client in self.clients.values():
            client.polls(2)

    def scheduled(self) -> list[Event]:
        return [event for event in self.service.events if event.status == "Scheduled"]

    def finish(self) -> Verdict:
        for event in self.service.events:
            self.try_to(event, "until_over")
        return self.service.verdict(timeout=self.timeout)


@pytest.mark.parametrize("seed", range(examples(20)))
def test_a_client_that_polls_is_never_accused_however_the_clock_is_moved(seed: int) -> None:
    with Service() as service:
        world = World(service, random.Random(seed), PATIENT)
        with world.polled():
            world.live(STEPS)
            verdict = world.finish()
        assert verdict.wrong == (), str(verdict)
        missed = [
            course
            for course in verdict.courses
            if course.machine in world.clients
            and course.concerned
            and course.in_time is False
            and not course.excuse
        ]
        assert missed == [], str(verdict)


@pytest.mark.parametrize("seed", range(examples(10)))
def test_a_client_that_stops_polling_is_always_found(seed: int) -> None:
    with Service() as service:
        chance = random.Random(seed)
        world = World(service, chance, PATIENT)
        with world.polled():
            name = world.lasting = chance.choice(list(world.clients))
            service[name].freeze()
            service.clock.play(0, timeout=PATIENT)
            world.live(chance.randrange(3))
            world.clients.pop(name).stop()
            world.timeout = SHORT
            world.live(chance.randrange(3))
            change(service[name]).until_over(timeout=SHORT)
            verdict = world.finish()
        found = {complaint.rule for complaint in verdict.of(name).wrong}
        assert found & {"stopped-polling", "clock-passed", "never-seen", "seen-late"}, str(verdict)


def change(machine: Machine) -> Event:
    """Something that every machine of its group is shown."""
    return machine.freeze()
