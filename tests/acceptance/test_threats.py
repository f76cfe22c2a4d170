"""Attacks of docs/security.md that no other file of tests tries: each for real, against a service
that runs. What belongs to one subject alone (tokens, browsers, limits, the guests' network) is
tested where that subject is.
"""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from bearing import Api, bearing
from guests import METADATA, NOT_FOUND, THROTTLED, VERSIONS, Guest, approval, events, fleet_of
from polling import until
from raw import Raw, request
from serving import made, serving
from typer.testing import CliRunner

from forewarn.cli import running
from forewarn.cli.app import app
from forewarn.control import protocol
from forewarn.core.access import Role
from forewarn.drivers.command import Command, Program
from forewarn.metadata.limits import Limits
from forewarn.service import guard
from forewarn.testing import Service

NOBODY = 65_534  # a user that is not us
READY = "/forewarn/v1/ready"
ESCAPES = "\x1b[2J\x1b]0;owned\x07a\nb\x9bc\u202ed"  # of a terminal, and a line of one's own
SEEN = r"\x1b[2J\x1b]0;owned\x07a\nb\x9bc\u202ed"


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(fleet_of(2), sockets=True) as service:
        yield service


def typed(service: Service, *words: str) -> str:
    result = CliRunner().invoke(app, [*words, "--url", service.control_url])
    assert result.exit_code == 0, result.output
    return result.output


def put_ready(guest: Guest, id: str, note: str) -> Raw:
    body = json.dumps({"ready": True, "note": note}).encode()
    return guest.say(request("PUT", f"{READY}/{id}", METADATA, body=body))


# A guest, and what runs in it.


@pytest.mark.parametrize(
    "path", ["/", "/v1/machines", "/v1/tokens", "/metrics", "/healthz", "/docs", "/v1/backup"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_guests_socket_has_nothing_of_the_control_api(
    service: Service, method: str, path: str
) -> None:
    said = Guest(service, "web0_0").say(request(method, path, METADATA, body=b"{}"))
    assert (said.status, said.body) == (404, NOT_FOUND)


def test_an_event_has_a_name_that_nobody_can_guess(service: Service) -> None:
    ids = {service.schedule("Reboot", "web0_0").id for _ in range(50)}
    assert len(ids) == 50
    assert {uuid.UUID(id).version for id in ids} == {4}  # 122 bits of the system's randomness


@pytest.mark.parametrize("version", VERSIONS)
def test_a_page_in_a_guests_browser_asks_in_vain(service: Service, version: str) -> None:
    """What a browser sends for a page without asking first, and what it asks first."""
    guest = Guest(service, "web0_0")
    guest.get()
    event = service.schedule("Reboot", "web0_0")
    page = "Origin: http://evil.example"
    plain = ["Content-Type: text/plain", page]
    body = approval(event.id)
    assert guest.say(request("GET", events(version), page)).status == 400
    assert guest.say(request("POST", events(version), *plain, body=body)).status == 400
    assert guest.say(request("PUT", f"{READY}/{event.id}", *plain, body=b"{}")).status == 400
    for path in (events(version), f"{READY}/{event.id}"):
        wants = ("Access-Control-Request-Method: POST", "Access-Control-Request-Headers: metadata")
        allowed = guest.say(request("OPTIONS", path, page, *wants))
        assert allowed.status == 405
        assert not [name for name in allowed.names if name.startswith("access-control")]
    assert guest.statuses() == {event.id: "Scheduled"}


def test_a_guest_that_changes_its_mind_without_end_is_held_to_its_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every change of its readiness is a commit on disk: `throttle` holds for these as well."""
    monkeypatch.setattr(guard, "monotonic", lambda: 1_000.0)  # no second passes
    with Service(fleet_of(1), sockets=True, limits=Limits(throttle=5)) as service:
        guest = Guest(service, "web0_0")
        assert guest.get().status == 200
        event = service.schedule("Reboot", "web0_0")
        before = service.node.store.seq
        said = [put_ready(guest, event.id, f"{n}") for n in range(50)]
        assert [answer.status for answer in said] == [200] * 4 + [429] * 46
        assert {answer.body for answer in said[4:]} == {THROTTLED}
        assert service.node.store.seq == before + 4
        assert put_ready(Guest(service, "web0_1"), event.id, "well").status == 200


def test_what_a_guest_writes_does_not_act_on_an_operators_terminal(service: Service) -> None:
    guest = Guest(service, "web0_0")
    guest.get()
    event = service.schedule("Reboot", "web0_0")
    assert put_ready(guest, event.id, ESCAPES).status == 200
    people, programs = typed(service, "history"), typed(service, "history", "--json")
    assert SEEN in people
    assert [record["note"] for record in map(json.loads, programs.splitlines())][
        -1
    ] == f"ready: {ESCAPES}"
    for shown in (people, programs):
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown)
        assert not re.search(r"^b", shown, re.MULTILINE)


# Names, and what is made of them.

ODD_NAMES = [
    "$(touch pwned)",
    "`touch pwned`",
    "web;touch pwned",
    "web|touch pwned",
    "--force",
    "-rf",
    "../../etc/passwd",
    "..",
    "a/b",
    "a%2fb",
    "a\\b",
    "a\nb",
    "a\r\nb",
    "a\x00b",
    "a\x1b[2Jb",
    "a\u202eb",
    "a\u200bb",
    "\u0430dmin",  # a Cyrillic letter that looks like ours
    "\uff57eb",  # a wide one
    "web\u0301",
    "{{7*7}}",
    "<script>",
    "' OR 1=1 --",
    '"',
    "",
    "x" * 81,
]


@pytest.fixture(scope="module")
def named() -> Iterator[Service]:
    with Service(fleet_of(1), sockets=True) as service:
        yield service


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_name_that_could_be_taken_for_something_else_is_none(named: Service, name: str) -> None:
    """As a machine's, a group's and a host's, in a fleet and alone; what there is stays."""
    api = Api(named.control_url)
    before = api.get("/v1/fleet").body
    group: dict[str, Any] = {"name": "g", "kind": "cloud-service", "machines": [{"name": "m"}]}
    for fleet in (
        {"groups": [{**group, "machines": [{"name": name}]}]},
        {"groups": [{**group, "name": name}]},
        {"groups": [group], "hosts": [name]},
    ):
        refused = api.call("PUT", "/v1/fleet", fleet)
        assert refused.status == 400, fleet
        assert "is no name" in refused.detail
    alone = quote(name, safe="")
    for path, body in ((f"/v1/groups/{alone}", group), (f"/v1/hosts/{alone}", {})):
        entry = {key: value for key, value in body.items() if key != "name"}
        assert 400 <= api.call("PUT", path, entry).status < 500
    assert api.get("/v1/fleet").body == before


WRITES_DOWN = r"""
{ for word in "$@"; do printf '%s\n' "argument=$word"; done
  env | grep ^FOREWARN_ ; } >> "$0.said"
cat >> "$0.told"
"""


def test_no_word_of_anybody_reaches_a_programs_command_line(tmp_path: Path) -> None:
    """A program has one argument, the verb, and hears of names on its standard input; what people
    write as prose it does not hear at all."""
    carry = tmp_path / "carry"
    carry.write_text(f"#!/bin/sh\n{WRITES_DOWN}")
    carry.chmod(0o755)
    prose = f"$(touch {tmp_path}/pwned); `touch {tmp_path}/pwned` | touch {tmp_path}/pwned\n--force"
    driver = Command(Program(words=(str(carry),)))
    with Service(fleet_of(1), sockets=True, driver=driver) as service:
        guest = Guest(service, "web0_0")
        guest.get()
        event = service.schedule("Reboot", "web0_0", description=prose)
        assert put_ready(guest, event.id, prose).status == 200
        assert guest.approve(event.id).status == 200
        service.settle()
        assert guest.statuses() == {}
    said = set(Path(f"{carry}.said").read_text().splitlines())
    assert said == {
        "argument=check",
        "argument=perform",
        "FOREWARN_VERB=check",
        "FOREWARN_VERB=perform",
        f"FOREWARN_EVENT={event.id}",
        "FOREWARN_TYPE=Reboot",
    }
    told = Path(f"{carry}.told").read_text()
    assert "web0_0" in told
    assert "touch" not in told
    assert not (tmp_path / "pwned").exists()


class Gate(threading.Thread):
    """Whoever is asked whether all is well: says yes to the first, and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:{1}/ready".format(*self._listener.getsockname())
        self.asked = b""

    def run(self) -> None:
        connection, _ = self._listener.accept()
        with self._listener, connection:
            self.asked = connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")


def test_a_gate_is_asked_by_the_service_itself_and_by_no_proxy(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    gate.start()
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(0)
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:{1}".format(*proxy.getsockname()))
        operator = bearing(service, "root", Role.ADMIN)
        asked = {"type": "Reboot", "groups": ["web0"], "gate_http": gate.url}
        assert operator.post("/v1/rollouts", asked).status == 201
        service.clock.advance("26m")
        assert gate.asked.startswith(b"GET /ready HTTP/1.1\r\n")
        assert b"authorization" not in gate.asked.lower()
        assert b"fw_" not in gate.asked
        with pytest.raises(BlockingIOError):
            proxy.accept()


# Operators, and those who would be.


def test_nobody_can_unwrite_the_history(service: Service) -> None:
    """There is no call for it, whatever one's role."""
    admin = bearing(service, "root", Role.ADMIN)
    paths = admin.get("/schema/openapi.json").json()["paths"]
    told = {path for path in paths if path.startswith(("/v1/history", "/v1/feed", "/v1/changes"))}
    assert len(told) >= 4
    before = admin.get("/v1/history").body
    for path in told:
        assert set(paths[path]) & {"get", "put", "post", "patch", "delete"} == {"get"}
        for method in ("PUT", "POST", "PATCH", "DELETE"):
            assert admin.call(method, path, {}).status == 405
    assert admin.get("/v1/history").body == before


def test_a_crowd_at_the_control_api_keeps_no_guest_waiting(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_OPERATOR_CONNECTIONS", 20)
    port = int(service.control_url.rpartition(":")[2])
    guest = Guest(service, "web0_0")
    guest.get()
    crowd = [socket.create_connection(("127.0.0.1", port), 20) for _ in range(200)]
    try:
        until(lambda: Api(service.control_url).get("/healthz").status == 503)
        event = service.schedule("Reboot", "web0_0")
        assert guest.approve(event.id).status == 200
        assert guest.statuses() == {event.id: "Started"}
    finally:
        for connection in crowd:
            connection.close()
    until(lambda: Api(service.control_url).get("/healthz").status == 200)


# Users of the host.


def test_what_a_service_keeps_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    settings = made(tmp_path)
    (tmp_path / "state").chmod(0o755)
    with serving(tmp_path, settings, umask=0o000) as service:
        service.poll()
        kept = {path.name: path for path in (tmp_path / "state").iterdir()}
        for name in ("forewarn.db", "forewarn.db-wal", "forewarn.db-shm"):
            assert stat.S_IMODE(kept[name].stat().st_mode) == 0o600, name


def test_a_directory_that_somebody_else_has_made_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without XDG_RUNTIME_DIR notes lie in a directory that everybody can write to. Whoever was
    there first and leaves a note there is not asked, and is not told tokens."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be somebody else")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    monkeypatch.setattr(running, "SYSTEM", tmp_path / "system")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    theirs = tmp_path / f"forewarn-{os.getuid()}"
    theirs.mkdir(mode=0o777)
    note = theirs / "1.json"
    note.write_text(
        json.dumps({"pid": os.getpid(), "metadata": "", "control": "http://127.0.0.1:1"})
    )
    os.chown(theirs, NOBODY, NOBODY)
    with pytest.raises(running.NotFound, match="no service runs on this machine"):
        running.find()
    with running.note("http://127.0.0.1:2", "http://127.0.0.1:3"):
        assert list(theirs.iterdir()) == [note]
    os.chown(theirs, os.getuid(), os.getgid())
    assert running.find() == "http://127.0.0.1:1"  # the very same, where it is our own
