"""A leader that stood still for longer than its lease, and goes on after another has taken over."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from pathlib import Path

from forewarn.client import Client
from helpers.client_variants import CuttingProxy
from helpers.control_nodes import ControlProcess, ask, control_process, new_state, until
from helpers.endpoint import METADATA, NEWEST, approval, events
from helpers.polls import GET
from helpers.raw_http import RawConnection, request
from helpers.serve_process import FLEET

DEPOSED = 74  # exit status
OF_EACH = 4  # connections, so that each of two workers has some


def test_a_leader_that_goes_on_after_its_lease_answers_nobody(tmp_path: Path) -> None:
    """Nor do its workers."""
    url = new_state()
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(control_process(tmp_path / "c1", "c1", url))
        until(first.leads)
        assert ask(first.control, "PUT", "/v1/fleet", FLEET.encode()).status == 200
        second = stack.enter_context(
            control_process(tmp_path / "c2", "c2", url, "workers = 2\n"),
        )
        depose(first, second, "web-0")
        assert first.running.wait() == DEPOSED
        third = stack.enter_context(control_process(tmp_path / "c3", "c3", url))
        depose(second, third, "web-1")


def depose(old: ControlProcess, new: ControlProcess, machine: str) -> None:
    """Have a leader stand still until another has taken over, and the guests' address with it, to
    which a client repeats its approval."""
    with contextlib.ExitStack() as stack:
        place = old.guests()
        address = stack.enter_context(CuttingProxy(place))
        client = stack.enter_context(Client(address.url))
        kept, slow, unread = (
            [stack.enter_context(RawConnection(place)) for _ in range(OF_EACH)] for _ in range(3)
        )
        for connection in kept:
            connection.send(GET)
            assert connection.answer().status == 200
        reboot = {"type": "Reboot", "machines": [machine]}
        event = ask(old.control, "POST", "/v1/events", reboot).json()["id"]
        assert event in [listed.id for listed in client.events()]

        processes = family(old)
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        approving = threading.Thread(target=client.approve, args=(event,))
        approving.start()
        for connection in (*kept, *unread):
            connection.send(GET)
        for connection in slow:
            connection.send(request("POST", events(NEWEST), METADATA, body=approval(event)))
        until(new.leads)
        address.target = new.guests()
        address.cut()
        approving.join()
        assert approvals(new, event) == 1

        for process in reversed(processes):  # workers may go on before those that would end them
            os.kill(process, signal.SIGCONT)
        until(lambda: set(processes) - set(family(old)) != set())  # has noticed
        if len(processes) > 1:
            old.running.stop()  # would go on as one that follows
        assert {received(connection) for connection in (*kept, *slow, *unread)} == {b""}
        assert event in [listed.id for listed in client.events()]
        assert approvals(new, event) == 1


def family(node: ControlProcess) -> list[int]:
    """Return the process that was started, unless it has ended, and those that it has started."""
    first = node.running.process
    children = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(first.pid)], capture_output=True, text=True
    )
    return [first.pid][: first.poll() is None] + [int(pid) for pid in children.stdout.split()]


def approvals(node: ControlProcess, event: str) -> int:
    history = ask(node.control, "GET", f"/v1/history?event={event}").json()["records"]
    return [record["what"] for record in history].count("approved")


def received(connection: RawConnection) -> bytes:
    """Return all that is sent until the connection ends, in whichever way."""
    try:
        return connection.over()
    except ConnectionResetError:
        return connection._kept
