"""Sockets that outlive the service: it is restarted while everybody polls, and nobody notices."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.polled_service import LAST_POLL as POLL
from helpers.polled_service import (
    NEVER_LONGER,
    PolledService,
    Pollers,
    listening,
    polled_service,
    source,
)
from helpers.raw_http import RawConnection
from helpers.waiting import until


class Managed(PolledService):
    """A service whose sockets we hold."""

    def __init__(self, directory: Path, **settings: object) -> None:
        super().__init__(directory, **settings)
        self.guests, self.operators = listening(), listening()

    def start_managed(self) -> None:
        self.start(sockets={self.guests.fileno(): "metadata", self.operators.fileno(): "control"})
        self.wait_until_ready()

    def restart(self) -> None:
        assert self.stop() == 0
        self.start_managed()

    def close(self) -> None:
        self.guests.close()
        self.operators.close()


@contextlib.contextmanager
def managed(directory: Path, **settings: object) -> Iterator[Managed]:
    service = Managed(directory, **settings)
    try:
        service.start_managed()
        yield service
    finally:
        if service.running is not None:
            service.stop()
        service.close()


def test_a_restart_refuses_no_poll_and_loses_no_approval(tmp_path: Path) -> None:
    with managed(tmp_path) as service:
        assert service.place[1] == service.guests.getsockname()[1]
        service.document(0)
        with Pollers(service.place, range(8)) as crowd:
            crowd.seen(100)
            for n in range(2):
                id = service.schedule(f"web_{n}", "Freeze")
                assert service.approve(id, 5) == 200
                service.restart()
                crowd.seen(100)
                (event,) = service.ask("GET", "/v1/events")
                assert event["approved"]["by"] == "web_5"
                service.ask("POST", f"/v1/events/{id}/finish", {"reason": "test"})
            crowd.leave()
        assert crowd.wrong == []
        assert crowd.went["answered"] >= 200  # those that were waited for


def test_a_restart_refuses_no_poll_on_the_long_way_either(tmp_path: Path) -> None:
    with managed(tmp_path, front=False) as service:
        service.document(0)
        with Pollers(service.place, range(8)) as crowd:
            crowd.seen(100)
            service.restart()
            crowd.seen(100)
            crowd.leave()
        assert crowd.wrong == []


def test_operators_wait_while_the_service_is_restarted(tmp_path: Path) -> None:
    with managed(tmp_path) as service:
        assert service.stop() == 0
        with socket.create_connection(service.operators.getsockname(), timeout=60) as line:
            line.sendall(b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            service.start_managed()
            assert line.recv(100).startswith(b"HTTP/1.1 200")


def test_several_sockets_for_one_address_are_refused(tmp_path: Path) -> None:
    service = PolledService(tmp_path)
    with listening() as listener, listener.dup() as another:
        sockets = {listener.fileno(): "metadata", another.fileno(): "metadata"}
        assert service.start(sockets=sockets).wait() == 1
    assert "2 sockets called 'metadata' were handed over" in service.logged_so_far()


def test_a_service_that_stops_answers_whoever_waits_at_its_own_sockets(tmp_path: Path) -> None:
    with polled_service(tmp_path) as service:
        service.document(0)
        os.kill(service.pid, signal.SIGSTOP)  # it does not accept: callers wait with the kernel
        lines = [RawConnection(service.place, source=source(n)) for n in range(12)]
        for line in lines:
            line.send(POLL)
        os.kill(service.pid, signal.SIGTERM)
        os.kill(service.pid, signal.SIGCONT)
        for line in lines:
            with line:
                assert line.answer().status == 200
        assert service.running is not None
        assert service.running.wait(NEVER_LONGER) == 0


def test_a_handed_over_address_must_be_as_confined_as_one_of_our_own(tmp_path: Path) -> None:
    service = PolledService(tmp_path)
    with socket.create_server(("0.0.0.0", 0)) as made:
        assert service.start(sockets={made.fileno(): "metadata"}).wait() == 1
    assert "allow_other_addresses" in service.logged_so_far()


def test_systemd_starts_it_with_the_first_caller(tmp_path: Path) -> None:
    activate = shutil.which("systemd-socket-activate")
    if activate is None:
        if os.environ.get("CI") == "true":
            pytest.fail("systemd-socket-activate is missing: apt-get install systemd")
        pytest.skip("needs systemd-socket-activate: apt-get install systemd")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    service = PolledService(tmp_path)
    running = service.start(
        *(activate, "-l", f"127.0.0.1:{port}", "--fdname=metadata", "-E", "XDG_RUNTIME_DIR", "--")
    )
    try:
        until(lambda: any("Listening on" in line for line in running.stderr))
        with RawConnection(("127.0.0.1", port), source=source(0)) as line:
            line._socket.settimeout(NEVER_LONGER)  # until the service has started
            line.send(POLL)
            raw = line.answer()
        assert json.loads(raw.body) == {"DocumentIncarnation": 1, "Events": []}
        service.wait_until_ready()
        assert service.place == ("127.0.0.1", port)
    finally:
        assert service.stop() == 0
