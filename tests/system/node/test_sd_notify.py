"""What systemd is told: a real service, and a socket that listens as systemd's would."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.support import guard
from forewarn.support.sd_notify import Notifier
from helpers.notify_socket import NotifySocket
from helpers.serve_process import running_service, write_settings
from helpers.waiting import until


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[NotifySocket]:
    """On a path; the others below are abstract."""
    with NotifySocket(str(tmp_path / "notify")) as manager:
        yield manager


def test_systemd_is_notified_of_ready_reload_watchdog_and_stop(
    manager: NotifySocket, tmp_path: Path
) -> None:
    settings = write_settings(tmp_path)
    env = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "600000"}
    with running_service(tmp_path, settings, env=env) as service:
        first = manager.message()
        assert first["READY"] == "1"
        assert first["STATUS"].startswith("2 machines, 0 active events; ")
        service.poll()  # connections are accepted
        assert manager.until("WATCHDOG") == {"WATCHDOG": "1"}
        service.running.process.send_signal(signal.SIGHUP)
        reloading = manager.until("RELOADING")
        assert reloading["RELOADING"] == "1"
        assert int(reloading["MONOTONIC_USEC"]) > 0
        assert manager.until("READY")["READY"] == "1"
        manager.until("WATCHDOG")  # and goes on
        service.running.process.terminate()
        assert manager.until("STOPPING")["STOPPING"] == "1"
        assert service.running.wait() == 0
        assert [one for one in manager.drain() if "WATCHDOG" in one or "READY" in one] == []


def test_a_blocked_service_sends_no_watchdog_message(tmp_path: Path) -> None:
    """A process that is stopped stands for a loop that is stuck: neither comes to it."""
    settings = write_settings(tmp_path)
    env = {"NOTIFY_SOCKET": f"@forewarn-stuck-{os.getpid()}", "WATCHDOG_USEC": "600000"}
    with (
        NotifySocket(env["NOTIFY_SOCKET"]) as manager,
        running_service(tmp_path, settings, env=env) as service,
    ):
        manager.until("WATCHDOG")
        service.running.process.send_signal(signal.SIGSTOP)
        state = Path(f"/proc/{service.running.process.pid}/stat")
        until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T")
        manager.drain()
        assert manager.silent(1.2)  # twice the time after which it is taken for dead
        service.running.process.send_signal(signal.SIGCONT)
        manager.until("WATCHDOG")


def test_watchdog_messages_are_sent_only_while_healthy() -> None:
    address = f"@forewarn-well-{os.getpid()}"
    looked: list[str] = []

    def well() -> str:
        looked.append("scheduler: stopped" if 3 <= len(looked) < 6 else "")
        return looked[-1]

    async def life() -> None:
        notifications = asyncio.ensure_future(  # noqa: TID251 - the test is its owner
            Notifier(address, watchdog=0.003).keep_notifying(lambda: "fine", well)
        )
        while len(looked) < 8:
            await guard.pause(0.001)
        notifications.cancel()
        await asyncio.wait([notifications])

    with NotifySocket(address) as manager:
        asyncio.run(life())
        output = manager.drain()
    assert output[:4] == [{"WATCHDOG": "1"}, {"STATUS": "fine"}, *[{"WATCHDOG": "1"}] * 2]
    assert output[4]["STATUS"].endswith(": scheduler: stopped")
    assert output[5] == {"WATCHDOG": "1"}
    assert sum("WATCHDOG" in one for one in output) == looked.count("")


@pytest.mark.parametrize(
    ("environment", "connected", "watchdog"),
    [
        ({}, False, 0.0),
        ({"NOTIFY_SOCKET": ""}, False, 0.0),
        ({"NOTIFY_SOCKET": "vsock:2:1234"}, False, 0.0),
        ({"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "3000000"}, True, 3.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, True, 0.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "soon"}, True, 0.0),
    ],
)
def test_notify_variables_are_read_and_not_passed_to_programs(
    environment: dict[str, str], connected: bool, watchdog: float
) -> None:
    environment["PATH"] = "/bin"
    notifier = Notifier.from_environment(environment)
    assert (notifier.connected, notifier.watchdog) == (connected, watchdog)
    assert environment == {"PATH": "/bin"}


def test_an_absent_manager_stops_nothing(tmp_path: Path) -> None:
    notifier = Notifier(str(tmp_path / "nobody"))
    notifier.ready("all is well")
    notifier.alive()
    notifier.stopping()


def test_a_line_break_in_a_status_adds_no_field() -> None:
    with NotifySocket(f"@forewarn-words-{os.getpid()}") as manager:
        Notifier(manager.address).status("fine\nREADY=1\nMAINPID=1")
        assert manager.message() == {"STATUS": "fine READY=1 MAINPID=1"}
        Notifier(manager.address).status("x" * 100_000)
        assert len(manager.message()["STATUS"]) == 400
