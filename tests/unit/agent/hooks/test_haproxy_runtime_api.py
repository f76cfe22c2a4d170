"""HAProxy's runtime API, where what answers is no HAProxy, or one that is just going down."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pytest

from forewarn.agent.hooks import haproxy
from forewarn.agent.hooks.contract import Call, Event, Failure, Run
from forewarn.agent.hooks.haproxy_runtime_api import RuntimeApi, Unreachable
from forewarn.agent.hooks.options import Haproxy, Stage
from forewarn.support import guard

STATES = "1\n# be_id be_name srv_id srv_name srv_admin_state\n"
SESSIONS = "# pxname,svname,qcur,scur\n"
SILENT = ""


class Answering(Protocol):
    def __call__(self, states: str, sessions: str = SESSIONS) -> str: ...


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Answering]:
    """Somebody at a socket, who says one thing to those who ask for states, and one to others."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "sock"))
        listener.listen()
        output: dict[bool, str] = {}
        kept: list[socket.socket] = []

        def serve() -> None:
            with suppress(OSError):
                while True:
                    line, _ = listener.accept()
                    kept.append(line)
                    answer = output[b"servers" in line.recv(100)]
                    if answer != "hang":
                        line.sendall(answer.encode())
                        line.close()

        thread = threading.Thread(target=serve)
        thread.start()

        def begin(states: str, sessions: str = SESSIONS) -> str:
            output.update({True: states, False: sessions})
            return str(tmp_path / "sock")

        yield begin
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for line in kept:
            line.close()


@pytest.mark.parametrize(
    "states", [SILENT, STATES + "3 web 1 web_0", STATES + "3 web 1\n", STATES + "3 web 1 web_0 x\n"]
)
def test_an_incomplete_answer_is_a_temporary_failure(answering: Answering, states: str) -> None:
    with pytest.raises(Unreachable):
        RuntimeApi(answering(states)).servers()


def test_an_answer_without_a_table_is_not_from_haproxy(answering: Answering) -> None:
    with pytest.raises(Failure, match="runtime API: 'hello'"):
        RuntimeApi(answering("hello\n")).servers()


def test_the_wait_for_an_answer_is_limited_by_the_time_left(answering: Answering) -> None:
    with pytest.raises(Unreachable, match="does not answer"):
        RuntimeApi(answering("hang"), guard.monotonic()).servers()


def test_a_balancer_without_servers_has_none_to_drain(answering: Answering, tmp_path: Path) -> None:
    options = Haproxy(server="web/{resource}", socket=answering(STATES))
    [message] = haproxy.act(called("prepare", tmp_path), options)
    assert message.startswith("web/web_0 is not")


def test_a_server_that_no_longer_exists_is_not_restored(
    answering: Answering, tmp_path: Path
) -> None:
    run = called("undo", tmp_path)
    run.save("haproxy", {"web/web_0": haproxy.SavedState("ready", "maint")})
    options = Haproxy(server="web/web_0", socket=answering(STATES))
    [message] = haproxy.act(run, options)
    assert message.startswith("web/web_0 no longer")


def called(stage: Stage, state: Path) -> Run:
    call = Call("drain", stage, Event("A", "Reboot", resources=["web_0"]), machine="lb_0")
    return Run(call, b"", {"FOREWARN_STATE": str(state)})
