"""A leader that stood still for longer than its lease, and goes on after another has taken over."""

from __future__ import annotations

import contextlib
import signal
import threading
from pathlib import Path

from forewarn.client import Client
from helpers.client_variants import CuttingProxy
from helpers.control_nodes import ControlProcess, ask, control_process, new_state
from helpers.endpoint import METADATA, NEWEST, approval, events
from helpers.polls import GET
from helpers.raw_http import RawConnection, request
from helpers.serve_process import FLEET
from helpers.waiting import until

DEPOSED = 74  # exit status
OF_EACH = 2  # connections


def test_a_leader_that_resumes_after_its_lease_answers_no_request(tmp_path: Path) -> None:
    url = new_state()
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(control_process(tmp_path / "c1", "c1", url))
        until(first.leads)
        assert ask(first.control, "PUT", "/v1/fleet", FLEET.encode()).status == 200
        second = stack.enter_context(control_process(tmp_path / "c2", "c2", url))
        depose(first, second, "web-0")


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

        old.running.process.send_signal(signal.SIGSTOP)
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

        old.running.process.send_signal(signal.SIGCONT)
        assert old.running.wait() == DEPOSED
        assert {received(connection) for connection in (*kept, *slow, *unread)} == {b""}
        assert event in [listed.id for listed in client.events()]
        assert approvals(new, event) == 1


def approvals(node: ControlProcess, event: str) -> int:
    history = ask(node.control, "GET", f"/v1/history?event={event}").json()["records"]
    return [record["what"] for record in history].count("approved")


def received(connection: RawConnection) -> bytes:
    """Return all that is sent until the connection ends, in whichever way."""
    try:
        return connection.over()
    except ConnectionResetError:
        return connection._kept
