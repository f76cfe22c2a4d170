"""Programs that know no address but 169.254.169.254, in an enclosure, as root and as nobody."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.metadata.endpoint.limits import Limits
from forewarn.testing import SAMPLE, Service
from forewarn.testing.enclosure import Enclosure
from helpers.enclosure_program import as_nobody, enclose, readable_by_others
from helpers.netns import needs_root, require
from helpers.waiting import LIMIT

DOCUMENT = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
NAME = "http://169.254.169.254/metadata/instance/compute/name?api-version=2021-02-01&format=text"
WHO = ["curl", "--silent", "--header", "Metadata:true", NAME]
URLLIB = f"""
import urllib.request
asked = urllib.request.Request({DOCUMENT!r}, headers={{"Metadata": "true"}})
print(urllib.request.urlopen(asked).read().decode())
"""
NODE = f"""
fetch({DOCUMENT!r}, {{headers: {{Metadata: "true"}}}})
  .then(r => r.text()).then(t => console.log(t))
"""
CLIENTS = {
    "curl": ["curl", "--silent", "--header", "Metadata:true", DOCUMENT],
    "wget": ["wget", "--quiet", "--output-document=-", "--header=Metadata:true", DOCUMENT],
    "busybox": ["busybox", "wget", "-q", "-O-", "--header", "Metadata:true", DOCUMENT],
    "python": [sys.executable, "-I", "-c", URLLIB],
    "node": ["node", "-e", NODE],
}
# So many connections before the first is used, each used twice.
MANY = """
import socket, sys
request = (b"GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\\r\\n"
           b"Host: 169.254.169.254\\r\\nMetadata: true\\r\\n\\r\\n")
connections = [socket.create_connection(("169.254.169.254", 80), 30) for _ in range(200)]
for _ in range(2):
    for connection in connections:
        connection.sendall(request)
    for connection in connections:
        response = b""
        while not response.endswith(b"]}"):
            response += connection.recv(65536)
        assert response.startswith(b"HTTP/1.1 200 OK"), response
print("all answered")
"""


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    needs_root()
    with Service(SAMPLE, sockets=True, limits=Limits(max_connections_per_machine=256)) as service:
        yield service


@pytest.fixture(scope="module")
def inside(service: Service) -> Iterator[Enclosure]:
    with Enclosure(_target(service, "web_0"), network="none") as enclosure:
        yield enclosure


def _target(service: Service, machine: str) -> tuple[str, int]:
    host, port = service.url(machine).removeprefix("http://").split(":")
    return host, int(port)


def _output(inside: Enclosure, *argv: str) -> str:
    process = inside.popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output, complained = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, complained
    return str(output)


@pytest.mark.parametrize("client", CLIENTS)
def test_an_unmodified_client_is_answered(inside: Enclosure, client: str) -> None:
    argv = CLIENTS[client]
    require(shutil.which(argv[0]), f"{client} (apt-get install {client})")
    assert json.loads(_output(inside, *argv))["Events"] == []


def test_a_program_inside_is_answered_as_its_machine(service: Service, inside: Enclosure) -> None:
    assert _output(inside, *WHO) == "web_0"
    with Enclosure(_target(service, "sql-1"), network="none") as other:
        assert _output(other, *WHO) == "sql-1"


def test_an_approval_from_inside_starts_the_event(service: Service, inside: Enclosure) -> None:
    event = service.schedule("Reboot", "web_0")
    body = json.dumps({"StartRequests": [{"EventId": event.id}]})
    _output(inside, "curl", "--silent", "--fail", "--header", "Metadata:true", "-d", body, DOCUMENT)
    assert service.document("web_0")["Events"][0]["EventStatus"] == "Started"
    service.clock.advance("1h")
    assert service.document("web_0")["Events"] == []


def test_two_hundred_connections_are_kept_at_once(inside: Enclosure) -> None:
    assert _output(inside, sys.executable, "-I", "-S", "-c", MANY) == "all answered\n"


def test_a_program_keeps_user_directory_and_environment(
    inside: Enclosure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEPT", "kept")
    script = "id -u; pwd; echo $KEPT $FOREWARN_METADATA; cat; trap; ulimit -n"
    process = inside.popen(
        ["sh", "-c", script], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    output, _ = process.communicate("typed\n", timeout=LIMIT)
    outside = subprocess.run(["sh", "-c", "ulimit -n"], capture_output=True, text=True, check=True)
    assert output.splitlines() == [
        str(os.getuid()),
        str(tmp_path),
        "kept http://169.254.169.254",
        "typed",
        outside.stdout.strip(),
    ]


def test_signals_are_as_a_program_expects_them(inside: Enclosure) -> None:
    """Python ignores SIGPIPE; a program that is started by it must not. Those beyond 31 are the C
    library's own: it has them ignored in whatever make starts."""
    status = _output(inside, "grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status")
    masks = [int(line.split()[1], 16) for line in status.splitlines()]
    assert [mask & 0x7FFF_FFFF for mask in masks] == [0, 0]


def test_a_program_that_cannot_be_run_is_the_error_that_it_is_outside(
    inside: Enclosure, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        inside.popen(["no-such-program"])
    with pytest.raises(FileNotFoundError):
        inside.popen([""])
    with pytest.raises(PermissionError):
        inside.popen([tmp_path])


def test_leaving_ends_whatever_still_runs_inside(service: Service) -> None:
    with Enclosure(_target(service, "web_0"), network="none") as inside:
        asks_on = "while :; do curl -so /dev/null http://169.254.169.254; done"
        stubborn = f"trap '' TERM; setsid sleep 600 & echo $!; {asks_on}"
        process = inside.popen(["sh", "-c", stubborn], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        child = os.pidfd_open(int(process.stdout.readline()))
    with process:
        assert process.wait(LIMIT) < 0
        assert select.select([child], [], [], 60)[0]
    os.close(child)


def test_an_enclosure_needs_no_root(service: Service) -> None:
    """The same user, with no right more than before, and the service where it should be."""
    where = [str(word) for word in _target(service, "web_1")]
    script = "id -u; grep CapEff /proc/self/status; " + " ".join(f"'{word}'" for word in WHO)
    words = [*where, "loopback", "sh", "-c", script]
    with readable_by_others() as directory:
        python = str(directory / "bin" / "python")
        found = enclose(as_nobody(), python, *words, directory=directory)
    assert found["output"].split() == ["47110", "CapEff:", "0" * 16, "web_1"]


def test_without_namespaces_an_enclosure_reports_the_reason(service: Service) -> None:
    """In a user namespace of their own even tests may say how many there may be: none."""
    forbid = "echo 0 > /proc/sys/user/max_user_namespaces; shift; exec setpriv"
    forbid += ' --bounding-set=-all --inh-caps=-all "$@"'
    prefix = ["unshare", "--user", "--map-root-user", "sh", "-c", forbid, "sh", "-"]
    where = [str(word) for word in _target(service, "web_0")]
    found = enclose(prefix, sys.executable, *where, "none", "true")
    assert "sudo sysctl user.max_user_namespaces=10000" in found["refused"]
