"""Carrying out: attempts on record, drivers that fail, and what nobody can tell."""

from __future__ import annotations

import pytest

from forewarn.control.views import core
from forewarn.core import Event, EventType, Refused, Status
from forewarn.core.changes import EventMoved
from forewarn.core.lifecycle import Move
from forewarn.core.rollouts.selection import Selection
from forewarn.core.time import MINUTE, SECOND
from forewarn.drivers.port import (
    Again,
    Checked,
    Done,
    Driver,
    Failed,
    Happened,
    Later,
    NotYet,
    Observed,
    Ok,
    Performed,
    Running,
    Task,
    Unknown,
    Veto,
)
from forewarn.service.rollouts.request import RolloutRequest
from forewarn.store import MemoryStore
from forewarn.store.memory import Disk
from forewarn.store.port import HistoryQuery
from forewarn.testing import SAMPLE, RefusedError, Service


class Scripted(Driver):
    """A driver that says what it is told to, and remembers what it was asked."""

    repeatable = False

    def __init__(
        self,
        *performs: Performed | Exception,
        observes: Observed | Exception | None = None,
        repeatable: bool = False,
        check: Checked | None = None,
    ) -> None:
        self.repeatable = repeatable
        self.asked: list[str] = []
        self._performs = list(performs)
        self._observes: Observed | Exception = observes or NotYet()
        self._check = check or Ok()

    async def check(self, task: Task) -> Checked:
        self.asked.append("check")
        return self._check

    async def observe(self, task: Task) -> Observed:
        self.asked.append("observe")
        if isinstance(self._observes, Exception):
            raise self._observes
        return self._observes

    async def perform(self, task: Task) -> Performed:
        self.asked.append(f"perform {task.attempt}")
        printed = self._performs.pop(0) if self._performs else Done()
        if isinstance(printed, Exception):
            raise printed
        return printed


class Tasks(Scripted):
    """Remembers all that it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[Task] = []

    async def perform(self, task: Task) -> Performed:
        self.tasks.append(task)
        return await super().perform(task)


LABELLED = """
hosts: [{name: h1, labels: {rack: "7"}}, {name: h2, labels: {rack: "8"}}, h3]
groups:
  - name: web
    kind: scale-set
    labels: {tier: web, zone: a}
    machines: [{name: web_0, host: h1, labels: {zone: b}}]
"""


def test_a_task_has_the_machine_its_host_and_the_reason() -> None:
    driver = Tasks()
    with Service(LABELLED, driver=driver) as service:
        node = service._session.node
        service.document("web_0")
        vm_id = node.platform.machine_index.machine("web_0")
        assert vm_id is not None
        request = RolloutRequest(
            type=EventType.REDEPLOY,
            selection=Selection(groups=("web",)),
            by="ann",
            description="Host update",
            ticket="CHG-1",
        )
        report = service._session.run(node.rollouts.start(request))
        assert not isinstance(report, Refused)
        service._session.run(node.hosts.cordon("h1", "ann", note="fan"))
        service.clock.advance("1h")
        (task,) = driver.tasks
        (machine,) = task.machines
        assert machine.vm_id == vm_id[1].vm_id != ""
        assert machine.labels == {"tier": "web", "zone": "b"}
        assert (machine.target, machine.alternatives) == ("h2", ("h3",))
        assert task.host_labels == {"h1": {"rack": "7"}, "h2": {"rack": "8"}}
        reported = (task.description, task.note, task.ticket, task.rollout, task.step)
        assert reported == ("Host update", "fan", "CHG-1", report.rollout.id, "web/0")


def started(service: Service) -> str:
    service.get("web_0")
    event = service.schedule("Reboot", "web_0")
    service.approve("web_0", event)
    service._session.settle()
    return event.id


def status(service: Service, id: str) -> Status:
    event = service._session.run(service._session.node.platform.event(id))
    assert hasattr(event, "status")
    found: Status = event.status
    return found


def says(service: Service, id: str) -> str:
    explained = service._session.run(service._session.node.platform.explain(id))
    assert hasattr(explained, "message")
    return str(explained.message)


def progress(service: Service, id: str) -> str:
    event = service._session.run(service._session.node.platform.event(id))
    assert isinstance(event, Event)
    return service._session.node.platform.progress(event)


def test_a_driver_that_is_done_at_once_finishes_the_event() -> None:
    driver = Scripted(Done())
    with Service(SAMPLE, driver=driver) as service:
        assert status(service, started(service)) is Status.FINISHED
    assert driver.asked == ["check", "perform 1"]


def test_the_fence_of_a_task_is_the_commit_that_has_put_the_attempt_on_record() -> None:
    disk, first, second = Disk(), Tasks(), Tasks()
    with Service(SAMPLE, store=MemoryStore(disk), driver=first) as service:
        started(service)
        started(service)
    with Service(SAMPLE, store=MemoryStore(disk), driver=second) as service:
        started(service)
    fences = [task.fence for task in (*first.tasks, *second.tasks)]
    recorded = [
        commit.seq
        for commit in disk.commits
        for entry in commit.entries
        for item in entry.items
        if isinstance(item, EventMoved) and item.what in (Move.START, Move.ATTEMPT)
    ]
    assert len(fences) == 3
    assert fences == recorded == sorted(set(recorded))


def test_a_driver_may_ask_to_be_asked_again_later() -> None:
    driver = Scripted(Again(1_800_000_060_000_000), Done())
    with Service(SAMPLE, driver=driver) as service:
        id = started(service)
        service.clock.advance("59s")
        assert status(service, id) is Status.STARTED
        service.clock.advance("1s")
        assert status(service, id) is Status.FINISHED
    assert driver.asked == ["check", "perform 1", "perform 2"]


def test_a_driver_that_raises_is_asked_what_happened_and_tried_again_after_a_pause() -> None:
    driver = Scripted(ConnectionError("no route"), ConnectionError("no route"), Done())
    with Service(SAMPLE, driver=driver) as service:
        id = started(service)
        assert "attempt 1 failed (ConnectionError: no route)" in says(service, id)
        service.clock.advance("5s")
        assert driver.asked == ["check", "perform 1", "observe", "perform 2", "observe"]
        service.clock.advance("9s")
        assert status(service, id) is Status.STARTED
        service.clock.advance("1s")
        assert status(service, id) is Status.FINISHED


def test_an_event_that_was_carried_out_although_the_driver_raised_is_not_repeated() -> None:
    driver = Scripted(ConnectionError("reply lost"), observes=Happened())
    with Service(SAMPLE, driver=driver) as service:
        assert status(service, started(service)) is Status.FINISHED
    assert driver.asked == ["check", "perform 1", "observe"]


def test_an_event_with_an_unknown_outcome_is_held_until_an_operator_retries_it() -> None:
    driver = Scripted(ConnectionError("reply lost"), observes=Unknown("no record"))
    with Service(SAMPLE, driver=driver) as service:
        id = started(service)
        service.clock.advance("7d")
        assert status(service, id) is Status.STARTED
        assert "it is unknown" in says(service, id)
        (event,) = service._session.node.platform.active()
        assert core.event(event).held.endswith("no record")
        service._session.run(service._session.node.platform.retry(id, "operator"))
        service._session.settle()
        assert status(service, id) is Status.FINISHED
    assert driver.asked == ["check", "perform 1", "observe", "perform 2"]


def test_an_operator_can_finish_an_event_with_an_unknown_outcome() -> None:
    driver = Scripted(ConnectionError("reply lost"), observes=Unknown("no record"))
    with Service(SAMPLE, driver=driver) as service:
        id = started(service)
        service._session.run(service._session.node.platform.finish(id, "operator", "looked myself"))
        assert status(service, id) is Status.FINISHED
        assert "looked myself" in says(service, id)


LOST = ConnectionError("connection lost")


@pytest.mark.parametrize("repeatable", [False, True])
def test_a_driver_that_has_lost_its_connection_for_an_hour_is_asked_until_it_can_see(
    repeatable: bool,
) -> None:
    driver = Scripted(LOST, Done(), observes=LOST, repeatable=repeatable)
    with Service(SAMPLE, driver=driver) as service:
        id = started(service)
        asked = [0]
        for pause in ("5s", "10s", "20s", "40s", "80s", "160s", "5m", "5m"):
            assert status(service, id) is Status.STARTED
            assert "cannot be seen yet: ConnectionError: connection lost" in says(service, id)
            asked.append(driver.asked.count("observe"))
            service.clock.advance(pause)
        assert asked == list(range(9))
        service.clock.advance("45m")
        stored = service._session.node.store.seq
        assert driver.asked[:2] == ["check", "perform 1"]
        assert set(driver.asked[2:]) == {"observe"}
        driver._observes = Happened()
        service.clock.advance("4m")
        assert status(service, id) is Status.STARTED
        service.clock.advance("1m")
        assert status(service, id) is Status.FINISHED
        assert service._session.node.store.seq == stored + 1  # asking stores nothing


def test_what_certainly_has_not_happened_is_done_after_the_connection_is_back() -> None:
    driver = Scripted(LOST, Done(), observes=LOST)
    with Service(SAMPLE, driver=driver) as service:
        id = started(service)
        driver._observes = NotYet()
        service.clock.advance("5s")
        assert "attempt 1 failed (ConnectionError: connection lost)" in says(service, id)
        service.clock.advance("5s")
        assert status(service, id) is Status.FINISHED
    assert driver.asked == ["check", "perform 1", "observe", "observe", "perform 2"]


def test_a_driver_can_say_when_it_can_see_more() -> None:
    at = 1_800_000_000_000_000 + 90_000_000
    driver = Scripted(LOST, observes=Later(at, "the host restarts"))
    with Service(SAMPLE, driver=driver) as service:
        id = started(service)
        hold = service._session.run(service._session.node.platform.explain(id))
        assert not isinstance(hold, Refused)
        assert [hold.until for hold in hold.holds] == [at]
        driver._observes = Happened()
        service.clock.advance("89s")
        assert status(service, id) is Status.STARTED
        service.clock.advance("1s")
        assert status(service, id) is Status.FINISHED


def test_an_event_that_cannot_be_seen_can_be_finished_and_its_driver_is_not_asked_again() -> None:
    driver = Scripted(LOST, observes=LOST)
    with Service(SAMPLE, driver=driver) as service:
        id = started(service)
        refused = service._session.run(service._session.node.platform.retry(id, "operator"))
        assert isinstance(refused, Refused)
        service._session.run(service._session.node.platform.finish(id, "operator", "looked myself"))
        service._session.settle()
        assert status(service, id) is Status.FINISHED
        assert service._session.node.scheduler.next_due() is None
        service.clock.advance("1h")
    assert driver.asked == ["check", "perform 1", "observe"]


def test_what_cannot_be_seen_is_observed_again_by_the_next_process() -> None:
    disk = Disk()
    with Service(SAMPLE, store=MemoryStore(disk), driver=Scripted(LOST, observes=LOST)) as service:
        id = started(service)
    driver = Scripted(observes=LOST)
    with Service(SAMPLE, store=MemoryStore(disk), driver=driver) as service:
        service._session.settle()
        assert "cannot be seen yet" in says(service, id)
        driver._observes = Happened()
        service.clock.advance("5s")
        assert status(service, id) is Status.FINISHED
    assert driver.asked == ["observe", "observe"]


def test_a_driver_that_is_at_work_stores_nothing_and_says_how_far_it_is() -> None:
    driver = Scripted(*(Running(2 * SECOND, f"{part} %") for part in range(10, 70)), Done())
    with Service(SAMPLE, driver=driver) as service:
        id = started(service)
        stored = service._session.node.store.seq
        for part in range(10, 70):
            assert f"the driver is at work (attempt 1): {part} %" in says(service, id)
            assert progress(service, id) == f"{part} %"
            assert service._session.node.store.seq == stored
            service.clock.advance("2s")
        assert status(service, id) is Status.FINISHED
        assert progress(service, id) == ""
    assert driver.asked == ["check", *["perform 1"] * 61]


def test_each_event_of_a_host_says_how_far_the_driver_is() -> None:
    fleet = """
hosts: [h1]
groups:
  - {name: web, kind: standalone, machines: [{name: web, host: h1}]}
  - {name: sql, kind: standalone, machines: [{name: sql, host: h1}]}
"""
    driver = Scripted(Running(MINUTE, "63 %"), ConnectionError("lost"), observes=LOST)
    with Service(fleet, driver=driver) as service:
        service.host("h1").maintain("Reboot")
        service.clock.advance("15m")
        ids = [event.id for event in service._session.node.platform.active()]
        assert [progress(service, id) for id in ids] == ["63 %", "63 %"]
        assert all("63 %" in says(service, id) for id in ids)
        service.clock.advance("1m")
        assert all("cannot be seen yet" in says(service, id) for id in ids)
        driver._observes = Happened()
        service.clock.advance("5m")
        assert [progress(service, id) for id in ids] == ["", ""]
        assert [status(service, id) for id in ids] == [Status.FINISHED, Status.FINISHED]


def test_a_driver_that_loses_its_connection_at_work_is_asked_what_happened() -> None:
    driver = Scripted(Running(SECOND, "10 %"), LOST, Done(), observes=LOST)
    with Service(SAMPLE, driver=driver) as service:
        id = started(service)
        service.clock.advance("1s")
        assert "cannot be seen yet" in says(service, id)
        driver._observes = NotYet()
        service.clock.advance("10s")
        assert status(service, id) is Status.FINISHED
    assert driver.asked == ["check", "perform 1", "perform 1", "observe", "observe", "perform 2"]


def test_what_was_at_work_when_the_service_ended_is_observed_by_the_next_process() -> None:
    disk, driver = Disk(), Scripted(observes=Happened())
    with Service(SAMPLE, store=MemoryStore(disk), driver=Scripted(Running(MINUTE))) as service:
        id = started(service)
    with Service(SAMPLE, store=MemoryStore(disk), driver=driver) as service:
        service._session.settle()
        assert status(service, id) is Status.FINISHED
    assert driver.asked == ["observe"]


def test_an_event_that_is_finished_while_its_driver_is_at_work_is_not_carried_on() -> None:
    driver = Scripted(Running(MINUTE))
    with Service(SAMPLE, driver=driver) as service:
        id = started(service)
        service._session.run(service._session.node.platform.finish(id, "operator", "looked myself"))
        service.clock.advance("1h")
        assert status(service, id) is Status.FINISHED
    assert driver.asked == ["check", "perform 1"]


def test_a_repeatable_driver_is_simply_asked_again() -> None:
    driver = Scripted(
        ConnectionError("reply lost"), Done(), observes=Unknown("no record"), repeatable=True
    )
    with Service(SAMPLE, driver=driver) as service:
        id = started(service)
        service.clock.advance("5s")
        assert status(service, id) is Status.FINISHED


def test_an_event_that_the_driver_vetoes_is_not_announced() -> None:
    driver = Scripted(check=Veto("host locked"))
    with Service(SAMPLE, driver=driver) as service:
        with pytest.raises(RefusedError, match="host locked"):
            service.schedule("Reboot", "web_0")
        assert service.document("web_0")["Events"] == []


def test_what_starts_with_the_service_itself_is_carried_out_once() -> None:
    """A machine that the fleet no longer names frees the domain slot while the service starts."""

    def fleet(*machines: str) -> str:
        listed = ", ".join(f"{{name: {m}, update_domain: {int(m == 'b')}}}" for m in machines)
        return f"groups: [{{name: g, kind: availability-set, machines: [{listed}]}}]"

    disk = Disk()
    busy = Scripted(Again(1_800_003_600_000_000))
    with Service(fleet("a", "b"), store=MemoryStore(disk), driver=busy) as service:
        service.get("a")
        for machine in ("a", "b"):
            service.approve(machine, service.schedule("Freeze", machine))
        statuses = [event["EventStatus"] for event in service.document("a")["Events"]]
        assert statuses == ["Started", "Scheduled"]
    next_driver = Scripted(Again(1_800_003_600_000_000))
    with Service(fleet("b"), store=MemoryStore(disk), driver=next_driver) as service:
        service._session.settle()
        assert [event["EventStatus"] for event in service.document("b")["Events"]] == ["Started"]
    assert next_driver.asked == ["perform 1"]


def test_the_output_of_a_driver_is_stored_without_invalid_characters() -> None:
    driver = Scripted(Failed("a\0b", "out\0", "{}"), OSError("\udcff"), check=Veto("\0"))
    with Service(SAMPLE, driver=driver) as service:
        with pytest.raises(RefusedError, match="\ufffd"):
            service.schedule("Reboot", "web_0")
        driver._check = Ok()
        id = started(service)
        assert "attempt 1 failed (a\ufffdb)" in says(service, id)
        service.clock.advance("5s")
        assert "attempt 2 failed (OSError: \ufffd)" in says(service, id)
        records = service._session.run(service._session.node.store.history(HistoryQuery(event=id)))
        assert "out\ufffd" in [record.output for record in records]
