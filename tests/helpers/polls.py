"""Polls as bytes, and waiting for what a service does in its own time."""

from __future__ import annotations

import urllib.request

from forewarn.support import guard
from forewarn.testing import Service
from helpers.endpoint import METADATA, NEWEST, events
from helpers.raw_http import CLOSING, RawConnection, RawResponse, request
from helpers.waiting import LIMIT, until

GET = request("GET", events(NEWEST), METADATA)
LAST = request("GET", events(NEWEST), METADATA, "Connection: close")
ODD = request("GET", events(NEWEST), METADATA, "X-Odd: 1")  # the slow path
CHUNKED = request("POST", events(NEWEST), METADATA, "Transfer-Encoding: chunked")

real_time = guard.monotonic  # also where a test has guard time in its hands


def until_closed(service: Service) -> None:
    """Wait until the service has accepted and closed every connection that clients have closed."""

    async def turn() -> None:
        """Let the loop accept what the kernel has queued in the meantime."""

    def closed() -> bool:
        for _ in range(5):
            service._session.run(turn())
        return service._session.node.endpoint.connections.total == 0

    until(closed, "the end of all connections", CLOSING)


def send_poll(line: RawConnection, data: bytes = GET) -> RawResponse:
    line.send(data)
    return line.answer()


def metrics(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=LIMIT) as answer:
        output = answer.read().decode().splitlines()
    pairs = [line.rpartition(" ") for line in output if not line.startswith("#")]
    return {name: float(value) for name, _, value in pairs}


def limit_hits(url: str) -> dict[str, float]:
    """How often each limit was reached, by its name."""
    prefix = 'forewarn_limit_hits_total{limit="'
    return {n.removeprefix(prefix)[:-2]: v for n, v in metrics(url).items() if n.startswith(prefix)}
