"""az and Azure's SDKs as processes, in the environment that has them, with a service of ours for
their cloud."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from forewarn.control.views.azure import DEFAULT_SUBSCRIPTION
from forewarn.testing import Service
from helpers.paths import HELPERS, ROOT
from helpers.process import Running
from helpers.waiting import LIMIT

AZURE = ROOT / ".venv-azure"
PYTHON = AZURE / "bin" / "python"
OLD = AZURE / "old"
# Nothing of whoever runs the tests: no proxies, no profile, no cloud of theirs.
KEPT = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL")


def environment(url: str, ca: Path, secret: str, *, identity: bool = True) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if name in KEPT}
    env |= {"ARM_URL": url, "ARM_SUBSCRIPTION": DEFAULT_SUBSCRIPTION, "ARM_SECRET": secret}
    env |= {"REQUESTS_CA_BUNDLE": str(ca), "NO_PROXY": "*"}
    if identity:
        env |= {"IDENTITY_ENDPOINT": f"{url}/identity", "IDENTITY_HEADER": secret}
    return env


class Az:
    """`az`, logged in, with a profile of its own and its extension for Resource Graph."""

    def __init__(self, directory: Path, url: str, ca: Path, secret: str) -> None:
        extension = directory / "cliextensions" / "resource-graph"
        extension.mkdir(parents=True)
        for part in ("azext_resourcegraph", "resource_graph-*.dist-info"):
            [found] = AZURE.glob(f"lib/python3.*/site-packages/{part}")
            (extension / found.name).symlink_to(found)
        self._env = {
            **environment(url, ca, secret),
            "AZURE_CONFIG_DIR": str(directory),
            "AZURE_CORE_COLLECT_TELEMETRY": "false",
            "AZURE_CORE_ONLY_SHOW_ERRORS": "true",
            "AZURE_CORE_OUTPUT": "json",
        }
        self.run("cloud", "register", "-n", "forewarn", "--endpoint-resource-manager", url)
        self.run("cloud", "set", "-n", "forewarn")
        self.run("login", "--identity")

    def start(self, *words: str) -> Running:
        argv = [str(PYTHON), "-m", "azure.cli", *words]
        process = subprocess.Popen(
            argv,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return Running(process, argv)

    def run(self, *words: str) -> Any:
        """Return what a command that succeeds says, as JSON; None if it says nothing."""
        running = self.start(*words)
        assert running.wait() == 0, "".join(running.stderr)
        output = "".join(running.stdout)
        return json.loads(output) if output.strip() else None


class Sdk:
    """A program that uses an SDK; see `azure_program.py`."""

    def __init__(self, env: Mapping[str, str], *, old: bool = False) -> None:
        argv = [str(PYTHON), str(HELPERS / "azure_program.py")]
        process = subprocess.Popen(
            argv,
            env={**env, **({"PYTHONPATH": str(OLD)} if old else {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._stdin = process.stdin
        self._running = Running(process, argv)

    def ask(self, **asked: Any) -> dict[str, Any]:
        assert self._stdin is not None
        self._stdin.write(json.dumps(asked) + "\n")
        self._stdin.flush()
        return self._running.message()

    def call(self, call: str, *args: Any, client: str = "compute", **options: Any) -> Any:
        """Return the result of a call that succeeds; of a long-running one, its number."""
        answer = self.ask(client=client, call=call, args=args, options=options)
        assert "result" in answer, answer["error"]
        return answer["result"]

    def refusal(self, call: str, *args: Any, client: str = "compute", **options: Any) -> str:
        """Return the error of a call that is refused."""
        answer = self.ask(client=client, call=call, args=args, options=options)
        assert "error" in answer, answer
        return str(answer["error"])

    def wait(self, poller: int) -> dict[str, Any]:
        return self.ask(wait=poller)

    def close(self) -> None:
        assert self._stdin is not None
        self._stdin.close()  # that is its end
        self._running.wait()


class Announcements:
    """Tells when something is announced, without asking again and again."""

    def __init__(self, service: Service) -> None:
        self._announced = threading.Semaphore(0)
        service._session.node.store.on_commit(self._on_commit)

    def _on_commit(self, commit: Any, changed: Any) -> None:
        if any(group.events for group in changed.values()):
            self._announced.release()

    def wait(self) -> None:
        assert self._announced.acquire(timeout=LIMIT), "nothing was announced"

    def forget(self) -> None:
        while self._announced.acquire(blocking=False):
            pass


def names(items: Sequence[Mapping[str, Any]]) -> list[str]:
    return [item["name"] for item in items]
