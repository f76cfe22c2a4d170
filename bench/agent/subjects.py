"""What is measured, and the peers beside it: each a process that looks once a second, all at the
same time, at the same service."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TICKS = os.sysconf("SC_CLK_TCK")
DOCUMENT = "/metadata/scheduledevents?api-version=2020-07-01"

CONFIG = """
[agent]
state = "{directory}/{name}"
listen = "{directory}/{name}.socket"

[[rule]]
name = "all"
hooks = ["mine"]

[hook.mine]
prepare = ["/bin/true"]
"""


def _agent(module: str) -> Callable[[str, Path], list[str]]:
    def argv(url: str, directory: Path) -> list[str]:
        del url
        config = directory / f"{module}.toml"
        config.write_text(CONFIG.format(directory=directory, name=module))
        return [sys.executable, "-m", module, str(config)]

    return argv


def _curl(url: str, _directory: Path) -> list[str]:
    """As most examples have it; with the tag that it would have to remember."""
    ask = shlex.join(
        ["curl", "-s", "-o", "/dev/null", "-H", "Metadata: true", "-H", 'If-None-Match: "1"', url]
    )
    return ["/bin/sh", "-c", f"while :; do {ask}; sleep 1; done"]


def _urllib(url: str, _directory: Path) -> list[str]:
    return [sys.executable, "-I", str(HERE / "loop.py"), url]


AGENT, POLLING, CURL, URLLIB = "agent, long-poll", "agent, polling", "sh and curl", "Python, urllib"

SUBJECTS: Mapping[str, Callable[[str, Path], list[str]]] = {
    AGENT: _agent("forewarn.agent"),
    POLLING: _agent("bench.agent.polling"),
    CURL: _curl,
    URLLIB: _urllib,
}


class Sample(msgspec.Struct, frozen=True):
    cpu: float  # seconds so far, with children that have ended
    rss: int  # bytes
    pss: int


class Subject:
    def __init__(self, name: str, url: str, directory: Path) -> None:
        self.name = name
        self._log = (directory / f"{name}.log").open("w")
        self._process = subprocess.Popen(
            SUBJECTS[name](f"{url}{DOCUMENT}", directory),
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            cwd=ROOT,
            env=os.environ | {"FOREWARN_METADATA": url},
        )

    def sample(self) -> Sample:
        if self._process.poll() is not None:
            raise SystemExit(f"{self.name} has ended: {Path(self._log.name).read_text()}")
        proc = Path(f"/proc/{self._process.pid}")
        rollup = (proc / "smaps_rollup").read_text()
        rss, pss = (
            int(re.findall(rf"^{what}:\s+(\d+)", rollup, re.M)[0]) for what in ("Rss", "Pss")
        )
        return Sample(_cpu(proc), rss * 1024, pss * 1024)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


def _cpu(proc: Path) -> float:
    """What its threads have run, to the nanosecond; what its children have, in ticks."""
    own = sum(
        int((task / "schedstat").read_text().split()[0]) for task in (proc / "task").iterdir()
    )
    fields = (proc / "stat").read_text().rpartition(")")[2].split()
    return own / 1e9 + (int(fields[13]) + int(fields[14])) / TICKS
