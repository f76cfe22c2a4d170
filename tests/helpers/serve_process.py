"""`forewarn serve` as a process of its own, for the tests of what surrounds it: settings, signals,
a service manager. What guests and operators see is tested elsewhere."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers.forked_cli import start
from helpers.process import Running
from helpers.waiting import LIMIT, until

FOREWARN = [sys.executable, "-m", "forewarn"]

FLEET = """\
groups:
  - name: web
    kind: availability-set
    machines:
      - {name: web-0, update_domain: 0, addresses: [127.0.0.1]}
      - {name: web-1, update_domain: 1, addresses: [127.0.0.2]}
"""

SETTINGS = """\
metadata = "127.0.0.1:0"
control = "127.0.0.1:0"
state = "state/forewarn.db"
fleet = "fleet.yaml"
log = "json"
"""


class ServeProcess:
    def __init__(self, running: Running, urls: dict[str, str]) -> None:
        self.running = running
        self.metadata = urls["metadata"]
        self.control = urls["control"]
        self.arm = urls.get("arm", "")

    @property
    def log(self) -> str:
        return "".join(self.running.stderr)

    def poll(self) -> dict[str, Any]:
        url = f"{self.metadata}/metadata/scheduledevents?api-version=2020-07-01"
        asked = urllib.request.Request(url, headers={"Metadata": "true"})
        with _opened(asked) as answer:
            return dict(json.load(answer))

    def get(self, path: str) -> Any:
        with _opened(urllib.request.Request(self.control + path)) as answer:
            return json.load(answer)

    def post(self, path: str, body: Any = None) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        with _opened(urllib.request.Request(self.control + path, data, headers)) as answer:
            return json.load(answer)

    def wait_for(self, path: str, **fields: Any) -> Any:
        """What is there, once it has these."""

        def found() -> Any:
            try:
                answer = self.get(path)
            except urllib.error.HTTPError as error:
                answer = {"status": error.code}
            return answer if fields.items() <= answer.items() else None

        return until(found, path)


def _opened(request: urllib.request.Request) -> Any:
    """No proxy, whatever the environment says."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=LIMIT)


def write_settings(directory: Path, more: str = "") -> Path:
    """A directory with all that a service needs; its settings."""
    (directory / "state").mkdir(mode=0o700, exist_ok=True)
    (directory / "fleet.yaml").write_text(FLEET)
    settings = directory / "forewarn.toml"
    settings.write_text(SETTINGS + more)
    return settings


def environment(directory: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FOREWARN_")}
    return {**kept, "XDG_RUNTIME_DIR": str(directory), **more}


@contextlib.contextmanager
def running_service(
    directory: Path,
    settings: Path,
    *,
    before: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    **more: Any,
) -> Iterator[ServeProcess]:
    argv = [*before, *FOREWARN, "serve", "--config", str(settings)]
    process = start(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(directory), **(env or {})},
        **more,
    )
    running = Running(process, argv)
    try:
        word, _, urls = running.line().partition(" ")
        assert word == "ready", word
        yield ServeProcess(running, json.loads(urls))
    finally:
        running.stop()
