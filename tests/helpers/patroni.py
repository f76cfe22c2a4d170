"""A PostgreSQL cluster under Patroni: three nodes in network namespaces, each with etcd and a
server, one of which is the primary and one a synchronous standby. Their configuration is the one of
docs/operate/postgresql.md.

The servers' programs come with the Debian packages `postgresql` and `etcd-server`, Patroni with the
packages of the tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time  # noqa: TID251 - real servers take real time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psycopg
import yaml

from helpers import postgres
from helpers.netns import Lab, require
from helpers.paths import ROOT
from helpers.process import Running
from helpers.waiting import LIMIT

PAGE = (ROOT / "docs/operate/postgresql.md").read_text()
SHOWN = ("192.0.2.21", "192.0.2.22", "192.0.2.23")  # there, of which the first is the machine's own
NODES = ("10.88.0.11", "10.88.0.12", "10.88.0.13")
USER = postgres.USER


def needed() -> None:
    require(postgres.programs(), "PostgreSQL: apt-get install postgresql")
    require(shutil.which("etcd"), "etcd: apt-get install etcd-server")
    require(shutil.which("nft"), "nftables: apt-get install nftables")


def block(kind: str) -> str:
    """Return the block of the documentation with these words after its fence."""
    (found,) = re.findall(rf"^```{re.escape(kind)}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


class Cluster:
    """`others` are the addresses of further machines in the same network."""

    def __init__(self, others: Iterable[str]) -> None:
        self.lab = Lab([*NODES, *others], network="10.88.0.0/24")
        self.directory = Path(tempfile.mkdtemp(prefix="forewarn-patroni-"))
        self.processes: dict[str, list[Running]] = {}
        self._closing = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, self.directory, ignore_errors=True)
            undo.enter_context(self.lab)
            shutil.chown(self.directory, USER)
            for address in NODES:
                self.start(address)
            self.wait_until(self.whole)
            self.create_database()
            self._closing = undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.close()

    @property
    def url(self) -> str:
        [password] = re.findall(r"LOGIN PASSWORD '([\w-]+)'", PAGE)
        return f"postgresql://forewarn:{password}@{','.join(NODES)}/forewarn"

    def admin_url(self, address: str) -> str:
        """Return the URL of a node's database for the superuser."""
        [password] = re.findall(r"superuser: .*password: ([\w-]+)", PAGE)
        return f"postgresql://postgres:{password}@{address}/postgres"

    def start(self, address: str) -> None:
        """Start etcd and Patroni on a node, which starts the server."""
        directory = self.directory / address
        directory.mkdir(mode=0o700, exist_ok=True)
        shutil.chown(directory, USER)
        settings = directory / "patroni.yml"
        settings.write_text(yaml.safe_dump(self._settings(address, directory)))
        shutil.chown(settings, USER)
        member = {node: f"n{i}" for i, node in enumerate(NODES)}
        peers = ",".join(f"{name}=http://{node}:2380" for node, name in member.items())
        etcd = [
            *("etcd", "--name", member[address], "--data-dir", str(directory / "etcd")),
            *("--listen-peer-urls", f"http://{address}:2380"),
            *("--initial-advertise-peer-urls", f"http://{address}:2380"),
            *("--listen-client-urls", f"http://{address}:2379"),
            *("--advertise-client-urls", f"http://{address}:2379"),
            *("--initial-cluster", peers, "--heartbeat-interval", "100"),
            *("--election-timeout", "1000", "--unsafe-no-fsync"),
        ]
        patroni = [sys.executable, "-m", "patroni", str(settings)]
        self.processes[address] = [
            self._popen(address, etcd, ETCD_UNSUPPORTED_ARCH="arm64"),
            self._popen(address, patroni),
        ]

    def _popen(self, address: str, command: list[str], **env: str) -> Running:
        # May read everything, since Python and its packages may be where only root can look.
        reads = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        as_user = ["setpriv", f"--reuid={USER}", "--regid=nogroup", "--clear-groups", *reads, "--"]
        log = self.directory / address / f"{Path(command[0]).name}.log"
        quiet = ["sh", "-c", 'exec "$@" >>"$0" 2>&1', str(log)]
        return self.lab.guests[address].popen(
            [*as_user, *quiet, *command], env=env, cwd=self.directory / address
        )

    def _settings(self, address: str, directory: Path) -> dict[str, Any]:
        """Return the configuration of the documentation, with the addresses and directories of the
        lab, and less memory."""
        text = block("yaml file=/etc/patroni.yml").replace("192.0.2.0/24", str(self.lab.network))
        others = [node for node in NODES if node != address]
        for shown, here in zip(SHOWN, (address, *others), strict=True):
            text = text.replace(shown, here)
        settings: dict[str, Any] = yaml.safe_load(text)
        settings["name"] = f"n{NODES.index(address)}"
        server = settings["postgresql"]
        server["data_dir"] = str(directory / "data")
        server["bin_dir"] = str(postgres.programs())
        server["pgpass"] = str(directory / "pgpass")
        server["parameters"]["unix_socket_directories"] = str(directory)
        server["parameters"]["shared_buffers"] = "16MB"
        return settings

    def create_database(self) -> None:
        """Create the role and the database with the commands of the documentation."""
        url = self.admin_url(self.primary())
        self.lab.guests[NODES[0]].call(_execute, url, block("sql").split(";\n"))

    # What is there.

    def members(self) -> dict[str, dict[str, Any]]:
        """Return what Patroni says about each node, by address; nothing if it cannot be asked."""
        for node in NODES:
            with contextlib.suppress(OSError, ValueError):
                answer = self.lab.guests[node].call(_get, f"http://{node}:8008/cluster")
                return {member["host"]: member for member in answer["members"]}
        return {}

    def primary(self) -> str:
        return self._with_role("leader")

    def standby(self) -> str:
        """Return the synchronous one."""
        return self._with_role("sync_standby")

    def has_primary_other_than(self, address: str) -> bool:
        leaders = {a for a, member in self.members().items() if member["role"] == "leader"}
        return bool(leaders - {address})

    def _with_role(self, role: str) -> str:
        """Return which node has the role, once there is one."""
        having: list[str] = []

        def is_there() -> bool:
            having[:] = [a for a, member in self.members().items() if member["role"] == role]
            return bool(having)

        self.wait_until(is_there)
        return having[0]

    def whole(self) -> bool:
        """Return whether each node does its part: a standby that has only been started does not."""
        states = [(member["role"], member["state"]) for member in self.members().values()]
        return sorted(states) == [
            ("leader", "running"),
            ("replica", "streaming"),
            ("sync_standby", "streaming"),
        ]

    def wait_until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < end, self._logs()
            time.sleep(0.2)

    def _logs(self) -> str:
        logs = sorted(self.directory.glob("*/*.log"))
        return "\n".join(f"== {log}\n{log.read_text()[-2000:]}" for log in logs)

    # What is done to it.

    def switch_over(self) -> None:
        self.wait_until(self._has_switched_over)

    def _has_switched_over(self) -> bool:
        primary, standby = self.primary(), self.standby()
        members = self.members()
        body = {"leader": members[primary]["name"], "candidate": members[standby]["name"]}
        try:
            self.lab.guests[primary].call(_post, f"http://{primary}:8008/switchover", body)
        except HTTPError as error:
            if error.code != HTTPStatus.PRECONDITION_FAILED:
                raise
            return False  # the standby has not answered Patroni in time, or is too far behind
        return True

    def server_pid(self, address: str) -> int:
        lines = (self.directory / address / "data" / "postmaster.pid").read_text().splitlines()
        return int(lines[0])

    def kill_server(self, address: str) -> None:
        os.kill(self.server_pid(address), signal.SIGKILL)

    def kill_everything(self, address: str) -> None:
        for process in processes_of(self.lab.guests[address].inode):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def signal_everything(self, address: str, number: signal.Signals, but: str = "") -> None:
        """Send a signal to all of a node but the program of this name."""
        for process in processes_of(self.lab.guests[address].inode):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{process}/comm").read_text().strip() != but:
                    os.kill(process, number)

    def cut(self, address: str) -> None:
        """Let no packet through to the node, nor from it."""
        port = self.lab.ports[address]
        rules = f"""
        table bridge cut {{
          chain forward {{
            type filter hook forward priority 0; policy accept;
            iifname "{port}" drop
            oifname "{port}" drop
          }}
        }}
        """
        file = self.directory / "cut.nft"
        file.write_text(rules)
        self.lab.host.run(["nft", "-f", file])

    def go_on_alone(self, primary: str) -> None:
        """Have a primary that is cut off write more log, and remove all that is older."""
        oldest = self.lab.guests[primary].call(_write_log, self.admin_url(primary))
        for segment in (self.directory / primary / "data" / "pg_wal").glob("[0-9A-F]" * 24):
            if segment.name < oldest:
                segment.unlink()

    def heal(self) -> None:
        self.lab.host.run(["nft", "delete", "table", "bridge", "cut"])


def processes_of(inode: int) -> list[int]:
    """Return the processes in a network namespace."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if (entry / "ns/net").stat().st_ino == inode:
                    found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def _execute(url: str, statements: Iterable[str]) -> None:
    with psycopg.connect(url, target_session_attrs="read-write", autocommit=True) as connection:
        for statement in statements:
            if statement.strip():
                connection.execute(statement)


def _write_log(url: str) -> str:
    """Return the first segment of the log that the server needs to start again."""
    first = "SELECT pg_walfile_name(redo_lsn) FROM pg_control_checkpoint()"
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in ("CHECKPOINT", "SELECT pg_switch_wal()", "CHECKPOINT"):
            connection.execute(statement)
        [[segment]] = connection.execute(first)
        return str(segment)


def _get(url: str) -> Any:
    with urlopen(url, timeout=3) as response:
        return json.load(response)


def _post(url: str, body: object) -> None:
    data = json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json"})
    with urlopen(request, timeout=LIMIT) as response:
        response.read()
