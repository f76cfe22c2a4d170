"""Playing a scenario on a real service: with its fleet, to whoever asks, and what came of it.

What has become of events is heard off the trace, so that what is waited for and what is expected
are what guests could see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from forewarn.core import Refused
from forewarn.core.time import Durations
from forewarn.service.engine.catch_up import ATTENTIVE
from forewarn.service.engine.clock import VirtualClock
from forewarn.support import guard
from forewarn.support.text import listing
from forewarn.testing.kit.errors import RefusedByService
from forewarn.testing.kit.service import Service
from forewarn.testing.scenarios import shipped_list
from forewarn.testing.scenarios.engine import verbs
from forewarn.testing.scenarios.engine.check_expectations import Ended
from forewarn.testing.scenarios.engine.event_tracker import EventTracker
from forewarn.testing.scenarios.engine.pace import LOOK_EVERY, Pace, Passing, Wound
from forewarn.testing.scenarios.engine.player import Player
from forewarn.testing.scenarios.model import Scenario
from forewarn.testing.scenarios.result import Result

WAIT = 30.0  # real seconds in which the machines under test have to ask for the first time

Tell = Callable[[str], None]


class Program(Protocol):
    """What is under test, where that is not the caller's own affair."""

    def start(self, service: Service) -> None: ...

    def trouble(self) -> str:
        """Why there is no point in going on; empty if there is."""
        ...

    def left(self, machine: str) -> str:
        """How it has ended on this machine; empty while it runs."""
        ...

    def end(self) -> tuple[Ended, ...]: ...


def run(
    scenario: str | Path | Scenario,
    *,
    client: Callable[[], object] | None = None,
    speed: float | None = None,
    record: Path | None = None,
    wait: float = WAIT,
    react: float = 0.0,
    patience: float = ATTENTIVE,
    program: Program | None = None,
    prepared: Callable[[Service], None] = lambda _: None,
    tell: Tell = lambda _: None,
) -> Result:
    """Start a service with the scenario's fleet, and play it there. With a `speed` in real time,
    with durations divided by it; else on a virtual clock. `prepared` is called when the service
    is there and nothing has happened yet."""
    found = scenario if isinstance(scenario, Scenario) else shipped_list.find(scenario)
    service = Service(
        found.fleet,
        sockets=True,
        record=record,
        real_time=speed is not None,
        rules=Durations(silence=None, speed=speed or 1.0),
        speak_as=found.speakers[0],
    )
    with service:
        prepared(service)
        return play(
            service,
            found,
            client=client,
            wait=wait,
            react=react,
            patience=patience,
            program=program,
            tell=tell,
        )


def play(
    service: Service,
    scenario: str | Path | Scenario,
    *,
    client: Callable[[], object] | None = None,
    wait: float = WAIT,
    react: float = 0.0,
    patience: float = ATTENTIVE,
    program: Program | None = None,
    tell: Tell = lambda _: None,
) -> Result:
    """Play it on this service, which is given the scenario's fleet if it has none.

    `client` is called at every stop of the clock, and asks as the machine under test; without it,
    whoever asks from elsewhere is waited for, at the beginning for `wait` seconds. `react` are
    real seconds that clients get at every change to approve, if they take their time.
    """
    found = scenario if isinstance(scenario, Scenario) else shipped_list.find(scenario)
    _settle_in(service, found)
    trace = service.node.trace
    if trace is None:
        raise RefusedByService("a scenario is played on a service that observes: front=False")
    hearing = EventTracker()
    service.call(trace.tell, hearing.hear)
    service.call(lambda: trace.fleet(service.node.store, service.node.writer.now().at))

    def left() -> list[str]:
        return [machine for machine in found.speakers if program and program.left(machine)]

    virtual = isinstance(service.node.clock, VirtualClock)
    pace: Pace = (
        Wound(service, hearing, client, react, patience, left)
        if virtual
        else Passing(service, hearing, client)
    )
    playing = Player(service, found, hearing, pace, tell)
    ended: tuple[Ended, ...] = ()
    try:
        if program is not None:
            program.start(service)
        if client is None and (why := _asked(wait, found.speakers, hearing, program)):
            playing.trouble.append(why)
        else:
            playing.play(program.trouble if program is not None else lambda: "")
    finally:
        if program is not None:
            ended = program.end()
    return playing.result(ended)


def _settle_in(service: Service, scenario: Scenario) -> None:
    there = set(service.addresses)
    wanted = {machine.name for machine in scenario.fleet.machines}
    if not there:
        done = service.run(service.node.fleet_apply.fleet(scenario.fleet, by=verbs.BY))
        if isinstance(done, Refused):
            raise RefusedByService(done.says)
    elif missing := sorted(wanted - there):
        raise RefusedByService(
            f"scenario '{scenario.name}' is about machines that this service does not have:"
            f" {listing(missing)}; play it on a service without machines, which is given them"
        )
    for group in scenario.fleet.groups:  # as if its machines had been asking all along
        service.run(service.node.guests.enable(group))
    service.settle()


def _asked(
    seconds: float, speakers: Sequence[str], hearing: EventTracker, program: Program | None
) -> str:
    """Until all machines under test have asked, since nothing happens before. Why not, if so."""
    end = guard.monotonic() + seconds
    while missing := [machine for machine in speakers if machine not in hearing.asked]:
        if program is not None and (gone := program.left(missing[0])):
            return f"{gone} before it asked for events"
        with hearing.changed:
            left = end - guard.monotonic()
            if left <= 0:
                if missing[0] in hearing.last:
                    return f"{missing[0]} asked, but not so that it got events; see the verdict"
                return f"{listing(missing)} did not ask for events within {seconds:g} s"
            hearing.changed.wait(min(left, LOOK_EVERY))
    return ""
