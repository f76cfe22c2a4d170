"""How long a large fleet takes to apply, how much memory, and how long a poll or an approval had to
wait meanwhile: `python -m bench.platform.apply --machines 100000`.

The service is a process of its own, held to one core; who asks it is this process, on another
where there is one.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from forewarn.control.client.client import ControlClient
from forewarn.control.schema.core import ScheduleRequest
from forewarn.support import guard

TARGET = "/metadata/scheduledevents?api-version=2020-07-01"
HEAD = {"Metadata": "true"}
PER_GROUP = 100
HOSTS_PER = 20  # machines on one host


def _private(number: int) -> str:
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def fleet(machines: int, address: Callable[[int], str] = _private) -> str:
    """Scale sets of a hundred, some twenty machines on a host, and one machine that asks us."""
    hosts = [f"h{n}" for n in range(max(1, machines // HOSTS_PER))]
    lines = ["hosts:", *(f"  - {{name: {name}, labels: {{rack: r{name[-2:]}}}}}" for name in hosts)]
    lines += ["groups:", "  - name: asking", "    kind: standalone"]
    lines += ["    machines: [{name: asking, address: 127.0.0.1}]"]
    for first in range(0, machines, PER_GROUP):
        name = f"set{first // PER_GROUP}"
        lines += [f"  - name: {name}", "    kind: scale-set", "    labels: {tier: web}"]
        lines += ["    machines:"]
        for n in range(first, min(first + PER_GROUP, machines)):
            host = hosts[n // HOSTS_PER % len(hosts)]
            lines.append(
                f"      - {{name: {name}_{n - first}, address: {address(n)}, host: {host},"
                f" labels: {{ring: r{n % 7}}}}}"
            )
    return "\n".join(lines) + "\n"


class Service:
    def __init__(self, directory: Path) -> None:
        first = directory / "first.yaml"
        first.write_text(fleet(0))
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "forewarn", "serve", "--fleet", str(first)),
                *("--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"),
                *("--state", str(directory / "state.db")),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        os.sched_setaffinity(self.process.pid, {0})
        assert self.process.stdout is not None
        ready = json.loads(self.process.stdout.readline().removeprefix("ready "))
        self.metadata, self.control = ready["metadata"], ready["control"]

    def memory(self, which: str) -> float:
        """MiB: VmRSS is now, VmHWM the most there has been."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        (kib,) = re.findall(rf"{which}:\s+(\d+) kB", text)
        return int(kib) / 1024

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


class Asking:
    """Does something again and again in a thread of its own, and remembers the longest time."""

    def __init__(self, once: Callable[[], None]) -> None:
        self.count = 0
        self.longest = 0.0
        self._once = once
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.005):
            began = guard.monotonic()
            self._once()
            self.longest = max(self.longest, guard.monotonic() - began)
            self.count += 1

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


def guest(url: str, body: bytes | None = None) -> tuple[int, bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)
    try:
        connection.request("POST" if body else "GET", TARGET, body, HEAD)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def measure(machines: int, within: Path | None = None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="forewarn-bench-", dir=within) as scratch:
        service = Service(Path(scratch))
        try:
            return _measured(service, machines)
        finally:
            service.stop()


def _measured(service: Service, machines: int) -> dict[str, Any]:
    client = ControlClient(service.control)
    client.timeout = 600

    def poll() -> None:
        assert guest(service.metadata)[0] == 200

    def approval() -> None:
        """An event for the asking machine, approved by it: two commits, both durable."""
        event = client.schedule(ScheduleRequest(type="Freeze", machines=["asking"]))
        approval = json.dumps({"StartRequests": [{"EventId": event.id}]}).encode()
        assert guest(service.metadata, approval)[0] == 200
        client.finish(event.id, {"reason": "measured"})

    poll()
    approval()
    before = service.memory("VmRSS")
    text = fleet(machines).encode()
    polls, approvals = Asking(poll), Asking(approval)
    began = guard.monotonic()
    found = client.apply(text)
    seconds = guard.monotonic() - began
    polls.end()
    approvals.end()
    began = guard.monotonic()
    again = client.apply(text)
    return {
        "machines": found.machines.added,
        "file_mib": len(text) / 1024 / 1024,
        "seconds": seconds,
        "again_seconds": guard.monotonic() - began,
        "again_changes": again.total,
        "rss_before_mib": before,
        "rss_peak_mib": service.memory("VmHWM"),
        "rss_after_mib": service.memory("VmRSS"),
        "polls": polls.count,
        "longest_poll_seconds": polls.longest,
        "approvals": approvals.count,
        "longest_approval_seconds": approvals.longest,
    }


PEER = """
import resource, sys, time, yaml
text = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began = time.perf_counter()
found = yaml.load(text, yaml.CSafeLoader)
print(time.perf_counter() - began, before / 1024)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def peer(machines: int) -> tuple[float, float]:
    """Seconds and MiB at the most for reading the same text with the YAML library alone, in C,
    on the same core."""
    done = subprocess.run(
        ["taskset", "-c", "0", sys.executable, "-c", PEER],
        input=fleet(machines).encode(),
        capture_output=True,
        check=True,
    )
    seconds, _, peak = map(float, done.stdout.split())
    return seconds, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=100_000)
    found = measure(parser.parse_args().machines)
    for name, value in found.items():
        shown = f"{value:.3f}" if isinstance(value, float) else str(value)
        sys.stdout.write(f"{name:<26} {shown}\n")


if __name__ == "__main__":
    main()
