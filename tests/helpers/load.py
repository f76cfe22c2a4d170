"""Guests and an operator who go on asking whatever happens to the service, and write down what
they saw: the only evidence that a killed service cannot tamper with."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time  # noqa: TID251 - evidence is stamped with real time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from forewarn.core import Event
from forewarn.core.time import SECOND
from forewarn.judge import Finding

MACHINES = {
    "web": ["web_0", "web_1", "web_2", "web_3"],
    "sql": ["sql-0", "sql-1", "sql-2"],
    "shop": ["FrontEnd_IN_0", "FrontEnd_IN_1", "Worker_IN_0"],
    "jumpbox": ["jumpbox"],
}
HOSTS = ["host-a", "host-b", "host-c"]
EVICTED = ("web_2", "web_3")  # come and go, so nobody asks as these; the others see it happen
VERSIONS = ["2017-03-01", "2017-11-01", "2019-08-01", "2020-07-01", "2020-07-01"]
PATIENCE = 5.0  # seconds; a service that was killed answers sooner, by hanging up
SPEED = 400  # 15 minutes of notice pass in 2 s, ten minutes of being Started in 1.5 s
OUTAGES = 6  # in a row, through which a guest may get no answer in between


class LoadGenerator:
    """Where guests are known by their source address (`by_source`), each asks from its own."""

    def __init__(
        self, seed: int, metadata_port: int, control_port: int, *, by_source: bool = False
    ) -> None:
        self._by_source = by_source
        self.refused = 0  # connections of guests that nobody wanted
        self.chance = random.Random(seed)
        self.trace: list[dict[str, Any]] = []
        self.known: dict[str, list[str]] = {group: [] for group in MACHINES}
        self._metadata, self._control = metadata_port, control_port
        self._addresses: dict[str, str] = {}
        self._killed_at: float | None = None  # since when guests have had no answer
        self._up_at: float | None = None
        self.longest_outage = 0.0  # seconds, from a kill to the first answer after it
        self.answered: Counter[tuple[str, int | None]] = Counter()  # by method and status
        self.stop = asyncio.Event()

    def note(self, kind: str, **fields: Any) -> None:
        self.trace.append({"kind": kind, "t": time.time(), **fields})
        if kind == "up":
            self._up_at = time.time()

    def killing(self) -> None:
        """Note that the service, or the one that decides, is about to be killed or stopped."""
        self._killed_at, self._up_at = self._killed_at or time.time(), None

    def _measure_outage(self, asked: float) -> None:
        if self._killed_at is not None and self._up_at is not None and asked >= self._up_at:
            self.longest_outage = max(self.longest_outage, time.time() - self._killed_at)
            self._killed_at = None

    def held_up(self, finding: Finding, raised: Mapping[str, Event], seconds: float) -> bool:
        """Return whether an event was raised with its full notice, and shown late because of what
        was done to the processes: by `seconds`, or by what a few outages took on this machine.
        While a process is dead or stands still, guests get no document, or the one before."""
        if finding.rule != "short-notice" or finding.event is None or finding.t is None:
            return False
        event = raised[finding.event]
        full_notice = event.not_before - event.raised_at >= event.traits.notice / SPEED
        late = finding.t - event.raised_at / SECOND
        return full_notice and late <= max(seconds, OUTAGES * self.longest_outage)

    def know(self, machines: list[dict[str, Any]]) -> None:
        """Take the fleet as the service tells it."""
        self._addresses = {m["name"]: m["addresses"][0] for m in machines}
        self.note(
            "fleet",
            groups={m["group"]: {"kind": m["kind"]} for m in machines},
            machines={m["name"]: m for m in machines if not m["gone"]},
            speed=SPEED,
        )

    async def go_on(self) -> None:
        """Everybody at once, until told to stop."""
        asking = [(g, m) for g, machines in MACHINES.items() for m in machines]
        guests = [self._guest(g, m) for g, m in asking if m not in EVICTED]
        await asyncio.gather(*guests, self._operator())

    async def _pause(self, seconds: float) -> None:
        """Between two requests of somebody, or until all are told to stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stop.wait()

    async def _guest(self, group: str, machine: str) -> None:
        while not self.stop.is_set():
            await self._pause(self.chance.uniform(0.02, 0.12))
            if self.known[group] and self.chance.random() < 0.25:
                ids = self.chance.sample(self.known[group], 1)
                body = json.dumps({"StartRequests": [{"EventId": id} for id in ids]})
                await self.ask(machine, "POST", "2020-07-01", body)
            else:
                version = self.chance.choice(VERSIONS)
                status, answer = await self.ask(machine, "GET", version)
                if status == 200:
                    ids = [event["EventId"] for event in json.loads(answer)["Events"]]
                    self.known[group] = [*self.known[group], *ids][-8:]

    async def _operator(self) -> None:
        names = [name for machines in MACHINES.values() for name in machines]
        while not self.stop.is_set():
            await self._pause(self.chance.uniform(0.02, 0.1))
            machine = self.chance.choice(names)
            match self.chance.randint(0, 13):
                case 0:
                    await self.control("POST", f"/v1/machines/{machine}/restart")
                case 1:
                    await self.control("POST", f"/v1/machines/{machine}/redeploy")
                case 2:
                    await self._cancel()
                case 3:
                    await self.control("POST", f"/v1/machines/{machine}/restore")
                case 4 | 5:
                    output = {"mode": self.chance.choice(["Freeze", "Reboot", "live-migration"])}
                    host = self.chance.choice(HOSTS)
                    await self.control("POST", f"/v1/hosts/{host}/maintain", output)
                case 6:
                    await self.control("POST", f"/v1/machines/{machine}/fail", {})
                case 7 if machine in EVICTED:
                    verb = self.chance.choice(["evict", "delete"])
                    await self.control("POST", f"/v1/machines/{machine}/{verb}")
                case _:
                    kind = self.chance.choice(["Freeze", "Reboot", "Redeploy", "Preempt"])
                    kind = kind if kind != "Preempt" or machine in EVICTED else "Freeze"
                    event = {"type": kind, "machines": [machine]}
                    await self.control("POST", "/v1/events", event)

    async def _cancel(self) -> None:
        status, answer = await self.control("GET", "/v1/events")
        scheduled = (
            [e["id"] for e in json.loads(answer) if e["status"] == "Scheduled"]
            if status == 200
            else []
        )
        if scheduled:
            await self.control("POST", f"/v1/events/{self.chance.choice(scheduled)}/cancel")

    async def control(
        self, method: str, path: str, output: object = None
    ) -> tuple[int | None, str]:
        status, _, answer = await self.control_with(method, path, output, {})
        return status, answer

    async def control_with(
        self, method: str, path: str, output: object, headers: Mapping[str, str]
    ) -> tuple[int | None, dict[str, str], str]:
        """Call the control API with these headers; return those of the response as well."""
        body = "" if output is None else json.dumps(output)
        extra = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        status, received, answer = await self._exchange(
            "127.0.0.1", self._control, method, path, body, extra=extra
        )
        return status, {name.lower(): value for name, value in received}, answer

    async def ask(
        self, machine: str, method: str, version: str, body: str = ""
    ) -> tuple[int | None, str]:
        target = f"/metadata/scheduledevents?api-version={version}"
        asked = time.time()
        address = self._addresses[machine]
        asking = ("127.0.0.1", address) if self._by_source else (address, None)
        status, headers, answer = await self._exchange(
            asking[0], self._metadata, method, target, body, source=asking[1]
        )
        self.answered[method, status] += 1
        if status == 200:
            self._measure_outage(asked)
        self.note(
            "exchange",
            asked=asked,
            machine=machine,
            method=method,
            target=target,
            headers=[["Metadata", "true"]],
            body=body,
            status=status,
            answer_headers=headers,
            answer=answer,
        )
        return status, answer

    async def _exchange(
        self,
        host: str,
        port: int,
        method: str,
        target: str,
        body: str,
        *,
        source: str | None = None,
        extra: str = "",
    ) -> tuple[int | None, list[list[str]], str]:
        """One request on a connection of its own; no status if no whole answer came."""
        local = (source, 0) if source else None
        to_guests = target.startswith("/metadata/")
        kind = "" if to_guests or not body else "Content-Type: application/json\r\n"
        try:
            async with asyncio.timeout(PATIENCE):
                reader, writer = await asyncio.open_connection(host, port, local_addr=local)
                try:
                    writer.write(
                        f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nMetadata: true\r\n"
                        f"{kind}{extra}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                        f"{body}".encode()
                    )
                    data = await reader.read()
                finally:
                    writer.close()
        except ConnectionRefusedError:
            self.refused += to_guests
            return None, [], ""
        except (OSError, TimeoutError):
            return None, [], ""
        head, _, answer = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = [list(line.split(": ", 1)) for line in lines]
        length = next((int(v) for n, v in headers if n.lower() == "content-length"), -1)
        if len(answer) != length:
            return None, [], ""
        return int(first.split()[1]), headers, answer.decode()
