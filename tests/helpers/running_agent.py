"""A real agent beside a service inside the test: started, asked how it stands, and stopped."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forewarn.testing import Machine
from helpers.process import Running


class RunningAgent:
    def __init__(self, running: Running, where: Path) -> None:
        self.running = running
        self._where = where

    def get(self, path: str) -> tuple[int, str]:
        """Status and body, from its socket."""
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(20)
            line.connect(str(self._where))
            line.sendall(f"GET {path} HTTP/1.1\r\nHost: agent\r\n\r\n".encode())
            output = b""
            while more := line.recv(65_536):
                output += more
        head, _, body = output.decode().partition("\r\n\r\n")
        return int(head.split()[1]), body

    def json(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get(path)[1])
        return found

    def metrics(self) -> dict[str, float]:
        lines = [line for line in self.get("/metrics")[1].splitlines() if line[0] != "#"]
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    def reported(self) -> list[dict[str, Any]]:
        """The lines of its log so far."""
        return [json.loads(line) for line in list(self.running.stderr) if line.startswith("{")]


def configured(directory: Path, *rest: str, listen: str | None = None) -> Path:
    where = directory / "socket" if listen is None else listen
    lines = ["[agent]", f'state = "{directory / "state"}"', f'listen = "{where}"', *rest]
    config = directory / "agent.toml"
    config.write_text("\n".join(lines) + "\n")
    return config


@contextmanager
def running_agent(
    machine: Machine,
    config: Path,
    *,
    before: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Iterator[RunningAgent]:
    """From when it has looked for the first time."""
    argv = [*before, sys.executable, "-I", "-m", "forewarn.agent", str(config)]
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **machine.env, **(env or {})},
        cwd=config.parent,
    )
    running = Running(process, argv)
    try:
        word, _, output = running.line().partition(" ")
        assert (word, json.loads(output)["machine"]) == ("ready", machine.name)
        yield RunningAgent(running, config.parent / "socket")
    finally:
        running.stop()
