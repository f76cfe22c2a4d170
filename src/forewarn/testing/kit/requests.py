"""HTTP requests that a test sends as one of the machines: in process, or over real sockets."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

from forewarn.node import Node
from forewarn.support.handles import EventRef, id_of
from forewarn.testing.kit.clock import Clock
from forewarn.testing.kit.inprocess import Response, exchange, over_socket
from forewarn.testing.session import Session, caller_id
from forewarn.wire.requests import write_approval
from forewarn.wire.versions import NEWEST as NEWEST_VERSION

NEWEST = NEWEST_VERSION.name


class Requests(Session):
    """A session that sends requests as any machine. `over_sockets` applies to all of them."""

    def __init__(self, node: Node, *, over_sockets: bool) -> None:
        super().__init__(node)
        self.over_sockets = over_sockets
        self.clock = Clock(self)

    def request(
        self,
        machine: str,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Response:
        """Send one HTTP request as this machine."""
        address = self.address(machine)
        url = self.url(machine) if self.over_sockets else ""
        with self._by_test(machine):
            if self.over_sockets:
                return over_socket(url, method, target, headers or {}, body)
            return self.run(exchange(self.node.app, address, method, target, headers or {}, body))

    def get(
        self, machine: str, version: str = NEWEST, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Poll as this machine."""
        target = f"/metadata/scheduledevents?api-version={version}"
        return self.request(machine, "GET", target, {"Metadata": "true", **(headers or {})})

    def post(
        self,
        machine: str,
        body: bytes,
        version: str = NEWEST,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Send a POST as this machine."""
        target = f"/metadata/scheduledevents?api-version={version}"
        return self.request(machine, "POST", target, {"Metadata": "true", **(headers or {})}, body)

    def approve(self, machine: str, *events: EventRef) -> Response:
        """Approve these events as this machine."""
        return self.post(machine, write_approval([id_of(event) for event in events]))

    def _by_test(self, machine: str) -> AbstractContextManager[None]:
        """Mark requests in the block as the test's own, and not its client's."""
        catch_up = self.node.catch_up
        return catch_up.identified_as(machine, caller_id()) if catch_up else nullcontext()
