"""A secret is where it belongs and nowhere else: not in a log, a list of processes, an answer, a
number, the history, the state or a copy of it, whatever anybody does with it."""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import structlog

from forewarn.core.access import Role
from forewarn.node.config import Tls
from forewarn.testing import Service
from helpers.certificates import Authority
from helpers.process import Running
from helpers.token_api import FLEET, Api, api_with_token
from helpers.waiting import LIMIT

FOREWARN = [sys.executable, "-m", "forewarn"]


class Scene:
    """A real service that says all it can, and everything that it has said to anybody."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.pair: Tls = self.authority.issue("127.0.0.1")
        self.state = directory / "state.db"
        (directory / "fleet.yaml").write_text(FLEET)
        settings = {
            "metadata": "127.0.0.1:0",
            "control": "127.0.0.1:0",
            "state": "state.db",
            "fleet": "fleet.yaml",
            "log": "json",
            "log_level": "debug",
            "tls_certificate": self.pair.certificate.name,
            "tls_key": self.pair.key.name,
        }
        config = directory / "forewarn.toml"
        config.write_text("\n".join(f"{k} = {json.dumps(v)}" for k, v in settings.items()))
        env = {k: v for k, v in os.environ.items() if not k.startswith("FOREWARN_")}
        self.env = {**env, "XDG_RUNTIME_DIR": str(directory), "PYTHONASYNCIODEBUG": "1"}
        created = subprocess.run(
            [*FOREWARN, "token", "create", "alice", "--role=admin", f"--state={self.state}"],
            env=self.env,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=True,
        )
        self.token = created.stdout.strip()
        assert self.token not in created.stderr
        argv = [*FOREWARN, "serve", "--config", str(config)]
        out = subprocess.PIPE
        process = subprocess.Popen(argv, stdout=out, stderr=out, text=True, env=self.env)
        self.running = Running(process, argv)
        url = json.loads(self.running.line().removeprefix("ready "))["control"]
        self.api = Api(url, self.token, self.authority.trusted())
        self.answers: list[bytes] = []

    def call(
        self, method: str, target: str, body: object = None, headers: dict[str, str] | None = None
    ) -> int:
        answer = self.api.call(method, target, body, headers or {})
        self.answers.append(answer.body + str(answer.headers).encode())
        return answer.status

    def raw(self, text: bytes, *, breaks_off: bool = False) -> bytes:
        port = int(self.api.url.rpartition(":")[2])
        with (
            socket.create_connection(("127.0.0.1", port), 20) as plain,
            self.authority.trusted().wrap_socket(plain, server_hostname="127.0.0.1") as secured,
        ):
            secured.sendall(text)
            response = b""
            try:
                while not breaks_off and (block := secured.recv(65_536)):
                    response += block
            except (OSError, ssl.SSLError):
                pass
        self.answers.append(response)
        return response

    @property
    def secrets(self) -> list[bytes]:
        """The letters that matter, also those of a part."""
        letters = self.token.rpartition("_")[2].encode()
        key = self.pair.key.read_bytes().splitlines()[1:-1]
        return [letters[:20], letters[-20:], *key]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(tmp_path_factory.mktemp("secrets"))
    try:
        yield scene
    finally:
        scene.running.stop()


def processes() -> bytes:
    """All that a list of processes shows."""
    lines = b""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines += path.read_bytes() + b"\n"
        except OSError:
            continue
    return lines


def test_secrets_stay_where_they_belong(scene: Scene) -> None:
    token = scene.token
    # Rightly used.
    assert scene.call("GET", "/v1/status") == 200
    assert scene.call("POST", "/v1/machines/web_0/restart") == 200
    # In the path and in the query, as it is and in disguise.
    for form in (token, quote(token, safe="").replace("_", "%5F"), token[:30]):
        assert scene.call("GET", f"/v1/machines/{form}") == 400
        assert scene.call("GET", f"/v1/status?token={form}") == 400
        assert scene.call("GET", f"/v1/status?{form}") == 400
        assert scene.call("GET", f"/{form}") == 400
    # In headers where it does not belong.
    for name in ("Cookie", "X-Token", "Idempotency-Key", "If-Match", "Referer", "User-Agent"):
        assert scene.call("POST", "/v1/machines/web_0/restart", None, {name: token}) == 400
    # In bodies that cannot be read or carried out.
    bodies: list[object] = [
        {"type": "Reboot", "machines": [token]},
        {"type": token, "machines": ["web_0"]},
        {token: 1},
        {"type": "Reboot", "machines": ["web_0"], "token": token},
        f'{{"type": "{token}'.encode(),
        token.encode(),
    ]
    for body in bodies:
        assert scene.call("POST", "/v1/events", body) in (400, 404)
    assert scene.call("PUT", "/v1/fleet", f"groups: [{{name: {token}}}]".encode()) == 400
    assert scene.call("POST", "/v1/tokens", {"name": token[:60], "role": "viewer"}) == 400
    assert scene.call("POST", "/v1/tokens/x/revoke", {"force": token}) == 400
    # In an Authorization header that is not what it should be.
    for header in (f"Basic {token}", token, f"Bearer {token}x", f"Bearer {token} {token}"):
        assert scene.call("GET", "/v1/status", None, {"Authorization": header}) == 401
    # In what is no HTTP at all, and in what breaks off.
    scene.raw(f"GET /{token} HTTP/9.9\r\n\r\n".encode())
    scene.raw(f"{token}\r\n\r\n".encode())
    scene.raw(f"GET / HTTP/1.1\r\nHost: localhost\r\n{token}\r\n\r\n".encode())
    half = f"POST /v1/events HTTP/1.1\r\nAuthorization: Bearer {token}\r\n"
    scene.raw(half.encode(), breaks_off=True)
    # And everything that tells of everything.
    for target in ("/metrics", "/v1/history?limit=1000", "/v1/changes?after=0", "/v1/tokens"):
        assert scene.call("GET", target) == 200
    assert scene.call("GET", "/v1/backup") == 200
    # A command that follows, to be seen in the list of processes while it does.
    argv = [*FOREWARN, "--ca", str(scene.authority.path), "feed", "--after", "0", "--json"]
    follower = Running(
        subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**scene.env, "FOREWARN_TOKEN": token},
        ),
        argv,
    )
    try:
        follower.line()
        shown = processes()
    finally:
        follower.stop()
    assert b"feed" in shown
    scene.running.stop()
    response = "".join([*scene.running.stdout, *scene.running.stderr, *follower.stderr]).encode()
    assert b"a call was refused" in response  # the log was on, and said what it could
    places = {
        "the log": response,
        "what was followed": "".join(follower.stdout).encode(),
        "the list of processes": shown,
        "the answers": b"\n".join(scene.answers),
    }
    places |= {
        path.name: path.read_bytes()
        for path in scene.directory.iterdir()
        if path.name.startswith(("state", "forewarn"))
        if path.is_file()
    }
    assert "state.db" in places
    for where, text in places.items():
        for n, secret in enumerate(scene.secrets):
            assert secret not in text, (where, n)


def test_an_internal_error_reveals_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not to whoever asked, and to the log only where its own filter stands before it."""
    with Service(FLEET, sockets=True) as service:
        api = api_with_token(service, "alice", Role.ADMIN)

        def broken(_name: str) -> None:
            raise KeyError(api.token)

        monkeypatch.setattr(service._session.node.hosts, "host", broken)
        with structlog.testing.capture_logs():
            answer = api.get("/v1/hosts/dune")
    assert answer.status == 500
    assert api.token[12:].encode() not in answer.body


def test_a_failing_client_does_not_reveal_its_token() -> None:
    from forewarn.control.client.client import ControlClient, ControlError
    from forewarn.control.client.connection import ServiceAddress

    token = "fw_0123abcd_" + "s3cret" * 8
    for url, bad in (("http://127.0.0.1:1", token), ("http://127.0.0.1:1", token + "\r\nX: y")):
        client = ControlClient(ServiceAddress(url, bad))
        with pytest.raises(ControlError) as error:
            client.status()
        assert "s3cret" not in str(error.value) + repr(error.value) + repr(client.__dict__)
