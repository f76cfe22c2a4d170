"""/healthz and /readyz mean it: each part is really broken here, and says so, and is well again."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from forewarn.control.client.client import ControlClient, ControlError
from forewarn.core.access import Role
from forewarn.drivers.command.driver import CommandDriver
from forewarn.drivers.command.options import Program
from forewarn.service.access.tokens import NewToken
from forewarn.service.engine.clock import VirtualClock
from forewarn.service.telemetry import health
from forewarn.store.port import StoreFailed
from forewarn.store.sqlite.engine import SqliteStore
from forewarn.support import guard
from forewarn.testing import SAMPLE, Service
from helpers.times import START
from helpers.waiting import LIMIT, until


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with Service(SAMPLE, sockets=True, state=tmp_path / "state.db") as service:
        yield service


def asked(url: str, which: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"{url}/{which}", timeout=LIMIT) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def wrong(service: Service, which: str) -> dict[str, str]:
    """The parts that fail; the status fits them."""
    status, output = asked(service.control_url, which)
    failing = {part: says for part, says in output["parts"].items() if says != "ok"}
    assert (status, output["status"]) == ((503, "failing") if failing else (200, "ok"))
    return failing


def test_a_new_service_is_healthy_and_ready(service: Service) -> None:
    assert wrong(service, "healthz") == wrong(service, "readyz") == {}
    assert asked(service.control_url, "healthz")[1]["parts"].keys() == {
        "loop",
        "scheduler",
        "store",
    }
    assert asked(service.control_url, "readyz")[1]["parts"].keys() == {
        "service",
        "loop",
        "scheduler",
        "store",
        "state",
        "guests",
        "driver",
        "clock",
    }


def test_health_checks_need_no_token_and_reveal_no_paths(service: Service, tmp_path: Path) -> None:
    service._session.run(
        service._session.node.tokens.create(NewToken(name="root", role=Role.ADMIN), "test")
    )
    full(service)
    with pytest.raises(ControlError, match="needs a token"):
        ControlClient(service.control_url).status()
    status, output = asked(service.control_url, "readyz")
    assert status == 503
    assert str(tmp_path) not in json.dumps(output)


def full(service: Service) -> None:
    """SQLite itself says that there is no room, at the next commit that needs some."""
    store = service._session.node.store
    assert isinstance(store, SqliteStore)
    pages = limited(service, 1)
    limited(service, pages)
    with pytest.raises(StoreFailed, match="full"):
        write_on(service)


def write_on(service: Service) -> None:
    for n in range(2_000):
        service.schedule("Reboot", "web_0", description=f"{n}" * 200)


def limited(service: Service, pages: int) -> int:
    store = service._session.node.store
    assert isinstance(store, SqliteStore)

    def limit() -> int:
        assert store._engine is not None
        with store._engine.connect() as connection:
            connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
            return int(connection.scalar(sa.text("PRAGMA page_count")) or 0)

    return service._session.run(store._in_thread(limit))


def test_a_full_disk_makes_it_unready_but_not_unhealthy_until_there_is_room(
    service: Service,
) -> None:
    full(service)
    unready = wrong(service, "readyz")
    assert unready.keys() == {"state"}
    assert "last write" in unready["state"]
    assert wrong(service, "healthz") == {}
    assert service.get("web_0").status in (200, 500)  # it is asked for the first time
    limited(service, 1_000_000)
    service._session.run(
        service._session.node.poll_index.save(service._session.node.writer.now())
    )  # as it does every 5 s
    assert wrong(service, "readyz") == {}


def test_the_failure_and_recovery_of_a_part_are_logged(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[tuple[str, str]] = []

    class Log:
        def error(self, _: str, **fields: str) -> None:
            reported.append(("error", fields["part"]))

        def info(self, _: str, **fields: str) -> None:
            reported.append(("info", fields["part"]))

    monkeypatch.setattr(health, "log", Log())
    full(service)
    until(lambda: len(reported) == 1)
    limited(service, 1_000_000)
    service._session.run(service._session.node.poll_index.save(service._session.node.writer.now()))
    until(lambda: len(reported) == 2)
    assert reported == [("error", "state"), ("info", "state")]


def test_another_reason_of_a_failure_is_logged_but_not_its_duration(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []

    class Log:
        def error(self, _says: str, **fields: str) -> None:
            reported.append(fields["why"])

    monkeypatch.setattr(health, "log", Log())
    well = service._session.node.health
    reasons = ["the metadata endpoint does not listen yet", "another reason"]
    for why in reasons:
        monkeypatch.setattr(well, "_guests", lambda why=why: why)
        well._log_changes()
    for seconds in (31, 32, 33):
        asked = guard.monotonic() - seconds
        monkeypatch.setattr(well, "_store_asked_at", asked)
        well._log_changes()
    assert reported[:-1] == reasons
    assert reported[-1].endswith(" 31 s")
    monkeypatch.undo()


def test_a_scheduler_that_died_is_noticed(service: Service) -> None:
    async def kill() -> None:
        (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "scheduler"]
        task.cancel()
        await asyncio.wait([task])

    service._session.run(kill())
    for problems in (wrong(service, "healthz"), wrong(service, "readyz")):
        assert problems.keys() == {"scheduler"}
        assert "not running" in problems["scheduler"]


def test_a_store_that_does_not_answer_and_what_it_keeps_waiting_are_noticed(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread is stuck, as on a disk that hangs."""
    monkeypatch.setattr(health, "STORE_PATIENCE", 0.2)
    monkeypatch.setattr(health, "OVERDUE_PATIENCE", 0.2)
    service.schedule("Reboot", "web_0")
    store, clock = service._session.node.store, service._session.node.clock
    assert isinstance(store, SqliteStore)
    assert isinstance(clock, VirtualClock)
    stuck = threading.Event()
    try:
        store._thread.submit(stuck.wait)
        service._session._loop.call_soon_threadsafe(clock.set, START + 15 * 60 * 1_000_000)
        until(lambda: wrong(service, "healthz").keys() == {"store", "scheduler"})
        assert "overdue" in wrong(service, "healthz")["scheduler"]
        with monkeypatch.context() as patch:
            patch.setattr(store, "busy", lambda: True)  # with a large batch, as of a fleet
            assert not wrong(service, "healthz")
    finally:
        stuck.set()
    until(lambda: wrong(service, "healthz") == {})


def test_a_blocked_event_loop_is_noticed(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LOOP_PATIENCE", -1.0)
    assert wrong(service, "healthz").keys() == {"loop"}


def test_a_program_that_is_gone_makes_it_unready(tmp_path: Path) -> None:
    program = tmp_path / "carry-out"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    driver = CommandDriver(Program(words=(str(program),)))
    with Service(SAMPLE, sockets=True, driver=driver) as service:
        assert wrong(service, "readyz") == {}
        program.rename(tmp_path / "away")
        assert wrong(service, "readyz").keys() == {"driver"}
        assert wrong(service, "healthz") == {}
        (tmp_path / "away").rename(program)
        assert wrong(service, "readyz") == {}


def test_a_stopping_service_is_not_ready(service: Service) -> None:
    service._session._loop.call_soon_threadsafe(service._session.node._begin_stop)
    until(lambda: wrong(service, "readyz").keys() == {"service"})
    assert wrong(service, "healthz") == {}
