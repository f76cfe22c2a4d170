"""Control and a node on one host, as processes that are connected by a UNIX socket. What systemd
would hold is held by the test: the socket for guests and, if it is to be, that for the node."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers.forked_cli import FOREWARN, Forked
from helpers.polled_service import PolledService, listening
from helpers.process import Running
from helpers.waiting import until

HOST = "host-a"


@contextlib.contextmanager
def socket_path() -> Iterator[Path]:
    """Yield a path for a UNIX socket, which must not be as long as a test's own directory may be.
    Every user can look into its directory."""
    with tempfile.TemporaryDirectory(prefix="forewarn-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory) / "nodes"


class Beside(PolledService):
    """Control, and the node that answers its guests."""

    def __init__(self, directory: Path, path: Path, **settings: object) -> None:
        super().__init__(directory, nodes=str(path), nodes_host=HOST, **settings)
        del self.output["metadata"]
        self.write(self.output)
        self.path = path
        self.guests = listening()
        self.for_node: socket.socket | None = None  # held, as systemd does
        self.node: Running | None = None
        fleet = (directory / "fleet.yaml").read_text().replace("}", f", host: {HOST}}}")
        (directory / "fleet.yaml").write_text(f"hosts: [{HOST}, host-b]\n{fleet}")
        words = {"host": HOST, "control": str(path), "journal": str(directory / "journal")}
        lines = [f"{key} = {json.dumps(value)}" for key, value in (words | {"status": ""}).items()]
        (directory / "node.toml").write_text("\n".join([*lines, ""]))

    @property
    def place(self) -> tuple[str, int]:
        host, port = self.guests.getsockname()
        return host, port

    def hold_socket_for_node(self) -> None:
        self.for_node = socket.socket(socket.AF_UNIX)
        self.for_node.bind(str(self.path))
        self.path.chmod(0o600)
        self.for_node.listen()

    def start_control(self) -> None:
        if self.for_node is None:
            self.start()
        else:
            self.start(sockets={self.for_node.fileno(): "nodes"})
        self.wait_until_ready()

    def start_node(self) -> None:
        """Start the node, which answers guests that wait in their socket once it knows them."""
        self.node = self.popen("node", "--config", str(self.directory / "node.toml"))

    def popen(self, *words: str) -> Running:
        """Start a node that is handed the guests' socket over."""
        return self.started([*FOREWARN, *words], {self.guests.fileno(): "metadata"})

    def started(self, argv: Sequence[str], sockets: Mapping[int, str] | None = None) -> Running:
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.directory)}
        pipe = subprocess.PIPE
        process = Forked(
            argv, sockets=sockets, stdout=pipe, stderr=pipe, text=True, env=environment
        )
        return Running(process, argv)

    def end(self, running: Running | None, number: signal.Signals) -> None:
        assert running is not None
        running.process.send_signal(number)
        assert running.wait() == (0 if number == signal.SIGTERM else -number)

    def joined(self, host: str = HOST) -> bool:
        hosts: Sequence[dict[str, Any]] = self.ask("GET", "/v1/hosts")
        (node,) = (listed["node"] for listed in hosts if listed["name"] == host)
        return bool(node) and node["state"] == "joined"

    def wait_until_joined(self) -> None:
        until(self.joined, "the node has joined")

    def close(self) -> None:
        for running in (self.node, self.running):
            if running is not None:
                running.stop()
        self.guests.close()
        if self.for_node is not None:
            self.for_node.close()


@contextlib.contextmanager
def beside(directory: Path, *, handed_over: bool = False, **settings: object) -> Iterator[Beside]:
    with socket_path() as path, contextlib.closing(Beside(directory, path, **settings)) as service:
        if handed_over:
            service.hold_socket_for_node()
        service.start_control()
        service.start_node()
        service.wait_until_joined()
        yield service
