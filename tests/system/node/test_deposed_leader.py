"""A leader that stood still for longer than its lease, and goes on after another has taken over."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from helpers.control_nodes import ask, control_process, new_state, until
from helpers.endpoint import METADATA, NEWEST, approval, events
from helpers.polls import GET
from helpers.raw_http import RawConnection, request
from helpers.serve_process import FLEET

DEPOSED = 74  # exit status


def test_a_leader_that_goes_on_after_its_lease_answers_nobody_and_ends(tmp_path: Path) -> None:
    url = new_state()
    with control_process(tmp_path / "c1", "c1", url) as old:
        until(old.leads)
        assert ask(old.control, "PUT", "/v1/fleet", FLEET.encode()).status == 200
        with control_process(tmp_path / "c2", "c2", url) as new, contextlib.ExitStack() as stack:
            place = old.guests()
            kept, slow, unread = (stack.enter_context(RawConnection(place)) for _ in range(3))
            kept.send(GET)
            assert kept.answer().json()["Events"] == []
            reboot = {"type": "Reboot", "machines": ["web-0"]}
            event = ask(old.control, "POST", "/v1/events", reboot).json()["id"]
            os.kill(old.running.process.pid, signal.SIGSTOP)
            kept.send(GET)
            slow.send(request("POST", events(NEWEST), METADATA, body=approval(event)))
            unread.send(GET)
            until(new.leads)
            assert ask(new.control, "POST", f"/v1/events/{event}/cancel").status == 200
            os.kill(old.running.process.pid, signal.SIGCONT)
            for connection in (kept, slow, unread):
                assert received(connection) == b""
            assert old.running.wait() == DEPOSED
            guest = stack.enter_context(RawConnection(new.guests()))
            guest.send(GET)
            assert guest.answer().json()["Events"] == []


def received(connection: RawConnection) -> bytes:
    """Return all that is sent until the connection ends, in whichever way."""
    try:
        return connection.over()
    except ConnectionResetError:
        return connection._kept
