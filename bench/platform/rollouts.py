"""How long the plan of a rollout over a whole fleet takes, and how much memory, as an operator sees
it: `python -m bench.platform.rollouts --machines 40000 --hosts 2000`.

Machines are placed at random, so that some hosts hold several update domains of one group. The
service is a process of its own, and so is every command. Then the rollout is started, and what its
service takes while nothing happens is measured.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.platform.apply import Service
from forewarn.control.client.client import ControlClient
from forewarn.support import guard

PER_GROUP = 20
DOMAINS = 5
IDLE_SECONDS = 10.0
SEED = 18
WINDOW = "sat,sun 22:00-04:00 Europe/Berlin"


def fleet(machines: int, hosts: int) -> str:
    """Availability sets of twenty machines, each on any of the hosts."""
    chance = random.Random(SEED)
    lines = ["hosts:"]
    lines += [
        f"  - {{name: h{n}, labels: {{row: r{n % 10}, rack: k{n % 100}}}}}" for n in range(hosts)
    ]
    lines.append("groups:")
    for group in range(machines // PER_GROUP):
        lines += [f"  - name: g{group}", "    kind: availability-set", "    machines:"]
        lines += [
            f"      - {{name: g{group}-{n}, update_domain: {n % DOMAINS},"
            f" host: h{chance.randrange(hosts)}}}"
            for n in range(PER_GROUP)
        ]
    return "\n".join(lines) + "\n"


def measure(machines: int, hosts: int) -> Iterator[tuple[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="forewarn-bench-") as scratch:
        service = Service(Path(scratch))
        try:
            client = ControlClient(service.control)
            client.timeout = 600
            client.apply(fleet(machines, hosts).encode())
            yield from _measured(service, hosts)
        finally:
            service.stop()


def _measured(service: Service, hosts: int) -> Iterator[tuple[str, Any]]:
    words = ("--type", "Reboot", "--at-once", str(max(1, hosts // 40)), "--window", WINDOW)
    yield "service, MiB", service.memory("VmRSS")
    for name, options in (
        ("hosts", ("--host", "*", "--conflicts", "split", "--waves", "1,5%,25%")),
        ("groups", ("--machine", "*")),
    ):
        seconds, output = _run(service, "plan", *words, *options)
        yield f"plan over {name}, seconds", seconds
        yield f"plan over {name}, lines", len(output.splitlines())
        yield f"plan over {name}, end", output.rpartition("estimated end: ")[2].partition("\n")[0]
    yield "service at most, MiB", service.memory("VmHWM")
    seconds, _ = _run(service, "start", *words, "--host", "*", "--conflicts", "split")
    yield "start, seconds", seconds
    (rollout,) = ControlClient(service.control).rollouts()
    for verb in ("show", "explain"):
        seconds, output = _run(service, verb, rollout.id)
        yield f"{verb}, seconds", seconds
        yield f"{verb}, lines", len(output.splitlines())
    before = _processor_seconds(service)
    guard_end = guard.monotonic() + IDLE_SECONDS
    while guard.monotonic() < guard_end:
        subprocess.run(["sleep", "1"], check=True)
    share = (_processor_seconds(service) - before) / IDLE_SECONDS
    yield "processor while it waits, percent", 100 * share
    yield "service with the rollout, MiB", service.memory("VmRSS")


def _run(service: Service, *words: str) -> tuple[float, str]:
    began = guard.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "forewarn", "rollout", *words, "--url", service.control],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"bench: {done.stderr}")
    return guard.monotonic() - began, done.stdout


def _processor_seconds(service: Service) -> float:
    fields = Path(f"/proc/{service.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=40_000)
    parser.add_argument("--hosts", type=int, default=2_000)
    chosen = parser.parse_args()
    for name, value in measure(chosen.machines, chosen.hosts):
        shown = f"{value:.2f}" if isinstance(value, float) else str(value)
        sys.stdout.write(f"{name:<36} {shown}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
