"""Sockets that outlive the service: it is restarted while everybody polls, and nobody notices."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.polls import until
from helpers.raw_http import exchange
from helpers.worker_processes import LAST_POLL as POLL
from helpers.worker_processes import MANAGER, MultiProcessService, Pollers, listening, source


class Managed(MultiProcessService):
    """A service whose sockets we hold."""

    def __init__(self, directory: Path, workers: int, **settings: object) -> None:
        super().__init__(directory, workers, **settings)
        self.guests = listening(max(1, workers))
        self.operators = listening(1, shared=False)
        self.names = ":".join(["metadata"] * len(self.guests) + ["control"])

    def start_managed(self) -> None:
        fds = [s.fileno() for s in (*self.guests, *self.operators)]
        said = ",".join(map(str, fds))
        self.start(sys.executable, "-c", MANAGER, said, self.names, fds=fds)
        self.wait_until_ready()

    def restart(self) -> None:
        assert self.stop() == 0
        self.start_managed()

    def close(self) -> None:
        for one in (*self.guests, *self.operators):
            one.close()


@contextlib.contextmanager
def managed(directory: Path, workers: int, **settings: object) -> Iterator[Managed]:
    service = Managed(directory, workers, **settings)
    try:
        service.start_managed()
        yield service
    finally:
        if service.running is not None:
            service.stop()
        service.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_restart_refuses_no_poll_and_loses_no_approval(tmp_path: Path, workers: int) -> None:
    with managed(tmp_path, workers) as service:
        assert service.place[1] == service.guests[0].getsockname()[1]
        service.document(0)
        with Pollers(service.place, range(8)) as crowd:
            crowd.seen(100)
            for n in range(2 - workers // 2):
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
    with managed(tmp_path, 0, front=False) as service:
        service.document(0)
        with Pollers(service.place, range(8)) as crowd:
            crowd.seen(100)
            service.restart()
            crowd.seen(100)
            crowd.leave()
        assert crowd.wrong == []


def test_operators_wait_while_the_service_is_restarted(tmp_path: Path) -> None:
    with managed(tmp_path, 0) as service:
        assert service.stop() == 0
        with socket.create_connection(service.operators[0].getsockname(), timeout=60) as line:
            line.sendall(b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            service.start_managed()
            assert line.recv(100).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(("workers", "names"), [(2, "metadata"), (1, "metadata:metadata")])
def test_too_few_or_too_many_sockets_are_refused_with_what_to_write(
    tmp_path: Path, workers: int, names: str
) -> None:
    service = MultiProcessService(tmp_path, workers)
    sockets = listening(names.count("metadata"))
    try:
        fds = [one.fileno() for one in sockets]
        said = ",".join(map(str, fds))
        assert service.start(sys.executable, "-c", MANAGER, said, names, fds=fds).wait(30) == 1
    finally:
        for one in sockets:
            one.close()
    assert "ReusePort=yes" in service.said_so_far()
    assert f"{workers} worker" in service.said_so_far()


def test_a_handed_over_address_must_be_as_confined_as_one_of_our_own(tmp_path: Path) -> None:
    service = MultiProcessService(tmp_path, 0)
    with socket.create_server(("0.0.0.0", 0)) as made:
        fds = [made.fileno()]
        argv = (sys.executable, "-c", MANAGER, str(fds[0]), "metadata")
        assert service.start(*argv, fds=fds).wait(30) == 1
    assert "allow_other_addresses" in service.said_so_far()


def test_systemd_starts_it_with_the_first_caller(tmp_path: Path) -> None:
    activate = shutil.which("systemd-socket-activate")
    if activate is None:
        if os.environ.get("CI") == "true":
            pytest.fail("systemd-socket-activate is missing: apt-get install systemd")
        pytest.skip("needs systemd-socket-activate: apt-get install systemd")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    service = MultiProcessService(tmp_path, 0)
    running = service.start(
        *(activate, "-l", f"127.0.0.1:{port}", "--fdname=metadata", "-E", "XDG_RUNTIME_DIR", "--")
    )
    try:
        until(lambda: any("Listening on" in line for line in running.stderr), 20)
        raw = exchange(("127.0.0.1", port), POLL, source=source(0))
        assert json.loads(raw.body) == {"DocumentIncarnation": 1, "Events": []}
        service.wait_until_ready()
        assert service.place == ("127.0.0.1", port)
    finally:
        assert service.stop() == 0
