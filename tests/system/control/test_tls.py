"""TLS for operators: nothing in the clear, certificates that change while the service runs, and a
client that believes nobody without proof."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner, Result

from forewarn.cli.app import app
from forewarn.node import CannotListen
from forewarn.node.config import Tls
from forewarn.support import guard
from forewarn.testing import Service
from helpers.certificates import Authority
from helpers.forked_cli import Forked, run
from helpers.process import Running
from helpers.token_api import FLEET, Api
from helpers.waiting import LIMIT, until


class Scene:
    def __init__(self, authority: Authority, pair: Tls, service: Service) -> None:
        self.authority, self.pair, self.service = authority, pair, service
        self.api = Api(service.control_url, tls=authority.trusted())

    @property
    def port(self) -> int:
        return int(self.service.control_url.rpartition(":")[2])

    def serial(self) -> int:
        """Of the certificate that a new connection is shown."""
        with (
            socket.create_connection(("127.0.0.1", self.port), 20) as plain,
            self.authority.trusted().wrap_socket(plain, server_hostname="127.0.0.1") as secured,
        ):
            return int(str((secured.getpeercert() or {})["serialNumber"]), 16)

    def refresh(self) -> None:
        certificates = self.service._session.node.certificates
        assert certificates is not None

        async def look() -> None:
            certificates.refresh()

        self.service._session.run(look())


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    authority = Authority(tmp_path)
    pair = authority.issue("127.0.0.1", "localhost")
    with Service(FLEET, sockets=True, tls=pair) as service:
        yield Scene(authority, pair, service)


def typed(scene: Scene, *words: str, url: str | None = None, ca: Path | None = None) -> Result:
    env = {"FOREWARN_URL": url or scene.service.control_url, "FOREWARN_CA": str(ca or "")}
    return CliRunner().invoke(app, list(words), env={**env, "FOREWARN_TOKEN": ""})


def refused(result: Result) -> str:
    assert result.exit_code == 1, result.output
    (line,) = result.stderr.splitlines()
    return line


def test_the_control_api_is_served_over_tls(scene: Scene) -> None:
    assert scene.service.control_url.startswith("https://127.0.0.1:")
    assert scene.api.get("/v1/status").status == 200
    assert typed(scene, "machine", "list", ca=scene.authority.path).exit_code == 0
    named = ["--ca", str(scene.authority.path), "machine", "list"]
    assert typed(scene, *named).exit_code == 0


def test_nothing_is_answered_in_the_clear(scene: Scene) -> None:
    with socket.create_connection(("127.0.0.1", scene.port), 20) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = plain.recv(4_096)
    assert b"HTTP/" not in answer
    url = scene.service.control_url.replace("https", "http")
    assert "no service answers" in refused(typed(scene, "machine", "list", url=url))
    assert scene.api.get("/v1/status").status == 200


def test_a_version_that_is_too_old_is_refused(scene: Scene) -> None:
    old = scene.authority.trusted()
    old.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that is the point
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", scene.port), 20) as plain,
        pytest.raises(ssl.SSLError),
    ):
        old.wrap_socket(plain, server_hostname="127.0.0.1")
    assert scene.serial()


def test_the_client_refuses_a_certificate_of_an_unknown_authority(
    scene: Scene, tmp_path: Path
) -> None:
    line = refused(typed(scene, "machine", "list"))
    assert "is not trusted" in line
    assert "--ca or FOREWARN_CA" in line
    other = Authority(tmp_path, "impostor")
    assert "is not trusted" in refused(typed(scene, "machine", "list", ca=other.path))
    missing = typed(scene, "machine", "list", ca=tmp_path / "none.pem")
    assert "none.pem" in refused(missing)
    wrong = refused(typed(scene, "machine", "list", ca=scene.pair.key))
    assert "not a certificate" in wrong


def test_a_certificate_for_another_name_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("forewarn.example.net")
    with Service(FLEET, sockets=True, tls=pair) as service:
        line = refused(typed(Scene(authority, pair, service), "machine", "list", ca=authority.path))
    assert "is not trusted" in line
    assert "127.0.0.1" in line
    assert "host name" in line


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("127.0.0.1", until=datetime(2021, 1, 1, tzinfo=UTC))
    with Service(FLEET, sockets=True, tls=pair) as service:
        line = refused(typed(Scene(authority, pair, service), "machine", "list", ca=authority.path))
    assert "expired" in line


def test_the_client_reports_that_a_service_does_not_use_tls() -> None:
    with Service(FLEET, sockets=True) as service:
        url = service.control_url.replace("http", "https")
        result = CliRunner().invoke(app, ["machine", "list"], env={"FOREWARN_URL": url})
    assert "use http://" in refused(result)


def test_a_new_certificate_is_for_new_connections_and_others_go_on(scene: Scene) -> None:
    first = scene.serial()
    kept = scene.api.connection()
    kept.request("GET", "/v1/status")
    assert kept.getresponse().read()
    mine = kept.sock
    scene.authority.issue("127.0.0.1", into=scene.pair)
    assert scene.serial() == first  # nobody has looked yet
    scene.refresh()
    second = scene.serial()
    assert second != first
    kept.request("GET", "/v1/status")
    answer = kept.getresponse()
    assert (answer.status, kept.sock is mine) == (200, True)
    kept.close()
    scene.refresh()
    assert scene.serial() == second


@pytest.mark.parametrize("broken", ["garbage", "another key", "no key", "half a certificate"])
def test_a_new_pair_that_cannot_be_used_leaves_the_old_one(scene: Scene, broken: str) -> None:
    first = scene.serial()
    certificate, key = scene.pair.certificate.read_bytes(), scene.pair.key.read_bytes()
    match broken:
        case "garbage":
            scene.pair.certificate.write_bytes(b"garbage")
        case "another key":
            other = scene.authority.issue("other.example.net")
            scene.pair.key.write_bytes(other.key.read_bytes())
        case "no key":
            scene.pair.key.unlink()
        case "half a certificate":
            scene.pair.certificate.write_bytes(certificate[: len(certificate) // 2])
    with structlog.testing.capture_logs() as logs:
        scene.refresh()
        scene.refresh()  # it is told once, not at every look
    (entry,) = logs
    assert entry["log_level"] == "error"
    assert str(scene.pair.key) in entry["why"] or str(scene.pair.certificate) in entry["why"]
    assert scene.serial() == first
    scene.pair.key.write_bytes(key)
    scene.pair.certificate.write_bytes(certificate)
    scene.authority.issue("127.0.0.1", into=scene.pair)
    scene.refresh()
    assert scene.serial() != first


def test_a_key_readable_by_all_users_is_a_warning(tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("127.0.0.1")
    pair.key.chmod(0o644)
    with structlog.testing.capture_logs() as logs, Service(FLEET, sockets=True, tls=pair):
        pass
    (warned,) = [entry for entry in logs if "run" in entry]
    assert (warned["log_level"], warned["run"]) == ("warning", f"chmod o= {pair.key}")


@pytest.mark.parametrize("wrong", ["missing", "another key"])
def test_the_service_does_not_start_without_a_usable_certificate(
    tmp_path: Path, wrong: str
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("127.0.0.1")
    if wrong == "missing":
        pair.key.unlink()
        says = f"{pair.key}: No such file"
    else:
        pair = Tls(pair.certificate, authority.issue("other").key)
        says = f"{pair.key} is not .*{pair.certificate}"
    with pytest.raises(CannotListen, match=says), Service(FLEET, sockets=True, tls=pair):
        pass


def test_a_service_process_announces_https_and_reloads_its_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("127.0.0.1")
    settings = {
        "metadata": "127.0.0.1:0",
        "control": "127.0.0.1:0",
        "state": "state.db",
        "tls_certificate": pair.certificate.name,
        "tls_key": pair.key.name,
    }
    config = tmp_path / "forewarn.toml"
    config.write_text("\n".join(f"{k} = {json.dumps(v)}" for k, v in settings.items()))
    argv = [sys.executable, "-m", "forewarn", "serve", "--config", str(config)]
    env = {k: v for k, v in os.environ.items() if not k.startswith("FOREWARN_")}
    env["XDG_RUNTIME_DIR"] = str(tmp_path)
    out = subprocess.PIPE
    running = Running(Forked(argv, stdout=out, stderr=out, text=True, env=env), argv)
    try:
        control = json.loads(running.line().removeprefix("ready "))["control"]
        assert control.startswith("https://127.0.0.1:")
        # The command finds it by its note, and believes it because of the authority.
        found = run(
            [sys.executable, "-m", "forewarn", "--ca", str(authority.path), "machine", "list"],
            env=env,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert found.returncode == 0, found.stderr
        first = shown(control, authority)
        authority.issue("127.0.0.1", into=pair)
        until(lambda: shown(control, authority) != first)
    finally:
        running.stop()


def shown(url: str, authority: Authority) -> str:
    host, _, port = url.removeprefix("https://").rpartition(":")
    connection = http.client.HTTPSConnection(
        host, int(port), timeout=LIMIT, context=authority.trusted()
    )
    connection.connect()
    try:
        assert isinstance(connection.sock, ssl.SSLSocket)
        return str((connection.sock.getpeercert() or {})["serialNumber"])
    finally:
        connection.close()


def test_an_expired_new_certificate_leaves_the_old_one(scene: Scene) -> None:
    first = scene.serial()
    scene.authority.issue("127.0.0.1", into=scene.pair, until=datetime(2021, 1, 1, tzinfo=UTC))
    with structlog.testing.capture_logs() as logs:
        scene.refresh()
    (reported,) = (one for one in logs if "why" in one)
    assert reported["why"] == f"{scene.pair.certificate} has expired"
    assert scene.serial() == first
    scene.authority.issue("127.0.0.1", into=scene.pair)
    scene.refresh()
    assert scene.serial() != first


def test_the_expiry_of_a_certificate_is_logged_once_a_day(scene: Scene) -> None:
    soon = datetime.fromtimestamp(guard.wall_us() / 1e6, UTC) + timedelta(days=5, hours=1)
    scene.authority.issue("127.0.0.1", into=scene.pair, until=soon)
    with structlog.testing.capture_logs() as logs:
        scene.refresh()
        scene.refresh()
    assert [one["days"] for one in logs if "days" in one] == [5]
