"""A service of several processes, whose control, workers and supervisor are killed one by one with
kill -9, and workers stopped in mid-air, while guests and an operator go on. What they saw is put
before the judge.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from forewarn.core import Status
from forewarn.judge import judge
from forewarn.support import guard
from helpers.forked_cli import Forked
from helpers.load import HOSTS, MACHINES, SPEED, LoadGenerator
from helpers.paths import HELPERS
from helpers.recorded_state import free_port, held_up, read_state

KILLS = 24
KINDS = {
    "web": "scale-set",
    "sql": "availability-set",
    "shop": "cloud-service",
    "jumpbox": "standalone",
}
STOPS = (9,)  # lives in which a worker is not killed but stands still
LATER = 12.0  # seconds after which it goes on, if it still can
NEVER_LONGER = 30.0  # seconds for anything that should take one
HELD_UP = 12.0  # seconds: a worker that stands still is ended after 6, and its place is taken


def fleet() -> str:
    """The sample fleet, with addresses to ask from."""
    lines = [f"hosts: [{', '.join(HOSTS)}]", "groups:"]
    for g, (group, machines) in enumerate(MACHINES.items()):
        lines += [f"  - name: {group}", f"    kind: {KINDS[group]}", "    machines:"]
        for n, name in enumerate(machines):
            domain = 0 if group in ("jumpbox",) else n % (3 if group == "sql" else 2)
            spot = ", spot: true" if name in ("web_2", "web_3") else ""
            where = "" if group == "jumpbox" else f", update_domain: {domain}"
            lines.append(
                f"      - {{name: {name}, address: 127.1.{g}.{n + 1}, host: {HOSTS[domain]}"
                f"{where}{spot}}}"
            )
    return "\n".join(lines) + "\n"


class Victims:
    """The service, and the hand that kills some of it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.metadata = free_port()
        self.control = free_port(after=self.metadata)
        (directory / "fleet.yaml").write_text(fleet())
        said = {
            "fleet": "fleet.yaml",
            "state": "state.db",
            "metadata": f"127.0.0.1:{self.metadata}",
            "control": f"127.0.0.1:{self.control}",
            "silence": "90d",
            "workers": 2,
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in said.items()]
        (directory / "forewarn.toml").write_text("\n".join(lines) + "\n")

    async def start(self) -> None:
        with (self.directory / "said").open("ab") as said:
            self._supervisor = Forked(
                [
                    *(sys.executable, str(HELPERS / "fast_serve.py")),
                    *(str(self.directory / "forewarn.toml"), str(SPEED)),
                ],
                stdout=subprocess.PIPE,
                stderr=said,
                env={**os.environ, "XDG_RUNTIME_DIR": str(self.directory)},
            )
        assert self._supervisor.stdout is not None
        async with asyncio.timeout(NEVER_LONGER):
            line = await asyncio.to_thread(self._supervisor.stdout.readline)
        assert line.startswith(b"ready"), (self.directory / "said").read_text()[-3000:]

    async def end(self, number: signal.Signals) -> int:
        children = list(self.children().values())
        self._supervisor.send_signal(number)
        async with asyncio.timeout(NEVER_LONGER):
            with self._supervisor:
                status = await asyncio.to_thread(self._supervisor.wait)
            while any(_lives(child) for child in children):
                await guard.pause(0.01)
        return status

    def children(self) -> dict[str, int]:
        pid = self._supervisor.pid
        found = {}
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with contextlib.suppress(OSError):  # it is gone already
                words = Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0")
                if "forewarn.node.daemon.process_main" in words:
                    found[words[words.index("forewarn.node.daemon.process_main") + 1]] = int(child)
        return found

    async def stop(self, name: str) -> None:
        """Let it stand still, and go on later: by then another should be in its place."""
        stopped = self.children()[name]
        process = os.pidfd_open(stopped)
        os.kill(stopped, signal.SIGSTOP)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LATER):
                while self.children().get(name, stopped) == stopped:
                    await guard.pause(0.01)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGCONT)
        os.close(process)

    async def kill(self, name: str) -> None:
        """Until there is another in its place."""
        killed = self.children()[name]
        os.kill(killed, signal.SIGKILL)
        async with asyncio.timeout(NEVER_LONGER):
            while self.children().get(name, killed) == killed:
                await guard.pause(0.01)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def killed_one_by_one(directory: Path) -> tuple[LoadGenerator, Counter[str]]:
    victims = Victims(directory)
    guests = LoadGenerator(20_27, victims.metadata, victims.control, by_source=True)
    await victims.start()
    _, machines = await guests.control("GET", "/v1/machines")
    guests.know(json.loads(machines))
    guests.note("up")
    for machine in ("jumpbox", "sql-0", "FrontEnd_IN_0", "web_0"):
        status, _ = await guests.ask(machine, "GET", "2020-07-01")
        assert status == 200
    crowd = asyncio.get_running_loop().create_task(guests.go_on())
    killed = Counter[str]()
    for life in range(KILLS):
        if life % 12 == 0:
            said = {"type": "Freeze", "groups": ["shop", "sql"], "at_once": 2, "bake": 30}
            said["allow_overlap"] = True  # the one before may not be over
            await guests.control("POST", "/v1/rollouts", said)
        await asyncio.wait([crowd], timeout=guests.chance.uniform(0.1, 0.9))
        assert not crowd.done(), crowd
        if life % 12 == 11:
            await victims.end(signal.SIGKILL)
            await victims.start()
            guests.refused = 0
            name = "supervisor"
        elif life in STOPS:
            name = "stopped"
            await victims.stop(guests.chance.choice(["worker 0", "worker 1"]))
            assert guests.refused == 0, "a call was refused while a worker stood still"
        else:
            name = guests.chance.choice(["control", "worker 0", "worker 1"])
            await victims.kill(name)
            assert guests.refused == 0, f"a call was refused while {name} was dead"
        killed[name] += 1
        if name in ("control", "supervisor"):
            guests.note("up")
    await asyncio.wait([crowd], timeout=4)
    guests.stop.set()
    await crowd
    guests.note("end")
    assert guests.refused == 0
    assert await victims.end(signal.SIGTERM) == 0
    return guests, killed


def test_no_promise_is_broken_whichever_process_is_killed(tmp_path: Path) -> None:
    guests, killed = asyncio.run(killed_one_by_one(tmp_path))
    assert {"control", "worker 0", "worker 1", "supervisor", "stopped"} == set(killed)

    lines = (tmp_path / "state.db.impacts").read_text().splitlines()
    impacts = [json.loads(line) for line in lines]
    record = asyncio.run(read_state(tmp_path / "state.db"))
    judgement = judge([*guests.trace, *impacts, *record.unseen])
    findings = [
        finding for finding in judgement.findings if not held_up(finding, record.raised, HELD_UP)
    ]
    assert findings == [], judgement.render()

    exchanges = [line for line in guests.trace if line["kind"] == "exchange"]
    answered = Counter((line["method"], line["status"]) for line in exchanges)
    assert answered["GET", 200] > 500  # it was under load
    assert answered["POST", 200] > 100
    # Nobody was there to take it, or it was under way and nobody knows what became of it.
    assert answered["POST", 500] + answered["POST", None] > 10
    assert len(impacts) > 10  # and much was carried out
    assert record.replayed == record.stored
    for events in record.rollouts.values():
        finished = Counter(event.cause for event in events if event.status is Status.FINISHED)
        assert set(finished.values()) <= {1}  # no step was carried out twice
