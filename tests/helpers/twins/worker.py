"""A worker as a user would write it: it takes jobs, and hands them back before its machine is
disturbed.

It uses nothing of forewarn. Its buggy twins in `mistakes.py` override one method or constant each.
"""

from __future__ import annotations

import http.client
import itertools
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import urlsplit

Event: TypeAlias = dict[str, Any]

EVENTS = "/metadata/scheduledevents?api-version={}"
NAME = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
HARMLESS = "Freeze"  # a pause of a few seconds, which jobs survive
LONGEST_PAUSE = 8  # intervals between two polls while the endpoint does not answer


class Worker:
    """`log` is called with what it does to its jobs; `every` is the interval of its polls."""

    api_version = "2020-07-01"
    headers: Mapping[str, str] = {"Metadata": "true"}
    timeout: float | None = 2.0  # seconds for one request
    drain_intervals = 0  # intervals between two polls that it takes to hand a job back

    def __init__(self, endpoint: str, log: Callable[[str], None], every: float = 1.0) -> None:
        parts = urlsplit(endpoint)
        self.address = parts.hostname or "", parts.port or 80
        self.log = log
        self.every = every
        self.name = ""
        self.draining = False
        self.job: int | None = None
        self.jobs = itertools.count(1)
        self.approved: set[str] = set()
        self.failures = 0  # polls in a row that were not answered with a document
        self.stop = threading.Event()

    def run(self, stop: threading.Event) -> None:
        self.stop = stop
        while not stop.is_set():
            self.tick()
            stop.wait(self.pause())
        self.drain()

    def pause(self) -> float:
        """Return the seconds until the next poll: more and more while there are no answers."""
        return float(self.every * min(2**self.failures, LONGEST_PAUSE))

    def tick(self) -> None:
        """Poll once, act on the events, and work unless an event is about to disturb the worker."""
        self.name = self.name or self.own_name()
        events = self.events() if self.name else None
        if events is None:
            self.failures += 1
        else:
            self.failures = 0
            self.handle(events)
        if not self.draining:
            self.work()

    def handle(self, events: list[Event]) -> None:
        """Drain before the first of these events that disturbs this worker, resume after the last
        one, and approve what it is ready for."""
        disturbing = [event for event in events if self.disturbs(event)]
        if disturbing and not self.draining:
            self.drain()
        elif not disturbing and self.draining:
            self.resume()
        for event in disturbing:
            if self.awaits_approval(event) and self.approve(event):
                self.approved.add(event["EventId"])

    def disturbs(self, event: Event) -> bool:
        return self.is_own(event) and event["EventType"] != HARMLESS

    def is_own(self, event: Event) -> bool:
        return self.name in event["Resources"]

    def awaits_approval(self, event: Event) -> bool:
        return event["EventStatus"] == "Scheduled" and event["EventId"] not in self.approved

    # Jobs.

    def work(self) -> None:
        """Finish the job in hand, and take the next one."""
        if self.job is not None:
            self.log(f"done {self.job}")
        self.job = next(self.jobs)
        self.log(f"taken {self.job}")

    def drain(self) -> None:
        """Hand the job back, so that another worker takes it."""
        self.draining = True
        if self.job is not None:
            self.stop.wait(self.drain_intervals * self.every)
            self.log(f"returned {self.job}")
            self.job = None

    def resume(self) -> None:
        self.draining = False

    # Requests.

    def own_name(self) -> str:
        """Return the name by which events list this machine; empty if it is not known yet."""
        answer = self.ask("GET", NAME)
        return answer.decode() if answer is not None else ""

    def events(self) -> list[Event] | None:
        """Return the events that are listed now; None if there was no usable answer."""
        answer = self.ask("GET", EVENTS.format(self.api_version))
        return None if answer is None else self.parse(answer)

    def parse(self, answer: bytes) -> list[Event] | None:
        try:
            document = json.loads(answer)
        except ValueError:
            return None
        events = document.get("Events")
        return events if isinstance(events, list) else None

    def approve(self, event: Event) -> bool:
        """Let an event start; return whether the service has confirmed it."""
        self.log(f"approved {event['EventId']}")
        body = self.approval(event)
        return self.ask("POST", EVENTS.format(self.api_version), body) is not None

    def approval(self, event: Event) -> bytes:
        return json.dumps({"StartRequests": [{"EventId": event["EventId"]}]}).encode()

    def ask(self, method: str, target: str, body: bytes | None = None) -> bytes | None:
        """Send a request; return the body of the answer, or None if it failed."""
        try:
            status, answer = self.send(method, target, body)
        except (OSError, http.client.HTTPException):
            return None
        return answer if status == 200 else None

    def send(self, method: str, target: str, body: bytes | None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(*self.address, timeout=self.timeout)
        try:
            connection.request(method, target, body, dict(self.headers))
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()
