"""A PostgreSQL cluster that fails over under two control nodes: nothing that was acknowledged is
lost, and nothing is there twice."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time  # noqa: TID251 - real servers take real time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from forewarn.core.registry import HostPut
from forewarn.store import Commit
from helpers import patroni
from helpers.forked_cli import Forked, fork_server
from helpers.netns import needs_root
from helpers.paths import HELPERS
from helpers.patroni import Cluster
from helpers.process import Running

CONTROL = {"c1": "10.88.0.21", "c2": "10.88.0.22"}
CUT = 25.0  # seconds, longer than Patroni waits for a primary


class ControlNodes:
    """Two nodes that commit, each started again whenever it ends."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._keep, args=(name,)) for name in CONTROL]

    def __enter__(self) -> ControlNodes:
        fork_server()  # here, not inside
        self.hurry()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _keep(self, name: str) -> None:
        program = str(HELPERS / "committing_node.py")
        words = [sys.executable, program, self.cluster.url, name, str(self.directory / name)]
        guest = self.cluster.lab.guests[CONTROL[name]]
        pipe = subprocess.PIPE
        while not self._stopped.is_set():
            process = guest.call(Forked, words, stdout=pipe, stderr=pipe, text=True)
            running = Running(process, words)
            while running.process.poll() is None and not self._stopped.wait(0.1):
                pass
            if self._stopped.is_set():
                running.process.kill()
            running.wait()

    def acknowledged(self) -> dict[int, str]:
        """Return the commits that were acknowledged, by number, with the host each put."""
        found: dict[int, str] = {}
        for name in CONTROL:
            path = self.directory / name
            for line in path.read_text().splitlines() if path.exists() else ():
                number, _, host = line.partition(" ")
                assert int(number) not in found, "a number was given twice"
                found[int(number)] = host
        return found

    def hurry(self) -> None:
        """Have commits under way when something happens next."""
        (self.directory / "often").touch()

    def go_on(self) -> None:
        """Wait until commits are acknowledged that are made from now on."""
        last = max(self.acknowledged(), default=0)
        self.cluster.wait_until(lambda: max(self.acknowledged(), default=0) > last + 5)


def switch_over(cluster: Cluster) -> None:
    cluster.switch_over()


def kill_the_primarys_server(cluster: Cluster) -> None:
    cluster.kill_server(cluster.primary())


def kill_all_of_a_node_that_cannot_be_rewound(cluster: Cluster) -> None:
    """The primary has gone on alone and removed the log from before that: it has to be copied."""
    primary = cluster.primary()
    cluster.cut(primary)
    cluster.go_on_alone(primary)
    cluster.kill_everything(primary)
    cluster.heal()
    cluster.wait_until(lambda: cluster.has_primary_other_than(primary))
    cluster.start(primary)


def cut_the_primary_off(cluster: Cluster) -> None:
    cluster.cut(cluster.primary())
    time.sleep(CUT)
    cluster.heal()


def stop_the_primary(cluster: Cluster) -> None:
    primary = cluster.primary()
    cluster.signal_everything(primary, signal.SIGSTOP, but="etcd")
    time.sleep(CUT)
    cluster.signal_everything(primary, signal.SIGCONT)


FAULTS = (
    switch_over,
    kill_the_primarys_server,
    cut_the_primary_off,
    stop_the_primary,
    kill_all_of_a_node_that_cannot_be_rewound,
)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    needs_root()
    patroni.needed()
    with Cluster(CONTROL.values()) as cluster:
        yield cluster


def test_no_fail_over_loses_what_was_acknowledged(cluster: Cluster, tmp_path: Path) -> None:
    with ControlNodes(cluster, tmp_path) as nodes:
        nodes.go_on()
        for fault in FAULTS:
            nodes.hurry()
            fault(cluster)
            nodes.go_on()
            cluster.wait_until(cluster.whole)
            nodes.go_on()
    acknowledged = nodes.acknowledged()
    guest = cluster.lab.guests[CONTROL["c1"]]
    stored = guest.call(log_of, cluster.url)
    assert list(stored) == list(range(1, len(stored) + 1))  # in order, without a gap
    assert {number: stored.get(number) for number in acknowledged} == acknowledged
    assert len(set(stored.values())) == len(stored)  # nothing was written twice
    # What is there, and was not acknowledged, was in doubt when its node ended.
    assert len(stored) - len(acknowledged) <= 4 * len(FAULTS)


def log_of(url: str) -> dict[int, str]:
    import psycopg

    decode = msgspec.json.Decoder(Commit).decode
    with psycopg.connect(url, target_session_attrs="read-write") as connection:
        rows = connection.execute("SELECT seq, body FROM commits ORDER BY seq").fetchall()
    commits = [decode(body) for _, body in rows]
    return {
        commit.seq: put.host.name
        for commit in commits
        for put in commit.puts
        if isinstance(put, HostPut)
    }
