"""Plays a scenario on a running service, for the clients that poll it.

The progress of events is read from the trace, so that steps and expectations refer to what clients
could see. `kit.run_scenario` also starts the service.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from forewarn.core import Refused
from forewarn.service.engine.catch_up import POLL_PATIENCE, REACTION_TIME, Patience
from forewarn.service.engine.clock import VirtualClock
from forewarn.support import guard
from forewarn.support.text import listing
from forewarn.testing.errors import RefusedError
from forewarn.testing.refused_requests import other_pollers, refused_requests
from forewarn.testing.scenarios import shipped_list
from forewarn.testing.scenarios.engine import verbs
from forewarn.testing.scenarios.engine.event_tracker import EventTracker
from forewarn.testing.scenarios.engine.pace import CHECK_EVERY, Pace, RealPace, VirtualPace
from forewarn.testing.scenarios.engine.player import Player
from forewarn.testing.scenarios.model import Scenario
from forewarn.testing.scenarios.result import CommandExit, Result
from forewarn.testing.session import HasSession, Session
from forewarn.verdict.verdict import Verdict

FIRST_POLL_WITHIN = 30.0  # real seconds in which the machines under test have to poll


class Program(Protocol):
    """The program under test, if the player has to start and stop it."""

    def start(self, session: Any) -> None:
        """Start it on every machine under test, of the service with this session."""
        ...

    def problem(self) -> str:
        """Return why the scenario cannot continue, or an empty text."""
        ...

    def exit_of(self, machine: str) -> str:
        """Describe how the program has ended on this machine; empty while it runs."""
        ...

    def end(self) -> tuple[CommandExit, ...]:
        """End it, and return how it ended on each machine."""
        ...


def _ignore(_: str) -> None:
    """Take no notice of a step."""


def play(
    service: HasSession,
    scenario: str | Path | Scenario,
    *,
    client: Callable[[], object] | None = None,
    first_poll_timeout: float = FIRST_POLL_WITHIN,
    reaction_time: float = REACTION_TIME,
    timeout: float = POLL_PATIENCE,
    program: Program | None = None,
    on_step: Callable[[str], None] | None = None,
    time_limit: float | None = None,
) -> Result:
    """Play a scenario on this service, which gets the scenario's fleet if it has none.

    `Service.play_scenario` is the same as a method.

    Args:
        service: A `forewarn.testing.Service` that has been started.
        scenario: The name of a scenario that comes with forewarn, a file, or a value.
        client: Called at every stop of the clock, to send requests as the machine under test.
            Without it, the player waits for clients that poll from elsewhere.
        first_poll_timeout: Real seconds in which the machines under test have to poll; by default
            30.
        reaction_time: Real seconds that a machine gets for each of its own events that it has
            seen; by default 1.
        timeout: Real seconds that each change waits for clients that have been polling; by default
            5.
        program: The program under test, if the player has to start and stop it.
        on_step: Called with a description of each step that is carried out.
        time_limit: Real seconds after which the scenario is stopped, and has failed; by default,
            there is no limit.
    """
    return load(service._session, scenario).play(
        client=client,
        first_poll_timeout=first_poll_timeout,
        reaction_time=reaction_time,
        timeout=timeout,
        program=program,
        on_step=on_step,
        time_limit=time_limit,
    )


def load(session: Session, scenario: str | Path | Scenario) -> Stage:
    """Give a service the scenario's fleet if it has none, and follow its clients from now on."""
    return Stage(
        session, scenario if isinstance(scenario, Scenario) else shipped_list.find(scenario)
    )


class Stage:
    """A scenario on a running service, which is played once."""

    def __init__(self, session: Session, scenario: Scenario) -> None:
        self.scenario = scenario
        self._session = session
        self._played = False
        trace = session.node.trace
        if trace is None:
            raise RefusedError("polls answered by the fast path are not observed; use front=False")
        _apply_fleet(session, scenario)
        self._trace = trace
        self._tracker = EventTracker()
        session.call(trace.add_sink, self._tracker.add)
        session.call(lambda: trace.fleet(session.node.store, session.node.writer.now().at))

    def play(
        self,
        *,
        client: Callable[[], object] | None,
        first_poll_timeout: float,
        reaction_time: float,
        timeout: float,
        program: Program | None = None,
        on_step: Callable[[str], None] | None = None,
        time_limit: float | None = None,
    ) -> Result:
        """Play the scenario; see the function `play`."""
        if self._played:
            raise RefusedError(
                f"scenario '{self.scenario.name}' has been played; load it again to play it again"
            )
        self._played = True
        session, tracker, under_test = self._session, self._tracker, self.scenario.under_test

        def ended_on() -> list[str]:
            return [machine for machine in under_test if program and program.exit_of(machine)]

        end = None if time_limit is None else guard.monotonic() + time_limit

        def problem() -> str:
            if time_limit is not None and end is not None and guard.monotonic() >= end:
                return f"it was not over after {time_limit:g} s of real time, and was stopped"
            reason = program.problem() if program is not None else ""
            if reason or client is not None:
                return reason
            return _return_problem(session, first_poll_timeout, under_test, tracker, program, pace)

        pace: Pace = (
            VirtualPace(session, tracker, client, Patience(timeout, reaction_time), ended_on)
            if isinstance(session.node.clock, VirtualClock)
            else RealPace(session, tracker, client, timeout, ended_on)
        )
        player = Player(session, self.scenario, tracker, pace, on_step or _ignore)
        ended: tuple[CommandExit, ...] = ()
        try:
            if program is not None:
                program.start(session)
            if client is None and (
                reason := _first_poll_problem(
                    session, first_poll_timeout, under_test, tracker, program
                )
            ):
                player.problems.append(reason)
            else:
                if client is None and (catch_up := session.node.catch_up) is not None:
                    for machine in under_test:
                        session.call(catch_up.expect_polls, machine)
                player.play(problem)
        finally:
            if program is not None:
                ended = program.end()
        return self._recorded(player.result(ended))

    def _recorded(self, result: Result) -> Result:
        """Write the result to the trace, and return it with the whole trace."""
        node = self._session.node
        self._session.call(
            lambda: self._trace.write("scenario", node.writer.now().at, **result.as_line())
        )
        with self._tracker.changed:
            return msgspec.structs.replace(result, lines=tuple(self._tracker.lines))


def _apply_fleet(session: Session, scenario: Scenario) -> None:
    present = set(session.addresses)
    needed = {machine.name for machine in scenario.fleet.machines}
    if not present:
        outcome = session.run(session.node.fleet_apply.fleet(scenario.fleet, by=verbs.BY))
        if isinstance(outcome, Refused):
            raise RefusedError(str(outcome))
    elif missing := sorted(needed - present):
        raise RefusedError(
            f"scenario '{scenario.name}' needs machines that this service does not have:"
            f" {listing(missing)}; play it on a service without machines, which gets the"
            " scenario's fleet"
        )
    for group in scenario.fleet.groups:  # as if its machines had been polling before
        session.run(session.node.guests.enable(group))
    session.settle()


def _first_poll_problem(
    session: Session,
    seconds: float,
    under_test: Sequence[str],
    tracker: EventTracker,
    program: Program | None,
) -> str:
    """Wait until all machines under test have polled; return why they have not, or nothing."""
    end = guard.monotonic() + seconds
    while missing := [machine for machine in under_test if machine not in tracker.polls]:
        if program is not None and (ended := program.exit_of(missing[0])):
            refused = refused_requests(session.verdict(), missing[0])
            return f"{ended} before it polled for events" + (f": {refused}" if refused else "")
        with tracker.changed:
            remaining = end - guard.monotonic()
            if remaining > 0:
                tracker.changed.wait(min(remaining, CHECK_EVERY))
        if remaining <= 0:
            return _not_polled(session.verdict(), under_test, missing, seconds)
    return ""


def _not_polled(
    verdict: Verdict, under_test: Sequence[str], missing: Sequence[str], seconds: float
) -> str:
    for machine in missing:
        if refused := refused_requests(verdict, machine):
            return f"{refused}; within {seconds:g} s it got no events"
    others = other_pollers(verdict, under_test)
    elsewhere = f"; requests came from {others}" if others else ""
    return f"{listing(missing)} did not poll for events within {seconds:g} s{elsewhere}"


def _return_problem(
    session: Session,
    seconds: float,
    under_test: Sequence[str],
    tracker: EventTracker,
    program: Program | None,
    pace: Pace,
) -> str:
    """Return why a machine that came back after an impact does not poll, or nothing.

    On a virtual clock, wait for it. In real time, only look whether its time is up.
    """
    for machine in under_test:
        while (back := session.returned.get(machine)) is not None:
            with tracker.changed:
                if tracker.last_request.get(machine, 0.0) >= back:
                    break
                remaining = back + seconds - guard.monotonic()
                if remaining <= 0:
                    return f"{machine} was back, and did not poll for events within {seconds:g} s"
                if not pace.waits or (program and program.exit_of(machine)):
                    break
                tracker.changed.wait(min(remaining, CHECK_EVERY))
    return ""
