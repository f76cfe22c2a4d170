"""A wall clock that was wrong for a while, as `forewarn serve` and an operator meet it. How clocks
that jump are judged is in tests/unit/service/engine/test_clock.py; whole lives with such clocks are
in tests/simulation/test_clock_jumps.py."""

from __future__ import annotations

import asyncio
import json
import urllib.error
from datetime import datetime
from pathlib import Path
from typing import Any

from forewarn.core import EventType, Refused, Source
from forewarn.core.history import Record, RecordKind
from forewarn.core.time import DAY
from forewarn.node import Config, Node
from forewarn.service.engine.clock import ClockLimits, RealClock
from forewarn.service.fleet.read import parse
from forewarn.store.port import HistoryQuery
from forewarn.store.sqlite import check
from forewarn.store.sqlite.verify import verify
from forewarn.support import guard
from forewarn.testing.kit.inprocess import exchange
from helpers.forked_cli import run
from helpers.serve_process import (
    FLEET,
    FOREWARN,
    ServeProcess,
    environment,
    running_service,
    write_settings,
)
from helpers.waiting import until

FOUR_YEARS = 4 * 365 * DAY
EVENTS = "/metadata/scheduledevents?api-version=2020-07-01"
REBOOT = {"type": "Reboot", "machines": ["web-0"]}


def ahead() -> int:
    return guard.wall_us() + FOUR_YEARS


async def lived(state: Path, clock: RealClock) -> tuple[bool, str, list[Record]]:
    """One life of a service: it is polled, announces an event if it can, and ends. Did it trust its
    clock, which document was shown last, and what is in its history?"""
    async with Node(Config(fleet=parse(FLEET), state=state), clock=clock) as node:
        headers = {"Metadata": "true"}
        await exchange(node.app, "127.0.0.1", "GET", EVENTS, headers, b"")
        await node.platform.schedule(
            type=EventType.REBOOT, machines=("web-0",), by="operator", source=Source.PLATFORM
        )
        answer = await exchange(node.app, "127.0.0.1", "GET", EVENTS, headers, b"")
        cancelled = await node.platform.schedule(
            type=EventType.REBOOT, machines=("web-1",), by="operator", source=Source.PLATFORM
        )
        if not isinstance(cancelled, Refused):
            await node.platform.cancel(cancelled.event.id, "operator")
        for event in await node.store.past_events():
            assert event.ended_at is not None
            assert event.ended_at <= node.writer.now().at
        records = await node.store.history(HistoryQuery())
        return node.writer.now().untrusted is None, answer.body.decode(), list(records)


def readiness(service: ServeProcess) -> dict[str, str]:
    """The parts that are not well."""
    try:
        output = service.get("/readyz")
    except urllib.error.HTTPError as error:
        with error:
            output = json.load(error)
    return {part: why for part, why in output["parts"].items() if why != "ok"}


def history(service: ServeProcess) -> list[str]:
    return [record["what"] for record in service.get("/v1/history")["records"]]


def refusal(service: ServeProcess, path: str, body: Any = None) -> tuple[int, str]:
    try:
        return 200, str(service.post(path, body))
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_clock_that_was_ahead_for_a_moment_is_noticed_and_can_be_made_good(
    tmp_path: Path,
) -> None:
    settings = write_settings(tmp_path)
    _, document, _ = asyncio.run(lived(tmp_path / "state" / "forewarn.db", RealClock(ahead)))
    shown = json.loads(document)["Events"][0]
    event, promised = shown["EventId"], shown["NotBefore"]
    with running_service(tmp_path, settings) as service:
        why = readiness(service)
        assert list(why) == ["clock"]
        assert "an admin accepts" in why["clock"]
        until(lambda: '"part"' in service.log)
        assert [event["NotBefore"] for event in service.poll()["Events"]] == [promised]
        explained = service.get(f"/v1/events/{event}/explain")
        assert "clock" in [hold["kind"] for hold in explained["holds"]]
        assert not any(hold.get("until") for hold in explained["holds"])
        status, says = refusal(service, "/v1/events", REBOOT | {"machines": ["web-1"]})
        assert (status, "an admin accepts" in says) == (409, True)
        printed = run(
            [*FOREWARN, "clock", "show", "--url", service.control],
            env=environment(tmp_path),
            capture_output=True,
        )
        assert "not trusted" in printed.stdout

        accepted = run(
            [*FOREWARN, "clock", "accept", "--url", service.control],
            env=environment(tmp_path),
            capture_output=True,
        )
        assert accepted.returncode == 0, accepted.stderr
        assert event in accepted.stderr  # it keeps the NotBefore that guests were shown
        assert readiness(service) == {}
        assert service.get("/v1/history")["records"][1]["by"] == "operator"
        assert history(service)[:2] == ["retimed", "clock-accepted"]
        assert [event["NotBefore"] for event in service.poll()["Events"]] == [promised]
        service.post(f"/v1/events/{event}/cancel")
        again = service.post("/v1/events", REBOOT)
        assert abs(guard.wall_us() / 1e6 - _seconds(again["raised_at"])) < 3_600
        service.post(f"/v1/events/{again['id']}/approve")
        assert [event["EventStatus"] for event in service.poll()["Events"]] == ["Started"]
        assert refusal(service, "/v1/clock/accept")[0] == 409


def test_the_clock_can_be_accepted_while_no_service_runs(tmp_path: Path) -> None:
    """Also if that is long after everything in it, so that its order can be seen to stay."""
    state = tmp_path / "state.db"

    trusted, _, before = asyncio.run(lived(state, RealClock(ahead, limits=ClockLimits())))
    assert trusted
    assert not asyncio.run(lived(state, RealClock(limits=ClockLimits())))[0]
    accept = [*FOREWARN, "clock", "accept", "--state", str(state)]
    done = run(accept, env=environment(tmp_path), capture_output=True)
    assert done.returncode == 0, done.stderr
    trusted, _, after = asyncio.run(lived(state, RealClock(limits=ClockLimits())))
    assert trusted
    kinds_before, kinds = (
        # Sightings are written apart from the commits.
        [record.what for record in records if record.what is not RecordKind.SEEN]
        for records in (before, after)
    )
    assert kinds[: len(kinds_before)] == kinds_before
    assert RecordKind.CLOCK_ACCEPTED in kinds[len(kinds_before) :]
    assert all(record.at <= guard.wall_us() for record in after)
    with check.reading(state) as connection:
        verify(connection, state)  # the commits still lead to what stands beside them


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
