"""What drivers have done to machines: how long these stood still, and what a recording says."""

from __future__ import annotations

import json
import math
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from forewarn.core import Event, EventType, Refused
from forewarn.core.time import SECOND
from forewarn.drivers.port import Again, Done, Failed, Happened, NotYet, Performed, Running, Task
from forewarn.judge import judge_files
from forewarn.service.engine.impacts import measured
from forewarn.store import MemoryStore
from forewarn.store.memory import Disk
from forewarn.store.port import HistoryQuery
from forewarn.store.sqlite.state_file import SqliteFile
from forewarn.testing import SAMPLE, Service
from unit.service.engine.test_executor import LOST, Scripted, started, status

START = 1_800_000_000  # seconds, when the clock of a service begins
TWO_GROUPS = """
hosts: [h1]
groups:
  - {name: web, kind: standalone, machines: [{name: web, host: h1}]}
  - {name: sql, kind: standalone, machines: [{name: sql, host: h1}]}
"""


@pytest.mark.parametrize(
    "value",
    [-0.001, math.nan, math.inf, 86_400.1, 10**400, True, "1", None, [], {}],
)
def test_what_is_no_time_that_a_machine_can_stand_still_is_left_out(value: object) -> None:
    good, bad = measured({"web_0": value, "web_1": 1}, ["web_0", "web_1"])
    assert good == {"web_1": 1.0}
    assert len(bad) == 1
    assert bad[0].startswith("web_0: ")


@pytest.mark.parametrize("away", [None, 3, "web_0", [("web_0", 1)], {"web_9": 1.0}, {7: 1.0}])
def test_machines_of_the_event_without_a_detail_are_left_out(away: object) -> None:
    good, bad = measured(away, ["web_0"])
    assert good == {}
    assert len(bad) == 1


def event(service: Service, id: str) -> Event:
    found = service._session.run(service._session.node.platform.event(id))
    assert isinstance(found, Event)
    return found


def answers(service: Service, id: str) -> list[Any]:
    store = service._session.node.store
    page = service._session.run(store.history(HistoryQuery(event=id, limit=50)))
    return [json.loads(item.answer) for item in page if item.answer]


def test_how_long_a_machine_stood_still_is_kept_with_its_event_and_in_the_history() -> None:
    driver = Scripted(Done(away={"web_0": 0.0430004, "web_1": 3.0}, answer='{"host": "h7"}'))
    with Service(SAMPLE, driver=driver) as service:
        id = started(service)
        assert event(service, id).away == {"web_0": 0.043}
        assert answers(service, id) == [{"away": {"web_0": 0.043}, "host": "h7"}]


def test_what_was_seen_to_have_been_done_can_have_been_measured_too() -> None:
    driver = Scripted(LOST, observes=Happened(away={"web_0": 2}))
    with Service(SAMPLE, driver=driver) as service:
        assert event(service, started(service)).away == {"web_0": 2.0}


def test_a_measurement_that_cannot_be_used_keeps_no_event_from_ending() -> None:
    driver = Scripted(Done(away=math.nan, answer="no JSON"))  # type: ignore[arg-type]
    with Service(SAMPLE, driver=driver) as service:
        id = started(service)
        assert event(service, id).away == {}
        assert status(service, id).over


def test_each_event_of_a_host_keeps_what_was_measured_of_its_own_machines() -> None:
    driver = Scripted(Done(away={"web": 1.5, "sql": 2.5}))
    with Service(TWO_GROUPS, driver=driver) as service:
        mode = EventType.REBOOT
        done = service._session.run(service._session.node.hosts.maintain("h1", mode, "ann"))
        assert not isinstance(done, Refused)
        service.clock.advance("20m")
        away = {item.group: event(service, item.id).away for item in done.events}
        assert away == {"web": {"web": 1.5}, "sql": {"sql": 2.5}}


class Recording:
    """A service that records what it does, on a disk that outlives it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "record"
        self._disk = Disk()

    def service(self, driver: Scripted, fleet: str = SAMPLE) -> Service:
        return Service(fleet, driver=driver, record=self.path, store=MemoryStore(self._disk))

    def impacts(self) -> list[tuple[float, list[str], float]]:
        """Return the impacts that it has recorded: when, of which machines, for how long."""
        judged = judge_files([self.path])
        assert judged.ok, judged.render()
        lines = map(json.loads, self.path.read_text().splitlines())
        return [
            (line["t"] - START, line["machines"], line["seconds"])
            for line in lines
            if line["kind"] == "impact"
        ]


def test_what_any_driver_does_is_recorded_with_how_long_it_took(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    with recording.service(Scripted(Done(away={"web_0": 0.043}))) as service:
        started(service)
    assert recording.impacts() == [(0, ["web_0"], 0.043)]


@pytest.mark.parametrize(
    ("performs", "at"),
    [
        ([Running(2 * SECOND), Running(2 * SECOND), Done()], 0),
        ([Again((START + 60) * SECOND), Again((START + 120) * SECOND), Done()], 0),
        ([Failed("no"), Failed("no"), Done()], 15),
        ([Again((START + 60) * SECOND), Failed("no"), Again(0), Done()], 0),
    ],
)
def test_an_event_is_recorded_once_and_when_it_was_begun(
    performs: list[Performed], at: float, tmp_path: Path
) -> None:
    recording = Recording(tmp_path)
    with recording.service(Scripted(*performs)) as service:
        id = started(service)
        service.clock.advance("5m")
        assert status(service, id).over
    assert recording.impacts() == [(at, ["web_0"], -1)]


@pytest.mark.parametrize("first", [Again((START + 60) * SECOND), Running(60 * SECOND)])
def test_an_event_that_goes_on_after_a_restart_is_recorded_once(
    first: Performed, tmp_path: Path
) -> None:
    recording = Recording(tmp_path)
    with recording.service(Scripted(first)) as service:
        id = started(service)
    with recording.service(Scripted(observes=Happened())) as service:
        service.clock.advance("2m")
        assert status(service, id).over
    assert len(recording.impacts()) == 1


def test_an_event_that_was_over_before_a_restore_is_recorded_once(tmp_path: Path) -> None:
    state, copied = tmp_path / "state.db", tmp_path / "copied.db"
    recording = Recording(tmp_path)

    def service(driver: Scripted) -> Service:
        return Service(SAMPLE, driver=driver, record=recording.path, state=state)

    with service(Scripted(Running(60 * SECOND), Done())) as before:
        id = started(before)
        with sqlite3.connect(state) as source, sqlite3.connect(copied) as target:
            source.backup(target)
        before.clock.advance("2m")
        assert status(before, id).over
    for file in tmp_path.glob("state.db*"):
        file.unlink()
    copied.rename(state)
    SqliteFile(state).mark_restored()
    with service(Scripted(observes=Happened())) as after:
        after.clock.advance("10m")
        assert status(after, id).over
    lines = map(json.loads, recording.path.read_text().splitlines())
    assert [line["event"] for line in lines if line["kind"] == "impact"] == [id]


def test_what_was_not_done_before_a_restart_is_not_recorded(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    with recording.service(Scripted(LOST, observes=LOST)) as service:
        id = started(service)
    with recording.service(Scripted(Done(), observes=NotYet())) as service:
        service.clock.advance("4s")
        assert status(service, id).over
    ((at, machines, _),) = recording.impacts()
    assert machines == ["web_0"]
    assert at > 0


def test_the_impact_on_a_host_is_recorded_for_each_event(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    driver = Scripted(Done(away={"sql": 2.5}))
    with recording.service(driver, TWO_GROUPS) as service:
        service.host("h1").maintain("Reboot", duration=9)
        service.clock.advance("20m")
    assert sorted(recording.impacts(), key=str) == [(900, ["sql"], 2.5), (900, ["web"], 9)]


class OneAtATime(Scripted):
    """Moves the first machine of a task, and then fails."""

    async def perform(self, task: Task) -> Performed:
        first, *others = task.machines
        moved = {first.name: first.target}
        if not others:
            return Done(moved, away={first.name: 2})
        return Failed("the others are too large", moved=moved, away={first.name: 1})


def test_machines_that_move_one_after_the_other_are_recorded_and_measured_so(
    tmp_path: Path,
) -> None:
    recording = Recording(tmp_path)
    fleet = """
hosts: [h1, h2]
groups:
  - name: web
    kind: availability-set
    machines:
      - {name: web_0, update_domain: 0, host: h1}
      - {name: web_1, update_domain: 0, host: h1}
"""
    with recording.service(OneAtATime(), fleet) as service:
        service.get("web_0")
        done = service.schedule("Redeploy", "web_0", "web_1")
        service.approve("web_0", done)
        service.clock.advance("1m")
        assert event(service, done.id).away == {"web_0": 1.0, "web_1": 2.0}
    assert [(machines, s) for _, machines, s in recording.impacts()] == [
        (["web_0"], 1.0),
        (["web_1"], 2.0),
    ]
