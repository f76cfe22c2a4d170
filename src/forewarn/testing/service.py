"""`Service`: a real node in a thread and loop of its own, on a virtual clock.

Requests go to it in process, or over real sockets for clients that need them. It answers as
the machine one names; everything a test makes happen is done and visible when the call returns.
"""

from __future__ import annotations

import asyncio
import http.client
import threading
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from forewarn.core import Event, EventType, Refused, Rules, Source
from forewarn.core.words import parse_duration
from forewarn.drivers.port import Driver
from forewarn.metadata.limits import Limits
from forewarn.metadata.seats import Identity
from forewarn.node import Address, Config, Node
from forewarn.node.config import Tls
from forewarn.node.dev import on_loopback
from forewarn.service import fleetfile
from forewarn.service.clock import VirtualClock
from forewarn.service.fleetfile import Fleet
from forewarn.service.platform import new_id
from forewarn.store import Store
from forewarn.testing.inprocess import Answer, exchange
from forewarn.verdict.report import Verdict
from forewarn.wire.requests import write_approval

START = 1_800_000_000 * 1_000_000  # Fri, 15 Jan 2027 08:00:00 GMT
NEWEST = "2020-07-01"
LOOPBACK = Address("127.0.0.1", 0)

T = TypeVar("T")


class RefusedByService(Exception):
    """The service would not do it; the message is what an operator would have read."""


class Clock:
    """The service's time, in a test's hands."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @property
    def now(self) -> datetime:
        at = self._service.node.writer.now().at
        return datetime.fromtimestamp(at // 1_000_000, UTC)

    def advance(self, by: str | float) -> None:
        """Jump, stopping at everything due on the way; returns when all of it is visible."""
        node = self._service.node
        if not isinstance(node.clock, VirtualClock):
            raise RefusedByService("this service runs on real time")
        to = node.clock.at + parse_duration(str(by))
        self._service.run(node.advance(to))

    def interrupt(self, lost: str | float, what: str = "the service was away") -> None:
        """Let time pass while nobody serves."""

        async def jump() -> None:
            clock = self._service.node.clock
            assert isinstance(clock, VirtualClock)
            clock.interrupt(what, parse_duration(str(lost)))
            await self._service.node.ledger.idle()

        self._service.run(jump())


class Service:
    def __init__(
        self,
        fleet: str | Fleet | None = None,
        *,
        sockets: bool = False,
        state: Path | None = None,
        store: Store | None = None,
        driver: Driver | None = None,
        rules: Rules | None = None,
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
        made = fleetfile.parse(fleet) if isinstance(fleet, str) else fleet
        made = on_loopback(made) if made is not None else None
        names = [machine.name for machine in made.machines] if made else []
        config = Config(
            fleet=made,
            state=state,
            rules=rules or Rules(silence=None),
            virtual=None if real_time else start,
            identity=Identity.ASKED,
            speak_as=speak_as or next(iter(names), None),
            limits=limits or Limits(),
            metadata=LOOPBACK if sockets else None,
            whole_loopback=True,
            control=LOOPBACK if sockets and tls else None,
            record=record,
            observe=not front,
            front=front,
            gates=gates or {},
            tls=tls,
            control_names=control_names,
        )
        self.node = Node(config, store=store, driver=driver, new_id=new_id)
        self.clock = Clock(self)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="forewarn", daemon=True)

    def __enter__(self) -> Service:
        self._thread.start()
        try:
            self.run(self.node.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        try:
            self.run(self.node.__aexit__(kind, value, tb))
        finally:
            self._end()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the service's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def addresses(self) -> dict[str, str]:
        """Where to ask as whom."""
        groups = self.node.inventory.groups()
        return {machine.name: machine.addresses[0] for g in groups for machine in g.machines}

    def _address(self, machine: str) -> str:
        found = self.node.inventory.machine(machine)
        if found is None:
            raise RefusedByService(f"there is no machine '{machine}'")
        return found[1].addresses[0]

    # As a guest.

    def url(self, machine: str | None = None) -> str:
        if machine is None:
            return self.node.metadata_url
        port = self.node.metadata_url.rpartition(":")[2]
        return f"http://{self._address(machine)}:{port}"

    @property
    def control_url(self) -> str:
        """Where the control API is; it is there from the first time that somebody asks."""
        if not self.node.control_url:
            self.run(self.node.let_operators_in(LOOPBACK))
        return self.node.control_url

    def verdict(self) -> Verdict:
        """What the guests have done so far, and what was wrong with it."""
        if self.node.observer is None:
            raise RefusedByService("polls that take the short way are not observed: front=False")
        self.settle()
        return self.node.observer.verdict()

    def request(
        self,
        machine: str,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """One HTTP request as this machine."""
        if self.node.metadata_url:
            return self._over_socket(machine, method, target, headers or {}, body)
        asked = self._address(machine)
        return self.run(exchange(self.node.app, asked, method, target, headers or {}, body))

    def get(
        self, machine: str, version: str = NEWEST, headers: Mapping[str, str] | None = None
    ) -> Answer:
        target = f"/metadata/scheduledevents?api-version={version}"
        return self.request(machine, "GET", target, {"Metadata": "true", **(headers or {})})

    def post(
        self,
        machine: str,
        body: bytes,
        version: str = NEWEST,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        target = f"/metadata/scheduledevents?api-version={version}"
        return self.request(machine, "POST", target, {"Metadata": "true", **(headers or {})}, body)

    def approve(self, machine: str, *events: Event | str) -> Answer:
        ids = [event if isinstance(event, str) else event.id for event in events]
        return self.post(machine, write_approval(ids))

    def document(self, machine: str, version: str = NEWEST) -> Any:
        """What the machine is shown now."""
        return self.get(machine, version).json()

    # As an operator.

    def schedule(self, type: str, *machines: str, **details: Any) -> Event:
        """Announce an event; `notice="20m"` and whatever else `Platform.schedule` takes."""
        if "notice" in details:
            details["notice"] = parse_duration(str(details["notice"]))
        if "source" in details:
            details["source"] = Source(details["source"])
        kind = EventType(type)
        return self._event(
            self.node.platform.schedule(type=kind, machines=machines, by="test", **details)
        )

    def restart(self, machine: str) -> Event:
        return self._event(self.node.platform.maintain(machine, EventType.REBOOT, "test"))

    def redeploy(self, machine: str) -> Event:
        return self._event(self.node.platform.maintain(machine, EventType.REDEPLOY, "test"))

    def cancel(self, event: Event) -> Event:
        return self._event(self.node.platform.cancel(event.id, "test"))

    def disable(self, group: str) -> None:
        self._allowed(self.run(self.node.platform.disable(group, "test")))
        self.settle()

    def settle(self) -> None:
        """Until everything that was set going has happened."""
        self.run(self.node.ledger.idle())

    def _event(self, work: Coroutine[Any, Any, Any]) -> Event:
        outcome = self._allowed(self.run(work))
        self.settle()
        found: Event = outcome.event
        return found

    def _allowed(self, outcome: Any) -> Any:
        if isinstance(outcome, Refused):
            raise RefusedByService(outcome.says)
        return outcome

    def _over_socket(
        self, machine: str, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> Answer:
        port = int(self.node.metadata_url.rpartition(":")[2])
        connection = http.client.HTTPConnection(self._address(machine), port, timeout=30)
        try:
            connection.request(method, target, body or None, dict(headers))
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()
