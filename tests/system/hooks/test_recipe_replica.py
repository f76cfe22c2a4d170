"""The recipe examples/hooks/replica with two real Redis servers and a writer that goes on all the
time: whatever was acknowledged is still there, wherever the primary's part has gone."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.free_ports import free_port
from helpers.hook_recipes import Recipe
from helpers.netns import require
from helpers.process import Running
from helpers.waiting import LIMIT, until


class Redis:
    def __init__(self, directory: Path, primary: int = 0) -> None:
        directory.mkdir()
        self.port = free_port()
        self.conf = directory / "redis.conf"
        lines = [f"port {self.port}", "bind 127.0.0.1", f"dir {directory}", 'save ""']
        lines += ["repl-diskless-sync-delay 0"]
        lines += [f"replicaof 127.0.0.1 {primary}"] if primary else []
        self.conf.write_text("\n".join(lines) + "\n")
        self.start()

    def start(self) -> None:
        argv = ["redis-server", str(self.conf)]
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.conf.parent
        )
        self.running = Running(process, argv)
        while "Ready to accept connections" not in self.running.line():
            pass

    def reboot(self) -> None:
        """All that was in memory is lost."""
        self.signal(signal.SIGKILL)
        self.running.wait()
        self.start()

    def signal(self, signum: signal.Signals) -> None:
        os.kill(self.running.process.pid, signum)

    def ask(self, *words: str) -> str:
        with socket.create_connection(("127.0.0.1", self.port), 20) as there:
            return command(there, *words)

    @property
    def role(self) -> str:
        return self.ask("INFO", "replication").split("role:")[1].split()[0]

    @property
    def online(self) -> bool:
        return "state=online" in self.ask("INFO", "replication")


def command(there: socket.socket, *words: str) -> str:
    """One command in Redis' protocol, and its answer with whatever belongs to it."""
    parts = [f"*{len(words)}\r\n", *(f"${len(word)}\r\n{word}\r\n" for word in words)]
    there.sendall("".join(parts).encode())
    answer = b""
    while not answer.endswith(b"\r\n"):
        part = there.recv(65536)
        if not part:
            raise ConnectionError("closed")
        answer += part
    return answer.decode()


class Writer(threading.Thread):
    """Writes one key after another to whoever is the primary, and remembers what was promised."""

    def __init__(self, *servers: Redis) -> None:
        super().__init__(daemon=True)
        self._servers = list(servers)
        self._over = threading.Event()
        self.promised: list[str] = []
        self.start()

    def run(self) -> None:
        number = 0
        while not self._over.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self._servers[0].port), 20) as there:
                    while not self._over.wait(0.003):
                        number += 1
                        if command(there, "SET", f"key{number}", "x") != "+OK\r\n":
                            break
                        self.promised.append(f"key{number}")
            except OSError:
                pass
            self._over.wait(0.02)  # before it tries the other one
            self._servers.reverse()

    def goes_on(self) -> None:
        before = len(self.promised)
        until(lambda: len(self.promised) > before + 20, "writes are acknowledged")

    def stop(self) -> list[str]:
        self._over.set()
        self.join(LIMIT)
        return self.promised


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Redis, Redis]]:
    require(shutil.which("redis-server"), "redis-server: apt-get install redis-server")
    directory = tmp_path_factory.mktemp("redis")
    here = Redis(directory / "here")
    other = Redis(directory / "other", here.port)
    until(lambda: here.online, "the replica is online")
    yield here, other
    here.running.stop()
    other.running.stop()


@pytest.fixture
def hook(pair: tuple[Redis, Redis], tmp_path: Path) -> Recipe:
    here, _ = pair
    assert here.role == "master"
    return Recipe("replica/replica.py", tmp_path, "db_0", REDIS_HERE=f"127.0.0.1:{here.port}")


def all_there(server: Redis, keys: list[str]) -> bool:
    return server.ask("EXISTS", *keys) == f":{len(keys)}\r\n"


def test_the_primary_goes_over_reboots_and_comes_back_and_no_acknowledged_write_is_lost(
    pair: tuple[Redis, Redis], hook: Recipe
) -> None:
    here, other = pair
    writer = Writer(here, other)
    writer.goes_on()
    done = f"127.0.0.1:{other.port} is the primary, 127.0.0.1:{here.port} its replica"
    assert done in hook.ok("prepare")
    assert (here.role, other.role) == ("slave", "master")
    writer.goes_on()
    assert hook.ok("prepare").strip() == done
    here.reboot()
    assert here.role == "slave", "after a reboot it knows who the primary is"
    writer.goes_on()
    assert "primary again" in hook.ok("undo", HAND_BACK="yes")
    writer.goes_on()
    promised = writer.stop()
    assert (here.role, other.role) == ("master", "slave")
    assert all_there(here, promised)
    assert "nothing" in hook.ok("undo", HAND_BACK="yes")
    assert here.role == "master"


def test_a_hook_that_is_killed_in_the_middle_leaves_one_primary_and_loses_no_write(
    pair: tuple[Redis, Redis], hook: Recipe
) -> None:
    here, other = pair
    writer = Writer(here, other)
    writer.goes_on()
    other.signal(signal.SIGSTOP)
    try:
        begun = hook.begin("prepare")
        assert "hands over" in begun.line()
        hook.kill(begun)
    finally:
        other.signal(signal.SIGCONT)
    assert "stays a replica" in hook.ok("undo")
    assert (here.role, other.role) == ("slave", "master")
    writer.goes_on()
    promised = writer.stop()
    assert all_there(other, promised)
    assert "was a replica: " in hook.ok("prepare", "B")
    assert "nothing" in hook.ok("undo", "B", HAND_BACK="yes")
    mine = hook.env["REDIS_HERE"]
    hook.env |= {"REDIS_HERE": f"127.0.0.1:{other.port}", "REDIS_OTHER": mine}
    assert f"{mine} is the primary" in hook.ok("prepare", "C")


def test_without_an_online_replica_nothing_is_handed_over(
    pair: tuple[Redis, Redis], hook: Recipe
) -> None:
    here, _ = pair
    assert "nothing" in hook.ok("undo")
    assert "this machine" in hook.ok("prepare", FOREWARN_MINE="false")
    assert "no replica 127.0.0.1:1 online" in hook.fails("prepare", REDIS_OTHER="127.0.0.1:1")
    assert here.role == "master"
    assert hook.ok("undo", HAND_BACK="yes").strip() == f"127.0.0.1:{here.port} is the primary"
    assert "be like 10.0.0.4:6379" in hook.fails("prepare", REDIS_HERE="redis")
    assert "Could not connect" in hook.fails("prepare", "B", REDIS_HERE="127.0.0.1:1")


def test_two_primaries_are_reported_and_left_alone(pair: tuple[Redis, Redis], hook: Recipe) -> None:
    here, other = pair
    hook.ok("prepare")
    here.ask("REPLICAOF", "NO", "ONE")
    assert "both" in hook.fails("undo", HAND_BACK="yes")
    assert (here.role, other.role) == ("master", "master")
    other.ask("REPLICAOF", "127.0.0.1", str(here.port))
    until(lambda: here.online, "the replica is online")
    assert hook.ok("undo").strip() == f"127.0.0.1:{here.port} is the primary"
