"""A real OIDC issuer on loopback: people sign in there, and the service knows them by its keys."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forewarn.cli.app import app
from helpers.notify_socket import NotifySocket
from helpers.serve_process import running_service, write_settings
from helpers.token_api import Api
from helpers.waiting import LIMIT, until

SETTINGS = """
[oidc]
issuer = "ISSUER"
audience = "forewarn"
name_claim = "email"

[[oidc.access]]
member_of = "operations"
role = "admin"

[[oidc.access]]
member_of = "web-team"
role = "tenant"
groups = ["web"]
"""
BACK = "http://127.0.0.1/back"  # where a browser would be sent after signing in


class Provider:
    """The issuer, as a process of its own."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        command = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock"]
        self._process = subprocess.Popen(
            [*command, "--port", str(self._port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()

    def wait(self) -> None:
        """Return when it answers."""

        def answers() -> bool:
            assert self._process.poll() is None
            with contextlib.suppress(ConnectionRefusedError):
                self._send("GET", "/jwks", "", "text/plain")
                return True
            return False

        until(answers)

    def _send(self, method: str, path: str, body: str, kind: str) -> tuple[str, bytes]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=LIMIT)
        try:
            connection.request(method, path, body, {"Content-Type": kind})
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        assert response.status < 400, content
        return response.headers.get("Location", ""), content

    def has(self, subject: str, **claims: object) -> None:
        """Let somebody have an account with these claims."""
        self._send("PUT", f"/users/{subject}", json.dumps(claims), "application/json")

    def sign_in(self, subject: str, client: str = "forewarn") -> str:
        """Sign in as a browser would, and return the ID token."""
        form = "application/x-www-form-urlencoded"
        asked = {"client_id": client, "response_type": "code", "redirect_uri": BACK}
        query = urllib.parse.urlencode({**asked, "scope": "openid email"})
        back, _ = self._send("POST", f"/oauth2/authorize?{query}", f"sub={subject}", form)
        code = urllib.parse.parse_qs(urllib.parse.urlsplit(back).query)["code"][0]
        traded = {"grant_type": "authorization_code", "code": code, "redirect_uri": BACK}
        body = urllib.parse.urlencode({**traded, "client_id": client, "client_secret": "x"})
        return str(json.loads(self._send("POST", "/oauth2/token", body, form)[1])["id_token"])


def typed(url: str, token: str, *words: str) -> tuple[int, str]:
    env = {"FOREWARN_TOKEN": token, "FOREWARN_URL": url}
    result = CliRunner().invoke(app, words, env=env)
    return result.exit_code, result.output


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    yield made
    made.stop()


def test_people_signed_in_at_an_issuer_have_the_roles_of_their_groups(
    provider: Provider, tmp_path: Path
) -> None:
    settings = write_settings(tmp_path, SETTINGS.replace("ISSUER", provider.url))
    manager_address = f"@forewarn-oidc-{os.getpid()}"
    with (
        NotifySocket(manager_address) as manager,
        running_service(tmp_path, settings, env={"NOTIFY_SOCKET": manager_address}) as service,
    ):
        manager.until("READY")  # whether the issuer answers or not
        service.poll()  # from now on, Scheduled Events are enabled
        provider.wait()
        provider.has("ann", email="ann@example.net", groups=["operations"])
        provider.has("tom", email="tom@example.net", groups=["web-team", "singers"])
        provider.has("eve", email="eve@example.net", groups=["singers"])
        ann, tom = provider.sign_in("ann"), provider.sign_in("tom")

        def reload(old: str, new: str) -> None:
            settings.write_text(settings.read_text().replace(old, new))
            service.running.process.send_signal(signal.SIGHUP)
            manager.until("RELOADING")
            manager.until("READY")

        # The first try to fetch its keys may have been too early.
        reload(provider.url, f"{provider.url}/")
        reload(f"{provider.url}/", provider.url)
        code, output = typed(service.control, ann, "token", "list")
        assert code == 0, output
        code, output = typed(service.control, tom, "machine", "restart", "web-0", "--json")
        assert (code, json.loads(output)["raised_by"]) == (0, "tom@example.net")
        code, output = typed(service.control, tom, "machine", "evict", "web-0", "--yes")
        assert (code, "role operator" in output) == (1, True)
        code, output = typed(service.control, provider.sign_in("eve"), "machine", "list")
        assert code == 1
        assert re.search(r"'eve@example\.net' .*\(singers\)", output)
        other = Api(service.control, provider.sign_in("ann", client="something-else"))
        assert "(claim aud)" in other.get("/v1/status").detail
        (record,) = Api(service.control, ann).get("/v1/history?what=raised").json()["records"]
        assert record["by"] == "tom@example.net"
        checked = CliRunner().invoke(app, ["config", "check", "--config", str(settings)])
        assert "issuer" not in checked.output

        reload("web-team", "db-team")
        assert Api(service.control, tom).get("/v1/status").status == 403
        provider.stop()
        assert Api(service.control, ann).get("/v1/status").status == 200  # its key is known
        checked = CliRunner().invoke(app, ["config", "check", "--config", str(settings)])
        assert "of the issuer" in checked.output
