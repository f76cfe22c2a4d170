"""A node beside control on the same host: guests are answered whatever happens to control, and only
its own user, and its own host, is let in."""

from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path

import pytest

from helpers.forked_cli import run_script
from helpers.node_beside_control import HOST, Beside, beside, socket_path
from helpers.polled_service import Pollers
from helpers.raw_http import ConnectionClosed, NoAnswer
from helpers.waiting import until

NOBODY, SOMEBODY = 65534, 65533  # users other than that of the tests

CONNECT = """
import os, socket, sys
path, user = sys.argv[1], int(sys.argv[2])
if user:
    os.setgroups([]), os.setgid(user), os.setuid(user)
try:
    socket.socket(socket.AF_UNIX).connect(path)
except OSError as error:
    print(type(error).__name__)
else:
    print("connected")
"""


class Approval:
    """An approval that is under way."""

    def __init__(self, service: Beside, event: str) -> None:
        self.status: int | None = None  # None: no answer
        self._service, self._event = service, event
        self._thread = threading.Thread(target=self._approve, daemon=True)
        self._thread.start()

    def _approve(self) -> None:
        try:
            self.status = self._service.approve(self._event, 3)
        except (ConnectionClosed, NoAnswer, OSError):
            self.status = None

    def outcome(self) -> int | None:
        self._thread.join()
        return self.status


def approved(service: Beside, event: str) -> bool:
    return service.ask("GET", f"/v1/events/{event}")["approved"] is not None


def started(service: Beside) -> bool:
    """Return whether guests see one event, which has started."""
    return [event["EventStatus"] for event in service.document()["Events"]] == ["Started"]


@pytest.mark.parametrize("handed_over", [False, True], ids=["opened by control", "handed over"])
def test_polls_are_answered_while_control_is_restarted_or_killed(
    tmp_path: Path, handed_over: bool
) -> None:
    with beside(tmp_path, handed_over=handed_over) as service:
        with Pollers(service.place, range(8)) as crowd:
            crowd.seen(100)
            for machine, number in enumerate((signal.SIGTERM, signal.SIGKILL)):
                event = service.schedule(f"web_{machine}", "Freeze")
                service.end(service.running, number)
                crowd.seen(100)
                service.start_control()
                service.wait_until_joined()
                assert service.approve(event, machine) == 200
                assert approved(service, event)
                crowd.seen(100)
            crowd.leave()
        assert crowd.wrong == []


def test_an_approval_is_kept_or_can_be_repeated_if_control_is_killed_in_the_middle_of_it(
    tmp_path: Path,
) -> None:
    with beside(tmp_path) as service:
        with Pollers(service.place, range(3)) as crowd:
            crowd.seen()
            for machine in range(3):
                event = service.schedule(f"web_{machine}", "Freeze")
                assert service.running is not None
                if machine < 2:  # it arrives where nobody reads it any more
                    service.running.process.send_signal(signal.SIGSTOP)
                approval = Approval(service, event)
                crowd.seen()
                service.end(service.running, signal.SIGKILL)
                service.start_control()
                if approval.outcome() != 200:
                    service.wait_until_joined()
                    assert service.approve(event, 3) == 200
                assert approved(service, event)
                until(lambda: started(service), "guests see that it has started")
                service.ask("POST", f"/v1/events/{event}/finish", {"reason": "test"})
            crowd.leave()
        assert crowd.wrong == []


def test_no_poll_is_refused_while_the_node_is_killed_and_started_without_control(
    tmp_path: Path,
) -> None:
    with beside(tmp_path) as service:
        with Pollers(service.place, range(8)) as crowd:
            crowd.seen(100)
            service.end(service.node, signal.SIGKILL)
            service.end(service.running, signal.SIGKILL)
            service.start_node()
            crowd.seen(100)  # with what is in its journal
            service.start_control()
            service.wait_until_joined()
            crowd.seen(100)
            crowd.leave()
        assert crowd.went["refused"] == crowd.went["hung"] == 0, crowd.wrong
        assert len(crowd.wrong) <= 8, crowd.wrong  # what it was answering when it died is cut
        event = service.schedule()
        assert service.approve(event) == 200


def test_a_node_that_claims_another_host_is_refused(tmp_path: Path) -> None:
    with beside(tmp_path) as service:
        settings = (tmp_path / "node.toml").read_text()
        other = tmp_path / "other.toml"
        other.write_text(settings.replace(HOST, "host-b").replace("/journal", "/other"))
        impostor = service.popen("node", "--config", str(other))
        try:
            until(lambda: refusals(service) or impostor.process.poll() is not None)
            (why,) = refusals(service)
            assert f"'{HOST}'" in why
            assert "'host-b'" in why
            assert "nodes_host" in why
            assert not service.joined("host-b")
            assert service.joined()
        finally:
            impostor.stop()
        assert impostor.stdout == []  # it has never been ready


def refusals(service: Beside) -> list[str]:
    assert service.running is not None
    return [line for line in service.running.stderr if "a node was refused" in line]


def connect(path: Path, user: int = 0) -> str:
    return run_script(CONNECT, path, str(user), check=True).stdout.strip()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
def test_another_user_cannot_connect(tmp_path: Path) -> None:
    """The socket is for the user of control or, if it was handed over, for its owner."""
    with beside(tmp_path) as service:
        assert connect(service.path) == "connected"
        assert connect(service.path, NOBODY) == "PermissionError"
    with socket_path() as path, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        os.chown(path, NOBODY, -1)
        listener.listen()
        assert connect(path, NOBODY) == "connected"
        assert connect(path, SOMEBODY) == "PermissionError"


def test_a_socket_that_is_not_ours_is_left_alone_and_the_start_is_refused(tmp_path: Path) -> None:
    with beside(tmp_path) as service:
        second = Beside(tmp_path, service.path, state="second.db")
        assert second.start().wait() == 1
        assert "another service listens there" in second.logged_so_far()
        second.close()
        assert service.joined()
