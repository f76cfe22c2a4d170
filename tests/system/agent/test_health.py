"""What an agent says about itself while it runs: its health, its metrics, how its events stand; and
that whoever asks, however, cannot disturb it."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from forewarn.agent.config.address import parse_listen
from forewarn.agent.telemetry import health as wellbeing
from forewarn.agent.telemetry import http
from forewarn.agent.telemetry.health import AgentHealth
from forewarn.agent.telemetry.http import StatusServer
from forewarn.agent.telemetry.metrics import AgentMetrics
from forewarn.agent.telemetry.status import AgentStatus
from forewarn.cli.commands import agent_check
from forewarn.client.events import EndpointStatus
from forewarn.support import guard
from forewarn.testing import Machine, Service
from helpers.running_agent import RunningAgent, configured, running_agent
from helpers.waiting import until

NOON = datetime(2027, 1, 15, 12, tzinfo=UTC)
STANDING = EndpointStatus(
    endpoint="http://127.0.0.1",
    version="2020-07-01",
    long_poll=False,
    problem="",
    since=NOON,
    responses=1,
    failures=0,
)
PICTURE = AgentStatus(now=NOON, machine="web_0", dry_run=False, endpoint=STANDING)

RULE = """
[[rule]]
name = "all"
hooks = ["mine", "bad"]
approve = "never"

[hook.mine]
prepare = ["/bin/sh", "-c", "echo preparing"]
undo = ["/bin/sh", "-c", "echo undoing"]

[hook.bad]
started = ["/bin/sh", "-c", "echo it is no use; exit 3"]
"""


def only_here(monkeypatch: pytest.MonkeyPatch, **replaced: object) -> None:
    """Replace functions of `guard` for the status server alone: the other threads of this process,
    a service among them, keep the real ones."""
    monkeypatch.setattr(http, "guard", SimpleNamespace(**vars(guard) | replaced))


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service() as service:
        yield service


@pytest.fixture(scope="module")
def machine(service: Service) -> Machine:
    return service.scale_set("web", 2)[0]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("agent")


@pytest.fixture(scope="module")
def agent(machine: Machine, directory: Path) -> Iterator[RunningAgent]:
    with running_agent(machine, configured(directory, RULE)) as agent:
        yield agent


def ran(agent: RunningAgent, hook: str, stage: str, outcome: str) -> float:
    labels = f'hook="{hook}",outcome="{outcome}",stage="{stage}"'
    return agent.metrics()[f"forewarn_agent_hook_runs_total{{{labels}}}"]


def test_a_healthy_agent_reports_healthy_and_ready(agent: RunningAgent) -> None:
    assert agent.get("/healthz")[0] == 200
    status, output = agent.get("/readyz")
    assert status == 200
    assert set(json.loads(output)["parts"].values()) == {"ok"}
    found = agent.metrics()
    assert found["forewarn_agent_healthy"] == found["forewarn_agent_ready"] == 1
    assert found["process_resident_memory_bytes"] > 0


def test_status_and_metrics_follow_an_event_to_its_end(
    agent: RunningAgent,
    service: Service,
    machine: Machine,
    directory: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    event = service.schedule("Reboot", machine.name, notice="20m")
    until(lambda: ran(agent, "mine", "prepare", "done") == 1)
    until(lambda: agent.metrics()["forewarn_agent_undo_pending"] == 1)  # may be a moment old
    assert agent.metrics()['forewarn_agent_events{status="Scheduled"}'] == 1
    (case,) = agent.json("/status")["cases"]
    assert (case["event"]["id"], case["rule"], case["state"]) == (event.id, "all", "scheduled")
    agent_check.status(directory / "agent.toml", json=False)
    shown = capsys.readouterr().out
    assert "machine   web_0" in shown
    assert "prepare mine done" in shown

    service.approve(machine.name, event)
    until(lambda: ran(agent, "bad", "started", "failed") == 1)
    service.clock.advance("30m")
    until(lambda: agent.metrics()["forewarn_agent_cases"] == 0)
    (case,) = agent.json("/status")["cases"]
    assert (case["state"], case["over"]) == ("finished, everything undone", "finished")
    found = agent.metrics()
    assert found['forewarn_agent_events_seen_total{source="Platform",type="Reboot"}'] == 1
    assert found["forewarn_agent_undo_pending"] == found["forewarn_agent_undo_given_up"] == 0

    failed = [one for one in agent.reported() if one.get("hook") == "bad" and "code" in one]
    assert [(one["level"], one["code"]) for one in failed] == [("warning", 3)]
    assert "no use" in failed[0]["output"]


def test_a_state_directory_that_cannot_be_written_is_noticed(tmp_path: Path) -> None:
    """Not ready, but healthy: another start would mend nothing."""
    (tmp_path / "taken").write_text("a file is no directory")
    wellness = AgentHealth(lambda: STANDING, tmp_path / "taken")
    assert wellness.readiness_problems(PICTURE)["state"].endswith(": Not a directory")
    assert wellness.first_problem() == ""


def test_an_agent_that_is_blocked_or_stops_polling_is_not_healthy() -> None:
    now, stands, looking = [0.0], [STANDING], [False]
    wellness = AgentHealth(lambda: stands[0], None, lambda: looking[0], lambda: now[0])

    def after(seconds: float, *, beat: bool = True) -> str:
        now[0] += seconds
        if beat:
            wellness.beat()
        return wellness.first_problem()

    assert after(3_600) == ""  # it may take long to learn who one is
    looking[0] = True
    assert after(wellbeing.POLL_PATIENCE) == ""
    assert re.match(r"polls: .* 181 s", after(1))
    stands[0] = msgspec.structs.replace(STANDING, failures=1)
    assert after(1) == ""  # an endpoint that is in trouble is asked all the same
    assert after(wellbeing.LOOP_PATIENCE, beat=False) == ""
    assert re.match(r"loop: .* 31 s", after(1, beat=False))


def test_an_agent_without_valid_answers_is_not_ready() -> None:
    wellness = AgentHealth(lambda: STANDING, None)
    ill = msgspec.structs.replace(STANDING, problem="no answer in time")
    for seconds, problem in ((30, ""), (31, ".* 31 s: no answer in time")):
        seen = msgspec.structs.replace(PICTURE, endpoint=ill, now=NOON + timedelta(seconds=seconds))
        assert re.fullmatch(problem, wellness.readiness_problems(seen)["endpoint"])
    nowhere = msgspec.structs.replace(ill, endpoint=None)
    unknown = msgspec.structs.replace(PICTURE, endpoint=nowhere, machine="")
    found = wellness.readiness_problems(unknown)
    assert (bool(found["endpoint"]), bool(found["identity"])) == (True, True)


# Whoever asks

Ask = Callable[[bytes], Coroutine[Any, Any, bytes]]


@asynccontextmanager
async def faced(see: Callable[[], AgentStatus] = lambda: PICTURE) -> AsyncIterator[Ask]:
    face = StatusServer(see, AgentHealth(lambda: STANDING, None), AgentMetrics())
    await face.listen(parse_listen("127.0.0.1:0"))

    async def ask(output: bytes) -> bytes:
        where = face.address
        reader, writer = await asyncio.open_connection(where.host, where.port)
        try:
            writer.write(output)
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    try:
        yield ask
    finally:
        await face.close()


def get(path: str = "/healthz", method: str = "GET", *more: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *more, "", ""]).encode()


@pytest.mark.parametrize(
    ("output", "status"),
    [
        (get(), b"200 OK"),
        (get("/status?pretty"), b"200 OK"),
        (get("/metrics", "HEAD"), b"200 OK"),
        (get("/"), b"404 Not Found"),
        (get("/healthz", "POST"), b"405 Method Not Allowed"),
        (get("/healthz", "GET", "X-Long: " + "x" * 2 * http.MAX_HEAD), b"431 "),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400 Bad Request"),
    ],
    ids=["all right", "with a query", "HEAD", "elsewhere", "POST", "too long", "TLS", "no host"],
)
def test_a_wrong_request_is_answered_with_what_is_expected(output: bytes, status: bytes) -> None:
    async def asked() -> bytes:
        async with faced() as ask:
            return await ask(output)

    answer = asyncio.run(asked())
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"Connection: close" in answer or b"connection: close" in answer


def test_a_socket_at_which_another_agent_answers_is_not_taken_from_it(tmp_path: Path) -> None:
    """Two are there when somebody tries a configuration beside the agent that works."""
    where = parse_listen(str(tmp_path / "socket"))

    async def listening() -> None:
        face = StatusServer(lambda: PICTURE, AgentHealth(lambda: STANDING, None), AgentMetrics())
        with socket.socket(socket.AF_UNIX) as another:
            another.bind(where.path)
            another.listen()
            with pytest.raises(OSError, match="another agent"):
                await face.listen(where)
        await face.listen(where)  # what is left of one that has ended is in nobody's way
        await face.close()

    asyncio.run(listening())


def test_an_internal_error_is_answered_500_and_the_next_request_succeeds() -> None:
    pictures: list[Any] = [None, PICTURE]

    async def asked() -> list[bytes]:
        async with faced(lambda: pictures.pop(0)) as ask:
            return [await ask(get("/status")), await ask(get("/status"))]

    first, second = asyncio.run(asked())
    assert first.startswith(b"HTTP/1.1 500 ")
    assert second.startswith(b"HTTP/1.1 200 ")


def test_a_status_that_is_slow_to_build_is_cached_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, seen = [100.0], 0

    def see() -> AgentStatus:
        nonlocal seen
        seen += 1
        now[0] += 0.1
        return PICTURE

    async def asked() -> list[int]:
        counts = []
        async with faced(see) as ask:
            for seconds in (0.0, 0.5, 1.0, 0.5):  # with what it took, two seconds
                now[0] += seconds
                await ask(get("/status"))
                counts.append(seen)
        return counts

    only_here(monkeypatch, monotonic=lambda: now[0])
    assert asyncio.run(asked()) == [1, 1, 1, 2]


def test_silent_connections_are_limited_and_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def asked() -> tuple[bytes, list[bytes], bytes]:
        async with faced() as ask, asyncio.TaskGroup() as tasks:
            silent = [tasks.create_task(ask(b"GET /hea")) for _ in range(http.MAX_CONNECTIONS)]
            while len(asyncio.all_tasks()) < 2 * http.MAX_CONNECTIONS + 1:
                await asyncio.wait(silent, timeout=0.01)
            crowded = await ask(get())
            left = [await one for one in silent]
            return crowded, left, await ask(get())

    monkeypatch.setattr(http, "REQUEST_WITHIN", 0.2)
    crowded, left, after = asyncio.run(asked())
    assert crowded == b""
    assert set(left) == {b""}
    assert after.startswith(b"HTTP/1.1 200 ")


def test_an_answer_may_take_longer_than_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def long_after(_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        later = loop.time() + http.REQUEST_WITHIN + 1
        monkeypatch.setattr(loop, "time", lambda: later)
        for _ in range(3):  # in which the loop looks at its timers
            await asyncio.sleep(0)  # noqa: TID251 - in which no time passes

    async def asked() -> list[bytes]:
        async with faced() as ask:
            return [await ask(get()), await ask(get())]

    only_here(monkeypatch, pause=long_after, monotonic=lambda: 100.0)
    first, second = asyncio.run(asked())
    assert first.startswith(b"HTTP/1.1 200 ")
    assert second.startswith(b"HTTP/1.1 200 ")


def test_status_requests_are_limited_so_that_they_leave_time_for_the_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paused: list[float] = []

    async def pause(seconds: float) -> None:
        paused.append(seconds)

    async def asked() -> None:
        async with faced() as ask:
            await asyncio.gather(*(ask(get()) for _ in range(5)))

    only_here(monkeypatch, pause=pause, monotonic=lambda: 100.0)
    asyncio.run(asked())
    assert [round(one * http.RESPONSES_PER_SECOND) for one in paused] == [1, 2, 3, 4]
