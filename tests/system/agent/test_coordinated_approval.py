"""Several machines that approve together: when all are ready, the first that is listed and alive
does; and who is missing blocks nobody beyond NotBefore."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from forewarn.testing import Group, Service
from helpers.forked_agent import AgentForks, Bench, ForkedAgent, living
from helpers.waiting import until

RULE = '[[rule]]\nhooks = ["hook"]\napprove = "coordinated"\n[hook.hook]\nprepare = EFFECT\n'


@pytest.fixture(scope="module")
def every() -> Iterator[AgentForks]:
    with living() as lives:
        yield lives


@pytest.fixture
def lives(every: AgentForks) -> Iterator[AgentForks]:
    yield every
    every.end_all()


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        yield service


def three(service: Service) -> Group:
    """That may go together."""
    return service.scale_set("web", 3, update_domains=1)


def begun(
    lives: AgentForks, directory: Path, endpoint: str, shared: Path | None = None
) -> ForkedAgent:
    more = "" if shared is None else f'shared = "{shared}"'
    return lives.begin(Bench(directory, endpoint, more).says(RULE).config)


def test_the_first_machine_approves_when_all_are_ready(
    lives: AgentForks, service: Service, tmp_path: Path
) -> None:
    web = three(service)
    event = service.schedule("Reboot", "web_2", "web_0", "web_1")
    first, second = (begun(lives, tmp_path / m.name, m.url) for m in (web["web_2"], web["web_0"]))
    until(lambda: first.reported("ready") and second.reported("ready"), "both are ready")
    assert event.status == "Scheduled"
    third = begun(lives, tmp_path / "web_1", web["web_1"].url)
    until(lambda: event.status == "Started", "it is approved")
    assert event.approved_by == event.resources[0]
    assert set(event.ready) == {"web_0", "web_1", "web_2"}
    listed = {"web_2": first, "web_0": second, "web_1": third}
    until(lambda: listed[event.resources[0]].reported("approved"), "it says so")


def test_the_next_machine_approves_if_the_first_is_dead(
    lives: AgentForks, service: Service, tmp_path: Path
) -> None:
    web = three(service)
    event = service.schedule("Reboot", "web_0", "web_1")
    web[0].report_ready(event)  # and dies
    second = begun(lives, tmp_path / "web_1", web[1].url)
    until(lambda: second.reported("all ready"), "all are ready")
    assert event.status == "Scheduled"
    service.clock.advance("6s")
    service.schedule("Freeze", "web_2")  # with which everybody sees what time it is
    until(lambda: event.status == "Started", "the second approves")
    assert event.approved_by == "web_1"


def test_a_machine_that_is_never_ready_delays_others_only_until_not_before(
    lives: AgentForks, service: Service, tmp_path: Path
) -> None:
    web = three(service)
    event = service.schedule("Reboot", "web_0", "web_1")
    first = begun(lives, tmp_path / "web_0", web[0].url)
    until(lambda: first.reported("ready"), "it is ready")
    service.clock.advance("14m50s")
    assert event.status == "Scheduled"
    service.clock.advance("10s")
    assert event.status == "Started"
    assert event.approved_by is None
    until(lambda: first.reported("event started"), "the agent goes on")


class _WithoutUs(BaseHTTPRequestHandler):
    """The endpoint, as a cloud has it: nothing stands beside it."""

    protocol_version = "HTTP/1.1"
    behind = ""

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, headers, output = 404, {}, b""
        if not self.path.startswith("/forewarn/"):
            place = urlsplit(self.behind)
            line = http.client.HTTPConnection(place.hostname or "", place.port)
            passed = {k: v for k, v in self.headers.items() if k.lower() != "host"}
            line.request(self.command, self.path, body or None, passed)
            answer = line.getresponse()
            status, output = answer.status, answer.read()
            headers = {k: v for k, v in answer.getheaders() if k.lower() in ("etag", "date")}
            line.close()
        self.send_response_only(status)
        for key, value in {**headers, "Content-Length": str(len(output))}.items():
            if status != 304 or key != "Content-Length":
                self.send_header(key, value)
        self.end_headers()
        self.wfile.write(output)

    do_GET = do_POST = do_PUT = _pass_on  # noqa: N815

    def log_message(self, *_: object) -> None: ...


@contextmanager
def elsewhere(url: str) -> Iterator[str]:
    handler = type("Handler", (_WithoutUs,), {"behind": url})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_machines_coordinate_through_a_shared_directory_without_extensions(
    lives: AgentForks, service: Service, tmp_path: Path
) -> None:
    web = three(service)
    shared = tmp_path / "shared"
    shared.mkdir()
    event = service.schedule("Reboot", "web_0", "web_1")
    with elsewhere(web[0].url) as zero, elsewhere(web[1].url) as one:
        second = begun(lives, tmp_path / "web_1", one, shared)
        until(lambda: (shared / event.id / "web_1").exists(), "it is ready")
        first = begun(lives, tmp_path / "web_0", zero, shared)
        until(lambda: event.status == "Started", "it is approved")
        assert event.approved_by == "web_0"
        event.finish()
        until(
            lambda: first.reported("event handled") and second.reported("event handled"),
            "all is done",
        )
        until(lambda: not list(shared.iterdir()), "nothing of it is left")
        first.end()
        second.end()


def test_the_agent_reports_that_machines_cannot_coordinate(
    lives: AgentForks, service: Service, tmp_path: Path
) -> None:
    web = three(service)
    event = service.schedule("Reboot", "web_0", "web_1")
    with elsewhere(web[0].url) as zero:
        first = begun(lives, tmp_path / "web_0", zero)
        (trouble,) = until(lambda: first.reported("problem"), "it says so")
        assert "[agent] shared" in trouble["why"]
        assert event.status == "Scheduled"
        first.end()
