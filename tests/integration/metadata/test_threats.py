"""Attacks of docs/operate/security.md that no other file of tests tries: each for real, against a
service that runs. Here those of guests, and what is made of names and prose; those of operators and
users of the host are in `test_threats_operators`. What belongs to one subject alone (tokens,
browsers, limits, the guests' network) is tested where that subject is.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from forewarn.core.events import MAX_READY_CHANGES
from forewarn.drivers.command.driver import CommandDriver
from forewarn.drivers.command.options import Program
from forewarn.metadata.endpoint.limits import Limits
from forewarn.support import guard
from forewarn.testing import Service
from helpers.endpoint import (
    METADATA,
    NOT_FOUND,
    THROTTLED,
    VERSIONS,
    Guest,
    approval,
    events,
    fleet_of,
)
from helpers.raw_http import RawResponse, request
from helpers.token_api import Api

READY = "/forewarn/v1/ready"
ESCAPES = "\x1b[2J\x1b]0;owned\x07a\nb\x9bc\u202ed"  # of a terminal, and a line of one's own
SEEN = r"\x1b[2J\x1b]0;owned\x07a\nb\x9bc\u202ed"


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(fleet_of(2), sockets=True, front=True) as service:
        yield service


def run(service: Service, *words: str) -> str:
    result = CliRunner().invoke(app, [*words, "--url", service.control_url])
    assert result.exit_code == 0, result.output
    return result.output


def put_ready(guest: Guest, id: str, note: str) -> RawResponse:
    body = json.dumps({"ready": True, "note": note}).encode()
    return guest.say(request("PUT", f"{READY}/{id}", METADATA, body=body))


# A guest, and what runs in it.


@pytest.mark.parametrize(
    "path", ["/", "/v1/machines", "/v1/tokens", "/metrics", "/healthz", "/docs", "/v1/backup"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_socket_for_guests_does_not_serve_the_control_api(
    service: Service, method: str, path: str
) -> None:
    response = Guest(service, "web0_0").say(request(method, path, METADATA, body=b"{}"))
    assert (response.status, response.body) == (404, NOT_FOUND)


def test_the_id_of_an_event_cannot_be_guessed(service: Service) -> None:
    ids = {service.schedule("Reboot", "web0_0").id for _ in range(50)}
    assert len(ids) == 50
    assert {uuid.UUID(id).version for id in ids} == {4}  # 122 bits of the system's randomness


@pytest.mark.parametrize("version", VERSIONS)
def test_a_page_in_a_guests_browser_is_refused(service: Service, version: str) -> None:
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


def test_a_guest_that_keeps_changing_its_readiness_is_held_to_its_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every change of its readiness is a commit on disk: `throttle` holds for these as well."""
    monkeypatch.setattr(guard, "monotonic", lambda: 1_000.0)  # no second passes
    with Service(fleet_of(1), sockets=True, front=True, limits=Limits(throttle=5)) as service:
        guest = Guest(service, "web0_0")
        assert guest.get().status == 200
        event = service.schedule("Reboot", "web0_0")
        before = service._session.node.store.seq
        response = [put_ready(guest, event.id, f"{n}") for n in range(50)]
        assert [answer.status for answer in response] == [200] * 4 + [429] * 46
        assert {answer.body for answer in response[4:]} == {THROTTLED}
        assert service._session.node.store.seq == before + 4
        assert put_ready(Guest(service, "web0_1"), event.id, "well").status == 200


def test_a_guest_may_change_its_readiness_16_times_whatever_restarts(tmp_path: Path) -> None:
    """Without a throttle, too: what it can have written is bounded."""

    def service() -> Service:
        return Service(fleet_of(1), sockets=True, front=True, state=tmp_path / "state.db")

    with service() as first:
        guest = Guest(first, "web0_0")
        guest.get()
        id = first.schedule("Reboot", "web0_0").id
        for n in range(MAX_READY_CHANGES - 1):
            assert put_ready(guest, id, f"{n}").status == 200
    with service() as second:
        guest, other = Guest(second, "web0_0"), Guest(second, "web0_1")
        before = second._session.node.store.seq
        assert put_ready(guest, id, "last").status == 200
        for note in ("one more", "and more"):
            answer = put_ready(guest, id, note)
            assert answer.status == 429
            assert f"{MAX_READY_CHANGES} times" in json.loads(answer.body)["error"]
        assert put_ready(guest, id, "last").status == 200  # which is no change
        taken_back = guest.say(request("PUT", f"{READY}/{id}", METADATA, body=b'{"ready":false}'))
        assert taken_back.status == 429
        assert second._session.node.store.seq == before + 1
        assert put_ready(other, id, "well").status == 200
        listed = second._session.node.guests.listed("web0", id)
        assert listed is not None
        assert [ready.note for ready in listed.ready] == ["last", "well"]


def test_nothing_that_a_guest_repeats_is_written_again(service: Service) -> None:
    guest = Guest(service, "web0_0")
    guest.get()
    first, second = (service.schedule("Reboot", f"web0_{n}") for n in (0, 1))
    assert guest.approve(first.id, second.id).status == 200
    assert put_ready(guest, second.id, "well").status == 200
    service._session.settle()
    before = service._session.node.store.seq
    for _ in range(20):
        assert guest.get().status == 200
        assert guest.approve(first.id, second.id).status == 200
        assert guest.approve("00000000-0000-4000-8000-000000000000").status == 400
        assert put_ready(guest, second.id, "well").status == 200
        assert guest.say(request("GET", "/forewarn/v1/wait?timeout=0&etag=*", METADATA)).status
    assert service._session.node.store.seq == before


def test_text_from_a_guest_does_not_control_an_operators_terminal(service: Service) -> None:
    guest = Guest(service, "web0_0")
    guest.get()
    event = service.schedule("Reboot", "web0_0")
    assert put_ready(guest, event.id, ESCAPES).status == 200
    people, programs = run(service, "history"), run(service, "history", "--json")
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
    with Service(fleet_of(1), sockets=True, front=True) as service:
        yield service


@pytest.mark.parametrize("name", ODD_NAMES)
def test_an_ambiguous_name_is_refused(named: Service, name: str) -> None:
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
        problem = "cannot be stored" if "\0" in name else "is not a valid name"
        assert problem in refused.detail
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


def test_no_text_of_a_user_reaches_the_command_line_of_a_program(tmp_path: Path) -> None:
    """A program has one argument, the verb. Names and what operators write are JSON on its standard
    input; what guests write it does not hear at all."""
    carry = tmp_path / "carry"
    carry.write_text(f"#!/bin/sh\n{WRITES_DOWN}")
    carry.chmod(0o755)
    prose = f"$(touch {tmp_path}/pwned); `touch {tmp_path}/pwned` | touch {tmp_path}/pwned\n--force"
    driver = CommandDriver(Program(words=(str(carry),)))
    with Service(fleet_of(1), sockets=True, front=True, driver=driver) as service:
        guest = Guest(service, "web0_0")
        guest.get()
        event = service.schedule("Reboot", "web0_0", description=prose)
        assert put_ready(guest, event.id, prose).status == 200
        assert guest.approve(event.id).status == 200
        service._session.settle()
        assert guest.statuses() == {}
    response = set(Path(f"{carry}.said").read_text().splitlines())
    assert response == {
        "argument=check",
        "argument=perform",
        "FOREWARN_VERB=check",
        "FOREWARN_VERB=perform",
        f"FOREWARN_EVENT={event.id}",
        "FOREWARN_TYPE=Reboot",
        "FOREWARN_GROUP=web0",
        "FOREWARN_HOST=",
        "FOREWARN_TICKET=",
        "FOREWARN_ROLLOUT=",
        "FOREWARN_STEP=",
        "FOREWARN_FENCE=0",  # of a check
        "FOREWARN_FENCE=5",
        f"FOREWARN_SERVICE_PID={os.getpid()}",
    }
    reported = Path(f"{carry}.told").read_text()
    assert "web0_0" in reported
    tasks = [json.loads(line) for line in reported.splitlines()]
    assert {(task["description"], task["note"]) for task in tasks} == {(prose, "")}
    assert not (tmp_path / "pwned").exists()
