"""Agents as processes of their own that cost little to start, and waiting for what they do."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helpers.process import Running

LIVES = Path(__file__).with_name("agent_forker.py")


class ForkedAgent:
    """One agent, over all its lives."""

    def __init__(self, lives: AgentForks, name: str, config: Path) -> None:
        self._lives = lives
        self._name = name
        self.config = config
        self.pid: int = lives.message(name)["pid"]

    def end(self, how: signal.Signals = signal.SIGTERM) -> dict[str, Any]:
        """How often it was killed before that, and with which status it has ended."""
        while True:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, how)
            message = self._lives.message(self._name)
            if "killed" in message:
                self._lives.over(self)
                return message
            self.pid = message["pid"]

    @property
    def log(self) -> list[dict[str, Any]]:
        file = self.config.with_suffix(".log")
        output = file.read_text().splitlines() if file.exists() else []
        return [json.loads(line) for line in output if line.startswith("{")]

    def reported(self, what: str) -> list[dict[str, Any]]:
        return [line for line in self.log if what in (line.get("event"), line.get("what"))]


class AgentForks:
    def __init__(self, running: Running) -> None:
        self._running = running
        self._waiting: dict[str, list[dict[str, Any]]] = {}
        self._names = map(str, itertools.count())
        self._alive: list[ForkedAgent] = []

    def begin(self, config: Path, kill: int = 0, **more: Any) -> ForkedAgent:
        stdin = self._running.process.stdin
        assert stdin
        name = next(self._names)
        order = {"name": name, "config": str(config), "kill": kill, **more}
        stdin.write(json.dumps(order) + "\n")
        stdin.flush()
        life = ForkedAgent(self, name, config)
        self._alive.append(life)
        return life

    def message(self, name: str) -> dict[str, Any]:
        while not self._waiting.get(name):
            message = self._running.message()
            self._waiting.setdefault(message["name"], []).append(message)
        return self._waiting[name].pop(0)

    def over(self, life: ForkedAgent) -> None:
        self._alive.remove(life)

    def end_all(self) -> None:
        for life in list(self._alive):
            life.end()


@contextlib.contextmanager
def living() -> Iterator[AgentForks]:
    argv = [sys.executable, "-I", str(LIVES)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        lives = AgentForks(Running(process, argv))
        try:
            yield lives
        finally:
            lives.end_all()
            assert process.stdin
            process.stdin.close()
            process.wait()


class Bench:
    """A directory with a configuration, and a file that its hooks write a line to."""

    def __init__(self, directory: Path, endpoint: str, agent: str = "") -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.config = directory / "agent.toml"
        self.effects_file = directory / "effects"
        self.effects_file.touch()
        self._head = f'[agent]\nstate = "state"\nendpoint = "{endpoint}"\nlisten = ""\n{agent}\n'

    def says(self, text: str) -> Bench:
        """`EFFECT` is a command that writes its stage."""
        command = f'["sh", "-c", "echo $FOREWARN_HOOK $FOREWARN_STAGE >> {self.effects_file}"]'
        self.config.write_text(self._head + text.replace("EFFECT", command))
        return self

    def effects(self) -> list[str]:
        return self.effects_file.read_text().splitlines()

    def has(self, *effects: str) -> bool:
        return set(effects) <= set(self.effects())

    def closed(self) -> bool:
        """All that was seen is done with."""
        cases = list((self.directory / "state" / "cases").glob("*/case"))
        return bool(cases) and all(json.loads(case.read_bytes())["closed"] for case in cases)


EVERY_STAGE = "\n".join(
    f"{stage} = EFFECT" for stage in ("prepare", "undo", "started", "finished", "withdrawn")
)
