"""`Service`: the real service inside a test, on a virtual clock.

Requests go to it in process, or over real sockets for clients that need them. Everything that a
call brings about has happened and is visible when the call returns. Starting and stopping is
`testing.session`, requests are `requests.py`, and the handles are `machines.py`, `hosts.py` and
`events.py`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, ParamSpec, Self, TypeVar, Unpack, overload

from forewarn.core import Durations, GroupKind
from forewarn.drivers.port import Driver
from forewarn.metadata.endpoint.callers import Identity
from forewarn.metadata.endpoint.limits import Limits
from forewarn.node import Config, Node
from forewarn.node.config import Addresses, Tls
from forewarn.node.dev import on_loopback
from forewarn.service.access.machine_tokens import LEAST_KEY
from forewarn.service.engine.catch_up import POLL_PATIENCE, REACTION_TIME
from forewarn.service.fleet import read
from forewarn.service.fleet.read import Fleet
from forewarn.service.platform.platform import new_id as random_id
from forewarn.store import Store
from forewarn.support.handles import EventRef, id_of
from forewarn.testing.durations import Duration, in_microseconds, in_seconds, instant, moments
from forewarn.testing.errors import RefusedError, allowed
from forewarn.testing.impacts import Callback as ImpactCallback
from forewarn.testing.kit import events, fleets
from forewarn.testing.kit.arm import NOT_ASKED_FOR, Arm, ArmSocket
from forewarn.testing.kit.clock import Clock
from forewarn.testing.kit.documents import Document, VersionedDocument
from forewarn.testing.kit.events import Announcement, During, Event, event_from
from forewarn.testing.kit.failure_report import FailureReport
from forewarn.testing.kit.faults import Faults
from forewarn.testing.kit.fleets import GroupDetails
from forewarn.testing.kit.hosts import Host
from forewarn.testing.kit.inprocess import Response
from forewarn.testing.kit.machines import FIRST_POLL_WITHIN, Group, Machine
from forewarn.testing.kit.requests import NEWEST, Requests
from forewarn.testing.names import EventType
from forewarn.testing.session import LOOPBACK, NOT_YET
from forewarn.verdict.verdict import Verdict

if TYPE_CHECKING:
    from forewarn.testing.kit.loaded_scenario import LoadedScenario
    from forewarn.testing.scenarios import Result, Scenario

P = ParamSpec("P")
T = TypeVar("T")

START = datetime(2027, 1, 15, 8, tzinfo=UTC)


class Service:
    """The service in this process, for use in a `with` or `async with` block.

    Args:
        fleet: A fleet file, as text or as a path. Without it there are no machines at first;
            `scale_set` and the like add them.
        sockets: Send the requests of the kit's own machines over real sockets as well.
        real_time: Let time pass by itself. By default, the clock is virtual.
        start: The time at which a virtual clock begins; by default 2027-01-15 08:00 UTC.
        speed: Divide all durations by this number, in real time or on a virtual clock.
        stop_before: When a client acts on its events, as the time before NotBefore or as several: a
            virtual clock that waits for clients also stops there, and gives them time to react.
        silence: The time without a poll after which a group is disabled, as seconds, a timedelta or
            text; by default never.
        enable_delay: How long the first answer to a group is delayed, as seconds, a timedelta or
            text; by default not at all.
        limits: The limits for guests; by default those of `forewarn dev`.
        record: A file to which a trace is written.
        front: Answer polls on the fast path, as in production. Polls are then not observed, so
            there is no verdict.
        state: An SQLite file that is kept when the service ends. By default everything is in
            memory.
        store: The store that keeps the state, instead of `state`.
        driver: The driver that carries out events. By default machines are simulated.
        default_machine: The machine whose document is returned at an address that belongs to no
            machine; by default the first one.
        addresses: What tells machines apart over sockets: a `loopback` address of each or, on
            systems that have only 127.0.0.1, one of its `ports` for each. `auto` chooses.
        gates: Commands that rollouts can use as gates, by name.
        tls: The certificate of the control API.
        control_names: Host names under which the control API can be reached.
        arm: Also answer Azure's SDKs and `az`, as Azure Resource Manager does; see `arm`.
        new_id: Returns the id of the next event; by default random ids.
    """

    clock: Clock
    """The service's time."""

    faults: Faults
    """The faults that are injected into answers and events."""

    def __init__(
        self,
        fleet: str | Path | Fleet | None = None,
        *,
        sockets: bool = False,
        real_time: bool = False,
        start: datetime = START,
        speed: float = 1.0,
        stop_before: Duration | Sequence[Duration] = (),
        silence: Duration | None = None,
        enable_delay: Duration = 0,
        limits: Limits | None = None,
        record: str | Path | None = None,
        front: bool = False,
        state: str | Path | None = None,
        store: Store | None = None,
        driver: Driver | None = None,
        default_machine: str | None = None,
        addresses: Literal["auto", "loopback", "ports"] = "auto",
        gates: Mapping[str, tuple[str, ...]] | None = None,
        tls: Tls | None = None,
        control_names: tuple[str, ...] = (),
        arm: bool = False,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self._arm_socket = ArmSocket() if arm else None
        self._arm: Arm | None = None
        text = fleet.read_text(encoding="utf-8") if isinstance(fleet, Path) else fleet
        parsed = read.parse(text) if isinstance(text, str) else text
        if parsed is None and state is None and store is None:
            parsed = Fleet({})
        parsed = on_loopback(parsed) if parsed is not None else None
        names = [machine.name for machine in parsed.machines] if parsed else []
        config = Config(
            fleet=parsed,
            state=None if state is None else Path(state),
            rules=Durations(
                speed=speed,
                silence=None if silence is None else in_microseconds(silence),
                enable_delay=in_microseconds(enable_delay),
            ),
            virtual=None if real_time else instant(start),
            identity=Identity.TARGET,
            speak_as=default_machine or next(iter(names), None),
            limits=limits or Limits(),
            metadata=LOOPBACK if sockets else None,
            whole_loopback=True,
            addresses=_addresses(addresses),
            control=LOOPBACK if sockets and tls else None,
            record=None if record is None else Path(record),
            observe=not front,
            faults=True,
            front=front,
            gates=dict(gates or {}),
            tls=tls,
            control_names=control_names,
            identities=secrets.token_bytes(LEAST_KEY) if arm else b"",
        )
        node = Node(config, store=store, driver=driver, new_id=new_id or random_id)
        self._session = Requests(node, over_sockets=sockets)
        self._stop_before = moments(stop_before)
        self._report: FailureReport | None = None
        self.clock = self._session.clock
        self.faults = Faults(self._session)

    def __enter__(self) -> Self:
        """Start the service."""
        self._session.__enter__()
        try:
            if (virtual_time := self._session.node.virtual_time) is not None:
                virtual_time.stop_before = self._stop_before
            if (trace := self._session.node.trace) is not None:
                self._report = FailureReport()
                trace.add_sink(self._report.add)
            if self._arm_socket is not None:
                self._arm = self._arm_socket.open(self._session)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Stop the service. It cannot be started again."""
        try:
            self._session.__exit__(kind, value, tb)
        finally:
            if self._arm_socket is not None:
                self._arm_socket.close()

    async def __aenter__(self) -> Self:
        """Start the service without blocking the event loop."""
        return await self.to_thread(self.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Stop the service without blocking the event loop."""
        await self.to_thread(self.__exit__, kind, value, tb)

    async def to_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call any function of the kit in a thread and await it.

        The test's own event loop, and a client under test that runs in it, continue meanwhile:
        `await service.to_thread(service.clock.play, "15m")`.

        Args:
            function: The function to call.
            args: Its positional arguments.
            kwargs: Its keyword arguments.

        Raises:
            RefusedError: The event loop is not asyncio's.
        """
        return await self._session.to_thread(function, *args, **kwargs)

    # The fleet.

    def scale_set(
        self,
        name: str,
        count: int,
        *,
        terminate_notice: Duration | None = None,
        enabled: bool = True,
        **details: Unpack[GroupDetails],
    ) -> Group:
        """Add a scale set of machines `web_0`, `web_1` and so on, or add machines to it.

        The machines that it has already do not change.

        Args:
            name: The name of the scale set.
            count: How many machines it has from now on.
            terminate_notice: The notice of a deletion, from 5 to 15 minutes, as seconds, a
                timedelta or text; by default deletions are not announced.
            enabled: Whether it is enabled from the start, as if a machine had polled.
            details: See `GroupDetails`.

        Raises:
            RefusedError: The name is taken, or a value is invalid.
        """
        names = fleets.numbered(f"{name}_", count)
        kind = GroupKind.SCALE_SET
        return self._add_group(
            fleets.group_spec(kind, name, names, details, terminate_notice), enabled
        )

    def availability_set(
        self, name: str, count: int, *, enabled: bool = True, **details: Unpack[GroupDetails]
    ) -> Group:
        """Add an availability set of machines `sql-0`, `sql-1` and so on, or add machines to it.

        Args:
            name: The name of the availability set.
            count: How many machines it has from now on.
            enabled: Whether it is enabled from the start, as if a machine had polled.
            details: See `GroupDetails`.

        Raises:
            RefusedError: The name is taken, or a value is invalid.
        """
        names = fleets.numbered(f"{name}-", count)
        return self._add_group(
            fleets.group_spec(GroupKind.AVAILABILITY_SET, name, names, details), enabled
        )

    def availability_zone(
        self, name: str, *machines: str, enabled: bool = True, **details: Unpack[GroupDetails]
    ) -> Group:
        """Add machines of an availability zone that are in no set.

        Args:
            name: The name of the group.
            machines: The names of its machines.
            enabled: Whether it is enabled from the start, as if a machine had polled.
            details: See `GroupDetails`.

        Raises:
            RefusedError: A name is taken, or a value is invalid.
        """
        kind = GroupKind.AVAILABILITY_ZONE
        return self._add_group(fleets.group_spec(kind, name, machines, details), enabled)

    def cloud_service(
        self,
        name: str,
        roles: Mapping[str, int],
        *,
        enabled: bool = True,
        **details: Unpack[GroupDetails],
    ) -> Group:
        """Add a cloud service: `{"FrontEnd": 2}` are FrontEnd_IN_0 and FrontEnd_IN_1.

        Args:
            name: The name of the cloud service.
            roles: How many instances each role has.
            enabled: Whether it is enabled from the start, as if a machine had polled.
            details: See `GroupDetails`.

        Raises:
            RefusedError: A name is taken, or a value is invalid.
        """
        names = [n for role, count in roles.items() for n in fleets.numbered(f"{role}_IN_", count)]
        return self._add_group(
            fleets.group_spec(GroupKind.CLOUD_SERVICE, name, names, details), enabled
        )

    def machine(
        self, name: str, *, enabled: bool = True, **details: Unpack[GroupDetails]
    ) -> Machine:
        """Add a standalone machine. A machine that exists already is `service["web_0"]`.

        Args:
            name: Its name.
            enabled: Whether it is enabled from the start, as if it had polled.
            details: See `GroupDetails`.

        Raises:
            RefusedError: The name is taken, or a value is invalid.
        """
        spec = fleets.group_spec(GroupKind.STANDALONE, name, [name], details)
        return self._add_group(spec, enabled, grow=False)[0]

    def hosts(self, *names: str) -> tuple[Host, ...]:
        """Return these hosts, which are created if they do not exist.

        Args:
            names: Their names. Machines are put on hosts with `hosts=`, see `GroupDetails`.

        Raises:
            RefusedError: A name is invalid.
        """
        session = self._session
        allowed(session.run(session.node.fleet_apply.change(fleets.hosts(*names), by="test")))
        return tuple(Host(session, name) for name in names)

    def host(self, name: str) -> Host:
        """Return a host by its name.

        Args:
            name: The name of the host.

        Raises:
            RefusedError: There is no such host.
        """
        allowed(self._session.call(self._session.node.hosts.host, name))
        return Host(self._session, name)

    def __getitem__(self, machine: str) -> Machine:
        """Return a machine by its name.

        Raises:
            RefusedError: There is no such machine.
        """
        self._session.address(machine)
        return Machine(self._session, machine)

    @property
    def machines(self) -> list[Machine]:
        """All machines of the fleet."""
        return [Machine(self._session, name) for name in self.addresses]

    @property
    def events(self) -> list[Event]:
        """All events that are Scheduled or Started."""
        active = self._session.call(self._session.node.platform.active)
        return [Event(self._session, record) for record in active]

    # What happens to it.

    def schedule(
        self, type: EventType, *machines: str | Machine, **details: Unpack[Announcement]
    ) -> Event:
        """Announce one event for these machines: `schedule("Reboot", "web_0", notice="20m")`.

        Args:
            type: The type of the event.
            machines: The machines that it affects, which are in one group.
            details: See `Announcement`.

        Raises:
            RefusedError: The notice is too short for the type, or the machines are in several
                groups.
        """
        return events.schedule(self._session, type, tuple(map(str, machines)), details)

    def restart(self, machine: str | Machine) -> Event:
        """Restart a machine as a user: a Reboot with 15 minutes of notice.

        Args:
            machine: The machine, or its name.

        Raises:
            RefusedError: There is no such machine, or its group has too many user events.
        """
        return Machine(self._session, str(machine)).restart()

    def redeploy(self, machine: str | Machine) -> Event:
        """Redeploy a machine as a user: a Redeploy with 10 minutes of notice.

        Args:
            machine: The machine, or its name.

        Raises:
            RefusedError: There is no such machine, or its group has too many user events.
        """
        return Machine(self._session, str(machine)).redeploy()

    def cancel(self, event: EventRef) -> Event:
        """Withdraw an event, which is possible until it has started.

        Args:
            event: The event, or its id.

        Raises:
            RefusedError: There is no such event, or it has started or is over.
        """
        platform = self._session.node.platform
        return event_from(self._session, platform.cancel(id_of(event), "test"))

    def disable(self, group: str | Group) -> None:
        """Disable a group, as a day without a poll does: it gets no events until it polls again.

        Args:
            group: The group, or its name.

        Raises:
            RefusedError: There is no such group.
        """
        name = group if isinstance(group, str) else group.name
        allowed(self._session.run(self._session.node.platform.disable(name, "test")))
        self._session.settle()

    def during(
        self,
        *events: Event,
        approve: bool = False,
        play: bool | None = None,
        timeout: Duration = POLL_PATIENCE,
        reaction_time: Duration = REACTION_TIME,
    ) -> During:
        """Return a block in which these events are Started, and after which they are over.

        Use it in `with` or `async with`. The clock is moved to their NotBefore.

        Args:
            events: The events.
            approve: Approve them as an operator instead of moving the clock.
            play: Let polling clients see every change, as `clock.play` does; by default they do,
                unless a plain `with` is used inside a running event loop.
            timeout: The real time for which a polling client is waited for at every change; by
                default 5 seconds.
            reaction_time: The real time that a machine gets for each of its own events that it
                has seen; by default 1 second.

        Raises:
            RefusedError: No event was given. Entering the block raises it as well, if something
                holds an event.
        """
        if not events:
            raise RefusedError("no event given; use service.during(event)")
        return During(
            self._session,
            events,
            approve=approve,
            play=play,
            timeout=timeout,
            reaction_time=reaction_time,
        )

    # Requests of machines, and where clients find their endpoint.

    def request(
        self,
        machine: str | Machine,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Response:
        """Send one HTTP request as a machine, exactly as given.

        Args:
            machine: The machine, or its name.
            method: The method, such as `GET`.
            target: The path and query.
            headers: All headers of the request.
            body: Its body.

        Raises:
            RefusedError: There is no such machine.
        """
        return self._session.request(str(machine), method, target, headers, body)

    def get(
        self,
        machine: str | Machine,
        version: str = NEWEST,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Poll as a machine, and return the response whatever its status is.

        Args:
            machine: The machine, or its name.
            version: The api-version; by default the newest.
            headers: Headers in addition to `Metadata: true`, or instead of it.

        Raises:
            RefusedError: There is no such machine.
        """
        return self._session.get(str(machine), version, headers)

    def post(
        self,
        machine: str | Machine,
        body: bytes,
        version: str = NEWEST,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Send a POST to the endpoint of events as a machine.

        Args:
            machine: The machine, or its name.
            body: The body.
            version: The api-version; by default the newest.
            headers: Headers in addition to `Metadata: true`, or instead of it.

        Raises:
            RefusedError: There is no such machine.
        """
        return self._session.post(str(machine), body, version, headers)

    @overload
    def document(self, machine: str | Machine) -> Document: ...

    @overload
    def document(self, machine: str | Machine, version: str) -> VersionedDocument: ...

    def document(
        self, machine: str | Machine, version: str = NEWEST
    ) -> Document | VersionedDocument:
        """Fetch the document of a machine. This counts as a poll.

        Args:
            machine: The machine, or its name.
            version: The api-version; by default the newest.

        Raises:
            RefusedError: There is no such machine, or the answer is not 200.
        """
        return Machine(self._session, str(machine)).document(version)

    def approve(self, machine: str | Machine, *events: EventRef) -> Response:
        """Approve events by a POST of a machine, and return the response.

        Args:
            machine: The machine, or its name.
            events: The events, or their ids.

        Raises:
            RefusedError: There is no such machine.
        """
        return self._session.approve(str(machine), *events)

    @property
    def addresses(self) -> dict[str, str]:
        """The loopback address of each machine, by its name."""
        return self._session.addresses

    def address(self, machine: str | Machine) -> str:
        """Return the loopback address of a machine: a request sent there comes from it.

        Args:
            machine: The machine, or its name.

        Raises:
            RefusedError: There is no such machine.
        """
        return self._session.address(str(machine))

    def url(self, machine: str | Machine | None = None) -> str:
        """Return the URL of the endpoint as a machine reaches it over real sockets.

        The sockets are opened by the first call.

        Args:
            machine: The machine, or its name; by default the default machine.

        Raises:
            RefusedError: There is no such machine.
        """
        return self._session.url(None if machine is None else str(machine))

    @property
    def control_url(self) -> str:
        """The URL of the control API, whose socket is opened by the first use."""
        return self._session.control_url

    @property
    def arm(self) -> Arm:
        """What Azure's SDKs and `az` need to use this service as Azure Resource Manager.

        Raises:
            RefusedError: The service was created without `arm=True`, or has not started.
        """
        if self._arm is None:
            raise RefusedError(NOT_YET if self._arm_socket is not None else NOT_ASKED_FOR)
        return self._arm

    # What clients did.

    def verdict(self, *, timeout: Duration = POLL_PATIENCE) -> Verdict:
        """Return what the machines' clients have done so far, and what was wrong with it.

        First it waits, as `clock.play` does, for clients that poll by themselves and have not seen
        the newest change: a client that is slow is not accused, and one that has ended is found.
        Inside a running event loop it does not wait; use `await service.to_thread(service.verdict)`
        there.

        Args:
            timeout: The real time for which a machine is waited for; by default 5 seconds.

        Raises:
            RefusedError: The service was created with `front=True`, so nothing was observed.
        """
        return self._session.verdict(in_seconds(timeout))

    def on_impact(self, callback: ImpactCallback) -> ImpactCallback:
        """Call a function when an event is carried out on a machine, and when the machine is back.

        It does to the program under test what happens to its machine: for example, it kills a
        worker when the impact of a Reboot begins, and starts one when it ends. It runs in a thread
        of its own; time stands still until it returns.

        Args:
            callback: A function that gets an `Impact`. At the beginning it may return a text, or
                fail an assertion, that says what the program was still busy with: if the event was
                approved, the verdict reports `approved-too-early`. An empty text says that the
                program was idle.

        Returns:
            The function, so that this is a decorator as well.
        """
        self._session.call(self._session.impacts.add, callback)
        return callback

    def reset_verdict(self) -> None:
        """Forget what clients have done so far, so that the verdict starts over."""
        if (observer := self._session.node.observer) is not None:
            self._session.settle()
            self._session.call(observer.forget)

    def report(self) -> str:
        """Return what has happened so far, line by line, and the verdict.

        The pytest fixture shows this for a failed test.
        """
        if self._report is None:
            return "nothing was observed, because the service was created with front=True"
        text = self._session.call(self._report.text)
        return f"{text}\n\n{self._session.verdict()}"

    def load_scenario(self, scenario: str | Path | Scenario) -> LoadedScenario:
        """Load a scenario without playing it yet; a service without machines gets its fleet.

        A client can then be started at the address of the machine under test,
        `scenario.machine.url`, before `scenario.play()` lets time run.

        Args:
            scenario: The name of a scenario that comes with forewarn, a file, or a value.

        Raises:
            ScenarioError: The scenario does not exist or has mistakes.
            RefusedError: The service has a fleet that lacks machines of the scenario.
        """
        from forewarn.testing.kit.loaded_scenario import LoadedScenario
        from forewarn.testing.scenarios.runner import load

        stage = load(self._session, scenario)
        machines = (Machine(self._session, name) for name in stage.scenario.under_test)
        return LoadedScenario(stage, tuple(machines))

    def play_scenario(
        self,
        scenario: str | Path | Scenario,
        *,
        client: Callable[[], object] | None = None,
        first_poll_timeout: Duration = FIRST_POLL_WITHIN,
        reaction_time: Duration = REACTION_TIME,
        timeout: Duration = POLL_PATIENCE,
    ) -> Result:
        """Play a scenario on this service; a service without machines gets the scenario's fleet.

        Args:
            scenario: The name of a scenario that comes with forewarn, a file, or a value.
            client: Called at every stop of the clock, to send requests as the machine under test.
                Without it, the player waits for clients that poll from elsewhere.
            first_poll_timeout: Real time in which the machines under test have to poll; by default
                30 seconds.
            reaction_time: Real time that a machine gets for each of its own events that it has
                seen; by default 1 second.
            timeout: Real time that each change waits for clients that have been polling; by
                default 5 seconds.

        Raises:
            ScenarioError: The scenario does not exist or has mistakes.
            RefusedError: The service has a fleet that lacks machines of the scenario.
        """
        return self.load_scenario(scenario).play(
            client=client,
            first_poll_timeout=first_poll_timeout,
            reaction_time=reaction_time,
            timeout=timeout,
        )

    def _add_group(self, spec: fleets.GroupSpec, enabled: bool, *, grow: bool = True) -> Group:
        session, change = self._session, fleets.add_group(spec, grow=grow)
        allowed(session.run(session.node.fleet_apply.change(change, by="test")))
        if enabled:
            for group in spec.groups:
                session.run(session.node.guests.enable(group))
        session.settle()
        return Group(session, spec.name, spec.machines)


def _addresses(choice: str) -> Addresses:
    if choice not in set(Addresses):
        raise ValueError(f"addresses={choice!r}; expected one of {', '.join(Addresses)}")
    return Addresses(choice)
