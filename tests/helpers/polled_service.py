"""A service under test, and machines that go on polling whatever happens.

Every machine has a source address of its own on loopback. A poll that is refused, cut or answered
wrongly is remembered, with how it went wrong; nothing is retried.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers.forked_cli import start
from helpers.polls import GET, LAST
from helpers.process import Running
from helpers.raw_http import (
    ConnectionClosed,
    NoAnswer,
    RawConnection,
    RawResponse,
    exchange,
    request,
)
from helpers.waiting import LIMIT, until

METADATA = "Metadata: true"
LAST_POLL = LAST
TARGET = "/metadata/scheduledevents?api-version=2020-07-01"
MACHINES = 12
NEVER_LONGER = LIMIT  # seconds
BREATH = 0.1  # seconds between two polls of a machine: of a dozen, one is always asking


def source(n: int) -> str:
    return f"127.1.0.{n + 1}"


def fleet(machines: int = MACHINES) -> str:
    lines = ["groups:", "  - name: web", "    kind: scale-set", "    machines:"]
    lines += [f"      - {{name: web_{n}, address: {source(n)}}}" for n in range(machines)]
    return "\n".join(lines) + "\n"


class PolledService:
    """`forewarn serve`, with machines that poll it."""

    def __init__(self, directory: Path, **settings: object) -> None:
        self.directory = directory
        (directory / "fleet.yaml").write_text(fleet())
        output: dict[str, object] = {
            "fleet": "fleet.yaml",
            "state": "state.db",
            "metadata": "127.0.0.1:0",
            "control": "127.0.0.1:0",
            **settings,
        }
        self.config = directory / "forewarn.toml"
        self.write(output)
        self.output = output
        self.running: Running | None = None
        self.metadata = self.control = ""

    def write(self, output: dict[str, object]) -> None:
        lines = [f"{key} = {json.dumps(value)}" for key, value in output.items()]
        self.config.write_text("\n".join(lines) + "\n")

    def start(
        self, *before: str, sockets: Mapping[int, str] | None = None, **environment: str
    ) -> Running:
        """Start the service, with open sockets and their names if it is to be handed some over."""
        argv = [*before, sys.executable, "-m", "forewarn", "serve", "--config", str(self.config)]
        more = {"sockets": sockets} if sockets else {}
        process = start(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "XDG_RUNTIME_DIR": str(self.directory), **environment},
            **more,
        )
        self.running = Running(process, argv)
        return self.running

    def wait_until_ready(self) -> None:
        assert self.running is not None
        line = self.running.line(60)
        assert line.startswith("ready "), line
        urls = json.loads(line.removeprefix("ready "))
        self.metadata, self.control = urls["metadata"], urls["control"]

    @property
    def place(self) -> tuple[str, int]:
        host, _, port = self.metadata.removeprefix("http://").rpartition(":")
        return host, int(port)

    @property
    def pid(self) -> int:
        assert self.running is not None
        return self.running.process.pid

    def ask(self, method: str, path: str, output: object = None) -> Any:
        """Ask the control API."""
        asked = urllib.request.Request(
            f"{self.control}{path}",
            method=method,
            data=None if output is None else json.dumps(output).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=NEVER_LONGER) as answer:
            return json.loads(answer.read() or b"null")

    def schedule(self, machine: str = "web_0", type: str = "Reboot") -> str:
        event = {"type": type, "machines": [machine]}
        id = self.ask("POST", "/v1/events", event)["id"]
        assert isinstance(id, str)
        return id

    def poll(self, n: int = 0) -> RawResponse:
        return exchange(self.place, LAST, source=source(n))

    def document(self, n: int = 0) -> Any:
        raw = self.poll(n)
        assert raw.status == 200, raw
        return raw.json()

    def approve(self, id: str, n: int = 0) -> int:
        body = json.dumps({"StartRequests": [{"EventId": id}]}).encode()
        output = request("POST", TARGET, METADATA, "Connection: close", body=body)
        return exchange(self.place, output, source=source(n)).status

    def stop(self) -> int:
        assert self.running is not None
        return self.running.stop()

    def logged_so_far(self) -> str:
        assert self.running is not None
        return "".join(self.running.stderr)


@contextlib.contextmanager
def polled_service(directory: Path, **settings: object) -> Iterator[PolledService]:
    service = PolledService(directory, **settings)
    service.start()
    try:
        service.wait_until_ready()
        yield service
    finally:
        service.stop()


class Pollers:
    """Machines that poll again and again, each on connections of its own: every other one on a
    new connection each time, the others on one that they keep for as long as the server does."""

    def __init__(self, place: tuple[str, int], machines: Sequence[int]) -> None:
        self._place = place
        self._stop = threading.Event()
        self.went = Counter[str]()
        self.wrong: list[str] = []
        self.bodies: set[bytes] = set()
        self._threads = [
            threading.Thread(target=self._poll, args=(n, n % 2 == 0), daemon=True) for n in machines
        ]

    def __enter__(self) -> Pollers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(NEVER_LONGER)
            assert not thread.is_alive()

    def seen(self, more: int = 20) -> None:
        """Until so many more polls have been answered."""
        before = self.went["answered"]
        until(lambda: self.went["answered"] >= before + more)

    def _poll(self, n: int, once: bool) -> None:
        line: RawConnection | None = None
        while not self._stop.is_set():
            try:
                if line is None:
                    line = RawConnection(self._place, source=source(n))
                    line._socket.settimeout(NEVER_LONGER)  # a start may take its time
                line.send(LAST if once else GET)
                raw = line.answer()
            except ConnectionRefusedError:
                self._note("refused", n)
                raw = None
            except (ConnectionClosed, OSError) as error:
                self._note("cut", n, repr(error))
                raw = None
            except NoAnswer as error:
                self._note("hung", n, repr(error))
                raw = None
            if raw is not None:
                self.went["answered"] += 1
                self.bodies.add(raw.body)
                if raw.status != 200:
                    self._note(f"status {raw.status}", n)
            if line is not None and (raw is None or raw.all("connection") == ["close"]):
                line.close()
                line = None
            self._stop.wait(BREATH)
        if line is not None:
            line.close()

    def _note(self, how: str, n: int, why: str = "") -> None:
        self.went[how] += 1
        self.wrong.append(f"{how}: web_{n} {why}")


def listening() -> socket.socket:
    """Return a socket that somebody else than the service has opened."""
    return socket.create_server(("127.0.0.1", 0), backlog=512)
