"""Asking the service as one of its machines, and where it is asked: in process, or over sockets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forewarn.node import Address
from forewarn.testing.kit.clock import Clock
from forewarn.testing.kit.errors import RefusedByService
from forewarn.testing.kit.events import AnEvent, id_of
from forewarn.testing.kit.inprocess import Answer, exchange, over_socket
from forewarn.testing.kit.machines import NEWEST
from forewarn.testing.kit.session import Session
from forewarn.wire.requests import write_approval

LOOPBACK = Address("127.0.0.1", 0)


class Requests(Session):
    clock: Clock
    over_sockets: bool  # the kit's own requests, too

    # Its addresses.

    @property
    def addresses(self) -> dict[str, str]:
        """Where to ask as whom."""
        groups = self.call(lambda: list(self.node.machine_index.groups()))
        return {machine.name: machine.addresses[0] for g in groups for machine in g.machines}

    def address(self, machine: str) -> str:
        """The loopback address that is this machine's."""
        machine_index = self.node.machine_index
        found = self.call(machine_index.machine, machine)
        if found is None:
            none = 'there are none yet; make some: service.scale_set("web", 3)'
            says = machine_index.unknown_machine(machine)
            raise RefusedByService(
                says if machine_index.count else f"no machine '{machine}': {none}"
            )
        return found[1].addresses[0]

    def url(self, machine: object = None) -> str:
        """Where the endpoint is, on real sockets; they are there from the first time that somebody
        asks. With a machine: where it is asked as that machine."""
        if not self.node.open_to_all:
            self.run(self.node.let_guests_in(LOOPBACK))
        if machine is None:
            return self.node.metadata_url
        port = self.node.metadata_url.rpartition(":")[2]
        return f"http://{self.address(str(machine))}:{port}"

    @property
    def control_url(self) -> str:
        """Where the control API is; it is there from the first time that somebody asks."""
        if not self.node.control_url:
            self.run(self.node.let_operators_in(LOOPBACK))
        return self.node.control_url

    # As a guest.

    def request(
        self,
        machine: str,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        """One HTTP request as this machine."""
        asked = self.address(machine)
        if self.over_sockets:
            port = int(self.url().rpartition(":")[2])
        with self.clock.asking(machine):
            if self.over_sockets:
                return over_socket(asked, port, method, target, headers or {}, body)
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

    def approve(self, machine: str, *events: AnEvent) -> Answer:
        return self.post(machine, write_approval([id_of(event) for event in events]))

    def document(self, machine: str, version: str = NEWEST) -> Any:
        """What the machine is shown now."""
        return self.get(machine, version).json()
