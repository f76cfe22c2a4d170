"""The namespaces that the other acceptance tests stand on."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.netns import METADATA_ADDRESS, Lab, needs_root, require

# Answers every request with the address it came from.
MIRROR = f"""
from http.server import BaseHTTPRequestHandler, HTTPServer

class Mirror(BaseHTTPRequestHandler):
    def do_GET(self):
        body = self.client_address[0].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = HTTPServer(("{METADATA_ADDRESS}", 80), Mirror)
print("ready", flush=True)
server.serve_forever()
"""
ASK = f"""
import urllib.request
print(urllib.request.urlopen("http://{METADATA_ADDRESS}/").read().decode())
"""
# Ignores the polite signal, and leaves a child behind in a session of its own.
STUBBORN = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
os.write(1, b"%d\\n" % os.getpid())  # whole lines, whoever else writes
signal.pause()
"""
GUESTS = ["10.77.0.11", "10.77.0.12", "10.77.3.250"]


@pytest.fixture(autouse=True)
def _root() -> None:
    needs_root()


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(GUESTS) as lab:
        yield lab


def test_the_host_sees_each_guest_under_its_own_address(lab: Lab) -> None:
    server = lab.host.popen([sys.executable, "-c", MIRROR])
    assert server.line() == "ready"

    seen = [guest.run([sys.executable, "-c", ASK]).stdout.strip() for guest in lab.guests.values()]

    assert seen == GUESTS


def test_a_socket_opened_inside_can_be_served_from_outside(lab: Lab) -> None:
    with lab.host.call(socket.create_server, (METADATA_ADDRESS, 80)) as listener:
        address = ("10.77.0.12", 0)
        guest = lab.guests["10.77.0.12"]
        with guest.call(socket.create_connection, (METADATA_ADDRESS, 80), 5, address):
            connection, peer = listener.accept()
            connection.close()

    assert peer[0] == "10.77.0.12"


def test_a_guest_has_its_own_host_name_and_ours_stays() -> None:
    before = socket.gethostname()
    with Lab({"10.77.0.11": "web-0", "10.77.0.12": "web-1"}) as lab:
        names = [guest.run(["hostname"]).stdout.strip() for guest in lab.guests.values()]

    assert names == ["web-0", "web-1"]
    assert socket.gethostname() == before


def test_two_labs_with_the_same_addresses_do_not_meet() -> None:
    with Lab(GUESTS) as one, Lab(GUESTS) as other:
        for lab in (one, other):
            assert lab.host.popen([sys.executable, "-c", MIRROR]).line() == "ready"


def test_nothing_is_left_after_a_failure_and_a_process_that_will_not_end() -> None:
    links = socket.if_nameindex()
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    inodes: list[int] = []
    pids: list[int] = []

    def fail() -> None:
        with Lab(GUESTS) as lab:
            inodes.extend(namespace.inode for namespace in [lab.host, *lab.guests.values()])
            stubborn = lab.guests["10.77.0.11"].popen([sys.executable, "-c", STUBBORN])
            pids.extend([int(stubborn.line()), int(stubborn.line())])
            raise RuntimeError("the test has failed")

    with pytest.raises(RuntimeError, match="has failed"):
        fail()

    assert inhabitants(inodes) == []
    assert [pid for pid in pids if alive(pid)] == []
    assert socket.if_nameindex() == links
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


def test_nothing_is_left_when_building_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def fail(lab: Lab, address: str) -> None:
        made.extend(namespace.inode for namespace in [lab.host, *lab.guests.values()])
        raise RuntimeError("no such link")

    monkeypatch.setattr(Lab, "_build_guest", fail)
    with pytest.raises(RuntimeError, match="no such link"), Lab(GUESTS):
        pass

    assert len(made) == 4
    assert inhabitants(made) == []


def test_the_failure_of_a_command_contains_its_output(lab: Lab) -> None:
    guest = lab.guests["10.77.0.11"]
    with pytest.raises(AssertionError, match=r"status 3; it said:\nbecause"):
        guest.run(["sh", "-c", "echo because; exit 3"])
    with pytest.raises(AssertionError, match=r"still running after 0.1 s"):
        guest.run(["sleep", "60"], timeout=0.1)
    with pytest.raises(AssertionError, match="without another line"):
        guest.popen(["true"]).line()


def test_a_running_process_can_be_stopped_and_has_then_ended(lab: Lab) -> None:
    running = lab.host.popen(["sleep", "60"])

    assert running.stop() == -signal.SIGTERM
    assert running.stop() == -signal.SIGTERM


def test_what_is_missing_skips_the_test_and_fails_it_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "")
    with pytest.raises(pytest.skip.Exception, match="needs a unicorn"):
        require(False, "a unicorn")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="needs a unicorn"):
        require(False, "a unicorn")


def inhabitants(inodes: list[int]) -> list[str]:
    """Every thread on the machine that is inside one of these namespaces."""
    found = []
    for link in Path("/proc").glob("[0-9]*/task/[0-9]*/ns/net"):
        with contextlib.suppress(OSError):
            if link.stat().st_ino in inodes:
                found.append(str(link))
    return found


def alive(pid: int) -> bool:
    """Whether the process exists and is not merely waiting to be reaped."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
