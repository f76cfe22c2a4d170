"""Work on empty hosts that the driver does, in a running service on a virtual clock."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from forewarn.core import Durations, EventType, Refused
from forewarn.core.rollouts.model import Work, WorkBy
from forewarn.core.rollouts.selection import Selection
from forewarn.core.time import MINUTE
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
    Performed,
    Task,
    Unknown,
    Veto,
)
from forewarn.drivers.simulated import ImpactJournal, SimulatedDriver
from forewarn.service.rollouts.request import RolloutRequest
from forewarn.service.rollouts.rollouts import RolloutReport
from forewarn.store import MemoryStore
from forewarn.store.memory import Disk
from forewarn.store.port import HistoryQuery
from forewarn.testing import Service

FLEET = """
hosts: [{name: h1, labels: {rack: "7"}}, {name: h2}, {name: h3}]
groups:
  - name: web
    kind: availability-set
    machines:
      - {name: web_0, update_domain: 0, host: h1}
      - {name: web_1, update_domain: 1, host: h3}
"""


class Worker(SimulatedDriver):
    """Carries events out as the simulated driver does, and answers as told when it is to work."""

    def __init__(self, *answers: Performed | Exception, repeatable: bool = False) -> None:
        super().__init__(ImpactJournal(), Durations().paced)
        self.answers = list(answers)
        self.observed: Observed = NotYet()
        self.vetoes: dict[str, str] = {}
        self.calls: list[tuple[str, str]] = []
        self.tasks: list[Task] = []
        self.repeatable = repeatable

    async def check(self, task: Task) -> Checked:
        if task.work and task.host in self.vetoes:
            return Veto(self.vetoes[task.host])
        return await super().check(task)

    async def observe(self, task: Task) -> Observed:
        if not task.work:
            return await super().observe(task)
        self.calls.append(("observe", task.host))
        return self.observed

    async def perform(self, task: Task) -> Performed:
        if not task.work:
            return await super().perform(task)
        self.calls.append(("perform", task.host))
        self.tasks.append(task)
        answer = self.answers.pop(0) if self.answers else Done()
        if isinstance(answer, Exception):
            raise answer
        return answer


def wanted(**fields: Any) -> RolloutRequest:
    values: dict[str, Any] = {
        "type": EventType.FREEZE,
        "works": True,
        "work_by": WorkBy.DRIVER,
        "by": "test",
        "ticket": "CHG-7",
        "selection": Selection(hosts=("h1", "h2")),
    }
    return RolloutRequest(**{**values, **fields})


def start(service: Service, **fields: Any) -> str:
    report = service._session.run(service._session.node.rollouts.start(wanted(**fields)))
    assert isinstance(report, RolloutReport), report
    service._session.settle()
    return report.rollout.id


def report_of(service: Service, id: str) -> RolloutReport:
    report = service._session.run(service._session.node.rollouts.report(id))
    assert isinstance(report, RolloutReport)
    return report


def do(service: Service, verb: str, id: str, **options: Any) -> Any:
    rollouts = service._session.node.rollouts
    done = service._session.run(getattr(rollouts, verb)(id, "test", **options))
    service._session.settle()
    return done


def work_on(service: Service, id: str, host: str) -> Work:
    return next(work for work in report_of(service, id).rollout.work if work.host == host)


def cordoned(service: Service) -> set[str]:
    hosts = service._session.node.store.registry.hosts.values()
    return {host.name for host in hosts if host.cordoned}


def waits(service: Service, id: str) -> str:
    return "; ".join(wait.message for wait in report_of(service, id).next.waits)


def test_the_driver_works_on_each_host_when_it_is_empty_and_the_host_returns() -> None:
    driver = Worker()
    with Service(FLEET, driver=driver) as service:
        id = start(service)
        assert driver.calls == []  # h1 is not empty yet
        service.clock.advance("1h")
        assert report_of(service, id).state == "done"
        assert cordoned(service) == set()
        history = service._session.run(service._session.node.store.history(HistoryQuery()))
    assert driver.calls == [("perform", "h1"), ("perform", "h2")]
    (first, _) = driver.tasks
    assert (first.host, first.machines, first.ticket, first.rollout, first.step) == (
        *("h1", (), "CHG-7", id),
        "host/h1/work",
    )
    assert first.attempt == 1
    assert first.host_labels == {"h1": {"rack": "7"}}
    assert "returned host/h2" in [record.note for record in history]


def test_the_simulated_driver_takes_its_time() -> None:
    with Service(FLEET) as service:
        id = start(service, selection=Selection(hosts=("h2",)))
        service.clock.advance("5m")
        assert cordoned(service) == {"h2"}
        assert "working on host h2" in waits(service, id)
        service.clock.advance("6m")
        assert report_of(service, id).state == "done"
        assert cordoned(service) == set()


def test_work_that_is_not_done_or_has_failed_is_tried_again() -> None:
    driver = Worker(Failed("no spare part"), Failed("no spare part"))
    with Service(FLEET, driver=driver) as service:
        id = start(service, selection=Selection(hosts=("h2",)), max_failures=0)
        assert report_of(service, id).state == "paused"  # one step has failed
        assert "no spare part" in waits(service, id)
        assert "host h2" in waits(service, id)
        driver.answers.append(Again(service._session.node.writer.now().at + 20 * MINUTE))
        service.clock.advance("1m")  # what has begun continues, after five and ten seconds
        assert len(driver.calls) == 3
        assert work_on(service, id, "h2").attempt is not None
        service.clock.advance("30m")
        assert len(driver.calls) == 4
        fences = [task.fence for task in driver.tasks]
        assert 0 < fences[0] < fences[1] < fences[2] < fences[3]
        assert report_of(service, id).state == "done"


def test_an_outcome_that_is_unknown_waits_for_an_operator() -> None:
    driver = Worker(ConnectionError("lost"), ConnectionError("lost"))
    driver.observed = Unknown("no record")
    with Service(FLEET, driver=driver) as service:
        id = start(service, selection=Selection(hosts=("h2",)))
        service.clock.advance("2h")
        assert driver.calls == [("perform", "h2"), ("observe", "h2")]
        assert report_of(service, id).state == "blocked"
        assert "unknown" in waits(service, id)
        assert "host h2" in waits(service, id)
        assert cordoned(service) == {"h2"}
        do(service, "resume", id)
        assert driver.calls[2:] == [("perform", "h2"), ("observe", "h2")]
        service._session.run(service._session.node.hosts.put_back("h2", "test"))
        service._session.settle()
        assert report_of(service, id).state == "done"


def test_a_driver_that_cannot_see_whether_work_was_done_is_asked_again() -> None:
    driver = Worker(ConnectionError("lost"))
    driver.observed = Later(None, "no route to h2")
    with Service(FLEET, driver=driver) as service:
        id = start(service, selection=Selection(hosts=("h2",)))
        service.clock.advance("4s")
        explained = service._session.run(service._session.node.rollouts.explain(id))
        assert not isinstance(explained, Refused)
        (wait,) = explained.waits[0].group.examples
        assert "cannot be seen yet: no route to h2" in wait.message
        service.clock.advance("1h")
        assert driver.calls[0] == ("perform", "h2")
        assert set(driver.calls[1:]) == {("observe", "h2")}
        service._session.run(service._session.node.hosts.put_back("h2", "test"))
        service.clock.advance("5m")
        asked = len(driver.calls)
        service.clock.advance("1h")
        assert len(driver.calls) == asked
        assert report_of(service, id).state == "done"


def test_work_in_progress_continues_although_the_rollout_is_aborted() -> None:
    driver = Worker(Again(0))
    with Service(FLEET, driver=driver) as service:
        id = start(service, selection=Selection(hosts=("h2",)))
        refused = do(service, "skip", id, lanes=["h2"])
        assert isinstance(refused, Refused)
        assert "cannot be skipped" in refused.message
        do(service, "abort", id)
        assert report_of(service, id).state == "aborting"
        service.clock.advance("1m")
        assert report_of(service, id).state == "aborted"
        assert cordoned(service) == set()


def test_a_halt_or_a_pause_lets_no_work_begin() -> None:
    driver = Worker()
    with Service(FLEET, driver=driver) as service:
        id = start(service, selection=Selection(hosts=("h1",)))
        node = service._session.node
        service.clock.advance("14m")
        do(service, "pause", id)
        service.clock.advance("1h")
        assert driver.calls == []  # h1 is empty
        halt = service._session.run(node.halts.place(by="test", note="smoke"))
        do(service, "resume", id)
        assert driver.calls == []
        assert "h1: halted" in waits(service, id)
        assert "by test: smoke" in waits(service, id)
        assert not isinstance(halt, Refused)
        service._session.run(node.halts.release(halt.halt.id, "test"))
        service._session.settle()
        assert driver.calls == [("perform", "h1")]


def test_a_host_that_the_driver_would_not_work_on_is_not_emptied() -> None:
    driver = Worker()
    driver.vetoes = {"h1": "rack locked"}
    with Service(FLEET, driver=driver) as service:
        id = start(service)
        assert report_of(service, id).state == "paused"
        assert "rack locked" in waits(service, id)
        assert cordoned(service) == set()


class EventsOnly(Worker):
    works = False


@pytest.mark.parametrize(
    ("driver", "fields", "complaint"),
    [
        (EventsOnly, {}, "the driver of this service cannot work on hosts"),
        (Worker, {"works": False}, "work_by is for rollouts of type evacuate-work-return"),
    ],
)
def test_work_that_no_driver_can_do_is_refused(
    driver: Callable[[], Driver], fields: dict[str, Any], complaint: str
) -> None:
    with Service(FLEET, driver=driver()) as service:
        node = service._session.node
        refused = service._session.run(node.rollouts.start(wanted(**fields)))
        assert isinstance(refused, Refused)
        assert complaint in refused.message


@pytest.mark.parametrize(
    ("observed", "calls", "state"),
    [
        (Happened(), [("observe", "h2")], "done"),
        (NotYet(), [("observe", "h2"), ("perform", "h2")], "done"),
        (Unknown("no record"), [("observe", "h2")], "blocked"),
    ],
)
def test_after_a_crash_in_the_midst_of_work_the_driver_is_asked_what_has_happened(
    observed: Observed, calls: list[tuple[str, str]], state: str
) -> None:
    disk = Disk()

    class Dying(Worker):
        async def perform(self, task: Task) -> Performed:
            if task.work:
                disks.append(copy.deepcopy(disk))
            return await super().perform(task)

    disks: list[Disk] = []
    with Service(FLEET, driver=Dying(), store=MemoryStore(disk)) as service:
        start(service, selection=Selection(hosts=("h2",)))
    driver = Worker()
    driver.observed = observed
    with Service(FLEET, driver=driver, store=MemoryStore(disks[0])) as service:
        service._session.settle()
        service.clock.advance("1m")
        (id,) = service._session.node.store.registry.rollouts
        assert driver.calls == calls
        assert report_of(service, id).state == state
