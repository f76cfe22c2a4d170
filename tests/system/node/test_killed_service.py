"""The real process on SQLite, under load, killed 20 times with kill -9 at random moments.

Guests and an operator go on all the while. What they saw, and what was done to the machines, is
put before the judge.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from collections import Counter
from pathlib import Path

from forewarn.core import Status
from forewarn.judge import judge
from helpers.killed_service import Victim
from helpers.load import HOSTS, SPEED, LoadGenerator
from helpers.recorded_state import read_state
from helpers.waiting import LIMIT, until_async

KILLS = 20
IN_THE_MIDDLE = 10  # requests that had no answer because of a kill
POLLS, APPROVALS, IMPACTS = 200, 20, 5  # that a run must have seen
HELD_UP = 5.0  # seconds for a service that was killed to answer again, at least


async def killed_again_and_again(directory: Path) -> LoadGenerator:
    async with Victim(directory, "--speed", str(SPEED)) as victim:
        guests = LoadGenerator(20_26, victim.metadata, victim.control)
        await victim.start()
        _, machines = await guests.control("GET", "/v1/machines")
        guests.know(json.loads(machines))
        guests.note("up")
        for machine in ("jumpbox", "sql-0", "FrontEnd_IN_0", "web_0"):
            await guests.ask(machine, "GET", "2020-07-01")
        for host in HOSTS:  # so that events go as one, whatever the crowd does
            await guests.control("POST", f"/v1/hosts/{host}/maintain", {"mode": "Freeze"})
        crowd = asyncio.get_running_loop().create_task(guests.go_on())
        for life in itertools.count():
            unanswered = guests.answered["GET", None] + guests.answered["POST", None]
            if life >= KILLS and unanswered > IN_THE_MIDDLE:
                break
            if life % 7 == 0:  # one after the other; each is killed again and again
                output = {"type": "Freeze", "groups": ["shop", "sql"], "at_once": 2, "bake": 30}
                output["allow_overlap"] = True  # the one before may not be over
                await guests.control("POST", "/v1/rollouts", output)
            await asyncio.wait([crowd], timeout=guests.chance.uniform(0.0, 0.35))
            assert not crowd.done(), crowd
            guests.killing()
            assert await victim.end(signal.SIGKILL) == -signal.SIGKILL
            await victim.start()
            guests.note("up")
        await until_async(
            lambda: (
                guests.answered["GET", 200] > POLLS
                and guests.answered["POST", 200] > APPROVALS
                and len(impacts_in(directory)) > IMPACTS
            ),
            "enough load",
        )
        guests.stop.set()
        await crowd
        guests.note("end")
        assert await victim.end(signal.SIGTERM) == 0
    return guests


def impacts_in(directory: Path) -> list[str]:
    return (directory / "state.db.impacts").read_text().splitlines()


def test_no_promise_is_broken_by_twenty_kills(tmp_path: Path) -> None:
    guests = asyncio.run(killed_again_and_again(tmp_path))
    impacts = [json.loads(line) for line in impacts_in(tmp_path)]
    record = asyncio.run(read_state(tmp_path / "state.db"))
    judgement = judge([*guests.trace, *impacts, *record.unseen])
    findings = [
        finding
        for finding in judgement.findings
        if not guests.held_up(finding, record.raised, HELD_UP)
    ]
    assert findings == [], judgement.render()

    assert record.replayed == record.stored
    assert any(line["kind"] == "joint" for line in record.unseen)

    assert record.rollouts
    for events in record.rollouts.values():
        finished = Counter(event.cause for event in events if event.status is Status.FINISHED)
        assert set(finished.values()) <= {1}  # no step was carried out twice
    assert any(len(events) > 1 for events in record.rollouts.values())


async def halted_and_killed(directory: Path) -> list[str]:
    """Place a halt, kill the service again and again, and release it; return what became of an
    approved event after each start."""
    statuses = []
    async with Victim(directory, "--speed", str(SPEED)) as victim:
        operator = LoadGenerator(20_27, victim.metadata, victim.control)

        async def asked(method: str, path: str, body: object = None) -> dict[str, str]:
            status, answer = await operator.control(method, path, body)
            assert status in (200, 201), answer
            decoded: dict[str, str] = json.loads(answer)
            return decoded

        await victim.start()
        halt = await asked("POST", "/v1/halts", {"note": "fire"})
        assert await victim.end(signal.SIGKILL) == -signal.SIGKILL
        await victim.start()
        body = {"type": "Reboot", "machines": ["web_0"]}
        path = f"/v1/events/{(await asked('POST', '/v1/events', body))['id']}"
        await asked("POST", f"{path}/approve")
        for _ in range(3):
            statuses.append((await asked("GET", path))["status"])
            assert await victim.end(signal.SIGKILL) == -signal.SIGKILL
            await victim.start()
        assert not (directory / "state.db.impacts").read_text()  # no driver was asked for anything
        await asked("POST", f"/v1/halts/{halt['id']}/release", {})
        assert await victim.end(signal.SIGKILL) == -signal.SIGKILL
        await victim.start()
        async with asyncio.timeout(LIMIT):
            while (status := (await asked("GET", path))["status"]) == "Scheduled":
                pass
        statuses.append(status)
        assert await victim.end(signal.SIGTERM) == 0
    return statuses


def test_a_halt_stands_until_it_is_released_though_the_service_is_killed(tmp_path: Path) -> None:
    *before, after = asyncio.run(halted_and_killed(tmp_path))
    assert before == ["Scheduled"] * 3
    assert after in ("Started", "Finished")
