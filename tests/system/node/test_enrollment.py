"""Hosts that are enrolled with a token: `forewarn host enroll`, and `forewarn node join` there;
their certificates are renewed, and revoked. With one control node, and with two on PostgreSQL."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from forewarn.core.time import DAY
from forewarn.service.access.authority import Authority
from forewarn.support import guard
from helpers.control_nodes import LEASE, ask, new_state
from helpers.forked_cli import start
from helpers.free_ports import free_port
from helpers.process import Running
from helpers.serve_process import FOREWARN, environment
from helpers.waiting import LIMIT, until

FLEET = b"""
hosts:
  - {name: h1, labels: {rack: r1}}
  - {name: h2, labels: {rack: r1}}
  - {name: h3, labels: {rack: r2}}
groups:
  - name: web
    kind: availability-set
    machines:
      - {name: web_0, address: 127.0.0.1, host: h1, update_domain: 0}
      - {name: web_1, address: 127.0.0.1, host: h2, update_domain: 1}
"""
CONTROL = """
name = "{name}"
state = "{state}"
lease = "{lease}"
local_directory = "{room}"
control = "127.0.0.1:0"
nodes = "127.0.0.1:{port}"
nodes_addresses = {addresses}
authority = "{room}/authority"
driver = "hosts"
log = "json"
"""
NODE = """
# Kept.
metadata = "127.0.0.1:0"
control = [
  "control.example.net:8171",
]
status = ""
journal = "{room}/{host}"
log = "json"
"""


class Fleet:
    """Control nodes that keep an authority, and directories of hosts."""

    def __init__(self, room: Path, names: tuple[str, ...]) -> None:
        self.room = room
        self.running: dict[str, Running] = {}
        self.urls: dict[str, str] = {}  # of control nodes
        self._names = names
        assert self.command("control", "authority", str(room / "authority"))[0] == 0
        ports = {name: free_port() for name in names}
        state = new_state() if len(names) > 1 else str(room / "state.db")
        for name, port in ports.items():
            text = CONTROL.format(
                name=name,
                state=state,
                lease=LEASE,
                room=room,
                port=port,
                addresses=json.dumps([f"127.0.0.1:{port}" for port in ports.values()]),
            )
            (room / f"{name}.toml").write_text(text)

    def start(self) -> None:
        for name in self._names:
            self.start_control(name)
        assert self.api("PUT", "/v1/fleet", FLEET).status == 200

    # Processes.

    def start_control(self, name: str) -> None:
        self.urls[name] = self._start("serve", name)["control"]

    def start_node(self, host: str) -> None:
        self._start("node", host)

    def start_driver(self) -> None:
        self._start("driver", "driver")

    def _start(self, command: str, name: str) -> dict[str, Any]:
        argv = [*FOREWARN, command, "--config", str(self.room / f"{name}.toml")]
        running = self.running[name] = Running(self._process(argv), argv)
        word, _, urls = running.line().partition(" ")
        assert word == "ready"
        return dict(json.loads(urls))

    def _process(self, argv: list[str]) -> Any:
        return start(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(self.room, FOREWARN_URL=",".join(self.urls.values())),
        )

    def command(self, *words: str) -> tuple[int, str]:
        """Run a command, and return its exit status and all that it prints."""
        process = self._process([*FOREWARN, *words])
        out, err = process.communicate(timeout=LIMIT)
        return process.returncode, f"{out}{err}"

    def kill(self, name: str) -> None:
        running = self.running.pop(name)
        running.process.kill()
        running.wait()
        self.urls.pop(name, None)

    def stop(self) -> None:
        for running in self.running.values():
            running.stop()

    # What operators do and see.

    def api(self, method: str, path: str, body: object = None) -> Any:
        until(lambda: bool(self._leaders()))
        (leader,) = self._leaders()
        return ask(leader, method, path, body)

    def _leaders(self) -> list[str]:
        return [url for url in self.urls.values() if ask(url, "GET", "/leaderz").status == 200]

    def enroll(self, *words: str) -> list[str]:
        """Return the words of the line that `host enroll` prints, after the name of the program."""
        status, printed = self.command("host", "enroll", *words)
        assert status == 0, printed
        [line] = [line for line in printed.splitlines() if " join " in line]
        return line.split()[1:]

    def host(self, name: str) -> Any:
        return self.api("GET", f"/v1/hosts/{name}").json()

    def joined(self, name: str) -> bool:
        node = self.host(name)["node"]
        return node is not None and node["state"] == "joined"

    def history(self, host: str) -> list[tuple[str, str]]:
        records = self.api("GET", f"/v1/history?host={host}").json()["records"]
        return [(r["what"], r["note"]) for r in records if r["what"].startswith("host-")]

    # On a host.

    def prepare(self, host: str) -> None:
        """Do on a host what its package does."""
        (self.room / host).mkdir(exist_ok=True)
        (self.room / f"{host}.toml").write_text(NODE.format(room=self.room, host=host))

    def join(self, host: str, line: list[str], *more: str) -> tuple[int, str]:
        files = ["--config", str(self.room / f"{host}.toml"), "--directory", str(self.room / host)]
        return self.command("node", *line, *files, "--no-start", *more)

    def written(self, host: str) -> dict[str, bytes]:
        """Return what there is on a host."""
        files = [self.room / f"{host}.toml", *(self.room / host).iterdir()]
        return {file.name: file.read_bytes() for file in files}


@pytest.fixture(params=[("c1",), ("c1", "c2")], ids=["sqlite", "postgresql"])
def names(request: pytest.FixtureRequest) -> tuple[str, ...]:
    names: tuple[str, ...] = request.param
    return names


@pytest.fixture
def fleet(tmp_path: Path, names: tuple[str, ...]) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, names)
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.stop()


def test_a_host_joins_with_one_line_and_only_once(fleet: Fleet) -> None:
    fleet.prepare("h1")
    line = fleet.enroll("h1")
    assert fleet.host("h1")["enrollment"] == "open"
    status, printed = fleet.join("h1", line)
    assert status == 0, printed
    settings = (fleet.room / "h1.toml").read_text()
    assert "# Kept." in settings
    assert 'host = "h1"' in settings
    assert (fleet.room / "h1/node.key").stat().st_mode & 0o777 == 0o600
    fleet.start_node("h1")
    until(lambda: fleet.joined("h1"))
    assert fleet.host("h1")["enrollment"] == "enrolled"
    # The same line again, as a thief would use it, on another host.
    fleet.prepare("h2")
    before = fleet.written("h2")
    for words in ((), ("--host", "h2")):
        assert fleet.join("h2", line, *words)[0] == 1
    assert fleet.written("h2") == before
    kinds = [what for what, _ in fleet.history("h1")]
    assert kinds == ["host-node-joined", "host-enrolled", "host-enrollment", "host-added"]
    assert "from 127.0.0.1" in dict(fleet.history("h1"))["host-enrolled"]
    # A host that has a node is not enrolled again by accident.
    assert fleet.command("host", "enroll", "h1")[0] == 1
    assert fleet.join("h1", fleet.enroll("h1", "--again"))[0] == 0


def test_a_driver_process_joins_with_one_line_and_its_certificate_is_renewed(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, settings = fleet.room / "driver", fleet.room / "driver.toml"
    directory.mkdir()
    settings.write_text(f'directory = "{directory}"\ndriver = "simulated"\nlog = "json"\n')
    more = ["--driver", "--no-start", "--directory", str(directory)]
    line = fleet.enroll("h1", more[0])
    words = ("driver", "--config", str(settings), *line, *more[1:])
    status, printed = fleet.command(*words)
    assert status == 0, printed
    certificate, key = directory / "driver.pem", directory / "driver.key"
    private = load_pem_private_key(key.read_bytes(), None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    now = guard.wall_us()
    with monkeypatch.context() as patch:
        patch.setattr(guard, "wall_us", lambda: now - 4 * DAY)
        authority = Authority(fleet.room / "authority")
        old = authority.issue_for_host(private.public_key(), "h1", 7 * DAY, "forewarn:driver:")
    certificate.write_text(old)
    fleet.start_driver()
    until(lambda: (fleet.host("h1")["driver"] or {}).get("state") == "joined")
    until(lambda: certificate.read_text() != old, "a new certificate")
    # The line again, as a thief would use it: it was used, and is not for a node.
    for command in (words, ("node", "--config", str(settings), *line)):
        assert fleet.command(*command)[0] == 1
    assert fleet.command("host", "revoke", "h1", "--yes")[0] == 0
    until(lambda: fleet.host("h1")["driver"]["state"] == "disconnected")


def test_certificates_are_renewed_over_the_connection(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.prepare("h1")
    assert fleet.join("h1", fleet.enroll("h1"))[0] == 0
    certificate, key = fleet.room / "h1/node.pem", fleet.room / "h1/node.key"
    made = key.read_bytes()

    def age() -> str:
        """Let the host have a certificate that was issued four days ago."""
        private = load_pem_private_key(made, None)
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        now = guard.wall_us()
        with monkeypatch.context() as patch:
            patch.setattr(guard, "wall_us", lambda: now - 4 * DAY)
            authority = Authority(fleet.room / "authority")
            old = authority.issue_for_host(private.public_key(), "h1", 7 * DAY)
        certificate.write_text(old)
        return old

    old = age()
    fleet.start_node("h1")
    until(lambda: certificate.read_text() != old, "a new certificate")
    old = age()
    until(lambda: certificate.read_text() != old, "another one")
    assert key.read_bytes() == made
    fleet.kill("h1")
    fleet.start_node("h1")
    until(lambda: fleet.joined("h1"))


def test_a_revoked_host_is_disconnected_and_refused_until_it_is_enrolled_anew(
    fleet: Fleet,
) -> None:
    fleet.prepare("h1")
    assert fleet.join("h1", fleet.enroll("h1"))[0] == 0
    fleet.start_node("h1")
    until(lambda: fleet.joined("h1"))
    line = fleet.enroll("h1", "--again")
    assert fleet.command("host", "revoke", "h1", "--yes")[0] == 0
    until(lambda: not fleet.joined("h1"))
    assert fleet.host("h1")["enrollment"] == "revoked"
    if len(fleet.urls) > 1:
        (leader,) = fleet._leaders()
        fleet.kill(next(name for name, url in fleet.urls.items() if url == leader))
    (control,) = (fleet.running[name] for name in fleet.urls)
    until(lambda: "were revoked" in "".join(control.stderr), "a refusal")
    assert not fleet.joined("h1")
    assert fleet.join("h1", line)[0] == 1  # which was revoked, too
    assert fleet.join("h1", fleet.enroll("h1"))[0] == 0
    until(lambda: fleet.joined("h1"))


def test_a_token_for_many_hosts_is_limited(fleet: Fleet) -> None:
    line = fleet.enroll("--label", "rack=r1", "--many", "1", "--for", "2h")
    for host in ("h1", "h2", "h3"):
        fleet.prepare(host)
    other_label, used_up = fleet.written("h3"), fleet.written("h2")
    assert fleet.join("h3", line, "--host", "h3")[0] == 1
    assert fleet.join("h1", line, "--host", "h1")[0] == 0
    assert fleet.join("h1", line, "--host", "h1")[0] == 1
    assert fleet.join("h2", line, "--host", "h2")[0] == 1
    assert (fleet.written("h3"), fleet.written("h2")) == (other_label, used_up)


def test_garbage_is_refused_and_changes_nothing(fleet: Fleet) -> None:
    fleet.prepare("h1")
    before = fleet.written("h1")
    join, addresses, token = fleet.enroll("h1")
    secret, fingerprint = token.split(".")
    wrong = [
        "garbage",
        secret,
        f"{secret[:-1]}.{fingerprint}",
        f"{secret[:-4]}AAAA.{fingerprint}",
        f"fw_00000000_{secret[-43:]}.{fingerprint}",
        f"{secret}.{'0' * 64}",
    ]
    for text in wrong:
        status, printed = fleet.join("h1", [join, addresses, text])
        assert status == 1, printed
        assert secret[-43:-4] not in printed
    assert fleet.join("h1", [join, addresses, token], "--host", "h9")[0] == 1
    assert fleet.join("h1", [join, "nowhere", token])[0] == 1
    assert fleet.written("h1") == before
    # Whatever else is sent without a certificate ends the connection, and nothing else.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for sent in (b"", b"\xff" * 64, b"\x00\x00\x00\x04junk", b"\x7f\xff\xff\xff"):
        for address in addresses.split(","):
            host, _, port = address.rpartition(":")
            try:
                connection = socket.create_connection((host, int(port)), timeout=LIMIT)
            except ConnectionRefusedError:
                continue  # it follows
            with connection, context.wrap_socket(connection) as line:
                line.sendall(sent)
                line.shutdown(socket.SHUT_WR)
                while line.recv(4096):
                    pass
    assert fleet.join("h1", [join, addresses, token])[0] == 0
