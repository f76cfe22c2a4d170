"""Three control nodes on PostgreSQL, three hosts with nodes and two guests each, every one in a
network of its own. All are processes that can be killed and stopped, and started again as a service
manager does; what one sends to another can be dropped, in one direction or both."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from forewarn.support import guard
from helpers import patroni, postgres
from helpers.certificates import Authority
from helpers.control_nodes import Response
from helpers.guest_firewall import NFT
from helpers.netns import METADATA_ADDRESS, Lab, Namespace
from helpers.paths import ROOT
from helpers.process import Running
from helpers.recording_guests import Place
from helpers.serve_process import FOREWARN
from helpers.waiting import LIMIT, until
from lab.books import Absence

NETWORK = "10.88.0.0/24"
DATABASE = "10.88.0.5"
CONTROL = {"c1": "10.88.0.21", "c2": "10.88.0.22", "c3": "10.88.0.23"}
CLONE = "10.88.0.24"  # of a control node
HOSTS = {"h1": "10.88.0.31", "h2": "10.88.0.32", "h3": "10.88.0.33"}
GUESTS = {
    "web_0": ("h1", "10.77.0.11"),
    "shop_0": ("h1", "10.77.0.12"),
    "web_1": ("h2", "10.77.0.13"),
    "shop_1": ("h2", "10.77.0.14"),
    "web_2": ("h3", "10.77.0.15"),
    "mail": ("h3", "10.77.0.16"),
}
KINDS = {"web": "scale-set", "shop": "availability-set", "mail": "standalone"}
WRONG_CLOCK = ROOT / "tests/lab/wrong_clock.py"
ANSWER_WITHIN = 3.0  # seconds that an operator waits before asking another control node
CONTROL_SETTINGS = """
name = "{name}"
state = "{state}"
lease = "{lease}"
start_grace = "2s"
local_directory = "{room}/{name}"
nodes = "{address}:8171"
nodes_certificate = "{pair.certificate}"
nodes_key = "{pair.key}"
nodes_authority = "{authority}"
record = "{room}/{name}.jsonl"
driver = "command"
log = "json"
[command]
program = ["/bin/sh", "{room}/driver"]
"""
NODE_SETTINGS = """
host = "{name}"
control = {control}
certificate = "{pair.certificate}"
key = "{pair.key}"
authority = "{authority}"
journal = "{room}/{name}"
record = "{room}/{name}.jsonl"
log = "json"
"""
# Keeps a book of all that is done to machines. It takes its time, in which it can be ended.
DRIVER = """
case $FOREWARN_VERB in
check) exit 0 ;;
observe) grep -qs "$FOREWARN_EVENT" '{room}/impacts.jsonl' && exit 0; exit 10 ;;
esac
machine=$(sed 's/.*"machines":\\[{{"name":"\\([^"]*\\)".*/\\1/')
printf '{{"kind":"impact","t":%s,"event":"%s","type":"%s","machines":["%s"]}}\\n' \\
    "$(date +%s.%N)" "$FOREWARN_EVENT" "$FOREWARN_TYPE" "$machine" >> '{room}/impacts.jsonl'
sleep 0.3
printf '{{"t":%s,"event":"%s"}}\\n' "$(date +%s.%N)" "$FOREWARN_EVENT" >> '{room}/ends.jsonl'
"""
CUT = """
table bridge lab
delete table bridge lab
table bridge lab {{
    chain forward {{
        type filter hook forward priority 0; policy accept;
        {rules}
    }}
}}
"""


_AS_ADMIN = ("--username=forewarn", "forewarn")


def group_of(machine: str) -> str:
    return machine.partition("_")[0]


class SingleServer:
    """PostgreSQL on a machine of its own."""

    machines = (DATABASE,)

    def __init__(self) -> None:
        self.lab = Lab([DATABASE, *CONTROL.values(), CLONE, *HOSTS.values()], network=NETWORK)
        self.url = f"postgresql://forewarn@{DATABASE}/forewarn"
        self.admin_url = f"postgresql://forewarn@{DATABASE}"
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> SingleServer:
        with contextlib.ExitStack() as undo:
            undo.enter_context(self.lab)
            self._server = undo.enter_context(postgres.new_server())
            self._server.settings = (f"listen_addresses={DATABASE}",)
            self._server.create()
            with (self._server.data / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {NETWORK} trust\n")
            self.start()
            self._server.run("createdb", f"--host={self._server.directory}", *_AS_ADMIN)
            self._stack = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self) -> None:
        self.lab.guests[DATABASE].call(self._server.start)

    def kill(self) -> None:
        self._server.kill()

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        self._server.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._server.signal(signal.SIGCONT)


class PatroniCluster(patroni.Cluster):
    """Three servers, of which one is the primary, and one a synchronous standby."""

    machines = patroni.NODES

    def __init__(self) -> None:
        super().__init__([*CONTROL.values(), CLONE, *HOSTS.values()])


Database = SingleServer | PatroniCluster


class World:
    def __init__(self, room: Path, database: Database, lease: str) -> None:
        self.room = room
        self.database = database
        self.network = database.lab
        self.lease = lease
        self.hosts: dict[str, Lab] = {}
        self.absences: list[Absence] = []
        self.restores = 0  # how often the database was put back
        self._running: dict[str, Running] = {}
        self._down: set[str] = set()  # not to be started again
        self._dropped: set[tuple[str, str]] = set()
        self._changing = threading.RLock()
        self._end = threading.Event()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> World:
        with contextlib.ExitStack() as undo:
            for host, address in HOSTS.items():
                guests = [at for on, at in GUESTS.values() if on == host]
                place = self.network.guests[address]
                self.hosts[host] = undo.enter_context(Lab(guests, ports="vnet", host=place))
            self._write_settings()
            keeper = threading.Thread(target=self._keep_running)
            undo.callback(keeper.join)
            undo.callback(self._end.set)
            for name in (*CONTROL, *HOSTS):
                self._start(name)
            keeper.start()
            until(self.leader, "a control node decides")
            output = self.api("PUT", "/v1/fleet", self._fleet())
            assert output is not None
            assert output.status == 200, output.body
            until(self.is_well, "all nodes join")
            self._stack = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _write_settings(self) -> None:
        authority = Authority(self.room)
        control = [f"{address}:8171" for address in CONTROL.values()]
        values: dict[str, Any] = {
            "room": self.room,
            "authority": authority.path,
            "lease": self.lease,
            "state": self.database.url,
            "control": control,
        }
        (self.room / "driver").write_text(DRIVER.format(room=self.room))
        for name, address in CONTROL.items():
            (self.room / name).mkdir()
            pair = authority.issue(address, CLONE)
            text = CONTROL_SETTINGS.format(name=name, address=address, pair=pair, **values)
            (self.room / f"{name}.toml").write_text(text)
        for name in HOSTS:
            pair = authority.issue(f"forewarn:node:{name}")
            (self.room / f"{name}.toml").write_text(
                NODE_SETTINGS.format(name=name, pair=pair, **values)
            )

    def _fleet(self) -> dict[str, Any]:
        machines: dict[str, list[dict[str, Any]]] = {name: [] for name in KINDS}
        for name, (host, address) in GUESTS.items():
            group = machines[group_of(name)]
            group.append(
                {"name": name, "host": host, "address": address, "update_domain": len(group)}
            )
        groups = [{"name": n, "kind": k, "machines": machines[n]} for n, k in KINDS.items()]
        return {"hosts": list(HOSTS), "groups": groups}

    def place(self, machine: str) -> Place:
        host, address = GUESTS[machine]
        namespace = self.hosts[host].guests[address]
        return Place(host, address, (METADATA_ADDRESS, 80), partial(namespace.call, socket.socket))

    # Processes.

    def _namespace(self, name: str) -> Namespace:
        return self.network.guests[{**CONTROL, **HOSTS}[name]]

    def _start(self, name: str) -> None:
        command = "serve" if name in CONTROL else "node"
        clock = self._clock(name)
        program = [sys.executable, WRONG_CLOCK, clock] if clock.exists() else FOREWARN
        words = [*program, command, "--config", str(self.room / f"{name}.toml")]
        environment = {"XDG_RUNTIME_DIR": str(self.room / name)}
        self._running[name] = self._namespace(name).popen(words, env=environment, cwd=self.room)

    def _keep_running(self) -> None:
        """Start again what has ended, as a service manager does."""
        while not self._end.wait(0.1):
            with self._changing:
                for name, running in self._running.items():
                    if name not in self._down and running.process.poll() is not None:
                        self._start(name)

    @contextlib.contextmanager
    def without(self, name: str, number: signal.Signals = signal.SIGKILL) -> Iterator[None]:
        """End a process with a signal, and start it again afterwards."""
        with self._absent(name):
            with self._changing:
                self._down.add(name)
                self._running[name].process.send_signal(number)
            try:
                self._running[name].wait()
                yield
            finally:
                with self._changing:
                    self._down.discard(name)
                until(lambda: self.answers(name), f"{name} answers")

    @contextlib.contextmanager
    def cloned(self, name: str) -> Iterator[None]:
        """Run a control node a second time, on a machine that has everything but the address of the
        first one."""
        settings = (self.room / f"{name}.toml").read_text()
        for own, other in (
            (f"{CONTROL[name]}:8171", f"{CLONE}:8171"),
            (f"{name}.jsonl", "clone.jsonl"),
        ):
            settings = settings.replace(own, other)
        (self.room / "clone.toml").write_text(settings)
        words = [*FOREWARN, "serve", "--config", str(self.room / "clone.toml")]
        clone = self.network.guests[CLONE].popen(words, cwd=self.room)
        try:
            yield
        finally:
            assert clone.process.poll() is None, clone.failure("it ended")
            clone.process.kill()
            clone.wait()

    def _clock(self, name: str) -> Path:
        """Return the file with the seconds by which its wall clock is wrong."""
        return self.room / f"{name}.clock"

    @contextlib.contextmanager
    def wrong_clock(self, name: str, seconds: float) -> Iterator[None]:
        """Start a process again with a wall clock that is wrong, and corrected afterwards."""
        with self.without(name):
            self.set_clock(name, seconds)
        try:
            yield
        finally:
            self.set_clock(name, 0.0)

    @contextlib.contextmanager
    def own_clock(self, name: str) -> Iterator[None]:
        """Start a process again with a wall clock that `set_clock` changes."""
        with self.without(name):
            self.set_clock(name, 0.0)
        try:
            yield
        finally:
            self.set_clock(name, 0.0)

    def set_clock(self, name: str, seconds: float) -> None:
        self._clock(name).write_text(str(seconds))

    @contextlib.contextmanager
    def stopped(self, name: str) -> Iterator[None]:
        process = self._running[name].process
        with self._absent(name):
            process.send_signal(signal.SIGSTOP)
            try:
                yield
            finally:
                process.send_signal(signal.SIGCONT)

    @contextlib.contextmanager
    def _absent(self, name: str) -> Iterator[None]:
        absence = Absence(name, guard.wall_us() / 1e6)
        self.absences.append(absence)
        yield
        absence.ended = guard.wall_us() / 1e6

    def logs(self) -> Iterator[tuple[str, str]]:
        """All lines that the processes have logged."""
        for name in (*CONTROL, *HOSTS):
            for running in self._namespace(name).running:
                yield from ((name, line) for line in running.stderr)

    # The database.

    def _type(self, program: str, *words: str, check: bool = True) -> bool:
        programs = postgres.programs()
        assert programs is not None
        machine = self.network.guests[self.database.machines[0]]
        done = machine.run([programs / program, *words], cwd=self.room, check=check, timeout=LIMIT)
        return done.returncode == 0

    def _database(self, name: str) -> str:
        return f"--dbname={self.database.admin_url}/{name}"

    def dump(self) -> None:
        self._type("pg_dump", "--format=custom", "--file=dump", self._database("forewarn"))

    def put_back(self, *words: str, check: bool = True) -> bool:
        """Restore the dump."""
        words = (*words, "--exit-on-error", "--single-transaction", "dump")
        return self._type("pg_restore", self._database("forewarn"), *words, check=check)

    def put_back_anew(self) -> None:
        """Restore the dump into a database that is made anew."""
        admin = self._database("postgres")
        self._type("psql", admin, "--command=DROP DATABASE IF EXISTS forewarn WITH (FORCE)")
        self._type("psql", admin, "--command=CREATE DATABASE forewarn OWNER forewarn")
        self.put_back()

    def put_back_at_once(self) -> None:
        """Restore the dump in place of what is there, in one transaction."""
        # A control node that commits at this moment may be in the way.
        until(lambda: self.put_back("--clean", check=False), "the database is restored")

    def use_restored(self) -> None:
        """Say that the state is to be used, once the lease has run out that was copied with it."""
        words = [*FOREWARN, "restored", "--config", str(self.room / "c1.toml"), "--yes"]
        machine = self._namespace("c1")
        until(lambda: machine.run(words, check=False).returncode == 0, "the state may be used")
        self.restores += 1

    @contextlib.contextmanager
    def without_control(self) -> Iterator[None]:
        """End all control nodes, and start them again afterwards."""
        with contextlib.ExitStack() as stack:
            for name in CONTROL:
                stack.enter_context(self.without(name, signal.SIGTERM))
            yield

    # The network.

    @contextlib.contextmanager
    def dropped(self, *ways: tuple[str, str]) -> Iterator[None]:
        """Drop what these addresses send to those."""
        self._drop(self._dropped | set(ways))
        try:
            yield
        finally:
            self._drop(self._dropped - set(ways))

    def _drop(self, ways: set[tuple[str, str]]) -> None:
        self._dropped = ways
        ports = self.network.ports
        rules = [f'iifname "{ports[a]}" oifname "{ports[b]}" drop' for a, b in sorted(ways)]
        self.network.host.run([NFT, CUT.format(rules="\n".join(rules))])

    @contextlib.contextmanager
    def slow(self, address: str) -> Iterator[None]:
        """Let little through at a time to this address, late, and drop what is too much."""
        port = ["dev", self.network.ports[address], "root"]
        little = ["rate", "128kbit", "burst", "2k", "latency", "500ms"]
        self.network.host.run(["tc", "qdisc", "add", *port, "tbf", *little])
        try:
            yield
        finally:
            self.network.host.run(["tc", "qdisc", "del", *port])

    # What operators do and see.

    def ask(
        self, name: str, method: str, path: str, body: object = None, **headers: str
    ) -> Response | None:
        """Ask a control node, or a node about itself; None if it does not answer in time."""
        address = ("127.0.0.1", 8170 if name in CONTROL else 8172)
        connection = http.client.HTTPConnection("127.0.0.1", timeout=ANSWER_WITHIN)
        data = None if body is None else json.dumps(body)
        with contextlib.closing(connection):
            try:
                connection.sock = self._namespace(name).call(
                    socket.create_connection, address, ANSWER_WITHIN
                )
                sent = {"Content-Type": "application/json"} if body is not None else {}
                named = {key.replace("_", "-"): value for key, value in headers.items()}
                connection.request(method, path, data, {**sent, **named})
                answer = connection.getresponse()
                return Response(answer.status, dict(answer.getheaders()), answer.read())
            except (OSError, http.client.HTTPException):
                return None

    def answers(self, name: str) -> bool:
        return self.ask(name, "GET", "/healthz") is not None

    def leader(self, *but: str) -> str:
        """Return which control node decides; nothing if none does."""
        for name in CONTROL:
            output = None if name in but else self.ask(name, "GET", "/leaderz")
            if output is not None and output.status == 200:
                return name
        return ""

    def api(self, method: str, path: str, body: object = None, **headers: str) -> Response | None:
        """Ask the control node that decides; None if none does, or it does not answer."""
        for name in CONTROL:
            output = self.ask(name, method, path, body, Forewarn_Leader="only", **headers)
            if output is not None and output.status != 503:
                return output
        return None

    def is_well(self) -> bool:
        """Return whether all control nodes answer and all nodes have joined, by control and by
        themselves."""
        output = self.api("GET", "/v1/hosts")
        return (
            output is not None
            and all((host["node"] or {}).get("state") == "joined" for host in output.json())
            and all(self.answers(name) for name in CONTROL)
            and all(self._has_joined(host) for host in HOSTS)
        )

    def _has_joined(self, host: str) -> bool:
        output = self.ask(host, "GET", "/readyz")
        return output is not None and "control" not in output.json()["warnings"]

    def commit(self) -> int:
        """Return the last commit of the control node that decides; 0 if none does."""
        output = self.api("GET", "/v1/events")
        return 0 if output is None else int(output.headers["forewarn-commit"])

    def take_overs(self) -> int:
        """Return how many times another control node has begun to decide."""
        decided = [line for _, line in self.logs() if '"this control node decides"' in line]
        return len({json.loads(line)["term"] for line in decided}) - 1
