"""Guests that poll all the time, on a new connection each time, and write down what they get; and
those who are asked to account for it.

Nothing here knows where guests and nodes run.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forewarn.support import guard
from helpers.endpoint import METADATA, NEWEST, approval, events
from helpers.raw_http import request

PAUSE = 0.1  # seconds between two polls
ANSWER_WITHIN = 60.0  # seconds; a poll may wait while a change is told
# A driver that moves a machine once it is told to, and does everything else at once. It records
# what it has done.
DRIVER = """
[ "$FOREWARN_VERB" != check ] || exit 0
grep -qs "$FOREWARN_EVENT" '{room}/impacts.jsonl' && exit 30
[ "$FOREWARN_VERB" = perform ] || exit 10
machine=$(sed 's/.*"machines":\\[{{"name":"\\([^"]*\\)".*/\\1/')
if [ "$FOREWARN_TYPE" = Freeze ] && [ ! -e '{room}/moved' ]; then
    echo '{{"after": "0.5s"}}'
    exit 10
fi
printf '{{"kind":"impact","t":%s,"event":"%s","type":"%s","machines":["%s"]}}\\n' \\
    "$(date +%s.%N)" "$FOREWARN_EVENT" "$FOREWARN_TYPE" "$machine" >> '{room}/impacts.jsonl'
[ "$FOREWARN_TYPE" != Freeze ] || echo '{{"moved": {{"{machine}": "{host}"}}}}'
"""


@dataclass(frozen=True)
class Place:
    """Where a guest is."""

    host: str
    address: str
    endpoint: tuple[str, int]
    socket: Callable[[], socket.socket] = socket.socket  # made in the guest's network


class Guest:
    """A machine that polls all the time, and can approve."""

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self.place = place
        self.lines: list[dict[str, Any]] = []  # as in a trace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll_on, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(ANSWER_WITHIN)

    def _poll_on(self) -> None:
        while not self._stop.wait(PAUSE):
            self.ask(self.place)

    def ask(self, place: Place, method: str = "GET", body: bytes = b"") -> dict[str, Any]:
        """Send a request from a place; returns a line of a trace, and keeps it."""
        line = self.exchange(place, method, body)
        self.lines.append(line)
        return line

    def exchange(self, place: Place, method: str = "GET", body: bytes = b"") -> dict[str, Any]:
        line: dict[str, Any] = {
            "kind": "exchange",
            "machine": self.name,
            "host": place.host,
            "from": place.address,
            "method": method,
            "target": events(NEWEST),
            "headers": [METADATA.split(": ")],
            "body": body.decode(),
            "asked": guard.wall_us() / 1e6,
            "status": None,
        }
        asked = request(method, events(NEWEST), METADATA, "Connection: close", body=body)
        with place.socket() as connection:
            connection.settimeout(ANSWER_WITHIN)
            try:
                connection.connect(place.endpoint)
                connection.sendall(asked)
                received = b""
                while data := connection.recv(65536):
                    received += data
            except ConnectionRefusedError:
                line["trouble"] = "refused"
            except OSError as error:
                line["trouble"] = "late" if isinstance(error, TimeoutError) else "reset"
            else:
                head, _, answer = received.decode().partition("\r\n\r\n")
                first, *headers = head.split("\r\n")
                if first:
                    line["status"] = int(first.split(" ")[1])
                    line["answer_headers"] = [header.split(": ", 1) for header in headers]
                    line["answer"] = answer
                else:
                    line["trouble"] = "cut"
        line["t"] = guard.wall_us() / 1e6
        return line

    def poll(self) -> dict[str, Any]:
        """Return the document that it is shown now."""
        line = self.ask(self.place)
        assert line["status"] == 200, line
        document = json.loads(line["answer"])
        assert isinstance(document, dict)
        return document

    def sees(self, event: str) -> str:
        """Return the status of an event that it is shown now; empty if it does not see it."""
        statuses = {e["EventId"]: e["EventStatus"] for e in self.poll()["Events"]}
        return str(statuses.get(event, ""))

    def approve(self, event: str) -> int | None:
        status: int | None = self.ask(self.place, "POST", approval(event))["status"]
        return status

    def refused(self, since: int = 0) -> list[dict[str, Any]]:
        """Return the polls that were not answered with a document, since so many lines."""
        return [
            line for line in self.lines[since:] if line["method"] == "GET" and line["status"] != 200
        ]


def write_trace(path: Path, guests: Iterable[Guest], nodes: Sequence[Path]) -> None:
    """Write what guests have recorded, and when their nodes were there, and disconnected."""
    with path.open("w") as file:
        for guest in guests:
            file.writelines(f"{json.dumps(line)}\n" for line in list(guest.lines))
        for node in nodes:
            lines = node.read_text().splitlines(keepends=True)
            file.writelines(line for line in lines if '"kind":"exchange"' not in line)


def approved(guests: Iterable[Guest]) -> set[str]:
    """Return the events that guests were told to have approved."""
    return {
        asked["EventId"]
        for guest in guests
        for line in list(guest.lines)
        if line["method"] == "POST" and line["status"] == 200
        for asked in json.loads(line["body"])["StartRequests"]
    }
