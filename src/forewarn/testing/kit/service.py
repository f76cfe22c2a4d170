"""`Service`: the real service inside a test, on a virtual clock.

Requests go to it in process, or over real sockets for clients that need them. It answers as
the machine one names; everything a test makes happen is done and visible when the call returns.
Its life is `session.py`, how it is asked `requests.py`; what it hands out is `machines.py`,
`hosts.py` and `events.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from forewarn.core import Durations, EventType, GroupKind
from forewarn.drivers.port import Driver
from forewarn.metadata.endpoint.callers import Identity
from forewarn.metadata.endpoint.limits import Limits
from forewarn.node import Config, Node
from forewarn.node.config import Tls
from forewarn.node.dev import on_loopback
from forewarn.service.engine.catch_up import ATTENTIVE
from forewarn.service.fleet import read
from forewarn.service.fleet.read import Fleet
from forewarn.service.platform.platform import Outcome, Outcomes, new_id
from forewarn.store import Store
from forewarn.testing.kit import fleets
from forewarn.testing.kit.clock import Clock
from forewarn.testing.kit.course import During
from forewarn.testing.kit.errors import RefusedByService, allowed
from forewarn.testing.kit.events import AnEvent, Announcement, Event, announced, event_type, id_of
from forewarn.testing.kit.failure_report import FailureReport
from forewarn.testing.kit.faults import Faults
from forewarn.testing.kit.fleets import Details
from forewarn.testing.kit.hosts import Host
from forewarn.testing.kit.machines import NEWEST, Group, Machine
from forewarn.testing.kit.requests import LOOPBACK, Requests
from forewarn.verdict.verdict import Verdict

if TYPE_CHECKING:
    from forewarn.testing.scenarios import Result, Scenario

__all__ = ["LOOPBACK", "NEWEST", "START", "RefusedByService", "Service"]

START = 1_800_000_000 * 1_000_000  # Fri, 15 Jan 2027 08:00:00 GMT


class Service(Requests):
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
        speak_as: str | None = None,
        gates: dict[str, tuple[str, ...]] | None = None,
        tls: Tls | None = None,
        control_names: tuple[str, ...] = (),
        new_id: Callable[[], str] = new_id,
    ) -> None:
        text = fleet.read_text() if isinstance(fleet, Path) else fleet
        made = read.parse(text) if isinstance(text, str) else text
        if made is None and state is None and store is None:
            made = Fleet({})  # there is nothing yet, and that is as it should be
        made = on_loopback(made) if made is not None else None
        names = [machine.name for machine in made.machines] if made else []
        config = Config(
            fleet=made,
            state=state,
            rules=rules or Durations(silence=None),
            virtual=None if real_time else start,
            identity=Identity.ASKED,
            speak_as=speak_as or next(iter(names), None),
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
        super().__init__(Node(config, store=store, driver=driver, new_id=new_id))
        self.over_sockets = sockets
        self._story: FailureReport | None = None
        self.clock = Clock(self)
        self.faults = Faults(self)

    # A fleet.

    def scale_set(
        self,
        name: str,
        count: int,
        *,
        terminate_notice: str | None = None,
        listening: bool = True,
        **details: Unpack[Details],
    ) -> Group:
        """`web_0` to `web_{count-1}`. Said again with more machines it grows; those that are there
        stay as they are. `terminate_notice` of 5 to 15 minutes: it is told of deletes."""
        names = fleets.numbered(f"{name}_", count)
        kind = GroupKind.SCALE_SET
        return self._put(fleets.wanted(kind, name, names, details, terminate_notice), listening)

    def availability_set(
        self, name: str, count: int, *, listening: bool = True, **details: Unpack[Details]
    ) -> Group:
        """`sql-0`, `sql-1` … It grows like a scale set."""
        names = fleets.numbered(f"{name}-", count)
        return self._put(fleets.wanted(GroupKind.AVAILABILITY_SET, name, names, details), listening)

    def availability_zone(
        self, name: str, *machines: str, listening: bool = True, **details: Unpack[Details]
    ) -> Group:
        """Machines of a zone that are in no set."""
        kind = GroupKind.AVAILABILITY_ZONE
        return self._put(fleets.wanted(kind, name, machines, details), listening)

    def cloud_service(
        self,
        name: str,
        roles: Mapping[str, int],
        *,
        listening: bool = True,
        **details: Unpack[Details],
    ) -> Group:
        """Instances of roles: `{"FrontEnd": 2}` is FrontEnd_IN_0 and FrontEnd_IN_1."""
        names = [n for role, count in roles.items() for n in fleets.numbered(f"{role}_IN_", count)]
        return self._put(fleets.wanted(GroupKind.CLOUD_SERVICE, name, names, details), listening)

    def machine(self, name: str, *, listening: bool = True, **details: Unpack[Details]) -> Machine:
        """A machine on its own. One that is there already is found by `service["web_0"]`."""
        wanted = fleets.wanted(GroupKind.STANDALONE, name, [name], details)
        return self._put(wanted, listening, grow=False)[0]

    def hosts(self, *names: str) -> tuple[Host, ...]:
        """These hosts; made if they are not there. Machines are put on hosts by `hosts=`."""
        allowed(self.run(self.node.fleet_apply.change(fleets.hosts(*names), by="test")))
        return tuple(Host(self, name) for name in names)

    def host(self, name: str) -> Host:
        """A host that is there."""
        allowed(self.call(self.node.hosts.host, name))
        return Host(self, name)

    def __getitem__(self, machine: str) -> Machine:
        """A machine that is there."""
        self.address(machine)
        return Machine(self, machine)

    @property
    def machines(self) -> list[Machine]:
        return [Machine(self, name) for name in self.addresses]

    @property
    def events(self) -> list[Event]:
        """All that are Scheduled or Started, whoever sees them."""
        return [Event(self, record) for record in self.call(self.node.platform.active)]

    # As an operator.

    def schedule(
        self, type: str, *machines: str | Machine, **details: Unpack[Announcement]
    ) -> Event:
        """Announce one event for these machines: `notice="20m"`, `description=…` and so on."""
        names, kind, said = tuple(map(str, machines)), event_type(type), announced(details)
        return self.did(self.node.platform.schedule(type=kind, machines=names, by="test", **said))

    def restart(self, machine: str) -> Event:
        return self.did(self.node.platform.user_maintenance(machine, EventType.REBOOT, "test"))

    def redeploy(self, machine: str) -> Event:
        return self.did(self.node.platform.user_maintenance(machine, EventType.REDEPLOY, "test"))

    def cancel(self, event: AnEvent) -> Event:
        return self.did(self.node.platform.cancel(id_of(event), "test"))

    def disable(self, group: str) -> None:
        """As after a day without a poll: its machines are told of nothing until one asks."""
        allowed(self.run(self.node.platform.disable(group, "test")))
        self.settle()

    def during(self, *events: Event, approve: bool = False, play: bool = False) -> During:
        """A block in which these are Started; when it has been left they are over. The clock is
        wound to NotBefore, or they are approved; `play` lets polling clients see every change."""
        if not events:
            raise RefusedByService("say which event: service.during(event)")
        return During(self, events, approve=approve, play=play)

    def verdict(self) -> Verdict:
        """What the guests have done so far, and what was wrong with it."""
        if self.node.observer is None:
            raise RefusedByService("polls that take the short way are not observed: front=False")
        self.settle()
        return self.call(self.node.observer.verdict)

    def forget(self) -> None:
        """Let the verdict begin anew: nothing so far is held against anybody."""
        if self.node.observer is not None:
            self.settle()
            self.call(self.node.observer.forget)

    def story(self) -> str:
        """What has happened so far, line by line, and the verdict: what a failed test shows."""
        if self._story is None:
            return "nothing was observed: front=True"
        told = self.call(self._story.text)
        return f"{told}\n\n{self.verdict()}"

    def _started(self) -> None:
        if self.node.trace is not None:
            self._story = FailureReport()
            self.node.trace.tell(self._story.hear)

    def play_scenario(
        self,
        scenario: str | Path | Scenario,
        *,
        client: Callable[[], object] | None = None,
        wait: float = 30.0,
        react: float = 0.0,
        patience: float = ATTENTIVE,
    ) -> Result:
        """Play one that is shipped, or a file, and say what came of it. `client` is called at every
        stop of the clock, to ask as the machine under test; without it, whoever asks from
        elsewhere is waited for. See `scenarios.play`."""
        from forewarn.testing.scenarios import play

        return play(self, scenario, client=client, wait=wait, react=react, patience=patience)

    # For what it hands out.

    def did(self, work: Coroutine[Any, Any, Any]) -> Event:
        """What a verb brought about, when all of it has happened."""
        outcome: Outcome = allowed(self.run(work))
        self.settle()
        return Event(self, outcome.event)

    def did_all(self, work: Coroutine[Any, Any, Any]) -> tuple[Event, ...]:
        outcome: Outcomes = allowed(self.run(work))
        self.settle()
        return tuple(Event(self, event) for event in outcome.events)

    def _put(self, wanted: fleets.GroupSpec, listening: bool, *, grow: bool = True) -> Group:
        change = fleets.put(wanted, grow=grow)
        allowed(self.run(self.node.fleet_apply.change(change, by="test")))
        if listening:
            for group in wanted.groups:
                self.run(self.node.guests.enable(group))
        self.settle()
        return Group(self, wanted.name, wanted.machines)
