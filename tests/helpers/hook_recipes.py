"""Runs a hook program of examples/hooks as the agent does: the event as JSON on standard input,
FOREWARN_* in the environment, a directory that is kept from prepare to undo, a process group of its
own. What the agent does about it is not here."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

from helpers.paths import ROOT
from helpers.process import Running
from helpers.waiting import LIMIT

RECIPES = ROOT / "examples" / "hooks"
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class Recipe:
    """One hook, for one event after another."""

    def __init__(self, program: str, directory: Path, machine: str, **env: object) -> None:
        self._program = RECIPES / program
        self._directory = directory
        self._machine = machine
        self.env = {key: str(value) for key, value in env.items()}

    def ok(self, stage: str, event: str = "A", **more: str) -> str:
        """What it printed, once it has succeeded."""
        ended = self._run(stage, event, more)
        assert ended.returncode == 0, ended.stdout
        return ended.stdout

    def fails(self, stage: str, event: str = "A", **more: str) -> str:
        ended = self._run(stage, event, more)
        assert ended.returncode == 1, (ended.returncode, ended.stdout)
        assert "Traceback" not in ended.stdout, ended.stdout
        return ended.stdout

    def begin(self, stage: str, event: str = "A", **more: str) -> Running:
        process = subprocess.Popen(
            [self._program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._env(stage, event, more),
            process_group=0,
            text=True,
        )
        assert process.stdin is not None
        with process.stdin:
            process.stdin.write(self._event(stage, event, more))
        return Running(process, [str(self._program)])

    def kill(self, running: Running) -> None:
        """It and all it has started, as when the machine dies."""
        os.killpg(running.process.pid, signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL

    def _run(
        self, stage: str, event: str, more: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._program],
            input=self._event(stage, event, more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._env(stage, event, more),
            process_group=0,
            timeout=LIMIT * 2,
            text=True,
            check=False,
        )

    def _env(self, stage: str, event: str, more: Mapping[str, str]) -> dict[str, str]:
        state = self._directory / event
        state.mkdir(parents=True, exist_ok=True)
        contract = {
            "FOREWARN_HOOK": "recipe",
            "FOREWARN_STAGE": stage,
            "FOREWARN_ATTEMPT": "1",
            "FOREWARN_RULE": "a rule",
            "FOREWARN_MACHINE": self._machine,
            "FOREWARN_MINE": "true",
            "FOREWARN_EVENT_ID": event,
            "FOREWARN_EVENT_TYPE": "Reboot",
            "FOREWARN_EVENT_STATUS": "Scheduled",
            "FOREWARN_EVENT_SOURCE": "Platform",
            "FOREWARN_EVENT_RESOURCES": self._machine,
            "FOREWARN_EVENT_NOT_BEFORE": "2026-11-15T10:46:06Z",
            "FOREWARN_EVENT_DESCRIPTION": "",
            "FOREWARN_EVENT_DURATION": "9",
            "FOREWARN_SECONDS_LEFT": f"{LIMIT:.0f}",
            "FOREWARN_STATE": str(state),
        }
        path = {"PATH": PATH, "HOME": str(self._directory)}
        return {**path, **contract, **self.env, **more}

    def _event(self, stage: str, event: str, more: Mapping[str, str]) -> str:
        env = self._env(stage, event, more)
        return json.dumps(
            {
                "hook": "recipe",
                "stage": stage,
                "attempt": 1,
                "rule": "a rule",
                "machine": self._machine,
                "mine": env["FOREWARN_MINE"] == "true",
                "seconds_left": float(env["FOREWARN_SECONDS_LEFT"] or "0") or None,
                "event": {
                    "id": event,
                    "type": env["FOREWARN_EVENT_TYPE"],
                    "status": "Scheduled",
                    "resources": env["FOREWARN_EVENT_RESOURCES"].split(),
                    "not_before": "2026-11-15T10:46:06Z",
                    "description": "",
                    "source": "Platform",
                    "duration": 9,
                },
            },
            separators=(",", ":"),
        )


def listening(port: int) -> bool:
    with socket.socket() as there:
        return there.connect_ex(("127.0.0.1", port)) == 0
