"""Clients for tests of the clock: threads that poll as a machine, and what they have seen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from forewarn.testing import Service
from forewarn.testing.kit.inprocess import Response, exchange
from forewarn.wire.extensions import WAIT
from forewarn.wire.requests import EVENTS_PATH, write_approval
from helpers.waiting import LIMIT, until

PAUSE = 0.005  # seconds between two polls: a client that asks once a second, two hundredfold
PATIENCE = LIMIT


class Client:
    """Polls as a machine and keeps what it was shown, as often as that was something else."""

    def __init__(
        self,
        service: Service,
        machine: str,
        *,
        version: str = "2020-07-01",
        headers: Mapping[str, str] | None = None,
        conditional: bool = False,
        pause: float = PAUSE,
        waits: bool = False,
        act: Callable[[Client, Any], None] = lambda *_: None,
    ) -> None:
        self._service = service
        self.machine = machine
        self._version = version
        self._headers = dict(headers or {})
        self._conditional = conditional or waits
        self._waits = waits
        self._pause = pause
        self._act = act
        self._stop = threading.Event()
        self._asked = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.statuses: list[list[str]] = []
        self.answers: list[int] = []
        self.headers: Mapping[str, str] = {}  # of the last answer
        self.incarnations: list[int] = []

    def __enter__(self) -> Client:
        self._thread.start()
        assert self._asked.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._waits:
            session = self._service._session
            session.call(session.node.endpoint.extensions.stop)
        self.join()

    def join(self) -> None:
        """Wait until it polls no more."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        """Poll no more. Usable by `act`, as if the client had died."""
        self._stop.set()

    def polls(self, count: int) -> bool:
        """Wait until it has got so many more answers, or has ended with its machine."""
        before = len(self.answers)
        until(lambda: len(self.answers) >= before + count or not self._thread.is_alive())
        return True

    def ask(
        self, method: str, headers: Mapping[str, str], body: bytes = b"", path: str = EVENTS_PATH
    ) -> Response:
        version = self._version
        return guest(self._service, self.machine, version, method, headers, body, path)

    def approve(self, document: Any) -> None:
        for event in document["Events"]:
            if event["EventStatus"] == "Scheduled":
                self.ask("POST", {}, write_approval([event["EventId"]]))

    def _run(self) -> None:
        tag: dict[str, str] = {}
        document: Any = None
        while not self._stop.is_set():
            path = WAIT if self._waits and tag else EVENTS_PATH
            answer = self.ask("GET", {**self._headers, **tag}, path=path)
            self.answers.append(answer.status)
            self.headers = answer.headers
            if answer.status == 200 and answer.body:
                if self._conditional:
                    tag = {"If-None-Match": answer.headers["etag"]}
                document = answer.json()
                self._read(document)
            elif answer.status == 304:
                self._act(self, document)
            self._asked.set()
            if answer.status == 404:  # the machine is no more
                return
            self._stop.wait(self._pause)

    def _read(self, document: Any) -> None:
        statuses = [event["EventStatus"] for event in document["Events"]]
        if not self.incarnations or self.incarnations[-1] != document["DocumentIncarnation"]:
            self.statuses.append(statuses)
            self.incarnations.append(document["DocumentIncarnation"])
        self._act(self, document)


def guest(
    service: Service,
    machine: str,
    version: str = "2020-07-01",
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    path: str = EVENTS_PATH,
) -> Response:
    """One request that nobody can tell to be the test's own."""
    target = f"{path}?api-version={version}"
    output = {"Metadata": "true", **(headers or {})}
    asked = service.addresses[machine]
    return service._session.run(
        exchange(service._session.node.app, asked, method, target, output, body)
    )


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[list[BaseException]]:
    """Do it in a thread meanwhile; what it failed with is in the list afterwards."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield failed
    thread.join(PATIENCE)
    assert not thread.is_alive()
