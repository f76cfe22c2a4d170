"""The hook that drains servers, with a real HAProxy, real servers behind it and real sessions."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from forewarn.agent.hooks.contract import Failure
from forewarn.agent.hooks.haproxy_runtime_api import RuntimeApi, Server
from helpers.free_ports import free_port
from helpers.hook_runs import Hook
from helpers.netns import require
from helpers.notify_socket import NotifySocket
from helpers.systemd_boot import as_user
from helpers.waiting import LIMIT, until

CONFIG = """
global
    stats socket {socket} mode 600 level admin
    stats socket {watched} mode 600 level user
    stats socket 127.0.0.1:{port} level admin
    hard-stop-after 2s
defaults
    mode tcp
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option redispatch
frontend all
    bind 127.0.0.1:{front}
    default_backend web
backend web
    server web_0 127.0.0.1:{a}
    server web_1 127.0.0.1:{b}
    server spare 127.0.0.1:{b} disabled
"""


class Backend:
    """Says its name to whoever comes, and stays as long as they do."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(line,), daemon=True).start()

    def _talk(self, line: socket.socket) -> None:
        with line, contextlib.suppress(OSError):
            line.sendall(self._name.encode() + b"\n")
            while line.recv(100):
                pass

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(LIMIT)


class Haproxy:
    def __init__(self, directory: Path) -> None:
        self.socket = str(directory / "admin.sock")
        self.watched = str(directory / "user.sock")
        self.port, self.front = free_port(), free_port()
        self.backends = [Backend("web_0"), Backend("web_1")]
        config = directory / "haproxy.cfg"
        ports = {"a": self.backends[0].port, "b": self.backends[1].port}
        config.write_text(CONFIG.format(**vars(self), **ports))
        self.manager = NotifySocket(str(directory / "told"))
        self.process = subprocess.Popen(
            ["haproxy", "-Ws", "-q", "-f", config],
            env={**os.environ, "NOTIFY_SOCKET": self.manager.address},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.manager.until("READY")
        self.api = RuntimeApi(self.socket)

    def reload(self) -> None:
        self.manager.drain()
        self.process.send_signal(signal.SIGUSR2)
        self.manager.until("RELOADING")
        self.manager.until("READY")

    def session(self) -> tuple[str, socket.socket]:
        """A session through it, and with whom."""
        line = socket.create_connection(("127.0.0.1", self.front), LIMIT)
        return line.recv(100).decode().strip(), line

    def state(self, server: str) -> str:
        return self.api.servers()[f"web/{server}"].state

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(LIMIT)
        self.manager.__exit__(None, None, None)
        for backend in self.backends:
            backend.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Haproxy]:
    require(Path("/usr/sbin/haproxy").exists(), "haproxy: tools/test-packages as root")
    haproxy = Haproxy(tmp_path_factory.mktemp("haproxy"))
    try:
        yield haproxy
    finally:
        haproxy.close()


@pytest.fixture
def haproxy(running: Haproxy) -> Haproxy:
    for name in ("web_0", "web_1"):
        running.api.set(f"web/{name}", "ready")
    running.api.set("web/spare", "maint")
    return running


def sessions_with(haproxy: Haproxy, name: str) -> socket.socket:
    """One, with this server."""
    for _ in range(4):
        who, line = haproxy.session()
        if who == name:
            return line
        line.close()
    raise AssertionError(f"nobody is sent to {name}")


def test_a_server_is_drained_waited_for_and_put_back(haproxy: Haproxy, tmp_path: Path) -> None:
    hook = Hook("haproxy", {"socket": haproxy.socket, "server": "web/{machine}"}, tmp_path)
    line = sessions_with(haproxy, "web_0")
    with ThreadPoolExecutor(1) as pool:
        preparing = pool.submit(hook.program, "prepare")
        until(lambda: haproxy.state("web_0") == "drain")
        for _ in range(4):  # nothing new is sent there, and nothing refused
            who, other = haproxy.session()
            other.close()
            assert who == "web_1"
        assert haproxy.api.servers()["web/web_0"] == Server("drain", 1)
        assert not preparing.done()
        line.close()
        status, output = preparing.result(LIMIT)
    assert status == 0
    assert re.fullmatch(r"web/web_0 .* maintenance, .*[\d.]+ s\n", output), output
    assert haproxy.state("web_0") == "maint"

    status, output = hook.program("undo")
    assert (status, output.split()[0]) == (0, "web/web_0")
    assert haproxy.state("web_0") == "ready"
    assert "web/web_0" not in hook.here("undo")


def test_draining_waits_for_open_sessions_up_to_its_limit(haproxy: Haproxy, tmp_path: Path) -> None:
    options = {"socket": f"127.0.0.1:{haproxy.port}", "server": "web/web_0", "then": "drain"}
    hook = Hook("haproxy", {**options, "drain": "1ms"}, tmp_path)
    with sessions_with(haproxy, "web_0"):
        assert "web/web_0 is draining, 1 session still open" in hook.here("prepare")
        # Nor longer than the agent lets it, whatever it says itself.
        hook.options["drain"] = "1h"
        assert "1 session still open" in hook.here("prepare", left=1)
    assert haproxy.state("web_0") == "drain"
    hook.here("undo")
    assert haproxy.state("web_0") == "ready"


def test_undo_restores_the_state_from_before_the_event(haproxy: Haproxy, tmp_path: Path) -> None:
    haproxy.api.set("web/web_0", "drain")
    servers = ["web/web_0", "web/web_1", "web/spare"]
    hook = Hook("haproxy", {"socket": haproxy.socket, "server": servers}, tmp_path)
    assert "web/spare is already " in hook.here("prepare")
    hook.here("prepare", attempt=2)  # what was found first counts
    assert [haproxy.state(name) for name in ("web_0", "web_1", "spare")] == ["maint"] * 3
    hook.here("undo")
    found = [haproxy.state(name) for name in ("web_0", "web_1", "spare")]
    assert found == ["drain", "ready", "maint"]


def test_undo_leaves_what_somebody_else_has_set_meanwhile(haproxy: Haproxy, tmp_path: Path) -> None:
    options = {"socket": haproxy.socket, "server": "web/web_0", "then": "drain"}
    hook = Hook("haproxy", options, tmp_path)
    hook.here("prepare")
    haproxy.api.set("web/web_0", "maint")
    assert "set to maint" in hook.here("undo")
    assert haproxy.state("web_0") == "maint"


def test_a_reload_of_haproxy_during_an_event_leaves_the_right_state(
    haproxy: Haproxy, tmp_path: Path
) -> None:
    hook = Hook("haproxy", {"socket": haproxy.socket, "server": "web/web_0"}, tmp_path)
    line = sessions_with(haproxy, "web_0")
    with ThreadPoolExecutor(1) as pool, line:
        preparing = pool.submit(hook.here, "prepare")
        until(lambda: haproxy.state("web_0") == "drain")
        haproxy.reload()  # while it waits: the new process knows of no draining
        preparing.result(LIMIT)
    assert haproxy.state("web_0") == "maint"
    haproxy.reload()  # and after it is done
    assert haproxy.state("web_0") == "ready"
    assert "already" in hook.here("undo")
    assert haproxy.state("web_0") == "ready"


def test_a_hook_that_dies_while_it_waits_leaves_what_undo_needs(
    haproxy: Haproxy, tmp_path: Path
) -> None:
    hook = Hook("haproxy", {"socket": haproxy.socket, "server": "web/web_0"}, tmp_path)
    with sessions_with(haproxy, "web_0"):
        process = hook.begun("prepare")
        until(lambda: haproxy.state("web_0") == "drain")
        process.kill()
        process.communicate()
        hook.options["drain"] = 0
        hook.here("prepare", attempt=2)
    assert haproxy.state("web_0") == "maint"
    hook.here("undo")
    assert haproxy.state("web_0") == "ready"


def test_undo_waits_for_a_balancer_that_is_not_up_yet(haproxy: Haproxy, tmp_path: Path) -> None:
    hook = Hook("haproxy", {"socket": haproxy.socket, "server": "web/web_0"}, tmp_path)
    hook.here("prepare")
    away = Path(haproxy.socket).rename(tmp_path / "away")
    with ThreadPoolExecutor(1) as pool:
        undoing = pool.submit(hook.here, "undo")
        assert not undoing.done()
        away.rename(haproxy.socket)
        undoing.result(LIMIT)
    assert haproxy.state("web_0") == "ready"
    away = Path(haproxy.socket).rename(tmp_path / "away")
    hook.here("undo")  # there is nothing left to be undone, and nobody to be asked
    away.rename(haproxy.socket)


def test_a_balancer_drains_the_peers_of_an_event_that_it_knows(
    haproxy: Haproxy, tmp_path: Path
) -> None:
    options = {"socket": haproxy.socket, "server": "web/{resource}"}
    hook = Hook("haproxy", options, tmp_path, resources=["lb_0", "web_1", "db_0"])
    output = hook.here("prepare", machine="lb_0")
    assert output.splitlines()[0].startswith("web/db_0 is not ")
    assert [haproxy.state(name) for name in ("web_0", "web_1")] == ["ready", "maint"]
    hook.event["resources"] = []  # what was drained is known without the event
    hook.here("undo", machine="lb_0")
    assert haproxy.state("web_1") == "ready"


def test_an_unknown_server_or_unusable_socket_fails_and_changes_nothing(
    haproxy: Haproxy, tmp_path: Path
) -> None:
    both = {"socket": haproxy.socket, "server": ["web/web_1", "web/web_2"]}
    with pytest.raises(Failure, match=r"no server web/web_2; .*'web/web_[01]'\?"):
        Hook("haproxy", both, tmp_path).here("prepare")
    assert haproxy.state("web_1") == "ready"
    assert "no server web/web_2" in Hook("haproxy", both, tmp_path).check()[0]

    watched = Hook("haproxy", {"socket": haproxy.watched, "server": "wep/{machine}"}, tmp_path)
    level, backend = watched.check()
    assert "level user" in level
    assert "no backend wep" in backend
    away = Hook("haproxy", {"socket": str(tmp_path / "no"), "server": "web/web_0"}, tmp_path)
    [missing] = away.check()
    assert "stats socket" in missing
    assert away.program("prepare", left=1) == (1, missing + "\n")
    Path(haproxy.watched).chmod(0)
    watched.options["server"] = "web/web_0"
    status, output = watched.program("prepare", prefix=as_user(64_169) if os.geteuid() == 0 else ())
    assert status == 1
    assert output.startswith(f"{haproxy.watched} is not writable")
    fine = Hook("haproxy", {"socket": haproxy.socket, "server": "web/web_0"}, tmp_path)
    assert fine.check() == []
