"""Several addresses where guests ask: the same service, the same machines and the same answers,
whichever of them was asked and however the service runs."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.forked_cli import start
from helpers.polled_service import (
    METADATA,
    TARGET,
    PolledService,
    Pollers,
    listening,
    polled_service,
    source,
)
from helpers.polls import LAST
from helpers.process import Running
from helpers.raw_http import exchange, request
from helpers.serve_process import FOREWARN, environment
from helpers.waiting import LIMIT, until

ANY_TWO = ["127.0.0.1:0", "127.0.0.1:0"]
# What the published C# discovery library asks for: it gives the query to UriBuilder as a part of
# the path, where a question mark is escaped.
ESCAPED_QUERY = "/metadata/scheduledEvents%3Fapi-version=2017-08-01"

Place = tuple[str, int]


def place_of(url: str) -> Place:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return host, int(port)


def ready_line(running: Running) -> dict[str, object]:
    (line,) = [line for line in running.stdout if line.startswith("ready ")]
    urls = json.loads(line.removeprefix("ready "))
    assert isinstance(urls, dict)
    return urls


def places(service: PolledService) -> list[Place]:
    """Both addresses, as the line that says ready and the control API have them."""
    assert service.running is not None
    urls = ready_line(service.running)["metadata_urls"]
    status = service.ask("GET", "/v1/status")
    assert status["metadata_urls"] == urls
    assert status["metadata"] == service.metadata == status["metadata_urls"][0]
    assert len({*status["metadata_urls"]}) == 2
    return [place_of(url) for url in status["metadata_urls"]]


class HandedOver(PolledService):
    """A service whose sockets, on two addresses, are held by somebody else."""

    def __init__(self, directory: Path, **settings: object) -> None:
        super().__init__(directory, **settings)
        self.guests = [listening(), listening()]
        self.write({**self.output, "metadata": [self.address(-1), self.address(0)]})

    def address(self, index: int) -> str:
        return f"127.0.0.1:{self.guests[index].getsockname()[1]}"

    def start_handed_over(self, *, but: int = 0) -> None:
        handed_over = self.guests[: len(self.guests) - but]
        self.start(sockets={listener.fileno(): "metadata" for listener in handed_over})
        self.wait_until_ready()

    def close(self) -> None:
        if self.running is not None:
            self.stop()
        for listener in self.guests:
            listener.close()


@contextlib.contextmanager
def handed_over(directory: Path) -> Iterator[PolledService]:
    service = HandedOver(directory)
    try:
        service.start_handed_over()
        yield service
    finally:
        service.close()


MODES = {
    "one process": lambda at: polled_service(at, metadata=ANY_TWO),
    "without the fast path": lambda at: polled_service(at, metadata=ANY_TWO, front=False),
    "recording": lambda at: polled_service(at, metadata=ANY_TWO, record="trace.jsonl"),
    "handed over": lambda at: handed_over(at),
}


@pytest.mark.parametrize("mode", MODES)
def test_every_address_answers_alike(mode: str, tmp_path: Path) -> None:
    with MODES[mode](tmp_path) as service:
        first, second = places(service)
        id = service.schedule("web_0", "Freeze")
        for n in range(6):
            answers = [exchange(place, LAST, source=source(n)) for place in (first, second)]
            assert answers[0].body == answers[1].body
            assert answers[0].json()["Events"][0]["EventId"] == id
        body = json.dumps({"StartRequests": [{"EventId": id}]}).encode()
        approval = request("POST", TARGET, METADATA, "Connection: close", body=body)
        assert exchange(second, approval, source=source(3)).status == 200
        (event,) = service.ask("GET", "/v1/events")
        assert event["approved"]["by"] == "web_3"
        for place in (first, second):
            assert exchange(place, LAST, source="127.9.9.9").status == 404  # not in the fleet
            # A request's target is what was sent: this is a path, and there is nothing there.
            escaped = request("GET", ESCAPED_QUERY, METADATA, "Connection: close")
            answer = exchange(place, escaped, source=source(0))
            assert (answer.status, answer.body) == (404, b'{ "error": "Not found" }')


def test_a_restart_refuses_no_poll_at_any_address(tmp_path: Path) -> None:
    service = HandedOver(tmp_path)
    try:
        service.start_handed_over()
        first, second = places(service)
        # As the settings list them, in whatever order they were handed over.
        assert first[1] == service.guests[-1].getsockname()[1]
        service.document(0)
        with Pollers(first, range(4)) as one, Pollers(second, range(4, 8)) as other:
            for crowd in (one, other):
                crowd.seen(30)
            assert service.stop() == 0
            service.start_handed_over()
            for crowd in (one, other):
                crowd.seen(30)
                crowd.leave()
        assert one.wrong + other.wrong == []
    finally:
        service.close()


def test_an_address_for_which_no_socket_was_handed_over_is_named(tmp_path: Path) -> None:
    service = HandedOver(tmp_path)
    try:
        service.start_handed_over(but=1)
        assert f"note: metadata lists {service.address(1)}" in service.logged_so_far()
        assert service.place[1] == service.guests[0].getsockname()[1]
    finally:
        service.close()


def test_all_addresses_are_bound_or_none(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        unused = free.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        service = PolledService(tmp_path, metadata=[f"127.0.0.1:{unused}", f"127.0.0.1:{port}"])
        assert service.start().wait(LIMIT) == 1
    assert f"127.0.0.1:{port} is in use" in service.logged_so_far()
    assert f"127.0.0.1:{unused}" not in service.logged_so_far()


def test_a_reload_keeps_the_addresses_and_says_that_they_need_a_restart(tmp_path: Path) -> None:
    with polled_service(tmp_path, metadata=ANY_TWO, log="json") as service:
        before = places(service)
        service.write({**service.output, "metadata": "127.0.0.1:0"})
        assert service.running is not None
        service.running.process.send_signal(1)
        log = service.running.stderr
        until(lambda: any("need a restart" in line for line in log))
        (line,) = [line for line in log if "need a restart" in line]
        assert '"metadata"' in line
        assert places(service) == before
        assert [exchange(place, LAST, source=source(0)).status for place in before] == [200, 200]


def test_in_dev_a_machine_is_known_by_the_address_asked_whichever_the_port(tmp_path: Path) -> None:
    argv = [*FOREWARN, "dev", "--control", "127.0.0.1:0"]
    for at in ANY_TWO:
        argv += ["--metadata", at]
    process = start(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
    )
    running = Running(process, argv)
    try:
        running.line()
        urls = ready_line(running)["metadata_urls"]
        assert isinstance(urls, list)
        path = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
        for port in [place_of(url)[1] for url in urls]:
            asked = urllib.request.Request(f"http://127.0.1.2:{port}{path}")
            asked.add_header("Metadata", "true")
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(asked, timeout=LIMIT) as answer:
                assert answer.read() == b"sql-0"
        assert f"also listens at {urls[1]}" in "".join(running.stderr)
    finally:
        running.stop()


def test_dev_refuses_two_addresses_on_one_port(tmp_path: Path) -> None:
    argv = [*FOREWARN, "dev", "--metadata", "127.0.0.1:8169", "--metadata", "127.0.0.2:8169"]
    ended = subprocess.run(
        argv, env=environment(tmp_path), capture_output=True, text=True, timeout=LIMIT
    )
    assert ended.returncode == 1
    assert "--metadata 127.0.0.2:8169" in ended.stderr
    assert "choose another port" in ended.stderr
