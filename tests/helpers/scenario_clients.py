"""Clients that scenarios are played to: one that does what it should, and those with a mistake that
no twin makes. Over real sockets, in threads, as fast as they may."""

from __future__ import annotations

import http.client
import json
import threading
from typing import Any
from urllib.parse import urlsplit

from forewarn.testing.scenarios.result import CommandExit
from forewarn.testing.session import Session

PATH = "/metadata/scheduledevents?api-version=2020-07-01"
EVERY = 0.005  # seconds between two polls
TIMEOUT = 2.0  # of one request


class Good:
    """Takes whatever is no document for no answer. Sits a Freeze out, and approves what else is
    about its own machine, once, when it has got ready."""

    def __init__(self, url: str, machine: str) -> None:
        parts = urlsplit(url)
        self._where = parts.hostname or "", parts.port
        self.machine = machine
        self.approved: set[str] = set()

    def poll(self) -> None:
        document = self.ask("GET")
        if document is not None and isinstance(document.get("Events"), list):
            self.handle(document["Events"])

    def handle(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            id = event["EventId"]
            if self.wants(event) and id not in self.approved and self.approve(id):
                self.approved.add(id)

    def wants(self, event: dict[str, Any]) -> bool:
        return (
            event["EventStatus"] == "Scheduled"
            and event["EventType"] != "Freeze"
            and self.machine in event["Resources"]
        )

    def approve(self, *ids: str) -> bool:
        body = json.dumps({"StartRequests": [{"EventId": id} for id in ids]})
        return self.ask("POST", body) is not None

    def ask(self, method: str, body: str | None = None) -> dict[str, Any] | None:
        connection = http.client.HTTPConnection(*self._where, timeout=TIMEOUT)
        try:
            connection.request(method, PATH, body, {"Metadata": "true"})
            answer = connection.getresponse()
            output = answer.read()
            if answer.status != 200:
                return None
            return {} if method == "POST" else json.loads(output)
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()


class ApprovesEverything(Good):
    """Whatever stands in the document, whosever it is and however it stands."""

    def wants(self, event: dict[str, Any]) -> bool:
        return True


class OnlyOther(Good):
    """Takes no note of a document whose incarnation is the last one."""

    last = 0

    def poll(self) -> None:
        document = self.ask("GET")
        if document is None or not isinstance(document.get("Events"), list):
            return
        if document["DocumentIncarnation"] != self.last:
            self.last = document["DocumentIncarnation"]
            self.handle(document["Events"])


class FirstMachineOnly(Good):
    """Looks at the first machine of an event."""

    def wants(self, event: dict[str, Any]) -> bool:
        return super().wants(event) and event["Resources"][0] == self.machine


class Clients:
    """A client for every machine under test, each in a thread of its own."""

    def __init__(self, kind: type[Good], machines: tuple[str, ...]) -> None:
        self._kind = kind
        self._machines = machines
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, session: Session) -> None:
        for machine in self._machines:
            client = self._kind(session.url(machine), machine)
            thread = threading.Thread(target=self._keep_asking, args=(client,), name=machine)
            thread.start()
            self._threads.append(thread)

    def _keep_asking(self, client: Good) -> None:
        while not self._over.wait(EVERY):
            client.poll()

    def problem(self) -> str:
        return ""

    def exit_of(self, machine: str) -> str:
        return ""

    def end(self) -> tuple[CommandExit, ...]:
        self._over.set()
        for thread in self._threads:
            thread.join()
        return ()
