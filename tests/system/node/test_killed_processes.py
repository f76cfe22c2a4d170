"""Control and the node beside it, killed in turn with kill -9, while guests and an operator go on.
What they saw is put before the judge."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections import Counter
from pathlib import Path

from forewarn.core import Event, Status
from forewarn.core.time import SECOND
from forewarn.judge import Finding, judge
from forewarn.support import guard
from helpers.free_ports import free_port
from helpers.load import MACHINES, SPEED, LoadGenerator
from helpers.node_beside_control import HOST, Beside, socket_path
from helpers.paths import HELPERS
from helpers.recorded_state import read_state
from helpers.waiting import until_async

KILLS = 8
KINDS = {
    "web": "scale-set",
    "sql": "availability-set",
    "shop": "cloud-service",
    "jumpbox": "standalone",
}
ROLLOUT = {"type": "Freeze", "groups": ["shop", "sql"], "at_once": 2, "bake": 30}


def fleet() -> str:
    """The sample fleet on one host, with addresses to ask from."""
    lines = [f"hosts: [{HOST}]", "groups:"]
    for g, (group, machines) in enumerate(MACHINES.items()):
        lines += [f"  - name: {group}", f"    kind: {KINDS[group]}", "    machines:"]
        for n, name in enumerate(machines):
            spot = ", spot: true" if name in ("web_2", "web_3") else ""
            domain = "" if group == "jumpbox" else f", update_domain: {n % 2}"
            address = f"address: 127.1.{g}.{n + 1}, host: {HOST}"
            lines.append(f"      - {{name: {name}, {address}{domain}{spot}}}")
    return "\n".join(lines) + "\n"


class Victims(Beside):
    """Control, in which durations pass quickly, and the node that answers its guests."""

    def __init__(self, directory: Path, path: Path) -> None:
        self.control_port = free_port()
        super().__init__(directory, path, control=f"127.0.0.1:{self.control_port}", silence="90d")
        (directory / "fleet.yaml").write_text(fleet())

    def start_control(self) -> None:
        program = str(HELPERS / "fast_serve.py")
        self.running = self.started([sys.executable, program, str(self.config), str(SPEED)])
        self.wait_until_ready()

    def kill(self, name: str) -> None:
        """Kill one of them, and return when both work together again."""
        self.end(self.running if name == "control" else self.node, signal.SIGKILL)
        if name == "control":
            self.start_control()
        else:
            self.start_node()
        self.wait_until_joined()


async def killed_in_turn(victims: Victims) -> tuple[LoadGenerator, list[tuple[float, float]]]:
    """Return what guests saw, and when one of the processes was away, from when until when."""
    guests = LoadGenerator(20_27, victims.place[1], victims.control_port, by_source=True)
    _, machines = await guests.control("GET", "/v1/machines")
    guests.know(json.loads(machines))
    guests.note("up")
    for machine in ("jumpbox", "sql-0", "FrontEnd_IN_0", "web_0"):
        status, _ = await guests.ask(machine, "GET", "2020-07-01")
        assert status == 200
    crowd = asyncio.get_running_loop().create_task(guests.go_on())
    away = []
    for life in range(KILLS):
        if life % 4 == 0:
            await guests.control("POST", "/v1/rollouts", {**ROLLOUT, "allow_overlap": True})
        await asyncio.wait([crowd], timeout=guests.chance.uniform(0.1, 0.9))
        assert not crowd.done(), crowd
        begin = guard.wall_us() / SECOND
        name = ("control", "node")[life % 2]
        await asyncio.to_thread(victims.kill, name)
        away.append((begin, guard.wall_us() / SECOND))
        assert guests.refused == 0, f"a poll was refused while {name} was dead"
        if name == "control":
            guests.note("up")
    await until_async(lambda: crowd.done() or was_loaded(guests, victims), "it was under load")
    guests.stop.set()
    await crowd
    guests.note("end")
    assert guests.refused == 0
    return guests, away


def was_loaded(guests: LoadGenerator, victims: Victims) -> bool:
    """Return whether much was asked, approved and carried out."""
    exchanges = [line for line in guests.trace if line["kind"] == "exchange"]
    answered = Counter((line["method"], line["status"]) for line in exchanges)
    impacts = (victims.directory / "state.db.impacts").read_text().count("\n")
    return answered["GET", 200] > 250 and answered["POST", 200] > 50 and impacts > 5


def held_up(finding: Finding, raised: dict[str, Event], away: list[tuple[float, float]]) -> bool:
    """Return whether an event was raised with its full notice, and shown late because one of the
    processes was away meanwhile."""
    if finding.rule != "short-notice" or finding.event is None or finding.t is None:
        return False
    event, shown = raised[finding.event], finding.t
    full_notice = event.not_before - event.raised_at >= event.traits.notice / SPEED
    since = event.raised_at / SECOND
    return full_notice and any(begin <= shown and since <= end for begin, end in away)


def test_no_promise_is_broken_whichever_process_is_killed(tmp_path: Path) -> None:
    with socket_path() as path, contextlib.closing(Victims(tmp_path, path)) as victims:
        victims.start_control()
        victims.start_node()
        victims.wait_until_joined()
        guests, away = asyncio.run(killed_in_turn(victims))
        victims.end(victims.node, signal.SIGTERM)
        victims.end(victims.running, signal.SIGTERM)

    lines = (tmp_path / "state.db.impacts").read_text().splitlines()
    impacts = [json.loads(line) for line in lines]
    record = asyncio.run(read_state(tmp_path / "state.db"))
    judgement = judge([*guests.trace, *impacts, *record.unseen])
    findings = [f for f in judgement.findings if not held_up(f, record.raised, away)]
    assert findings == [], judgement.render()

    exchanges = [line for line in guests.trace if line["kind"] == "exchange"]
    meanwhile = {
        line["method"]
        for line in exchanges
        if any(begin <= line["asked"] <= end for begin, end in away)
    }
    assert meanwhile == {"GET", "POST"}  # also while one of the processes was away
    assert record.replayed == record.stored
    for events in record.rollouts.values():
        finished = Counter(event.cause for event in events if event.status is Status.FINISHED)
        assert set(finished.values()) <= {1}  # no step was carried out twice
