"""`Service`: the real service inside a test, on a virtual clock.

Requests go to it in process, or over real sockets for clients that need them. Everything that a
call brings about has happened and is visible when the call returns. Starting and stopping is
`testing.session`, requests are `requests.py`, and the handles are `machines.py`, `hosts.py` and
`events.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from forewarn.core import Durations, GroupKind
from forewarn.drivers.port import Driver
from forewarn.metadata.endpoint.callers import Identity
from forewarn.metadata.endpoint.limits import Limits
from forewarn.node import Config, Node
from forewarn.node.config import Tls
from forewarn.node.dev import on_loopback
from forewarn.service.engine.catch_up import POLL_PATIENCE
from forewarn.service.fleet import read
from forewarn.service.fleet.read import Fleet
from forewarn.service.platform.platform import new_id
from forewarn.store import Store
from forewarn.testing.errors import RefusedByService, allowed
from forewarn.testing.kit import events, fleets
from forewarn.testing.kit.events import Announcement, During, Event, event_from
from forewarn.testing.kit.failure_report import FailureReport
from forewarn.testing.kit.faults import Faults
from forewarn.testing.kit.fleets import Details
from forewarn.testing.kit.hosts import Host
from forewarn.testing.kit.machines import Group, Machine
from forewarn.testing.kit.requests import EventRef, Requests, id_of
from forewarn.testing.session import LOOPBACK

if TYPE_CHECKING:
    from forewarn.testing.scenarios import Result, Scenario

__all__ = ["START", "RefusedByService", "Service"]

START = 1_800_000_000 * 1_000_000  # Fri, 15 Jan 2027 08:00:00 GMT


class Service(Requests):
    """The service in this process: `with Service() as service: …`.

    `fleet` is a fleet file, its text or a value; without one, groups are added by `scale_set` and
    the like. `sockets` sends the requests of machines over real sockets; `default_machine` is the
    machine for requests to an address that belongs to no machine.
    """

    def __init__(
        self,
        fleet: str | Path | Fleet | None = None,
        *,
        sockets: bool = False,
        state: Path | None = None,
        store: Store | None = None,
        driver: Driver | None = None,
        rules: Durations | None = None,
        limits: Limits | None = None,
        record: Path | None = None,
        front: bool = False,
        real_time: bool = False,
        start: int = START,
        default_machine: str | None = None,
        gates: dict[str, tuple[str, ...]] | None = None,
        tls: Tls | None = None,
        control_names: tuple[str, ...] = (),
        new_id: Callable[[], str] = new_id,
    ) -> None:
        text = fleet.read_text() if isinstance(fleet, Path) else fleet
        parsed = read.parse(text) if isinstance(text, str) else text
        if parsed is None and state is None and store is None:
            parsed = Fleet({})
        parsed = on_loopback(parsed) if parsed is not None else None
        names = [machine.name for machine in parsed.machines] if parsed else []
        config = Config(
            fleet=parsed,
            state=state,
            rules=rules or Durations(silence=None),
            virtual=None if real_time else start,
            identity=Identity.TARGET,
            speak_as=default_machine or next(iter(names), None),
            limits=limits or Limits(),
            metadata=LOOPBACK if sockets else None,
            whole_loopback=True,
            control=LOOPBACK if sockets and tls else None,
            record=record,
            observe=not front,
            faults=True,
            front=front,
            gates=gates or {},
            tls=tls,
            control_names=control_names,
        )
        node = Node(config, store=store, driver=driver, new_id=new_id)
        super().__init__(node, over_sockets=sockets)
        self._report: FailureReport | None = None
        self.faults = Faults(self)

    # The fleet.

    def scale_set(
        self,
        name: str,
        count: int,
        *,
        terminate_notice: str | None = None,
        enabled: bool = True,
        **details: Unpack[Details],
    ) -> Group:
        """Add a scale set of machines `web_0`, `web_1` …, or grow it: the machines that it has
        stay as they are. With a `terminate_notice` of 5 to 15 minutes, deletes are announced."""
        names = fleets.numbered(f"{name}_", count)
        kind = GroupKind.SCALE_SET
        return self._add_group(
            fleets.group_spec(kind, name, names, details, terminate_notice), enabled
        )

    def availability_set(
        self, name: str, count: int, *, enabled: bool = True, **details: Unpack[Details]
    ) -> Group:
        """Add an availability set of machines `sql-0`, `sql-1` …, or grow it."""
        names = fleets.numbered(f"{name}-", count)
        return self._add_group(
            fleets.group_spec(GroupKind.AVAILABILITY_SET, name, names, details), enabled
        )

    def availability_zone(
        self, name: str, *machines: str, enabled: bool = True, **details: Unpack[Details]
    ) -> Group:
        """Add machines of a zone that are in no set."""
        kind = GroupKind.AVAILABILITY_ZONE
        return self._add_group(fleets.group_spec(kind, name, machines, details), enabled)

    def cloud_service(
        self,
        name: str,
        roles: Mapping[str, int],
        *,
        enabled: bool = True,
        **details: Unpack[Details],
    ) -> Group:
        """Add role instances: `{"FrontEnd": 2}` is FrontEnd_IN_0 and FrontEnd_IN_1."""
        names = [n for role, count in roles.items() for n in fleets.numbered(f"{role}_IN_", count)]
        return self._add_group(
            fleets.group_spec(GroupKind.CLOUD_SERVICE, name, names, details), enabled
        )

    def machine(self, name: str, *, enabled: bool = True, **details: Unpack[Details]) -> Machine:
        """Add a standalone machine. One that exists already is `service["web_0"]`."""
        spec = fleets.group_spec(GroupKind.STANDALONE, name, [name], details)
        return self._add_group(spec, enabled, grow=False)[0]

    def hosts(self, *names: str) -> tuple[Host, ...]:
        """Return these hosts, created if they do not exist. Groups are put on hosts by `hosts=`."""
        allowed(self.run(self.node.fleet_apply.change(fleets.hosts(*names), by="test")))
        return tuple(Host(self, name) for name in names)

    def host(self, name: str) -> Host:
        """Return a host that exists."""
        allowed(self.call(self.node.hosts.host, name))
        return Host(self, name)

    def __getitem__(self, machine: str) -> Machine:
        """Return a machine that exists."""
        self.address(machine)
        return Machine(self, machine)

    @property
    def machines(self) -> list[Machine]:
        return [Machine(self, name) for name in self.addresses]

    @property
    def events(self) -> list[Event]:
        """All events that are Scheduled or Started."""
        return [Event(self, record) for record in self.call(self.node.platform.active)]

    # As an operator.

    def schedule(
        self, type: str, *machines: str | Machine, **details: Unpack[Announcement]
    ) -> Event:
        """Announce one event for these machines: `schedule("Reboot", "web_0", notice="20m")`."""
        return events.schedule(self, type, tuple(map(str, machines)), details)

    def restart(self, machine: str) -> Event:
        return Machine(self, machine).restart()

    def redeploy(self, machine: str) -> Event:
        return Machine(self, machine).redeploy()

    def cancel(self, event: EventRef) -> Event:
        return event_from(self, self.node.platform.cancel(id_of(event), "test"))

    def disable(self, group: str) -> None:
        """Disable the group as a day without a poll does: it gets no events until it polls."""
        allowed(self.run(self.node.platform.disable(group, "test")))
        self.settle()

    def during(self, *events: Event, approve: bool = False, play: bool = False) -> During:
        """A block in which these events are Started, and after which they are over.

        The clock is moved to their NotBefore, or with `approve` they are approved; `play` lets
        polling clients see every change.
        """
        if not events:
            raise RefusedByService("no event given; use service.during(event)")
        return During(self, events, approve=approve, play=play)

    def reset_verdict(self) -> None:
        """Forget what clients have done so far, so that the verdict starts anew."""
        if self.node.observer is not None:
            self.settle()
            self.call(self.node.observer.forget)

    def report(self) -> str:
        """Return what has happened so far, line by line, and the verdict, as shown for a failed
        test."""
        if self._report is None:
            return "nothing was observed: front=True"
        text = self.call(self._report.text)
        return f"{text}\n\n{self.verdict()}"

    def _on_start(self) -> None:
        if self.node.trace is not None:
            self._report = FailureReport()
            self.node.trace.add_sink(self._report.add)

    def play_scenario(
        self,
        scenario: str | Path | Scenario,
        *,
        client: Callable[[], object] | None = None,
        wait: float = 30.0,
        react: float = 0.0,
        patience: float = POLL_PATIENCE,
    ) -> Result:
        """Play a scenario, given by the name of a shipped one, by its file or as a value.

        `client` is called at every stop of the clock, to send requests as the machine under test;
        without it, the player waits for clients that poll from elsewhere. See `scenarios.play`.
        """
        from forewarn.testing.scenarios import play

        return play(self, scenario, client=client, wait=wait, react=react, patience=patience)

    def _add_group(self, spec: fleets.GroupSpec, enabled: bool, *, grow: bool = True) -> Group:
        change = fleets.add_group(spec, grow=grow)
        allowed(self.run(self.node.fleet_apply.change(change, by="test")))
        if enabled:
            for group in spec.groups:
                self.run(self.node.guests.enable(group))
        self.settle()
        return Group(self, spec.name, spec.machines)
