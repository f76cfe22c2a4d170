"""Three hosts with two guests each, and control, in network namespaces: a node answers the guests
of each host at 169.254.169.254 there, and has a line to control over TLS. All are processes, which
can be killed; lines can be cut in one direction.

Guests poll all the time, on a new connection each time, and write down what they get. One address
is that of two guests of different groups, on different hosts.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forewarn.support import guard
from helpers.certificates import Authority
from helpers.control_nodes import Response, ask
from helpers.endpoint import METADATA, NEWEST, approval, events
from helpers.guest_firewall import FILLER, NFT, RULES, give, mac_of, within
from helpers.netns import METADATA_ADDRESS, Lab, Namespace
from helpers.polls import until
from helpers.process import Running
from helpers.raw_http import request
from helpers.serve_process import FOREWARN

CONTROL = "10.88.0.1"
HOSTS = {"rack-1": "10.88.0.11", "rack-2": "10.88.0.12", "rack-3": "10.88.0.13"}
SPARE = "rack-4"  # a host that has no machines, and no node
SAME = "10.77.0.11"  # the address of two guests
GUESTS = {
    "web_0": ("rack-1", SAME),
    "shop_1": ("rack-1", "10.77.0.12"),
    "shop_0": ("rack-2", SAME),
    "web_1": ("rack-2", "10.77.0.13"),
    "web_2": ("rack-3", "10.77.0.14"),
    "mail": ("rack-3", "10.77.0.15"),
}
MOVES = ("mail", "rack-1")  # a machine, and the host that it can be moved to
KINDS = {"web": "scale-set", "shop": "availability-set", "mail": "standalone"}
CONTROL_SETTINGS = """
state = "state.db"
record = "control.jsonl"
nodes = "{address}:8171"
nodes_certificate = "{pair.certificate}"
nodes_key = "{pair.key}"
nodes_authority = "{authority}"
driver = "command"
log = "json"
[command]
program = ["/bin/sh", "driver"]
"""
NODE_SETTINGS = """
host = "{host}"
control = "{address}:8171"
certificate = "{pair.certificate}"
key = "{pair.key}"
authority = "{authority}"
journal = "{room}/{host}"
record = "{room}/{host}.jsonl"
log = "json"
"""
# Moves a machine once it is told to, and does everything else at once. Records what it does.
DRIVER = """
[ "$FOREWARN_VERB" != check ] || exit 0
[ "$FOREWARN_VERB" = perform ] || exit 10
machine=$(sed 's/.*"machines":\\[{{"name":"\\([^"]*\\)".*/\\1/')
if [ "$FOREWARN_TYPE" = Freeze ] && [ ! -e '{room}/moved' ]; then
    echo '{{"after": "0.5s"}}'
    exit 10
fi
printf '{{"kind":"impact","t":%s,"event":"%s","type":"%s","machines":["%s"]}}\\n' \\
    "$(date +%s.%N)" "$FOREWARN_EVENT" "$FOREWARN_TYPE" "$machine" >> '{room}/impacts.jsonl'
[ "$FOREWARN_TYPE" != Freeze ] || echo '{{"moved": {{"{machine}": "{host}"}}}}'
"""
CUT = """
table inet cut {{
    chain {hook} {{
        type filter hook {hook} priority 0; policy accept;
        {way} "up0" drop
    }}
}}
"""
DIRECTIONS = {"from control": ("input", "iifname"), "to control": ("output", "oifname")}
PAUSE = 0.1  # seconds between two polls of a guest
ANSWER_WITHIN = 60.0  # seconds; a poll may wait while a change is told


@dataclass(frozen=True)
class Place:
    """Where a guest is."""

    namespace: Namespace
    host: str
    address: str


class Guest:
    """A machine that polls all the time, and can approve."""

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self.place = place
        self.lines: list[dict[str, Any]] = []  # as in a trace
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll_on, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(ANSWER_WITHIN)

    def _poll_on(self) -> None:
        while not self._stop.wait(PAUSE):
            self.ask(self.place)

    def ask(self, place: Place, method: str = "GET", body: bytes = b"") -> dict[str, Any]:
        """Send a request from a place; returns a line of a trace, and keeps it."""
        line = self.exchange(place, method, body)
        self.lines.append(line)
        return line

    def exchange(self, place: Place, method: str = "GET", body: bytes = b"") -> dict[str, Any]:
        line: dict[str, Any] = {
            "kind": "exchange",
            "machine": self.name,
            "host": place.host,
            "from": place.address,
            "method": method,
            "target": events(NEWEST),
            "headers": [METADATA.split(": ")],
            "body": body.decode(),
            "asked": guard.wall_us() / 1e6,
            "status": None,
        }
        asked = request(method, events(NEWEST), METADATA, "Connection: close", body=body)
        with place.namespace.call(socket.socket) as connection:
            connection.settimeout(ANSWER_WITHIN)
            try:
                connection.connect((METADATA_ADDRESS, 80))
                connection.sendall(asked)
                received = b""
                while data := connection.recv(65536):
                    received += data
            except ConnectionRefusedError:
                line["trouble"] = "refused"
            except OSError as error:
                line["trouble"] = "late" if isinstance(error, TimeoutError) else "reset"
            else:
                head, _, answer = received.decode().partition("\r\n\r\n")
                first, *headers = head.split("\r\n")
                line["status"] = int(first.split(" ")[1]) if first else None
                line["answer_headers"] = [header.split(": ", 1) for header in headers]
                line["answer"] = answer
        line["t"] = guard.wall_us() / 1e6
        return line

    def poll(self) -> dict[str, Any]:
        """Return the document that it is shown now."""
        line = self.ask(self.place)
        assert line["status"] == 200, line
        document = json.loads(line["answer"])
        assert isinstance(document, dict)
        return document

    def sees(self, event: str) -> str:
        """Return the status of an event that it is shown now; empty if it does not see it."""
        statuses = {e["EventId"]: e["EventStatus"] for e in self.poll()["Events"]}
        return str(statuses.get(event, ""))

    def approve(self, event: str) -> int | None:
        status: int | None = self.ask(self.place, "POST", approval(event))["status"]
        return status

    def refused(self, since: int = 0) -> list[dict[str, Any]]:
        """Return the polls that were not answered with a document, since so many lines."""
        return [
            line for line in self.lines[since:] if line["method"] == "GET" and line["status"] != 200
        ]


def _here(host: str) -> dict[str, str]:
    """Return the guests that have a port on a host, and their addresses."""
    return {
        name: address
        for name, (on, address) in GUESTS.items()
        if on == host or (name, host) == MOVES
    }


class ThreeHosts:
    def __init__(self, room: Path) -> None:
        self.room = room
        self.authority = Authority(room)
        self.control: Running | None = None
        self.nodes: dict[str, Running] = {}
        self.labs: dict[str, Lab] = {}
        self.guests: dict[str, Guest] = {}
        self._stack = contextlib.ExitStack()
        self._environment = {
            "XDG_RUNTIME_DIR": str(room),
            "PATH": f"{FILLER.parent}:{os.environ['PATH']}",
        }

    def __enter__(self) -> ThreeHosts:
        with contextlib.ExitStack() as undo:
            self.outside = Namespace("control")
            undo.callback(self.outside.close)
            for host in HOSTS:
                self.labs[host] = undo.enter_context(Lab(_here(host).values(), ports="vnet"))
            self._connect()
            self._write_settings()
            self.start_control()
            said = self.api("PUT", "/v1/fleet", self._fleet())
            assert said.status == 200, said.body
            for host in HOSTS:
                self.start_node(host)
                self.register_guests(host, with_rules=True)
            for name in GUESTS:
                guest = self.guests[name] = Guest(name, self.place(name))
                guest.start()
                undo.callback(guest.stop)
            until(lambda: all(guest.lines for guest in self.guests.values()))
            self._stack = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        for guest in self.guests.values():
            guest._stop.set()
        self._stack.close()

    def place(self, machine: str, host: str = "") -> Place:
        on, address = GUESTS[machine]
        host = host or on
        return Place(self.labs[host].guests[address], host, address)

    def _connect(self) -> None:
        def build(ip: Any) -> None:
            ip.link("add", ifname="br0", kind="bridge", state="up")
            [bridge] = ip.link_lookup(ifname="br0")
            for host, lab in self.labs.items():
                inside = {"ifname": "up0", "net_ns_fd": lab.host.fd}
                ip.link("add", ifname=host, kind="veth", peer=inside, master=bridge, state="up")

        def up(ip: Any) -> None:
            ip.link("set", index=ip.link_lookup(ifname="up0")[0], state="up")

        within(self.outside, build)
        give(self.outside, "br0", CONTROL, 24)
        for host, address in HOSTS.items():
            give(self.labs[host].host, "up0", address, 24)
            within(self.labs[host].host, up)

    def _write_settings(self) -> None:
        values = {"address": CONTROL, "authority": self.authority.path, "room": self.room}
        pair = self.authority.issue(CONTROL)
        (self.room / "serve.toml").write_text(CONTROL_SETTINGS.format(pair=pair, **values))
        (self.room / "driver").write_text(
            DRIVER.format(room=self.room, machine=MOVES[0], host=MOVES[1])
        )
        for host in HOSTS:
            pair = self.authority.issue(f"forewarn:node:{host}")
            text = NODE_SETTINGS.format(pair=pair, host=host, **values)
            (self.room / f"{host}.toml").write_text(text)

    def _fleet(self) -> bytes:
        machines: dict[str, list[dict[str, Any]]] = {name: [] for name in KINDS}
        for name, (host, address) in GUESTS.items():
            group = machines[name.partition("_")[0]]
            machine = {"name": name, "host": host, "address": address, "update_domain": len(group)}
            group.append(machine)
        groups = [{"name": n, "kind": k, "machines": machines[n]} for n, k in KINDS.items()]
        return json.dumps({"hosts": [*HOSTS, SPARE], "groups": groups}).encode()

    # Processes.

    def start_control(self) -> None:
        self.control = self._started(self.outside, "serve", "serve")

    def start_node(self, host: str) -> None:
        self.nodes[host] = self._started(self.labs[host].host, "node", host)

    def _started(self, place: Namespace, command: str, settings: str) -> Running:
        words = [*FOREWARN, command, "--config", str(self.room / f"{settings}.toml")]
        running = place.popen(words, env=self._environment, cwd=self.room)
        assert running.line().startswith("ready ")
        return running

    def kill(self, running: Running | None) -> None:
        assert running is not None
        running.process.kill()
        running.wait()

    # What operators do and see.

    def api(self, method: str, path: str, body: object = None) -> Response:
        return self.outside.call(ask, "http://127.0.0.1:8170", method, path, body)

    def schedule(self, type: str, *machines: str) -> str:
        """Announce an event; returns once it is shown."""
        said = self.api("POST", "/v1/events", {"type": type, "machines": machines})
        assert said.status == 201, said.body
        return str(said.json()["id"])

    def event(self, id: str) -> Any:
        return self.api("GET", f"/v1/events/{id}").json()

    def history(self, id: str) -> list[str]:
        records = self.api("GET", f"/v1/history?event={id}").json()["records"]
        return [record["what"] for record in records]

    def joined(self, *hosts: str) -> bool:
        """Return whether the nodes of hosts, or all, have joined, by control and by themselves."""
        listed = self.api("GET", "/v1/hosts").json()
        states = {host["name"]: (host["node"] or {}).get("state") for host in listed}
        return all(states[h] == "joined" and not self.apart(h) for h in hosts or HOSTS)

    def apart(self, host: str) -> bool:
        """Return whether the node of a host says that control cannot be reached."""
        return "control" in self.status(host, "/readyz").json()["warnings"]

    def status(self, host: str, path: str) -> Response:
        return self.labs[host].host.call(ask, "http://127.0.0.1:8172", "GET", path)

    def register_guests(self, host: str, *, with_rules: bool = False) -> None:
        """Tie the guests of a host to their ports, as docs/operate/networking.md has it."""
        lab = self.labs[host]
        lines = [f"host {lab.gateway}"]
        for name, address in _here(host).items():
            mac = mac_of(lab.guests[address])
            # An address lets it pass before it has moved here.
            before = address if (name, host) == MOVES else ""
            lines.append(f"{lab.ports[address]} {mac} {name} {before}")
        (self.room / f"{host}.ports").write_text("\n".join([*lines, ""]))
        config = ["--config", str(self.room / f"{host}.toml")]
        words = [*FOREWARN, "node", *config, "rules", str(self.room / f"{host}.ports")]
        printed = lab.host.run(words, env=self._environment).stdout
        elements = self.room / f"{host}.nft"
        elements.write_text((RULES.read_text() if with_rules else "") + printed)
        lab.host.run([NFT, "-f", elements])

    def registered(self, host: str) -> list[str]:
        """Return the guests that the packet filter of a host lets pass."""
        listed = self.labs[host].host.run([NFT, "list", "set", "inet", "forewarn", "routed4"])
        return [n for n, address in _here(host).items() if f". {address} " in listed.stdout]

    # Lines.

    def cut(self, host: str, direction: str) -> None:
        hook, way = DIRECTIONS[direction]
        self.labs[host].host.run([NFT, CUT.format(hook=hook, way=way)])

    def heal(self, host: str) -> None:
        self.labs[host].host.run([NFT, "delete table inet cut"])

    # Afterwards.

    def judge(self) -> None:
        """Check what control, nodes and guests have recorded: as nodes saw it, and as guests did,
        which also know of requests that a killed node cannot record. What was answered to have been
        approved is in the log."""
        for guest in self.guests.values():
            for line in guest.lines:
                if line["method"] == "POST" and line["status"] == 200:
                    (asked,) = json.loads(line["body"])["StartRequests"]
                    assert "approved" in self.history(asked["EventId"])
        room = self.room
        recorded = [room / "control.jsonl", room / "impacts.jsonl"]
        nodes = [room / f"{host}.jsonl" for host in HOSTS]
        guests = room / "guests.jsonl"
        with guests.open("w") as file:
            for guest in self.guests.values():
                file.writelines(f"{json.dumps(line)}\n" for line in list(guest.lines))
            for node in nodes:  # when it was there, and apart
                lines = node.read_text().splitlines(keepends=True)
                file.writelines(line for line in lines if '"kind":"exchange"' not in line)
        for files in ([*recorded, *nodes], [*recorded, guests]):
            self.outside.run([*FOREWARN, "conformance", *files], timeout=60)
