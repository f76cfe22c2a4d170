"""An operator's day with a large fleet, and what it takes: `python -m bench.platform.day`.

Machines are placed at random, so that some hosts hold several update domains of one group. A
rollout goes over all hosts in waves, while machines are moved without the service being told of
more than some of it, a tenant postpones, a blackout begins, the fleet is halted and released, and
the operator's hand slips. The clock is virtual. The service is a process of its own that records
what it does; in the end the record is judged.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.platform import rollouts
from bench.platform.apply import Service
from forewarn.control.client.client import ControlClient
from forewarn.control.client.connection import ControlError
from forewarn.control.schema import core as s
from forewarn.control.schema import halts as h
from forewarn.control.schema import maintenance as m
from forewarn.control.schema import rollouts as r
from forewarn.support import guard

PER_HOST = 20
GUESTS = 50  # machines that poll and approve
MOVES = 20  # machines that are moved in each half hour, of which the service learns of half
HALF_HOUR = 1800.0
LONGEST = 480  # half hours until the day is given up
SEED = 7
POLL = "/metadata/scheduledevents?api-version=2020-07-01"


class Day:
    def __init__(self, hosts: int, directory: Path) -> None:
        self.chance = random.Random(SEED)
        self.hosts = hosts
        self.record = directory / "record"
        self.file = directory / "fleet.yaml"
        self.text = rollouts.fleet(hosts * PER_HOST, hosts)
        self.fewer = rollouts.fleet(hosts * PER_HOST // 2, hosts)
        self.file.write_text(self.text)
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "forewarn", "dev", "--clock", "virtual", "--no-observe"),
                *("--fleet", str(self.file), "--state", str(directory / "state.db")),
                *("--record", str(self.record)),
                *("--metadata", "127.0.0.1:0", "--control", "127.0.0.1:0"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "XDG_RUNTIME_DIR": str(directory)},
        )
        assert self.process.stdout is not None
        ready = json.loads(self.process.stdout.readline().removeprefix("ready "))
        self.client = ControlClient(ready["control"])
        self.client.timeout = 600
        self._port = urlsplit(ready["metadata"]).port or 0
        machines = self.client.machines()
        self.names = [machine.name for machine in machines]
        self._guests = [
            machine.addresses[0] for machine in self.chance.sample(machines, min(GUESTS, hosts))
        ]

    def live(self) -> None:
        """Half an hour: guests poll and approve, and machines are moved."""
        for address in self._guests:
            events = self._ask(address)["Events"]
            scheduled = [e["EventId"] for e in events if e["EventStatus"] == "Scheduled"]
            if scheduled and self.chance.random() < 0.5:
                requests = [{"EventId": id} for id in scheduled[:1]]
                self._ask(address, json.dumps({"StartRequests": requests}))
        for name in self.chance.sample(self.names, MOVES):
            host = f"h{self.chance.randrange(self.hosts)}"
            if self.chance.random() < 0.5:  # nobody tells of the others
                self.client.record_move(name, s.MovedRequest(host=host))
        self.client.advance(s.AdvanceRequest(by=HALF_HOUR))

    def _ask(self, address: str, body: str | None = None) -> Any:
        connection = http.client.HTTPConnection(address, self._port, timeout=600)
        try:
            connection.request("POST" if body else "GET", POLL, body, {"Metadata": "true"})
            answer = connection.getresponse().read()
            return json.loads(answer) if answer else None
        finally:
            connection.close()

    def starts(self) -> int:
        """Let half an hour pass; return how many events have started in it."""
        since = (self.client.clock().now + timedelta(seconds=1)).isoformat()
        self.live()
        return len(self.client.last_records({"what": "started", "since": since}, 1_000))

    def processor_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", text)[0]) / 1024

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def refuses(client: ControlClient, mistake: Callable[[], object], why: str) -> bool:
    """Make a mistake; return whether it was refused for this reason and has changed nothing."""
    before = _state(client)
    try:
        done = mistake()
    except ControlError as error:
        return why in str(error) and before == _state(client)
    if isinstance(done, r.RolloutReport):  # what was not meant is taken back
        client.abort_rollout(done.id, r.SwitchRequest())
    return False


def _state(client: ControlClient) -> tuple[Any, ...]:
    return client.rollouts(), client.hosts(), client.groups(), client.machines()


def measure(hosts: int) -> Iterator[tuple[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="forewarn-bench-") as scratch:
        began = guard.monotonic()
        day = Day(hosts, Path(scratch))
        try:
            yield "ready, seconds", guard.monotonic() - began
            yield from _spent(day)
            yield "seconds", guard.monotonic() - began
            yield "service, processor seconds", day.processor_seconds()
            yield "service at most, MiB", day.peak()
        finally:
            day.stop()
        yield "record, MiB", day.record.stat().st_size / 2**20
        judged = guard.monotonic()
        words = [sys.executable, "-m", "forewarn", "conformance", str(day.record)]
        verdict = subprocess.run(words, capture_output=True, text=True, check=False)
        yield "judged, seconds", guard.monotonic() - judged
        yield "verdict", (verdict.stdout or verdict.stderr).strip()
        yield "removal of half refused", _removal_refused(day, Path(scratch) / "serve")


def _removal_refused(day: Day, directory: Path) -> bool:
    """Does `serve`, which has a limit for this, refuse a fleet file with half of the machines?"""
    directory.mkdir()
    service = Service(directory)
    try:
        client = ControlClient(service.control)
        client.timeout = 600
        client.apply(day.text.encode())
        return refuses(client, lambda: client.apply(day.fewer.encode()), "more than the limit of")
    finally:
        service.stop()


def _spent(day: Day) -> Iterator[tuple[str, Any]]:
    client = day.client
    request = r.RolloutRequest(
        type="Reboot",
        hosts=["*"],
        conflicts="split",
        waves=["1", "5%", "25%"],
        at_once=max(1, day.hosts // 10),
    )
    tenant = client.groups()[0].name
    client.set_policy(tenant, s.PolicyRequest(may_postpone="2h, twice"))
    misspelt = day.text.replace("host: h1}", "host: hl}", 1)
    yield (
        "misspelt host refused",
        refuses(client, lambda: client.apply(misspelt.encode()), "host 'hl' is not listed"),
    )
    rollout = client.start_rollout(request)
    yield "steps", rollout.steps_total
    client.advance(s.AdvanceRequest(by=1))  # the first steps have been announced
    yield (
        "removal of what has events refused",
        refuses(client, lambda: client.apply(day.fewer.encode()), "have an active event"),
    )
    yield (
        "second start refused",
        refuses(client, lambda: client.start_rollout(request), f"rollout {rollout.id}"),
    )
    postponed = False
    for half_hours in range(1, LONGEST):
        if half_hours == 3:
            yield "started in an ordinary half hour", day.starts()
        else:
            day.live()
        if not postponed and (events := client.events(group=tenant, status="Scheduled")):
            client.postpone(events[0].id, s.PostponeRequest(by=3600))
            postponed = True
        if half_hours == 4:
            halt = client.place_halt(h.HaltRequest(note="smoke"))
            yield "started during the halt", day.starts()
            client.release_halt(halt.id, h.ReleaseRequest())
        if half_hours == 8:
            today = client.clock().now.date().isoformat()
            client.set_maintenance("freeze", m.MaintenanceRequest(blackouts=[today]))
            yield "started during the blackout", day.starts()
            client.remove_maintenance("freeze")
        rollout = client.rollout(rollout.id)
        if rollout.ended_at or rollout.paused:
            break
    yield "rollout", rollout.state
    yield "steps done", rollout.steps_done
    yield (
        "hours of the virtual clock",
        (client.clock().now - rollout.created_at) / timedelta(hours=1),
    )
    yield "postponed", postponed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=2_000, help="with twenty machines on each")
    for name, value in measure(parser.parse_args().hosts):
        shown = f"{value:.2f}" if isinstance(value, float) else str(value)
        sys.stdout.write(f"{name:<36} {shown}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
