"""What an operator does over the control API, with the real process killed in every step of it.

The clock is virtual, so between two requests nothing changes by itself, and what a killed service
has kept can be compared with what was there before. The service records what it does; the judge
reads it in the end.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time  # noqa: TID251 - a request is interrupted after a share of the real time it takes
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from forewarn.judge import judge
from helpers.killed_service import Victim
from helpers.load import LoadGenerator

ROUNDS = 1
LIMIT = 40  # half hours that a rollout may take
GUESTS = ("jumpbox", "sql-0", "sql-1", "sql-2", "FrontEnd_IN_0", "FrontEnd_IN_1", "web_0", "web_1")
LISTS = ("hosts", "machines", "events", "halts", "maintenance", "rollouts")
COUNTED = ("polls", "last_poll", "api_version", "coverage", "ignored_events", "last_answer")

State = dict[str, dict[str, Any]]  # by list, then by id or name
Done = Callable[[State], bool]


class Answer(NamedTuple):
    status: int | None
    headers: dict[str, str]
    body: Any


class Operator:
    """Does one thing after the other, and repeats what was not answered as a client would."""

    def __init__(self, victim: Victim) -> None:
        self._victim = victim
        self._caller = LoadGenerator(20_28, victim.metadata, victim.control)
        self.chance = self._caller.chance
        self.fates: Counter[str] = Counter()
        self._usual = 0.05  # seconds that a request takes
        self._keys = 0

    async def begin(self) -> None:
        await self._victim.start()
        _, machines = await self._caller.control("GET", "/v1/machines")
        self._caller.know(json.loads(machines))
        await self.poll()

    async def poll(self) -> None:
        for machine in GUESTS:
            status, answer = await self._caller.ask(machine, "GET", "2020-07-01")
            assert status == 200, answer
            for event in json.loads(answer)["Events"]:
                if event["EventStatus"] == "Scheduled" and self.chance.random() < 0.2:
                    body = json.dumps({"StartRequests": [{"EventId": event["EventId"]}]})
                    await self._caller.ask(machine, "POST", "2020-07-01", body)

    async def call(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        lines = {name.replace("_", "-"): value for name, value in headers.items()}
        status, received, text = await self._caller.control_with(method, path, body, lines)
        return Answer(status, received, json.loads(text) if text else None)

    async def get(self, path: str) -> Any:
        answer = await self.call("GET", path)
        assert answer.status == 200, answer
        return answer.body

    async def state(self) -> State:
        state: State = {}
        for name in LISTS:
            items = await self.get(f"/v1/{name}")
            state[name] = {item.get("id") or item["name"]: item for item in items}
        for machine in state["machines"].values():
            for field in COUNTED:
                machine.pop(field)
        for id, rollout in state["rollouts"].items():
            if not rollout["ended_at"]:
                rollout["steps"] = await self.get(f"/v1/rollouts/{id}/steps")
        return state

    async def settle(self) -> None:
        """Let the service do what is due now."""
        answer = await self.call("POST", "/v1/clock/advance", {"by": 1})
        assert answer.status == 200, answer

    async def _interrupted(self, *request: Any, **headers: str) -> Answer:
        """Send a request, kill the service at a random moment of it, and start it again."""
        sent = asyncio.get_running_loop().create_task(self.call(*request, **headers))
        await asyncio.wait([sent], timeout=self.chance.uniform(0.0, 1.6 * self._usual))
        assert await self._victim.end(signal.SIGKILL) == -signal.SIGKILL
        answer = await sent
        await self._victim.start()
        return answer

    async def do(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        done: Done,
        again: int = 200,
        **headers: str,
    ) -> Any:
        """Make a change with a kill in its midst. `done` is whether a state has the change, and
        `again` the status of a request that is repeated after it was carried out."""
        before = await self.state()
        assert not done(before)
        (last,) = (await self.get("/v1/history?limit=1"))["records"] or [{"seq": 0}]
        first = await self._interrupted(method, path, body, **headers)
        after = await self.state()
        assert first.status in (None, 200, 201), first
        if done(after):
            self.fates["answered" if first.status else "done, not answered"] += 1
        else:
            self.fates["not done"] += 1
            assert first.status is None, f"answered, and not there: {method} {path}"
            assert after == before, f"there in part: {method} {path}"
        sent = time.monotonic()
        second = await self.call(method, path, body, **headers)
        self._usual = (self._usual + time.monotonic() - sent) / 2
        wanted = {again} if done(after) else {200, 201}
        assert second.status in wanted, second
        if first.status and "Idempotency_Key" in headers:
            assert (second.status, second.body) == (first.status, first.body)
        await self.settle()
        assert done(await self.state()), f"not there in the end: {method} {path}"
        await self._once(last["seq"])
        return (first if first.status else second).body

    async def _once(self, seq: int) -> None:
        records = (await self.get("/v1/history?limit=200"))["records"]
        for record in records:
            del record["event"], record["at"]
        seen = [
            json.dumps({**record, "seq": 0}, sort_keys=True)
            for record in records
            if record["seq"] > seq
        ]
        assert len(seen) == len(set(seen)), seen

    async def post(self, path: str, body: object = None, *, done: Done, again: int = 200) -> Any:
        self._keys += 1
        key = f"key-{self._keys}"
        return await self.do("POST", path, body, done=done, again=again, Idempotency_Key=key)

    async def change(self, method: str, machine: str, body: object, *, done: Done) -> None:
        path = f"/v1/machines/{machine}"
        if method == "PUT":
            await self.do(method, path, body, done=done, again=412, If_None_Match="*")
        else:
            tag = (await self.call("GET", path)).headers["etag"]
            again = 404 if method == "DELETE" else 412
            await self.do(method, path, body, done=done, again=again, If_Match=tag)

    async def pass_time(self, seconds: float) -> None:
        """Guests poll and approve, and the service is killed while it works."""
        await self.poll()
        answer = await self._interrupted("POST", "/v1/clock/advance", {"by": seconds})
        await self.poll()
        if answer.status is None:
            answer = await self.call("POST", "/v1/clock/advance", {"by": seconds})
        assert answer.status == 200, answer


async def work_on_hosts(operator: Operator, number: int) -> None:
    """Cordon, uncordon; put, change and move a machine; evacuate, postpone, cancel."""
    name, ticket = f"extra-{number}", f"evacuation-{number}"
    await operator.post(
        "/v1/hosts/host-c/cordon", {"note": ticket}, done=lambda s: s["hosts"]["host-c"]["cordoned"]
    )
    await operator.post(
        "/v1/hosts/host-c/uncordon", done=lambda s: not s["hosts"]["host-c"]["cordoned"]
    )
    machine = {"group": "sql", "host": "host-c", "update_domain": 2}
    await operator.change("PUT", name, machine, done=lambda s: name in s["machines"])
    await operator.change(
        "PATCH",
        name,
        {"labels": {"round": str(number)}},
        done=lambda s: s["machines"][name]["labels"].get("round") == str(number),
    )
    await operator.post(
        f"/v1/machines/{name}/moved",
        {"host": "host-b"},
        done=lambda s: s["machines"][name]["host"] == "host-b",
    )

    def evacuated(state: State) -> int:
        return sum(event["ticket"] == ticket for event in state["events"].values())

    on_host = len((await operator.get("/v1/hosts/host-b"))["machines"])
    body = {"mode": "live-migration", "evacuate": True, "ticket": ticket}
    done = await operator.post(
        "/v1/hosts/host-b/maintain", body, done=lambda s: evacuated(s) == on_host
    )
    (event, *_) = (event for event in done["events"] if event["group"] == "sql")
    await operator.post(
        f"/v1/events/{event['id']}/postpone",
        {"by": 600},
        done=lambda s: s["events"][event["id"]]["not_before"] > event["not_before"],
    )
    body = {"host": "host-b", "reason": ticket}
    await operator.do("POST", "/v1/events/cancel", body, done=lambda s: not evacuated(s))


async def roll_out(operator: Operator, number: int) -> None:
    """A rollout in waves over a host with two update domains of a group, held back by a halt and
    a window, paused, resumed and cut short."""
    ticket = f"waves-{number}"
    await operator.do("POST", "/v1/halts", {"note": ticket}, done=lambda s: bool(s["halts"]))
    await operator.do(
        "PUT",
        "/v1/maintenance/nights",
        {"select": "tier=web", "windows": ["daily 01:00-00:30"]},
        done=lambda s: bool(s["maintenance"]),
    )
    body = {"type": "Reboot", "hosts": ["host-*"], "waves": ["1"], "conflicts": "split"}
    plan = await operator.call("POST", "/v1/rollouts/plan", body)
    assert plan.status == 200, plan

    def started(state: State) -> bool:
        found = [r for r in state["rollouts"].values() if r["ticket"] == ticket]
        return [len(r["steps"]) for r in found] == [plan.body["steps_total"]]

    rollout = await operator.post(
        "/v1/rollouts", {**body, "ticket": ticket}, done=started, again=201
    )
    path = f"/v1/rollouts/{rollout['id']}"

    def steps(state: State) -> Counter[str]:
        return Counter(step["state"] for step in state["rollouts"][rollout["id"]].get("steps", []))

    def events(state: State) -> int:
        return sum(event["ticket"] == ticket for event in state["events"].values())

    await operator.pass_time(1800)
    await operator.post(
        f"{path}/pause",
        {"reason": ticket, "withdraw": True},
        done=lambda s: s["rollouts"][rollout["id"]]["state"] == "paused" and not events(s),
    )
    await operator.do(
        "DELETE", "/v1/maintenance/nights", done=lambda s: not s["maintenance"], again=404
    )
    await operator.post(
        f"{path}/resume", done=lambda s: s["rollouts"][rollout["id"]]["state"] == "running"
    )
    await operator.post(
        f"{path}/skip", {"lanes": ["host-c"]}, done=lambda s: steps(s)["skipped"] > 0
    )
    (halt,) = await operator.get("/v1/halts")
    await operator.do(
        "POST", f"/v1/halts/{halt['id']}/release", {}, done=lambda s: not s["halts"], again=404
    )
    await finish(operator, path)


async def empty_host(operator: Operator, number: int) -> None:
    """Empty a host, return it to service, and remove the machine that was put there."""
    ticket = f"work-{number}"
    rollout = await operator.post(
        "/v1/rollouts",
        {"type": "evacuate-work-return", "hosts": ["host-b"], "ticket": ticket},
        done=lambda s: [r["ticket"] for r in s["rollouts"].values()].count(ticket) == 1,
        again=201,
    )
    path = f"/v1/rollouts/{rollout['id']}"
    for _ in range(LIMIT):
        await operator.pass_time(1800)
        host = await operator.get("/v1/hosts/host-b")
        if not host["machines"]:
            break
    assert host["cordoned"], host
    await operator.post(
        "/v1/hosts/host-b/return", done=lambda s: not s["hosts"]["host-b"]["cordoned"]
    )
    await finish(operator, path)
    name = f"extra-{number}"
    await operator.change("DELETE", name, None, done=lambda s: name not in s["machines"])
    for machine in await operator.get("/v1/machines"):
        if machine["host"] != machine["inventory_host"]:  # as it was, for the next round
            home = machine["inventory_host"]
            path = f"/v1/machines/{quote(machine['name'])}/moved"
            assert (await operator.call("POST", path, {"host": home})).status == 200


async def finish(operator: Operator, path: str) -> None:
    for _ in range(LIMIT):
        rollout = await operator.get(path)
        if rollout["ended_at"]:
            break
        await operator.pass_time(1800)
    assert rollout["state"] == "done", rollout


async def killed_while_operating(directory: Path) -> Operator:
    options = ("--clock", "virtual", "--record", str(directory / "record"))
    async with Victim(directory, *options, keep_inventory=True) as victim:
        operator = Operator(victim)
        await operator.begin()
        policy = {"may_postpone": "2h, twice"}
        for group in ("jumpbox", "shop", "sql", "web"):
            answer = await operator.call("PATCH", f"/v1/groups/{group}/policy", policy)
            assert answer.status == 200, answer
        for number in range(ROUNDS):
            await work_on_hosts(operator, number)
            await roll_out(operator, number)
            await empty_host(operator, number)
        assert await victim.end(signal.SIGTERM) == 0
    return operator


def test_operations_are_carried_out_once_whenever_the_service_is_killed(
    tmp_path: Path,
) -> None:
    operator = asyncio.run(killed_while_operating(tmp_path))
    assert operator.fates["answered"] >= 2
    assert operator.fates["done, not answered"] + operator.fates["not done"] >= 2
    lines = (tmp_path / "record").read_text().splitlines()
    judgement = judge([json.loads(line) for line in lines])
    assert not judgement.findings, judgement.render()
