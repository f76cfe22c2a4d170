"""What every driver promises, on a pretended server that answers as the documentation of Proxmox VE
says. That Proxmox VE does answer so was never tried."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest

from forewarn.core import EventType
from forewarn.drivers.port import Done, Driver, DriverContext, Running, Task, Unknown, Veto
from forewarn.testing.drivers import DriverContract, DriverPlace, task
from forewarn_proxmox.driver import ProxmoxDriver, ProxmoxOptions

DISTURBING = ("shutdown", "suspend", "migrate-online")


class Pretended:
    """A cluster of the nodes a and b, with one guest."""

    def __init__(self) -> None:
        self.node, self.status, self.description = "a", "running", ""
        self.exists = True
        self.exit_status = "OK"
        self.tasks: list[dict[str, str]] = []
        self.disturbed = 0

    def answer(self, method: str, path: str, data: dict[str, str]) -> Any:
        guest = f"/nodes/{self.node}/qemu/100"
        match method, path:
            case "GET", "/cluster/resources":
                fields = {"vmid": 100, "node": self.node, "type": "qemu", "status": self.status}
                return [fields | {"name": "web-0"}] if self.exists else []
            case "GET", "/nodes":
                return [{"node": node, "status": "online"} for node in "ab"]
            case "GET", "/nodes/a/tasks" | "/nodes/b/tasks":
                node = path.split("/")[2]
                found = [one for one in self.tasks if one["node"] == node]
                return [one for one in found if one["type"] == data["typefilter"]][-1:]
            case "GET", _ if path.endswith("/status"):
                return {"status": "stopped", "exitstatus": self.exit_status}
            case "GET", _ if path == f"{guest}/config":
                return {"description": self.description, "digest": "1"}
            case "PUT", _ if path == f"{guest}/config":
                self.description = data["description"]
                return None
            case "DELETE", _ if path == guest:
                self.exists = False
                return self.begun("destroy", self.node)
            case "POST", _ if path.startswith(f"{guest}/"):
                return self.act(path.rpartition("/")[2], data)
        raise LookupError(f"{method} {path}")

    def act(self, verb: str, data: dict[str, str]) -> str:
        node = self.node
        if verb == "migrate":
            verb = "migrate-online" if data["online"] == "1" else verb
            self.node = data["target"]
        self.status = {"shutdown": "stopped", "start": "running"}.get(verb, self.status)
        self.disturbed += verb in DISTURBING
        return self.begun(verb.removesuffix("-online"), node)

    def begun(self, verb: str, node: str) -> str:
        number = f"{len(self.tasks):08X}"
        upid = f"UPID:{node}:{number}:00000002:00000003:qm{verb}:100:forewarn@pve:"
        self.tasks.append({"upid": upid, "type": f"qm{verb}", "node": node})
        return upid


class Place(DriverPlace):
    def __init__(self, pretended: Pretended, url: str, token_file: Path) -> None:
        self.pretended = pretended
        self.options = ProxmoxOptions(url=url, token_file=str(token_file))

    def driver(self) -> Driver:
        return ProxmoxDriver(self.options, DriverContext())

    def impacts(self) -> int:
        return self.pretended.disturbed


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    pretended = Pretended()

    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            assert self.headers["Authorization"] == "PVEAPIToken=forewarn@pve!one=secret"
            length = int(self.headers["Content-Length"] or 0)
            url = urlsplit(self.path)
            data = dict(parse_qsl(url.query) + parse_qsl(self.rfile.read(length).decode()))
            path = unquote(url.path).removeprefix("/api2/json")
            try:
                status, answer = 200, pretended.answer(self.command, path, data)
            except LookupError:
                status, answer = 501, None
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps({"data": answer}).encode())

        do_GET = do_POST = do_PUT = do_DELETE = respond  # noqa: N815 - as they have to be called

        def log_message(self, format: str, *args: object) -> None:
            pass

    token = tmp_path / "token"
    token.write_text("forewarn@pve!one=secret\n")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Place(pretended, f"http://127.0.0.1:{server.server_port}", token)
        server.shutdown()
        thread.join()


class TestProxmoxDriver(DriverContract):
    pass


def carried_out(place: Place, task: Task) -> object:
    async def carry_out() -> object:
        driver = place.driver()
        while isinstance(answer := await driver.perform(task), Running):
            pass
        await driver.aclose()
        return answer

    return asyncio.run(carry_out())


def test_a_redeploy_goes_to_its_target(place: Place) -> None:
    assert carried_out(place, task(EventType.REDEPLOY)) == Done({"web_0": "b"})
    assert (place.pretended.node, place.pretended.status) == ("b", "running")


def test_an_evicted_guest_is_gone(place: Place) -> None:
    assert carried_out(place, task(EventType.PREEMPT)) == Done()
    assert not place.pretended.exists


def test_a_step_that_failed_is_not_begun_again(place: Place) -> None:
    place.pretended.exit_status = "got timeout"
    assert isinstance(carried_out(place, task()), Unknown)
    assert isinstance(carried_out(place, task(attempt=2)), Unknown)
    assert place.impacts() == 1


def test_the_notes_of_people_are_left_alone(place: Place) -> None:
    place.pretended.description = "our web server\n\nask Kim"
    carried_out(place, task())
    carried_out(place, task())
    assert place.pretended.description.startswith("our web server\n\nask Kim\nforewarn-event: ")
    assert place.pretended.description.count("forewarn-event") == 1


def test_a_guest_that_is_not_there_is_refused(place: Place) -> None:
    place.pretended.exists = False
    driver = place.driver()
    assert asyncio.run(driver.check(task())) == Veto("web_0: there is no such guest")


def test_a_url_that_cannot_be_used_is_named() -> None:
    options = ProxmoxOptions(url="proxmox", token_file="token", freeze="soon")
    assert [key for key, _ in options.problems()] == ["url", "freeze"]
