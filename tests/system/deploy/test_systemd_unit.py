"""The service as its unit runs it: confined, with sockets handed over, without any privilege."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.clean_root import needed
from helpers.notify_socket import NotifySocket
from helpers.paths import HELPERS, ROOT
from helpers.serve_process import running_service, write_settings
from helpers.waiting import LIMIT, until

UNIT = ROOT / "deploy/systemd/forewarn.service"
CONFINED = [sys.executable, str(HELPERS / "systemd_sandbox.py"), str(UNIT)]
# What the setting `arm` takes: the API has a socket that is not handed over.
ACCESS_TOKEN = """
import socket, jwt
from forewarn.service.access.access_tokens import _private_key
key = _private_key("secret")
jwt.decode(jwt.encode({}, key, "EdDSA"), key.public_key(), ["EdDSA"])
socket.create_server(("127.0.0.1", 0))
"""
SOCKETS = "metadata=127.0.0.1:0 control=127.0.0.1:0"


@pytest.fixture(autouse=True)
def _needed() -> None:
    needed("systemd-analyze", "mount")


def confined(directory: Path, *program: str) -> subprocess.CompletedProcess[str]:
    argv = [*CONFINED, str(directory), SOCKETS, *program]
    return subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT)


def test_the_service_works_within_the_sandbox_of_its_unit(tmp_path: Path) -> None:
    program = tmp_path / "carry"
    program.write_text("#!/bin/sh\nenv > carried\nexit 0\n")
    program.chmod(0o755)
    settings = write_settings(tmp_path, 'driver = "command"\n[command]\nprogram = ["./carry"]\n')
    before = [*CONFINED, str(tmp_path), SOCKETS]
    env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "3000000"}
    with (
        NotifySocket(env["NOTIFY_SOCKET"]) as manager,
        running_service(tmp_path, settings, before=before, env=env, cwd=tmp_path) as service,
    ):
        assert manager.until("READY")["READY"] == "1"
        assert service.poll()["Events"] == []
        event = service.post("/v1/events", {"type": "Reboot", "machines": ["web-0"]})["id"]
        assert [one["EventId"] for one in service.poll()["Events"]] == [event]
        service.post(f"/v1/events/{event}/approve")
        until(lambda: service.poll()["Events"] == [])  # the machine is back
        service.wait_for(f"/v1/events/{event}", status="Finished")
        carried = (tmp_path / "carried").read_text()
        for name in ("NOTIFY_SOCKET", "LISTEN_", "WATCHDOG_"):
            assert name not in carried
        service.get("/readyz")
        service.running.process.send_signal(signal.SIGHUP)
        assert manager.until("RELOADING")
        manager.until("READY")
        manager.drain()
        manager.until("WATCHDOG")
        service.running.process.terminate()
        manager.until("STOPPING")
        assert service.running.wait() == 0


@pytest.mark.parametrize(
    ("tried", "ends"),
    [
        ("import os; os.chroot('/')", -signal.SIGSYS),
        ("import mmap as m; m.mmap(-1, 4096, prot=m.PROT_WRITE | m.PROT_EXEC)", -signal.SIGSYS),
        ("import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", 1),
        ("open('/usr/lib/forewarn-was-here', 'w')", 1),
        ("import socket; socket.create_server(('127.0.0.1', 79))", 1),
        ("pass", 0),
        (ACCESS_TOKEN, 0),
    ],
    ids=[
        *("another root", "code that it writes", "netlink", "writing", "a low port", "nothing"),
        "an access token and a socket of its own",
    ],
)
def test_the_sandbox_of_the_unit_is_effective_in_tests(
    tmp_path: Path, tried: str, ends: int
) -> None:
    """Else the test above would prove nothing."""
    assert confined(tmp_path, sys.executable, "-c", tried).returncode == ends
