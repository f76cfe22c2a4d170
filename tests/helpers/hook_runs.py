"""A run of a ready-made hook: the contract as an agent keeps it, with one event."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from forewarn.agent.hooks import KINDS
from forewarn.agent.hooks.contract import Call, Run
from helpers.waiting import LIMIT

EVENT = {
    "id": "B18466D5-4FA0-45D3-A101-8B3D378D3B3C",
    "type": "Reboot",
    "status": "Scheduled",
    "resources": ["web_0"],
    "not_before": "2120-11-15T10:46:06Z",
    "description": "Host server is undergoing maintenance.",
    "source": "Platform",
    "duration": 9,
}


class Hook:
    """Of one kind, with its options, for one event; its state is a directory."""

    def __init__(self, kind: str, options: Mapping[str, Any], state: Path, **event: Any) -> None:
        self.kind = kind
        self.options = dict(options)
        self.state = state
        self.event = EVENT | event
        state.mkdir(parents=True, exist_ok=True)

    def here(self, stage: str, left: float = 60.0, **more: Any) -> str:
        """What it says, run in this process."""
        body = self._body(stage, left, more)
        environ = {"FOREWARN_STATE": str(self.state), "FOREWARN_SECONDS_LEFT": str(round(left))}
        options = msgspec.convert(self.options, KINDS[self.kind].options)
        run = Run(msgspec.json.decode(body, type=Call), body, environ)
        lines: list[str] = import_module(f"forewarn.agent.hooks.{self.kind}").act(run, options)
        return "\n".join(lines)

    def program(
        self,
        stage: str,
        left: float = 60.0,
        prefix: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        **more: Any,
    ) -> tuple[int, str]:
        """Status and output of the program, started as an agent does."""
        process = self.begun(stage, left, prefix, env, **more)
        output, _ = process.communicate(timeout=LIMIT)
        return process.returncode, output.decode()

    def begun(
        self,
        stage: str,
        left: float = 60.0,
        prefix: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        **more: Any,
    ) -> subprocess.Popen[bytes]:
        """The program, which has been told all it is told."""
        process = subprocess.Popen(
            [*prefix, sys.executable, "-I", "-m", "forewarn.agent.hooks", self.kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                "FOREWARN_OPTIONS": json.dumps(self.options),
                "FOREWARN_STATE": str(self.state),
                "FOREWARN_STAGE": stage,
                "FOREWARN_SECONDS_LEFT": str(round(left)),
                **(env or {}),
            },
        )
        assert process.stdin is not None
        process.stdin.write(self._body(stage, left, more))
        process.stdin.close()
        process.stdin = None
        return process

    def check(self) -> list[str]:
        return KINDS[self.kind].check(msgspec.convert(self.options, KINDS[self.kind].options))

    def _body(self, stage: str, left: float, more: Mapping[str, Any]) -> bytes:
        call = {"hook": "mine", "stage": stage, "attempt": 1, "rule": "reboots"}
        call |= {"machine": "web_0", "mine": True, "seconds_left": left, "event": self.event}
        return json.dumps(call | dict(more)).encode()
