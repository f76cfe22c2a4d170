"""What may happen to a rollout while it is at work: switches, machines that leave, surprises."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from forewarn.core import Durations, Event, EventType, Refused, Status
from forewarn.core import commands as c
from forewarn.core.rollouts.model import Gate, Rollout, Step
from forewarn.core.rollouts.selection import Selection
from forewarn.core.time import DAY, HOUR, MINUTE
from forewarn.core.windows import openings
from forewarn.core.windows.syntax import parse_window
from forewarn.drivers.port import Checked, Observed, Performed, Task
from forewarn.drivers.simulated import ImpactJournal, SimulatedDriver
from forewarn.service.rollouts.announce import AnnounceResult
from forewarn.service.rollouts.gates import GateResult, Gates
from forewarn.service.rollouts.request import RolloutRequest
from forewarn.service.rollouts.rollouts import RolloutReport
from forewarn.store import MemoryStore
from forewarn.store.memory import Disk
from forewarn.support import guard, program
from forewarn.support.instants import to_datetime
from forewarn.testing import Service

FLEET = """
hosts: [h1, h2, h3]
groups:
  - name: web
    kind: availability-set
    machines:
      - {name: web_0, update_domain: 0, host: h1}
      - {name: web_1, update_domain: 1, host: h2}
  - name: db
    kind: availability-set
    machines:
      - {name: db_0, update_domain: 0, host: h1}
      - {name: db_1, update_domain: 1, host: h3}
"""

ALL_HOSTS = Selection(hosts=("h*",))


class Interrupted(SimulatedDriver):
    """Something happens while it is asked for the first time."""

    def __init__(self) -> None:
        super().__init__(ImpactJournal(), Durations().paced)
        self.asked: list[str] = []
        self.meanwhile: Callable[[], Awaitable[Any]] | None = None

    async def check(self, task: Task) -> Checked:
        self.asked += [machine.name for machine in task.machines]
        if self.meanwhile is not None:
            happens, self.meanwhile = self.meanwhile, None
            await happens()
        return await super().check(task)


@pytest.fixture
def driver() -> Interrupted:
    return Interrupted()


@pytest.fixture
def service(driver: Interrupted) -> Iterator[Service]:
    with Service(FLEET, driver=driver) as made:
        yield made


def wanted(**fields: Any) -> RolloutRequest:
    selection = fields.pop("selection", Selection(groups=("web",)))
    return RolloutRequest(
        **{"type": EventType.REBOOT, "by": "test", "selection": selection, **fields}
    )


def start(service: Service, **fields: Any) -> str:
    report = service._session.run(service._session.node.rollouts.start(wanted(**fields)))
    assert isinstance(report, RolloutReport), report
    service._session.settle()
    return report.rollout.id


def report_of(service: Service, id: str) -> RolloutReport:
    report = service._session.run(service._session.node.rollouts.report(id))
    assert isinstance(report, RolloutReport)
    return report


def state(service: Service, id: str) -> str:
    return report_of(service, id).state


def resume(service: Service, id: str) -> RolloutReport | Refused:
    found = service._session.run(service._session.node.rollouts.resume(id, "test"))
    service._session.settle()
    return found


def paused_because(service: Service, id: str) -> str:
    paused = report_of(service, id).rollout.paused
    assert paused is not None
    return paused.why


def active(service: Service) -> list[Event]:
    return service._session.node.platform.active()


def delete(service: Service, machine: str) -> None:
    done = service._session.run(service._session.node.removals.delete(machine, "test"))
    assert not isinstance(done, Refused), done.message
    service._session.settle()


# While it announces.


@pytest.mark.parametrize("verb", ["pause", "abort"])
def test_hosts_that_are_not_announced_yet_are_left_alone_once_it_is_switched_off(
    service: Service, driver: Interrupted, verb: str
) -> None:
    async def switch() -> None:
        (id,) = service._session.node.store.registry.rollouts
        assert isinstance(
            await getattr(service._session.node.rollouts, verb)(id, "test"), RolloutReport
        )

    driver.meanwhile = switch
    start(service, selection=ALL_HOSTS, at_once=3)
    assert active(service) == []
    assert service._session.run(service._session.node.platform.past(None, 10)) == []
    assert set(driver.asked) == {"web_0", "db_0"}, "nobody is asked about the others any more"


def test_a_host_that_changes_in_the_moment_of_the_commit_is_tried_again(
    service: Service, driver: Interrupted
) -> None:
    async def move_away() -> None:
        group = service._session.node.store.groups["db"]
        machines = tuple(
            msgspec.structs.replace(m, host="h2") if m.name == "db_0" else m for m in group.machines
        )
        command = c.Define(kind=group.kind, machines=machines, policy=group.policy, by="test")
        assert not isinstance(await service._session.node.writer.submit("db", command), Refused)

    driver.meanwhile = move_away
    id = start(service, selection=Selection(hosts=("h1",)))
    assert state(service, id) == "running"
    assert [event.resources for event in active(service)] == [("web_0",)]


def test_a_host_that_is_emptied_while_its_driver_is_asked_is_over(
    service: Service, driver: Interrupted
) -> None:
    async def move_away() -> None:
        group = service._session.node.store.groups["db"]
        machines = tuple(msgspec.structs.replace(m, host="h2") for m in group.machines)
        command = c.Define(kind=group.kind, machines=machines, policy=group.policy, by="test")
        assert not isinstance(await service._session.node.writer.submit("db", command), Refused)

    driver.meanwhile = move_away
    id = start(service, selection=Selection(hosts=("h3",)))
    assert state(service, id) == "done"


def test_a_step_that_ends_while_a_rollout_is_taken_up_again_repeats_no_other() -> None:
    """What is known of a rollout is read at the start; until all of it is, nothing is decided."""

    was_read, was_struck = asyncio.Event(), asyncio.Event()

    class NeverSays(SimulatedDriver):
        async def perform(self, task: Task) -> Performed:
            answer = await super().perform(task)
            if task.machines[0].name == "web_1":
                was_struck.set()
                await asyncio.Event().wait()
            return answer

    class SlowToRead(MemoryStore):
        async def events_by_cause(self, prefix: str) -> Sequence[Event]:
            found = await super().events_by_cause(prefix)
            was_read.set()
            for _ in range(200):  # meanwhile the driver says that the second step is done
                await guard.pause(0)
            return found

    class SlowToSee(SimulatedDriver):
        async def observe(self, task: Task) -> Observed:
            await was_read.wait()
            return await super().observe(task)

    disk, world = Disk(), ImpactJournal()
    with Service(
        FLEET, store=MemoryStore(disk), driver=NeverSays(world, Durations().paced)
    ) as service:

        async def to_the_second() -> None:
            service._session.node.clock.set(service._session.node.clock.at + MINUTE)  # type: ignore[attr-defined]
            await was_struck.wait()

        id = start(service)
        service.clock.advance("39m")
        assert [event.resources for event in active(service)] == [("web_1",)]
        service._session.run(to_the_second())
        assert active(service)[0].status is Status.STARTED
        later = service._session.node.writer.now().at + HOUR
    driver = SlowToSee(world, Durations().paced)
    with Service(FLEET, store=SlowToRead(disk), driver=driver, start=to_datetime(later)) as service:
        service._session.settle()
        assert active(service) == []
        assert state(service, id) == "done"
        over = service._session.run(service._session.node.platform.past(None, 10))
        assert sorted(event.resources for event in over) == [("web_0",), ("web_1",)]


# Machines that come and go.


def test_a_cancelled_step_whose_machine_is_deleted_no_longer_blocks(
    service: Service,
) -> None:
    id = start(service)
    service.cancel(active(service)[0])
    assert state(service, id) == "blocked"
    delete(service, "web_0")
    service._session.settle()
    assert ("web_1",) in [event.resources for event in active(service)]
    service.clock.advance("1h")
    assert state(service, id) == "done"


def test_a_cancelled_host_without_machines_no_longer_blocks(
    service: Service,
) -> None:
    id = start(service, selection=Selection(hosts=("h2",)))
    service.cancel(active(service)[0])
    assert state(service, id) == "blocked"
    service.redeploy("web_1")
    service.clock.advance("1h")
    assert service._session.node.store.registry.rollouts[id].ended_at is not None


def test_a_change_of_an_unrelated_machine_wakes_no_rollout(service: Service) -> None:
    start(service)
    looks: list[str] = []
    look = service._session.node.reconciler._reconcile

    async def counted(id: str) -> None:
        looks.append(id)
        await look(id)

    service._session.node.reconciler._reconcile = counted  # type: ignore[method-assign]
    delete(service, "db_1")
    assert looks == []
    delete(service, "web_1")
    assert looks != []


def test_resuming_a_running_rollout_is_refused_but_reconciles_it(service: Service) -> None:
    id = start(service)
    looks: list[str] = []

    async def counted(id: str) -> None:
        looks.append(id)

    service._session.node.reconciler._reconcile = counted  # type: ignore[method-assign]
    assert isinstance(resume(service, id), Refused)
    assert looks == [id]


# Resuming and cancelling.


def test_what_is_cancelled_after_a_resume_at_the_same_instant_stays_cancelled(
    service: Service,
) -> None:
    id = start(service)
    first = active(service)[0]
    service.cancel(first)
    assert isinstance(resume(service, id), RolloutReport)
    (second,) = active(service)
    assert second.id != first.id
    service.cancel(second)
    service.clock.advance("1h")
    assert (active(service), state(service, id)) == ([], "blocked")
    resume(service, id)
    assert len(active(service)) == 1


# Surprises.


def test_an_unexpected_exception_pauses_the_rollout_and_is_its_reason(service: Service) -> None:
    announcer = service._session.node.reconciler._announcer
    announce = announcer.announce

    async def stumble(rollout: Rollout, step: Step) -> AnnounceResult | Refused:
        raise RuntimeError(f"unforeseen: {rollout.id}, {step.cause}")

    announcer.announce = stumble  # type: ignore[method-assign]
    id = start(service)
    assert state(service, id) == "paused"
    assert f"unforeseen: {id}" in paused_because(service, id)
    announcer.announce = announce  # type: ignore[method-assign]
    resume(service, id)
    assert [event.resources for event in active(service)] == [("web_0",)]


def test_a_gate_that_raises_has_not_passed(service: Service) -> None:
    class Broken(Gates):
        async def evaluate(self, gate: Gate) -> GateResult:
            raise RuntimeError(f"unforeseen: {gate.description}")

    service._session.node.reconciler._gates = Broken()
    id = start(service, gate=Gate(http="http://localhost/", timeout=MINUTE))
    service.clock.advance("30m")
    assert "unforeseen: http://localhost/" in paused_because(service, id)


# What takes too long, or too much.


def test_the_windows_are_searched_once_for_all_steps_that_are_announced_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = "groups:\n" + "".join(
        f"  - name: g{i}\n    kind: standalone\n    machines: [{{name: m{i}}}]\n" for i in range(40)
    )
    searched: list[int] = []
    spans = openings.spans

    def counted(found: Any, at: int) -> Any:
        searched.append(at)
        return spans(found, at)

    monkeypatch.setattr(openings, "spans", counted)
    with Service(fleet) as service:
        selection = Selection(groups=tuple(f"g{i}" for i in range(40)))
        window = parse_window("day 29 03:17-04:19 Europe/Lisbon")
        start(service, selection=selection, at_once=40, windows=(window,))
        assert len(active(service)) == 40
    assert len(searched) == len(set(searched)) <= 3


def test_a_notice_that_is_too_long_at_this_speed_is_refused() -> None:
    with Service(FLEET, speed=0.5) as service:
        report = service._session.run(service._session.node.rollouts.start(wanted(notice=60 * DAY)))
        assert isinstance(report, Refused)
        assert "speed of 0.5 a notice of 60 d takes 120 d; at most 90 d" in report.message
        start(service, notice=45 * DAY)
        assert len(active(service)) == 1


def test_a_list_reads_nothing_of_rollouts_that_are_over(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = start(service)
    service.clock.advance("2h")
    aborted = start(service)
    service._session.run(service._session.node.rollouts.abort(aborted, "test"))
    service._session.settle()
    running = start(service)
    read: list[str] = []
    events_by_cause = service._session.node.store.events_by_cause

    async def counted(prefix: str) -> Any:
        read.append(prefix)
        return await events_by_cause(prefix)

    monkeypatch.setattr(service._session.node.store, "events_by_cause", counted)
    listed = service._session.run(service._session.node.rollouts.list())
    assert [(one.rollout.id, one.state, one.steps_over) for one in listed] == [
        (running, "running", 0),
        (aborted, "aborted", 0),
        (done, "done", 2),
    ]
    assert read == []
    assert report_of(service, done).steps_over == 2
    assert len(read) == 1


# Commands that are gates.


def test_a_command_that_leaves_a_child_behind_has_passed_and_the_child_is_gone(
    tmp_path: Path,
) -> None:
    script = f"sleep 300 & echo $! > {tmp_path}/child; echo well; exit 0"
    gates = Gates({"leaves": ("/bin/sh", "-c", script)}, patience=20.0)

    async def ask() -> tuple[GateResult, int]:
        before = _open_files()
        answer = await gates.evaluate(Gate(command="leaves"))
        return answer, _open_files() - before

    answer, leaked = asyncio.run(ask())
    assert (answer.passed, answer.message, leaked) == (True, "exit code 0: well", 0)
    assert _is_gone(int((tmp_path / "child").read_text()))


def test_a_command_that_takes_too_long_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fifo, start = tmp_path / "child", program._start
    os.mkfifo(fifo)
    children: list[int] = []

    def started(*arguments: Any) -> Any:
        process = start(*arguments)
        children.append(int(fifo.read_text()))  # its time begins once the child is there
        return process

    monkeypatch.setattr(program, "_start", started)
    gates = Gates({"slow": ("/bin/sh", "-c", f"sleep 300 & echo $! > {fifo}; wait")}, patience=0.5)
    answer = asyncio.run(gates.evaluate(Gate(command="slow")))
    assert (answer.passed, answer.message) == (False, "no answer within 0.5 s")
    assert _is_gone(*children)


def test_a_command_that_is_not_there_has_not_passed() -> None:
    answer = asyncio.run(Gates({"gone": ("/no/such/program",)}).evaluate(Gate(command="gone")))
    assert not answer.passed
    assert "/no/such/program" in answer.message


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _is_gone(pid: int) -> bool:
    """Killed it is, and the system may take a moment to see to it; else it is killed now."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if select.select([pidfd], [], [], 10.0)[0]:
            return True
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        return False
    finally:
        os.close(pidfd)
