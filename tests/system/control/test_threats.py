"""Attacks of docs/operate/security.md that no other file of tests tries: those of operators, of
whoever would be one, and of users of the host. Guests' are in `test_threats`.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from forewarn.control.server import connections
from forewarn.core.access import Role
from forewarn.node.daemon import discovery
from forewarn.testing import Service
from helpers.certificates import Authority
from helpers.endpoint import Guest, fleet_of
from helpers.serve_process import running_service, write_settings
from helpers.token_api import FLEET, Api, api_with_token

NOBODY = 65_534  # a user that is not us


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(fleet_of(2), sockets=True) as service:
        yield service


class Gate(threading.Thread):
    """Whoever is asked whether all is well: keeps what it was asked first."""

    def __init__(self, says: bytes = b"HTTP/1.1 204 No Content\r\n\r\n") -> None:
        super().__init__(daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._says = says
        self.url = "http://127.0.0.1:{1}/ready".format(*self._listener.getsockname())
        self.asked = b""

    def __enter__(self) -> Gate:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self.join()
        self._listener.close()

    def run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                asked = connection.recv(65_536)  # what is not read resets the connection
                self.asked = self.asked or asked
                connection.sendall(self._says)


def test_a_gate_is_asked_by_the_service_itself_and_by_no_proxy(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Gate() as gate, socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(0)
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, "http://127.0.0.1:{1}".format(*proxy.getsockname()))
        operator = api_with_token(service, "root", Role.ADMIN)
        asked = {"type": "Reboot", "groups": ["web0"], "gate_http": gate.url}
        assert operator.post("/v1/rollouts", asked).status == 201
        service.clock.advance("26m")
        assert gate.asked.startswith(b"GET /ready HTTP/1.1\r\n")
        assert b"authorization" not in gate.asked.lower()
        assert b"fw_" not in gate.asked
        with pytest.raises(BlockingIOError):
            proxy.accept()


# Operators, and those who would be.


def test_the_history_cannot_be_changed_or_deleted(service: Service) -> None:
    """There is no call for it, whatever one's role."""
    admin = api_with_token(service, "root", Role.ADMIN)
    paths = admin.get("/schema/openapi.json").json()["paths"]
    reported = {
        path for path in paths if path.startswith(("/v1/history", "/v1/feed", "/v1/changes"))
    }
    assert len(reported) >= 4
    before = admin.get("/v1/history").body
    for path in reported:
        assert set(paths[path]) & {"get", "put", "post", "patch", "delete"} == {"get"}
        for method in ("PUT", "POST", "PATCH", "DELETE"):
            assert admin.call(method, path, {}).status == 405
    assert admin.get("/v1/history").body == before


def test_a_crowd_at_the_control_api_keeps_no_guest_waiting_and_no_operator_out(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who only hold connections give way, the oldest first."""
    monkeypatch.setattr(connections, "MAX_OPERATOR_CONNECTIONS", 20)
    port = int(service.control_url.rpartition(":")[2])
    guest = Guest(service, "web0_0")
    guest.get()
    crowd_of = [socket.create_connection(("127.0.0.1", port), 20) for _ in range(200)]
    try:
        for path in ("/healthz", "/v1/status") * 20:
            assert Api(service.control_url).get(path).status == 200
        for connection in crowd_of[:180]:
            assert connection.recv(1) == b""
        event = service.schedule("Reboot", "web0_0")
        assert guest.approve(event.id).status == 200
        assert guest.statuses() == {event.id: "Started"}
    finally:
        for connection in crowd_of:
            connection.close()


def test_silence_instead_of_a_handshake_takes_no_files_from_guests(tmp_path: Path) -> None:
    """A real service with few files to open; TLS, and more connections than that which say
    nothing, not even hello."""
    authority = Authority(tmp_path)
    pair = authority.issue("127.0.0.1")
    tls = f'tls_certificate = "{pair.certificate}"\ntls_key = "{pair.key}"\n'
    settings = write_settings(tmp_path, f"{tls}max_connections = 60\n")

    def few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (320, 320))

    with running_service(tmp_path, settings, preexec_fn=few_files) as service:
        port = int(service.control.rpartition(":")[2])
        silent = [socket.create_connection(("127.0.0.1", port), 20) for _ in range(400)]
        try:
            assert silent[0].recv(1) == b""  # it has given way
            for _ in range(3):
                assert service.poll()["Events"] == []
                operator = Api(service.control, tls=authority.trusted())
                assert operator.get("/v1/status").status == 200
        finally:
            for connection in silent:
                connection.close()
        assert "open files" not in service.log


def test_a_limited_token_cannot_make_the_service_request_a_url() -> None:
    with Service(FLEET, sockets=True) as service, socket.create_server(("127.0.0.1", 0)) as inner:
        inner.settimeout(0)
        root = api_with_token(service, "root", Role.ADMIN)
        some = api_with_token(service, "some", Role.OPERATOR, groups=("web",))
        url = "http://127.0.0.1:{1}/admin".format(*inner.getsockname())
        asked = {"type": "Reboot", "groups": ["web"], "gate_http": url}
        for path in ("/v1/rollouts", "/v1/rollouts/plan"):
            refused = some.post(path, asked)
            assert refused.status == 403
            assert "operators" in refused.detail
        assert root.get("/v1/rollouts").json() == []
        service.clock.advance("1h")
        with pytest.raises(BlockingIOError):
            inner.accept()


@pytest.mark.parametrize(
    ("banner", "reported"),
    [
        (b"SSH-2.0-OpenSSH_9 secret\r\n", "not HTTP"),
        (b"HTTP/1.1 401 secret\r\nX: secret\r\n\r\nsecret", "status 401"),
        (b"secret" * 5_000, "not HTTP"),
    ],
)
def test_the_response_of_a_gate_url_is_not_repeated(
    service: Service, banner: bytes, reported: str
) -> None:
    api = Api(service.control_url)
    with Gate(banner) as gate:
        asked = {"type": "Reboot", "groups": ["web0"], "gate_http": gate.url}
        rollout = api.post("/v1/rollouts", asked)
        service.clock.advance("26m")
        response = api.get(f"/v1/rollouts/{rollout.json()['id']}/explain").body
    assert reported.encode() in response
    assert b"secret" not in response


def test_refused_callers_do_not_fill_the_log(service: Service) -> None:
    api_with_token(service, "root", Role.ADMIN)
    nobody = Api(service.control_url)
    with structlog.testing.capture_logs() as logs:
        for _ in range(30):
            assert nobody.post("/v1/events", {}).status == 401
            assert nobody.call("DELETE", "/v1/nothing", None, {"Host": "evil"}).status == 421
    (line,) = [entry for entry in logs if "by" in entry]
    assert line["by"] == "unauthenticated"


# Local users of the host.


def test_files_of_the_service_are_private_whatever_the_umask(tmp_path: Path) -> None:
    settings = write_settings(tmp_path)
    (tmp_path / "state").chmod(0o755)
    with running_service(tmp_path, settings, umask=0o000) as service:
        service.poll()
        kept = {path.name: path for path in (tmp_path / "state").iterdir()}
        for name in ("forewarn.db", "forewarn.db-wal", "forewarn.db-shm"):
            assert stat.S_IMODE(kept[name].stat().st_mode) == 0o600, name


def test_a_notes_directory_of_another_user_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without XDG_RUNTIME_DIR notes lie in a directory that everybody can write to. Whoever was
    there first and leaves a note there is not asked, and is not told tokens."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be somebody else")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    monkeypatch.setattr(discovery, "SYSTEM", tmp_path / "system")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    theirs = tmp_path / f"forewarn-{os.getuid()}"
    theirs.mkdir(mode=0o777)
    note = theirs / "1.json"
    note.write_text(
        json.dumps({"pid": os.getpid(), "metadata": "", "control": "http://127.0.0.1:1"})
    )
    os.chown(theirs, NOBODY, NOBODY)
    with pytest.raises(discovery.NotFound):
        discovery.find()
    with discovery.note("http://127.0.0.1:2", "http://127.0.0.1:3"):
        assert list(theirs.iterdir()) == [note]
    os.chown(theirs, os.getuid(), os.getgid())
    assert discovery.find() == "http://127.0.0.1:1"  # the very same, where it is our own


@pytest.fixture
def shared_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where everybody may put something, which is where notes lie without XDG_RUNTIME_DIR."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    monkeypatch.setattr(discovery, "SYSTEM", tmp_path / "system")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path


def test_a_link_in_place_of_the_directory_of_notes_is_not_followed(shared_tmp: Path) -> None:
    project = shared_tmp / "project"
    project.mkdir()
    (project / "package.json").write_text("{}")
    (project / "1.json").write_text("{}")
    place = shared_tmp / f"forewarn-{os.getuid()}"
    place.symlink_to(project)
    with pytest.raises(discovery.NotFound):
        discovery.find()
    with discovery.note("http://127.0.0.1:2", "http://127.0.0.1:3"):
        assert {path.name for path in project.iterdir()} == {"package.json", "1.json"}


def test_a_notes_directory_writable_by_others_is_not_trusted(shared_tmp: Path) -> None:
    place = shared_tmp / f"forewarn-{os.getuid()}"
    place.mkdir()
    place.chmod(0o777)
    reported = {"pid": os.getpid(), "metadata": "", "control": "http://127.0.0.1:1"}
    (place / f"{os.getpid()}.json").write_text(json.dumps(reported))
    with pytest.raises(discovery.NotFound):
        discovery.find()
    place.chmod(0o700)
    assert discovery.find() == "http://127.0.0.1:1"


def test_only_notes_whose_process_is_gone_are_removed(shared_tmp: Path) -> None:
    place = shared_tmp / f"forewarn-{os.getuid()}"
    place.mkdir(mode=0o700)
    ended = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(ended, 0)
    left = {"settings.json", "007.json", f"{os.getpid()}.json", "99999999999.json"}
    for name in (*left, f"{ended}.json"):
        (place / name).write_text("no note")
    with pytest.raises(discovery.NotFound):
        discovery.find()
    assert {path.name for path in place.iterdir()} == left
