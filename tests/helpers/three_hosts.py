"""Three hosts with two guests each, and control, in network namespaces: a node answers the guests
of each host at 169.254.169.254 there, and has a connection to control over TLS. All are processes,
which can be killed; lines can be cut in one direction.

One address is that of two guests of different groups, on different hosts.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

from helpers.certificates import Authority
from helpers.control_nodes import Response, ask
from helpers.guest_firewall import FILLER, NFT, RULES, give, mac_of, within
from helpers.netns import METADATA_ADDRESS, Lab, Namespace
from helpers.process import Running
from helpers.recording_guests import DRIVER, Guest, Place, approved, write_trace
from helpers.serve_process import FOREWARN
from helpers.waiting import LIMIT, until

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
CUT = """
table inet cut {{
    chain {hook} {{
        type filter hook {hook} priority 0; policy accept;
        {way} "up0" drop
    }}
}}
"""
DIRECTIONS = {"from control": ("input", "iifname"), "to control": ("output", "oifname")}


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
            "PATH": f"{FILLER.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}",
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
            output = self.api("PUT", "/v1/fleet", self._fleet())
            assert output.status == 200, output.body
            for host in HOSTS:
                self.start_node(host)
                self.guard(host)
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
        namespace = self.labs[host].guests[address]
        return Place(host, address, (METADATA_ADDRESS, 80), partial(namespace.call, socket.socket))

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
        output = self.api("POST", "/v1/events", {"type": type, "machines": machines})
        assert output.status == 201, output.body
        return str(output.json()["id"])

    def event(self, id: str) -> Any:
        return self.api("GET", f"/v1/events/{id}").json()

    def history(self, id: str) -> list[str]:
        records = self.api("GET", f"/v1/history?event={id}").json()["records"]
        return [record["what"] for record in records]

    def joined(self, *hosts: str) -> bool:
        """Return whether the nodes of hosts, or all, have joined, by control and by themselves."""
        listed = self.api("GET", "/v1/hosts").json()
        states = {host["name"]: (host["node"] or {}).get("state") for host in listed}
        return all(states[h] == "joined" and not self.unreachable(h) for h in hosts or HOSTS)

    def unreachable(self, host: str) -> bool:
        """Return whether the node of a host says that control cannot be reached."""
        return "control" in self.status(host, "/readyz").json()["warnings"]

    def status(self, host: str, path: str) -> Response:
        return self.labs[host].host.call(ask, "http://127.0.0.1:8172", "GET", path)

    def guard(self, host: str) -> None:
        """Load the rules of a host, with its guests at their ports, as docs/operate/networking.md
        has it."""
        lab, directory = self.labs[host], self.room / f"{host}.d"
        lines = [f"host {lab.gateway}"]
        for name, address in _here(host).items():
            mac = mac_of(lab.guests[address])
            # An address lets it pass before it has moved here.
            before = address if (name, host) == MOVES else ""
            lines.append(f"{lab.ports[address]} {mac} {name} {before}")
        directory.mkdir()
        (directory / "ports").write_text("\n".join([*lines, ""]))
        config = ["--config", str(self.room / f"{host}.toml")]
        words = [*FOREWARN, "node", *config, "rules", str(directory / "ports")]
        printed = lab.host.run(words, env=self._environment).stdout
        (directory / "all.nft").write_text(RULES.read_text() + printed)
        lab.host.run([NFT, "-f", directory / "all.nft"])

    def register_guests(self, host: str) -> None:
        """Register the guests of a host again, as its unit does when one has started or moved."""
        values = {
            "FOREWARN_NODE_CONFIG": str(self.room / f"{host}.toml"),
            "FOREWARN_PORTS_DIRECTORY": str(self.room / f"{host}.d"),
        }
        program = FILLER.parent / "forewarn-ports"
        self.labs[host].host.run([program], env={**self._environment, **values})

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
        for event in approved(self.guests.values()):
            assert "approved" in self.history(event)
        room = self.room
        recorded = [room / "control.jsonl"]
        nodes = [room / f"{host}.jsonl" for host in HOSTS]
        guests = room / "guests.jsonl"
        write_trace(guests, self.guests.values(), nodes)
        for files in ([*recorded, *nodes], [*recorded, guests]):
            self.outside.run([*FOREWARN, "conformance", *files], timeout=LIMIT)
