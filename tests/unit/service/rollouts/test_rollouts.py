"""Rollouts in a running service: real gates, real events, a virtual clock."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from forewarn.core import Durations, Event, EventType, Refused, Status
from forewarn.core.history import RecordKind
from forewarn.core.labels import parse
from forewarn.core.refusal import Hint, Reason
from forewarn.core.rollouts.forecast import Forecast
from forewarn.core.rollouts.model import Conflicts, Gate
from forewarn.core.rollouts.progress import WaitKind
from forewarn.core.rollouts.selection import Selection
from forewarn.core.time import HOUR, MINUTE, SECOND
from forewarn.core.windows.model import Blackout, MaintenanceConfiguration
from forewarn.core.windows.syntax import parse_window
from forewarn.drivers.port import Checked, Done, Failed, Performed, Task, Veto
from forewarn.drivers.simulated import ImpactJournal, SimulatedDriver
from forewarn.service.platform.configurations import Configurations
from forewarn.service.rollouts import reconciler
from forewarn.service.rollouts import rollouts as service_rollouts
from forewarn.service.rollouts.gates import Gates
from forewarn.service.rollouts.request import Draft, PauseAfter, RolloutRequest
from forewarn.service.rollouts.rollouts import RolloutReport
from forewarn.store import MemoryStore
from forewarn.store.memory import Disk
from forewarn.store.port import HistoryQuery
from forewarn.support import guard
from forewarn.support.instants import to_datetime
from forewarn.testing import Service
from helpers.free_ports import free_port

FLEET = """
hosts: [{name: h1}, {name: h2}, {name: h3}]
groups:
  - name: web
    kind: scale-set
    labels: {tier: web}
    machines:
      - {name: web_0, update_domain: 0, host: h1}
      - {name: web_1, update_domain: 1, host: h2, labels: {canary: "yes"}}
  - name: db
    kind: availability-set
    labels: {tier: db}
    machines:
      - {name: db_0, update_domain: 0, host: h1}
      - {name: db_1, update_domain: 1, host: h3}
"""


class Health:
    """Something that is asked whether all is well."""

    def __init__(self) -> None:
        self.status, self.asked = 200, 0
        self.headers: dict[str, str] = {}
        self.hangs = threading.Event()
        self.hangs.set()
        health = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                health.asked += 1
                health.hangs.wait()
                self.send_response(health.status)
                for name, value in health.headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_args: Any) -> None:
                """Says nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/ready?deep=1"

    def close(self) -> None:
        self.hangs.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def health() -> Iterator[Health]:
    made = Health()
    yield made
    made.close()


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(FLEET) as made:
        yield made


def wanted(**fields: Any) -> RolloutRequest:
    groups = fields.pop("groups", ("web",))
    selection = fields.pop("selection", Selection(groups=groups))
    return RolloutRequest(
        **{"type": EventType.REBOOT, "by": "test", "selection": selection, **fields}
    )


def start(service: Service, **fields: Any) -> str:
    report = service._session.run(service._session.node.rollouts.start(wanted(**fields)))
    assert not isinstance(report, Refused), report.message
    service._session.settle()
    return report.rollout.id


def refused(service: Service, **fields: Any) -> str:
    return refusal(service, **fields).message


def refusal(service: Service, **fields: Any) -> Refused:
    report = service._session.run(service._session.node.rollouts.start(wanted(**fields)))
    assert isinstance(report, Refused)
    return report


def state(service: Service, id: str) -> str:
    return report_of(service, id).state


def report_of(service: Service, id: str) -> RolloutReport:
    report = service._session.run(service._session.node.rollouts.report(id))
    assert isinstance(report, RolloutReport)
    return report


def do(service: Service, verb: str, id: str, *words: str) -> RolloutReport:
    report = service._session.run(getattr(service._session.node.rollouts, verb)(id, "test", *words))
    assert isinstance(report, RolloutReport), report
    service._session.settle()
    return report


def waits(service: Service, id: str) -> str:
    explanation = service._session.run(service._session.node.rollouts.explain(id))
    assert not isinstance(explanation, Refused)
    return "; ".join(
        [explanation.message, *(one.group.examples[0].message for one in explanation.waits)]
    )


def waiting(service: Service, id: str) -> set[tuple[WaitKind, str]]:
    return {(wait.kind, wait.lane) for wait in report_of(service, id).next.waits}


def active(service: Service) -> list[Event]:
    return service._session.node.platform.active()


def test_a_rollout_goes_over_a_group_one_domain_at_a_time(service: Service) -> None:
    id = start(service, bake=5 * MINUTE)
    assert [event.resources for event in active(service)] == [("web_0",)]
    service.clock.advance("15m")
    assert active(service)[0].status is Status.STARTED
    service.clock.advance("10m")
    assert active(service) == []
    assert waiting(service, id) == {(WaitKind.BAKE, "web")}
    assert "5 min" in waits(service, id)
    service.clock.advance("5m")
    assert [event.resources for event in active(service)] == [("web_1",)]
    service.clock.advance("30m")
    assert state(service, id) == "done"


def test_an_approval_lets_the_rollout_go_on_at_once(service: Service) -> None:
    start(service)
    service.document("web_0")
    service.approve("web_1", active(service)[0])
    service._session.settle()
    assert active(service)[0].status is Status.STARTED


def test_labels_select_machines_with_their_groups_labels_beneath_their_own(
    service: Service,
) -> None:
    start(service, selection=Selection(labels=(parse("tier=web,canary"),)))
    assert [event.resources for event in active(service)] == [("web_1",)]


def test_hosts_beside_groups_narrow_them(service: Service) -> None:
    start(service, selection=Selection(groups=("web", "db"), hosts=("h[13]",)), at_once=9)
    assert sorted(event.resources for event in active(service)) == [("db_0",), ("web_0",)]


def test_hosts_alone_are_worked_on_with_all_that_is_on_them(service: Service) -> None:
    id = start(service, selection=Selection(hosts=("h*",)), type=EventType.FREEZE)
    first = active(service)
    assert sorted(event.resources for event in first) == [("db_0",), ("web_0",)]
    assert {event.host for event in first} == {"h1"}
    service.clock.advance("26m")
    assert [event.host for event in active(service)] == ["h2"]
    service.clock.advance("2h")
    assert state(service, id) == "done"


def test_a_host_with_two_domains_of_a_group_is_refused_before_anything_begins() -> None:
    fleet = FLEET.replace("name: web_1, update_domain: 1, host: h2", "name: web_1, host: h1")
    fleet = fleet.replace("name: web_1", "name: web_1, update_domain: 1")
    with Service(fleet) as service:
        problem = refusal(service, selection=Selection(hosts=("h1",)))
        assert (problem.hint, [other.field for other in problem.others]) == (
            Hint.CONFLICTS,
            ["h1"],
        )
        assert active(service) == []
        start(service, selection=Selection(hosts=("h3",)))


GRID = """
hosts: [a0, a1, b0, b1, mixed]
groups:
  - name: sql
    kind: availability-set
    machines:
      - {name: sql-0, update_domain: 0, fault_domain: 0, host: a0}
      - {name: sql-1, update_domain: 1, fault_domain: 0, host: a1}
      - {name: sql-2, update_domain: 0, fault_domain: 1, host: b0}
      - {name: sql-3, update_domain: 1, fault_domain: 1, host: b1}
      - {name: sql-4, update_domain: 0, host: a0}
"""


@pytest.mark.parametrize(
    "fields",
    [
        {"groups": ("sql",)},
        {"selection": Selection(hosts=("[ab]*",)), "at_once": 9},
        {"selection": Selection(hosts=("[ab]*",)), "at_once": 9, "type": EventType.FREEZE},
    ],
)
def test_a_rollout_never_disturbs_two_fault_domains_at_a_time(fields: dict[str, Any]) -> None:
    with Service(GRID) as service:
        id, together = start(service, **fields), set[tuple[str, ...]]()
        while state(service, id) != "done":
            started = [e.resources for e in active(service) if e.status is Status.STARTED]
            together.add(tuple(name for names in started for name in names))
            service.clock.advance("1m")
        assert together == {(), ("sql-0", "sql-4"), ("sql-1",), ("sql-2",), ("sql-3",)}


def test_a_host_with_two_fault_domains_of_a_group_has_a_conflict() -> None:
    fleet = GRID.replace("host: a0", "host: mixed").replace("host: b0", "host: mixed")
    with Service(fleet) as service:
        hosts = Selection(hosts=("mixed",))
        [problem] = refusal(service, selection=hosts).others
        assert "sql-0, sql-4 of 0.0 and sql-2 of 0.1" in problem.message
        id = start(service, selection=hosts, conflicts=Conflicts.SPLIT)
        assert [event.resources for event in active(service)] == [("sql-0", "sql-4")]
        service.clock.advance("2h")
        assert state(service, id) == "done"
        assert steps_of(service, id) == {"mixed": ["done", "done"]}


def test_a_paused_rollout_announces_nothing_but_what_is_announced_goes_on(
    service: Service,
) -> None:
    id = start(service)
    do(service, "pause", id, "lunch")
    service.clock.advance("1h")
    assert active(service) == []
    assert report_of(service, id).next.lanes[0].steps[0].state.over
    assert (WaitKind.PAUSED, "") in waiting(service, id)
    assert "by test because lunch" in waits(service, id)
    do(service, "resume", id)
    assert [event.resources for event in active(service)] == [("web_1",)]


def test_aborting_withdraws_what_has_not_started_in_the_same_commit(service: Service) -> None:
    id = start(service, groups=("web", "db"), at_once=2)
    service._session.run(service._session.node.platform.approve(active(service)[0].id, "test"))
    service._session.settle()
    before = service._session.node.store.seq
    report = service._session.run(service._session.node.rollouts.abort(id, "test", "not today"))
    assert isinstance(report, RolloutReport)
    assert [event.status for event in active(service)] == [Status.STARTED]
    assert report.rollout.aborted is not None
    service._session.settle()
    assert service._session.node.store.seq == before + 1
    assert state(service, id) == "aborting"
    service.clock.advance("10m")
    assert state(service, id) == "aborted"


def test_a_cancelled_event_blocks_its_group_until_somebody_resumes(service: Service) -> None:
    id = start(service)
    service.cancel(active(service)[0])
    service.clock.advance("2h")
    assert active(service) == []
    assert state(service, id) == "blocked"
    assert waiting(service, id) == {(WaitKind.CANCELLED, "web")}
    assert "cancelled by test" in waits(service, id)
    do(service, "resume", id)
    assert [event.resources for event in active(service)] == [("web_0",)]


def test_a_step_whose_machine_was_evicted_has_nothing_to_do(service: Service) -> None:
    id = start(service)
    service.schedule("Preempt", "web_0", notice="1m")
    service.clock.advance("2m")
    assert [event.resources for event in active(service)] == [("web_1",)]
    assert report_of(service, id).next.lanes[0].steps[0].state.value == "nothing to do"


def test_a_machine_that_is_being_evicted_is_left_out(service: Service) -> None:
    taken = service.schedule("Preempt", "web_0", notice="30s")
    service.clock.advance("30s")
    id = start(service)
    assert {event.resources for event in active(service) if event.id != taken.id} == {("web_1",)}
    assert state(service, id) == "running"


def test_time_does_not_pass_while_a_driver_is_asked() -> None:
    """However long its check takes, the next step is announced at the instant the last ended."""

    class Thoughtful(SimulatedDriver):
        async def check(self, task: Task) -> Checked:
            for _ in range(50):
                await guard.pause(0)
            return await super().check(task)

    with Service(FLEET, driver=Thoughtful(ImpactJournal(), Durations().paced)) as service:
        start(service)
        began = service._session.node.writer.now().at
        service.clock.advance("1h")
        events = service._session.run(service._session.node.platform.past("web", 10))
        assert [(e.raised_at - began) // MINUTE for e in reversed(events)] == [0, 25]


@pytest.mark.parametrize("verb", ["pause", "abort", "halt"])
def test_a_pause_abort_or_halt_during_a_driver_check_prevents_the_announcement(verb: str) -> None:
    class Slow(SimulatedDriver):
        def __init__(self) -> None:
            super().__init__(ImpactJournal(), Durations().paced)
            self.asked, self.answer = asyncio.Event(), asyncio.Event()

        async def check(self, task: Task) -> Checked:
            self.asked.set()
            await self.answer.wait()
            return await super().check(task)

    driver = Slow()
    with Service(FLEET, driver=driver) as service:

        async def switch_meanwhile() -> None:
            started = await service._session.node.rollouts.start(wanted())
            assert isinstance(started, RolloutReport)
            await driver.asked.wait()
            node = service._session.node
            if verb == "halt":
                await node.halts.place(by="test", groups=["web"])
            else:
                await getattr(node.rollouts, verb)(started.rollout.id, "test")
            driver.answer.set()

        service._session.run(switch_meanwhile())
        service._session.settle()
        assert active(service) == []
        assert service._session.run(service._session.node.platform.past(None, 10)) == []


def test_a_step_whose_window_closes_is_announced_again_for_the_next_window(
    service: Service,
) -> None:
    id = start(service, windows=(parse_window("08:00-08:20"),))
    (first,) = active(service)
    service.schedule("Reboot", "web_1", notice="10m", short_notice=True)
    service.clock.advance("19m")  # the other domain is being disturbed from 08:10 to 08:20
    assert first.id in {event.id for event in active(service)}
    service.clock.advance("1m")
    (again,) = active(service)
    assert again.id != first.id
    assert again.not_before == first.not_before - 15 * MINUTE + 24 * HOUR
    assert state(service, id) == "running"


def test_an_early_approval_does_not_start_it_before_its_window_opens(service: Service) -> None:
    start(service, windows=(parse_window("09:00-10:00"),))
    service.document("web_0")
    service.approve("web_0", active(service)[0])
    service.clock.advance("59m")
    assert active(service)[0].status is Status.SCHEDULED
    service.clock.advance("1m")
    assert active(service)[0].status is Status.STARTED


def test_a_veto_of_the_driver_pauses_the_rollout() -> None:
    class Stubborn(SimulatedDriver):
        async def check(self, task: Task) -> Checked:
            if task.machines[0].name == "web_1":
                return Veto("disk full")
            return await super().check(task)

    with Service(FLEET, driver=Stubborn(ImpactJournal(), Durations().paced)) as service:
        id = start(service)
        service.clock.advance("1h")
        assert state(service, id) == "paused"
        assert "disk full" in waits(service, id)


def test_a_gate_holds_the_next_step_until_it_passes(service: Service, health: Health) -> None:
    health.status = 503
    id = start(service, gate=Gate(http=health.url))
    service.clock.advance("26m")
    assert active(service) == []
    assert "status 503" in waits(service, id)
    assert health.asked == 7  # every ten seconds, from the end of the step on
    health.status = 204
    service.clock.advance("10s")
    assert [event.resources for event in active(service)] == [("web_1",)]


def test_a_gate_that_does_not_pass_in_time_pauses_the_rollout(
    service: Service, health: Health
) -> None:
    health.status, health.headers = 302, {"Location": "/elsewhere"}
    id = start(service, gate=Gate(http=health.url, timeout=2 * MINUTE))
    service.clock.advance("30m")
    assert state(service, id) == "paused"
    assert "within 2 min" in waits(service, id)
    assert "status 302" in waits(service, id)
    asked = health.asked
    service.clock.advance("30m")
    assert health.asked == asked
    health.status = 200
    do(service, "resume", id)
    assert [event.resources for event in active(service)] == [("web_1",)]


def test_a_gate_is_asked_again_after_a_restart(health: Health) -> None:
    disk, world = Disk(), ImpactJournal()
    health.status = 500

    def a_life(at: int) -> Service:
        driver = SimulatedDriver(world, Durations().paced)
        return Service(FLEET, store=MemoryStore(disk), driver=driver, start=to_datetime(at))

    with a_life(1_800_000_000 * 1_000_000) as service:
        id = start(service, gate=Gate(http=health.url))
        service.clock.advance("26m")
        now = service._session.node.writer.now().at
    health.status = 200
    with a_life(now) as service:
        service._session.settle()
        assert [event.resources for event in active(service)] == [("web_1",)]
        service.clock.advance("30m")
        assert state(service, id) == "done"


def test_a_rollout_stored_in_a_file_is_resumed_with_all_its_fields(
    tmp_path: Path, health: Health
) -> None:
    fields: dict[str, Any] = {
        "windows": (parse_window("3rd,last fri 08:00-12:00 Europe/Berlin"),),
        "gate": Gate(http=health.url, timeout=HOUR),
        "bake": MINUTE,
        "description": "New kernel.",
        "selection": Selection(groups=("web",), exclude_labels=(parse("tier=db,!old"),)),
    }
    with Service(FLEET, state=tmp_path / "state.db") as service:
        id = start(service, **fields)
        before = report_of(service, id).rollout
        do(service, "pause", id, "lunch")
        service.clock.advance("26m")
        now = service._session.node.writer.now().at
    with Service(FLEET, state=tmp_path / "state.db", start=to_datetime(now)) as service:
        service._session.settle()
        after = report_of(service, id)
        assert after.state == "paused"
        for field in ("windows", "gate", "exclusions"):
            assert getattr(after.rollout, field) == getattr(before, field)
        assert after.next.lanes[0].steps[0].state.value == "done"
        do(service, "resume", id)
        assert [event.resources for event in active(service)] == [("web_1",)]
        service.clock.advance("31d")
        assert state(service, id) == "done"


def test_aborting_withdraws_the_maintenance_of_a_host_for_all_its_groups(service: Service) -> None:
    id = start(service, selection=Selection(hosts=("h1", "h2")))
    assert len(active(service)) == 2
    assert do(service, "abort", id).rollout.aborted is not None
    assert active(service) == []
    assert state(service, id) == "aborted"


def test_the_operator_who_cancelled_the_maintenance_of_a_host_is_named_once(
    service: Service,
) -> None:
    id = start(service, selection=Selection(hosts=("h1", "h2")))
    service.cancel(active(service)[0])
    assert waits(service, id).count("cancelled by test") == 1
    assert "test, test" not in waits(service, id)


def test_a_gate_that_hangs_does_not_block_other_rollouts(health: Health) -> None:
    with Service(FLEET) as service:
        service._session.node.reconciler._gates = Gates(patience=60.0)
        hung = start(service, gate=Gate(http=health.url), short_notice=True, notice=0)
        other = start(service, groups=("db",))
        health.hangs.clear()

        async def to_the_gate() -> None:
            """Time passes, but nobody waits until all is done: the gate is not."""
            clock, feed = service._session.node.clock, service._session.node.feed
            clock.set(clock.at + 10 * MINUTE)  # type: ignore[attr-defined]
            while active(service)[0].group != "db" or len(active(service)) != 1:
                await feed.changed("web")
            clock.set(clock.at + 5 * MINUTE)  # type: ignore[attr-defined]
            while active(service)[0].status is not Status.STARTED:
                await feed.changed("db")

        service._session.run(to_the_gate())
        assert state(service, hung) == "running"
        assert state(service, other) == "running"
        health.hangs.set()
        service._session.settle()
        assert {event.group for event in active(service)} == {"db", "web"}


def test_a_command_is_run_only_if_the_settings_name_it() -> None:
    gates: dict[str, tuple[str, ...]] = {
        "well": (sys.executable, "-c", "print('all is well')"),
        "ill": (sys.executable, "-c", "print('disk 3 is missing'); raise SystemExit(3)"),
    }
    with Service(FLEET, gates=gates) as service:
        says = refused(service, gate=Gate(command="rm -rf /"))
        assert "no gate command 'rm -rf /'" in says
        assert "ill, well" in says
        good = start(service, gate=Gate(command="well"))
        bad = start(service, groups=("db",), gate=Gate(command="ill", timeout=MINUTE))
        service.clock.advance("40m")
        assert report_of(service, good).next.lanes[0].steps[1].events
        assert state(service, bad) == "paused"
        assert "exit code 3: disk 3 is missing" in waits(service, bad)


def test_a_command_gets_nothing_of_the_services_environment_but_what_programs_get(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOREWARN_TOKEN", "a secret")
    monkeypatch.setenv("LANG", "C.UTF-8")
    script = "import os, sys; print(os.environ['LANG'], *(n for n in os.environ if 'FORE' in n))"
    gates = Gates({"tells": (sys.executable, "-c", script)})
    answer = service._session.run(gates.evaluate(Gate(command="tells")))
    assert (answer.passed, answer.message) == (True, "exit code 0: C.UTF-8")


def test_an_unreachable_gate_address_is_reported_with_its_reason(service: Service) -> None:
    for url, reported in (
        (f"http://127.0.0.1:{free_port()}/", "Connection refused"),
        ("http://nowhere.invalid/", "its host name cannot be resolved"),
    ):
        answer = service._session.run(Gates().evaluate(Gate(http=url)))
        assert (answer.passed, answer.message) == (False, reported)


def test_a_command_that_hangs_is_given_up(service: Service) -> None:
    gates = Gates({"slow": ("/bin/sh", "-c", "read -r _ < /dev/zero")}, patience=0.5)
    answer = service._session.run(gates.evaluate(Gate(command="slow")))
    assert (answer.passed, answer.message) == (False, "no answer within 0.5 s")


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"selection": Selection()}, "needs a selection"),
        ({"groups": ("wbe",)}, "no group 'wbe'"),
        ({"selection": Selection(hosts=("x*",))}, "no host 'x*'"),
        ({"selection": Selection(labels=(parse("tier=none"),))}, "no machine"),
        ({"type": EventType.PREEMPT}, "deletes its machines"),
        ({"type": EventType.REDEPLOY, "selection": Selection(hosts=("h1",))}, "Freeze, Reboot"),
        ({"notice": MINUTE}, "at least 15 min"),
        ({"notice": -1}, "notice must be"),
        ({"at_once": 0}, "from 1 to"),
        ({"bake": -1}, "bake time"),
        ({"duration": -2}, "-2"),
        ({"description": "x" * 2_000}, "2000 characters"),
        ({"gate": Gate()}, "either a URL"),
        ({"gate": Gate(http="http://x/", command="y")}, "either a URL"),
        ({"gate": Gate(http="ftp://x/")}, "valid URL"),
        ({"gate": Gate(http="http://x:99999/")}, "valid URL"),
        ({"gate": Gate(http="http://x/\r\nEvil: 1")}, "valid URL"),
        ({"gate": Gate(http="http://me:secret@x/")}, "user name"),
        ({"gate": Gate(http="http://x/", timeout=0)}, "timeout"),
    ],
)
def test_an_invalid_rollout_is_refused_and_not_stored(
    service: Service, fields: dict[str, Any], complaint: str
) -> None:
    assert complaint in refused(service, **fields)
    assert service._session.run(service._session.node.rollouts.list()) == []


def test_a_rollout_that_overlaps_an_unfinished_one_is_refused(
    service: Service,
) -> None:
    id = start(service, bake=HOUR)
    problem = refusal(service)
    again = problem.message
    assert problem.hint is Hint.ALLOW_OVERLAP
    assert id in again
    assert "under way" in again
    assert "for web;" in again
    assert "h1" in refused(service, selection=Selection(hosts=("h1", "h3")))  # web_0 is on it
    draft, _ = planned(service)
    assert draft.problem is not None
    assert id in draft.problem.message
    for other in (
        {"groups": ("db",)},
        {"type": EventType.FREEZE},
        {"type": EventType.REDEPLOY, "selection": Selection(machines=("web_0",))},
        {"allow_overlap": True},
    ):
        do(service, "abort", start(service, **other))
    do(service, "pause", id)
    assert "paused" in refused(service)
    do(service, "resume", id)
    service.clock.advance("30m")  # web_0 has been rebooted, and web_1 not yet
    first = Selection(machines=("web_0",))
    do(service, "abort", start(service, selection=first))
    assert "for web;" in refused(service, selection=Selection(machines=("web_1",)))
    do(service, "abort", id)
    start(service)


def test_one_of_two_starts_at_the_same_moment_is_refused(service: Service) -> None:
    rollouts = service._session.node.rollouts

    async def twice() -> list[Any]:
        return list(await asyncio.gather(rollouts.start(wanted()), rollouts.start(wanted())))

    results = service._session.run(twice())
    assert [type(result) for result in results] == [RolloutReport, Refused]
    assert results[0].rollout.id in results[1].message


def test_a_plan_announces_nothing_and_says_when(service: Service) -> None:
    plan = service._session.run(
        service._session.node.rollouts.plan(
            wanted(groups=("web", "db"), bake=5 * MINUTE, lasts=20 * MINUTE)
        )
    )
    assert not isinstance(plan, Refused)
    draft, forecast = plan
    at = draft.rollout.created_at
    assert [(p.lane, p.step.domain, (p.not_before - at) // MINUTE) for p in forecast.steps] == [
        ("web", 0, 15),
        ("web", 1, 55),
        ("db", 0, 95),
        ("db", 1, 135),
    ]
    assert forecast.done_at == at + 160 * MINUTE
    assert active(service) == []


def test_a_plan_is_what_happens(service: Service) -> None:
    """With what the simulated driver takes, to the microsecond."""
    fields = {"groups": ("web", "db"), "at_once": 2, "windows": (parse_window("08:30-09:00"),)}
    plan = service._session.run(service._session.node.rollouts.plan(wanted(**fields)))
    assert not isinstance(plan, Refused)
    start(service, **fields)
    service.clock.advance("3d")
    events = service._session.run(service._session.node.platform.past(None, 100))
    happened = {(e.resources, e.raised_at, e.not_before, e.ended_at) for e in events}
    planned = {(p.step.machines, p.announced_at, p.not_before, p.ends_at) for p in plan[1].steps}
    assert happened == planned


def test_while_it_runs_the_end_is_expected_as_planned(service: Service) -> None:
    fields: dict[str, Any] = {"groups": ("web", "db"), "bake": 5 * MINUTE}
    _, forecast = planned(service, **fields)
    id = start(service, **fields)
    rollouts = service._session.node.rollouts

    def expected() -> Any:
        return service._session.run(rollouts.expected_end(report_of(service, id)))

    for _ in range(9):  # announced, started, over, baking
        assert expected() == forecast.done_at
        service.clock.advance("11m")
    early = active(service)[0]
    service._session.run(service._session.node.platform.approve(early.id, "test"))
    assert forecast.done_at is not None
    assert forecast.done_at - 15 * MINUTE < expected() < forecast.done_at
    do(service, "pause", id)
    assert expected() is None


def test_the_oldest_that_are_over_are_forgotten_and_too_many_are_refused(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_rollouts, "MAX_ROLLOUTS", 2)
    monkeypatch.setattr(service_rollouts, "MAX_RUNNING", 2)
    first = start(service)
    service.clock.advance("2h")
    second = start(service)
    service.clock.advance("2h")
    third = start(service)
    listed = [r.rollout.id for r in service._session.run(service._session.node.rollouts.list())]
    assert listed == [third, second]
    assert "no rollout" in str(service._session.run(service._session.node.rollouts.report(first)))
    start(service, groups=("db",))
    assert "2 rollouts" in refused(service, allow_overlap=True)


def test_starts_pauses_resumes_and_aborts_are_recorded_with_their_caller(service: Service) -> None:
    id = start(service)
    do(service, "pause", id, "lunch")
    do(service, "resume", id)
    do(service, "abort", id, "enough")

    async def puts() -> list[Any]:
        return [
            put async for commit in service._session.node.store.commits(0) for put in commit.puts
        ]

    output = [(p.what, p.by) for p in service._session.run(puts()) if getattr(p, "rollout", None)]
    assert output == [
        ("started", "test"),
        ("paused", "test"),
        ("resumed", "test"),
        ("aborted", "test"),
        ("ended", "the rollout itself"),
    ]
    again = service._session.run(service._session.node.rollouts.resume(id, "test"))
    assert isinstance(again, Refused)
    assert f"{id} was aborted" in again.message


def test_a_ticket_is_on_its_events_and_in_the_history_but_not_shown_to_guests(
    service: Service,
) -> None:
    start(service, ticket="CHG-7", description="New kernel.")
    (event,) = active(service)
    assert (event.ticket, event.description) == ("CHG-7", "New kernel.")
    document = service["web_0"].get().body
    assert b"New kernel." in document
    assert b"CHG-7" not in document
    query = HistoryQuery(what=(RecordKind.ROLLOUT_STARTED, RecordKind.RAISED))
    records = service._session.run(service._session.node.store.history(query))
    assert [record.note for record in records] == [
        "group web (ticket CHG-7)",
        "New kernel. (ticket CHG-7)",
    ]
    assert "at most 256" in refused(service, ticket="x" * 257)


# Hosts with several update domains of a group.


CROWDED = """
hosts: [{name: h1, labels: {row: "2"}}, {name: h2, labels: {row: "1"}}, {name: h3}]
groups:
  - name: web
    kind: scale-set
    machines:
      - {name: web_0, update_domain: 0, host: h1}
      - {name: web_1, update_domain: 1, host: h1}
      - {name: web_2, update_domain: 2, host: h2}
  - name: db
    kind: availability-set
    machines:
      - {name: db_0, update_domain: 1, host: h1}
      - {name: db_1, update_domain: 0, host: h3}
"""
ALL_HOSTS = Selection(hosts=("*",))


@pytest.fixture
def crowded() -> Iterator[Service]:
    with Service(CROWDED) as made:
        yield made


def planned(service: Service, **fields: Any) -> tuple[Draft, Forecast]:
    plan = service._session.run(service._session.node.rollouts.plan(wanted(**fields)))
    assert not isinstance(plan, Refused), plan.message
    return plan


def past(service: Service) -> list[Event]:
    return list(service._session.run(service._session.node.platform.past(None, 100)))


def test_all_conflicts_are_reported_at_once_and_a_plan_shows_them_without_refusing(
    crowded: Service,
) -> None:
    node = crowded._session.node
    problem = crowded._session.run(node.rollouts.start(wanted(selection=ALL_HOSTS)))
    assert isinstance(problem, Refused)
    (conflict,) = problem.others
    assert conflict.field == "h1"
    assert "web_0 of 0 and web_1 of 1" in conflict.message
    draft, forecast = planned(crowded, selection=ALL_HOSTS)
    assert draft.problem is not None
    assert [(c.host, c.group) for c in draft.conflicts] == [("h1", "web")]
    assert len(forecast.steps) == 3


def test_the_maintenance_of_a_host_is_split_by_update_domain_as_planned(crowded: Service) -> None:
    _, forecast = planned(crowded, selection=ALL_HOSTS, conflicts=Conflicts.SPLIT)
    id = start(crowded, selection=ALL_HOSTS, conflicts=Conflicts.SPLIT)
    assert [event.resources for event in active(crowded)] == [("web_0",)]
    crowded.clock.advance("26m")
    together = active(crowded)
    assert {event.resources for event in together} == {("web_1",), ("db_0",)}
    assert len({event.joint for event in together}) == 1
    crowded.clock.advance("3h")
    assert state(crowded, id) == "done"
    happened = {(e.resources, e.raised_at, e.not_before, e.ended_at) for e in past(crowded)}
    assert {(e[1], e[2], e[3]) for e in happened} == {
        (p.announced_at, p.not_before, p.ends_at) for p in forecast.steps
    }
    assert {name for e in happened for name in e[0]} == {
        name for p in forecast.steps for name in p.step.machines
    }


def test_hosts_with_conflicts_are_skipped_on_request(crowded: Service) -> None:
    id = start(crowded, selection=ALL_HOSTS, conflicts=Conflicts.SKIP, at_once=3)
    assert {event.host for event in active(crowded)} == {"h2", "h3"}
    crowded.clock.advance("1h")
    assert state(crowded, id) == "done"
    steps = [step.state.value for lane in report_of(crowded, id).next.lanes for step in lane.steps]
    assert steps == ["skipped", "done", "done"]


def test_a_machine_of_a_split_host_that_moves_away_is_not_waited_for(crowded: Service) -> None:
    id = start(crowded, selection=ALL_HOSTS, conflicts=Conflicts.SPLIT)
    moved = crowded._session.node.fleet_apply.text(
        CROWDED.replace(
            "web_1, update_domain: 1, host: h1", "web_1, update_domain: 1, host: h3"
        ).replace("db_0, update_domain: 1, host: h1", "db_0, update_domain: 1, host: h3"),
        by="test",
    )
    assert not isinstance(crowded._session.run(moved), Refused)
    crowded.clock.advance("3h")
    assert state(crowded, id) != "running"
    steps = [step.state.value for step in report_of(crowded, id).next.lanes[0].steps]
    assert steps == ["done", "nothing to do"]


# A careful pace.


def test_a_canary_goes_first_and_the_rest_after_a_resume(crowded: Service) -> None:
    fields = {
        "selection": ALL_HOSTS,
        "conflicts": Conflicts.SPLIT,
        "canary": ("h3",),
        "waves": ("2", "100%"),
        "pause_after": PauseAfter.CANARY,
        "at_once": 3,
    }
    _, forecast = planned(crowded, **fields)
    assert [p.lane for p in forecast.steps] == ["h3", "h1", "h1", "h2"]
    id = start(crowded, **fields)
    assert {event.host for event in active(crowded)} == {"h3"}
    crowded.clock.advance("5h")
    assert (state(crowded, id), active(crowded)) == ("paused", [])
    assert "wave 1 of 3" in waits(crowded, id)
    do(crowded, "resume", id)
    assert {event.host for event in active(crowded)} == {"h1"}
    (later,) = (w for w in report_of(crowded, id).next.waits if w.kind is WaitKind.WAVE)
    assert later.count == 1
    crowded.clock.advance("5h")
    assert state(crowded, id) == "done"
    assert [event.host for event in sorted(past(crowded), key=lambda e: e.raised_at)] == [
        "h3", "h1", "h1", "h1", "h2",
    ]  # fmt: skip


def test_steps_are_skipped_while_it_runs_and_what_is_announced_of_them_is_cancelled(
    service: Service,
) -> None:
    id = start(service, groups=("web", "db"))
    (first,) = active(service)
    rollouts = service._session.node.rollouts
    skip = rollouts.skip(id, "test", "tested", lanes=("web",))
    assert not isinstance(service._session.run(skip), Refused)
    service._session.settle()
    assert [event.group for event in active(service)] == ["db"]
    query = HistoryQuery(what=(RecordKind.ROLLOUT_SKIPPED,))
    (record,) = service._session.run(service._session.node.store.history(query))
    assert (record.by, record.note) == ("test", "web/0, web/1: tested")
    service.clock.advance("20m")  # db_0 is being carried out
    again = service._session.run(rollouts.skip(id, "test", steps=(3,)))
    assert isinstance(again, Refused)
    assert again.reason is Reason.CONFLICT
    assert "cannot be skipped" in again.message
    for wrong, complaint in (({"lanes": ("wbe",)}, "did you mean"), ({"steps": (9,)}, "1 to 4")):
        found = service._session.run(rollouts.skip(id, "test", **wrong))
        assert isinstance(found, Refused)
        assert complaint in found.message
    service.clock.advance("3h")
    assert state(service, id) == "done"
    assert first.id not in [event.id for event in past(service) if event.status is Status.FINISHED]
    assert report_of(service, id).steps_over == 4


def test_steps_that_have_not_started_by_the_deadline_are_not_started(service: Service) -> None:
    at = service._session.node.writer.now().at
    fields: dict[str, Any] = {"groups": ("web", "db"), "deadline": at + 50 * MINUTE}
    _, forecast = planned(service, **fields)
    assert "2 of 4 steps" in forecast.message
    id = start(service, **fields)
    service.clock.advance("3h")
    assert state(service, id) == "expired"
    assert {event.group for event in past(service)} == {"web"}
    assert [(e.raised_at, e.ended_at) for e in past(service)][::-1] == [
        (p.announced_at, p.ends_at) for p in forecast.steps
    ]
    assert "too early" in refused(service, deadline=at + 10 * MINUTE)


def test_an_announced_step_that_is_held_until_the_deadline_is_withdrawn(
    service: Service,
) -> None:
    node = service._session.node
    id = start(service, deadline=node.writer.now().at + 50 * MINUTE)
    halt(service)
    assert waiting(service, id) == {(WaitKind.EVENT, "web")}
    service.clock.advance("1h")
    assert state(service, id) == "expired"
    (event,) = past(service)
    assert event.status is Status.WITHDRAWN
    assert "deadline" in event.ending


def halt(service: Service, **scope: Any) -> str:
    placed = service._session.run(service._session.node.halts.place(by="test", **scope))
    assert not isinstance(placed, Refused), placed.message
    return placed.halt.id


def release(service: Service, id: str) -> None:
    service._session.run(service._session.node.halts.release(id, "test"))
    service._session.settle()


def test_nothing_is_announced_while_the_fleet_is_halted(service: Service) -> None:
    first = start(service)
    id = halt(service, note="smoke")
    second = start(service, groups=("db",))
    hosts = start(
        service, type=EventType.FREEZE, works=True, selection=Selection(hosts=("h2", "h3"))
    )
    service.clock.advance("3h")
    assert [(e.resources, e.status) for e in active(service)] == [(("web_0",), Status.SCHEDULED)]
    assert not cordoned(service)
    assert waiting(service, first) == {(WaitKind.EVENT, "web")}  # before the halt
    assert waiting(service, second) == {(WaitKind.HALT, "db")}
    assert "db: halted by test: smoke;" in waits(service, second)
    (halted,) = report_of(service, hosts).next.waits
    assert (halted.kind, halted.lane, halted.count) == (WaitKind.HALT, "h2", 2)
    explained = service._session.run(service._session.node.rollouts.explain(second))
    assert not isinstance(explained, Refused)
    (wait,) = explained.waits
    assert id in wait.group.examples[0].unblocked_by
    release(service, id)
    service.clock.advance("3h")
    assert [state(service, id) for id in (first, second)] == ["done", "done"]
    assert cordoned(service) == {"h2"}


def test_a_halted_lane_does_not_hold_up_other_lanes(service: Service) -> None:
    id = halt(service, groups=("web",))
    rollout = start(service, groups=("web", "db"))
    service.clock.advance("2h")
    assert {(e.group, e.status) for e in past(service)} == {("db", Status.FINISHED)}
    assert waiting(service, rollout) == {(WaitKind.HALT, "web")}
    assert state(service, rollout) == "running"
    release(service, id)
    assert [event.resources for event in active(service)] == [("web_0",)]
    service.clock.advance("2h")
    assert state(service, rollout) == "done"


def test_a_step_whose_window_closes_during_a_halt_is_announced_after_the_release(
    service: Service,
) -> None:
    opens = to_datetime(service._session.node.writer.now().at + 20 * MINUTE)
    closes = to_datetime(service._session.node.writer.now().at + 40 * MINUTE)
    rollout = start(service, windows=(parse_window(f"{opens:%H:%M}-{closes:%H:%M}"),))
    id = halt(service)
    service.clock.advance("1h")
    assert active(service) == []
    assert "halted by test" in waits(service, rollout)
    release(service, id)
    assert [event.resources for event in active(service)] == [("web_0",)]


def test_a_lane_that_may_start_only_after_the_deadline_does_not_hold_up_other_lanes(
    service: Service,
) -> None:
    node = service._session.node
    at = node.writer.now().at
    blackout = Blackout(text="the night", begins=at, ends=at + 5 * HOUR)
    quiet = MaintenanceConfiguration(name="quiet", select="tier=db", blackouts=(blackout,))
    service._session.run(Configurations(node.store, node.writer).set(quiet, "test"))
    fields: dict[str, Any] = {"groups": ("db", "web"), "deadline": at + 3 * HOUR}
    _, forecast = planned(service, **fields)
    assert "2 of 4 steps" in forecast.message
    id = start(service, **fields)
    service.clock.advance("2h")
    assert state(service, id) == "running"
    assert waiting(service, id) == {(WaitKind.DEADLINE, "db")}
    assert {(e.group, e.status) for e in past(service)} == {("web", Status.FINISHED)}
    service.clock.advance("1h")
    assert state(service, id) == "expired"
    assert report_of(service, id).steps_over == 2


def test_a_step_that_could_not_be_announced_in_time_is_not_announced(service: Service) -> None:
    """A second is left for the announcement itself, and nobody tries again and again in it."""
    at = service._session.node.writer.now().at
    id = start(service, deadline=at + 50 * MINUTE, bake=9 * MINUTE + 59 * SECOND)
    service.clock.advance("1h")
    assert state(service, id) == "expired"
    assert [event.resources for event in past(service)] == [("web_0",)]


def test_a_step_that_would_not_end_in_its_window_does_not_start(service: Service) -> None:
    fields: dict[str, Any] = {
        "windows": (parse_window("08:00-09:00"),),
        "lasts": 10 * MINUTE,
        "must_end_in_window": True,
        "bake": 15 * MINUTE,
    }
    _, forecast = planned(service, **fields)
    start(service, **fields)
    service.clock.advance("2d")
    ends = {(e.not_before, e.ended_at) for e in past(service) if e.status is Status.FINISHED}
    assert ends == {(p.not_before, p.ends_at) for p in forecast.steps}
    assert sorted(str(to_datetime(end or 0).time()) for _, end in ends) == ["08:10:00", "08:25:00"]
    assert "long enough" in refused(service, **{**fields, "lasts": 2 * HOUR})
    assert refusal(service, must_end_in_window=True).hint is Hint.LASTS


class Failing(SimulatedDriver):
    """Carries nothing out."""

    async def perform(self, task: Task) -> Performed:
        del task
        return Failed("the disk is full")


def test_too_many_failed_steps_pause_the_rollout() -> None:
    with Service(FLEET, driver=Failing(ImpactJournal(), Durations().paced)) as service:
        id = start(service, groups=("web", "db"), at_once=2, max_failures=1)
        service.clock.advance("20m")
        assert state(service, id) == "paused"
        paused = waits(service, id)
        assert "2 steps failed" in paused
        assert "1 allowed: web, db" in paused
        do(service, "resume", id)
        service.clock.advance("20m")
        assert state(service, id) == "running"  # those are known


def test_live_migrations_empty_one_host_after_the_other_as_planned(crowded: Service) -> None:
    fields: dict[str, Any] = {
        "type": EventType.FREEZE,
        "moves": True,
        "selection": Selection(hosts=("h1",)),
        "lasts": 5 * MINUTE,
    }
    draft, forecast = planned(crowded, **fields)
    assert draft.problem is None  # machines go one by one: their domains one after the other
    assert [step.step.machines for step in forecast.steps] == [("web_0",), ("web_1", "db_0")]
    id = start(crowded, **fields)
    assert [(e.resources, e.moves, e.type) for e in active(crowded)] == [
        (("web_0",), True, EventType.FREEZE)
    ]
    crowded.clock.advance("3h")
    assert state(crowded, id) == "done"
    assert crowded._session.node.hosts.machines_on("h1") == []
    happened = {(e.raised_at, e.not_before) for e in past(crowded)}
    assert happened == {(p.announced_at, p.not_before) for p in forecast.steps}
    assert "host by host" in refused(crowded, type=EventType.FREEZE, moves=True)


@pytest.mark.parametrize(
    ("conflicts", "outcome", "host"),
    [
        (Conflicts.SKIP, "done", ["skipped"]),
        (Conflicts.SPLIT, "done", ["done", "done"]),
        (Conflicts.EVACUATE, "done", ["done", "done"]),
        (Conflicts.REFUSE, "paused", ["waiting"]),
    ],
)
def test_a_host_that_becomes_a_conflict_pauses_the_rollout_or_is_skipped(
    service: Service, conflicts: Conflicts, outcome: str, host: list[str]
) -> None:
    id = start(service, selection=ALL_HOSTS, conflicts=conflicts)
    assert {event.host for event in active(service)} == {"h1"}
    moved = FLEET.replace("update_domain: 1, host: h3", "update_domain: 1, host: h2")
    moved = moved.replace("web_1, update_domain: 1, host: h2", "web_1, update_domain: 1, host: h3")
    moved += "      - {name: db_2, update_domain: 0, host: h2}\n"
    found = service._session.run(service._session.node.fleet_apply.text(moved, by="test"))
    assert not isinstance(found, Refused)
    service.clock.advance("5h")
    assert state(service, id) == outcome
    lanes = {lane.lane.name: lane.steps for lane in report_of(service, id).next.lanes}
    assert [step.state.value for step in lanes["h2"]] == host


# Machines that come later.


def move(service: Service, machine: str, host: str) -> None:
    done = service._session.run(service._session.node.platform.record_move(machine, host, "test"))
    assert not isinstance(done, Refused), done.message
    service._session.settle()


def test_a_machine_added_to_an_announced_host_is_warned_too(service: Service) -> None:
    id = start(service, selection=Selection(hosts=("h1",)))
    service.clock.advance("10m")
    do(service, "pause", id)
    added = FLEET + "      - {name: db_2, update_domain: 0, host: h1}\n"
    service._session.run(service._session.node.fleet_apply.text(added, by="test"))
    service._session.settle()
    assert {event.resources for event in active(service)} == {("web_0",), ("db_0",)}
    do(service, "resume", id)  # until then, nothing is withdrawn or announced
    assert {event.resources for event in active(service)} == {("web_0",), ("db_0", "db_2")}
    assert {event.status for event in past(service)} == {Status.WITHDRAWN}
    assert all(f"rollout {id}: {reconciler.UNINFORMED}" in event.ending for event in past(service))
    service.clock.advance("1h")
    assert state(service, id) == "done"


def test_a_host_whose_machines_are_uncertain_pauses_the_rollout(
    service: Service,
) -> None:
    id = start(service, selection=Selection(hosts=("h1",)))
    move(service, "web_1", "h3")
    claimed = FLEET.replace(
        "web_1, update_domain: 1, host: h2", "web_1, update_domain: 1, host: h1"
    )
    done = service._session.run(service._session.node.fleet_apply.text(claimed, by="test"))
    assert not isinstance(done, Refused)
    service._session.settle()
    assert state(service, id) == "paused"
    assert "not certain" in waits(service, id)
    assert "host 'h1'" in waits(service, id)


QUARANTINED = parse("quarantine=yes")


@pytest.mark.parametrize(
    ("exclude", "before", "after"),
    [
        ({"exclude_machines": ("db_*",)}, "db_1, update_domain: 1, host: h3",
         "db_1, update_domain: 1, host: h2"),
        ({"exclude_labels": (QUARANTINED,)}, 'canary: "yes"', 'quarantine: "yes"'),
        ({"exclude_labels": (QUARANTINED,)}, "labels: {tier: web}",
         'labels: {tier: web, quarantine: "yes"}'),
        ({"exclude_host_labels": (QUARANTINED,)}, "{name: h2}",
         '{name: h2, labels: {quarantine: "yes"}}'),
    ],
    ids=["machine moves", "machine label", "group label", "host label"],
)  # fmt: skip
def test_what_is_excluded_later_is_left_out_also_after_a_restart(
    exclude: dict[str, Any], before: str, after: str
) -> None:
    fleet = FLEET.replace("db_0, update_domain: 0, host: h1", "db_0, update_domain: 0, host: h3")
    fleet = fleet.replace("web_0, update_domain: 0, host: h1", "web_0, update_domain: 0, host: h3")
    fleet = fleet.replace("{name: h1}", "{name: h1}, {name: h0}")
    fleet += """
  - {name: jump, kind: standalone, machines: [{name: jumpbox, host: h1}]}
"""
    assert before in fleet
    disk = Disk()
    with Service(fleet, store=MemoryStore(disk)) as service:
        id = start(service, selection=Selection(hosts=("h1", "h2"), **exclude))
        assert {event.host for event in active(service)} == {"h1"}
    with Service(fleet, store=MemoryStore(disk)) as service:
        text = fleet.replace(before, after)
        changed = service._session.run(service._session.node.fleet_apply.text(text, by="test"))
        assert not isinstance(changed, Refused), changed.message
        service.clock.advance("2h")
        lanes = report_of(service, id).next.lanes
        assert [step.state.value for lane in lanes for step in lane.steps] == ["done", "skipped"]
        assert state(service, id) == "done"


def test_an_excluded_machine_that_comes_to_an_announced_host_leaves_the_host_out(
    service: Service,
) -> None:
    exclude = Selection(hosts=("h1", "h2"), exclude_machines=("db_1",))
    id = start(service, selection=exclude)
    move(service, "db_1", "h1")
    assert {event.host for event in active(service)} == {"h2"}
    service.clock.advance("2h")
    assert state(service, id) == "done"
    lanes = report_of(service, id).next.lanes
    assert [step.state.value for lane in lanes for step in lane.steps] == ["skipped", "done"]


def test_a_machine_of_a_group_that_is_excluded_later_is_left_out(service: Service) -> None:
    id = start(service, selection=Selection(groups=("web",), exclude_labels=(QUARANTINED,)))
    text = FLEET.replace('canary: "yes"', 'quarantine: "yes"')
    changed = service._session.run(service._session.node.fleet_apply.text(text, by="test"))
    assert not isinstance(changed, Refused), changed.message
    service.clock.advance("2h")
    assert {event.resources for event in past(service)} == {("web_0",)}
    assert state(service, id) == "done"


# Hosts that are emptied.


def steps_of(service: Service, id: str) -> dict[str, list[str]]:
    lanes = report_of(service, id).next.lanes
    return {lane.lane.name: [step.state.value for step in lane.steps] for lane in lanes}


def machines_on(service: Service, host: str) -> list[str]:
    return [machine.name for machine in service._session.node.hosts.machines_on(host)]


def cordoned(service: Service) -> set[str]:
    hosts = service._session.node.store.registry.hosts.values()
    return {host.name for host in hosts if host.cordoned}


def put_back(service: Service, host: str) -> None:
    done = service._session.run(service._session.node.hosts.put_back(host, "test"))
    assert not isinstance(done, Refused), done.message
    service._session.settle()


WORK: dict[str, Any] = {
    "type": EventType.FREEZE,
    "works": True,
    "selection": Selection(hosts=("h1", "h2")),
}


def test_each_host_is_emptied_worked_on_and_put_back_before_the_next(crowded: Service) -> None:
    _, forecast = planned(crowded, **WORK)
    assert [(p.lane, p.step.action.value) for p in forecast.steps] == [
        ("h1", "evacuation"), ("h1", "work"), ("h2", "evacuation"), ("h2", "work"),
    ]  # fmt: skip
    id = start(crowded, **WORK)
    assert cordoned(crowded) == {"h1"}
    assert {e.resources for e in active(crowded)} == {("web_0",), ("web_1",), ("db_0",)}
    assert all(event.moves for event in active(crowded))
    crowded.clock.advance("1h")
    assert machines_on(crowded, "h1") == []
    assert (WaitKind.WORK, "h1") in waiting(crowded, id)
    assert "empty and cordoned" in waits(crowded, id)
    crowded.clock.advance("10h")  # the work takes as long as it takes
    assert steps_of(crowded, id) == {"h1": ["done", "started"], "h2": ["waiting", "waiting"]}
    put_back(crowded, "h1")
    assert cordoned(crowded) == {"h2"}
    crowded.clock.advance("2h")
    put_back(crowded, "h2")
    assert (state(crowded, id), cordoned(crowded)) == ("done", set())
    assert "host by host" in refused(crowded, type=EventType.FREEZE, works=True)


def test_an_empty_host_is_cordoned_and_worked_on_as_well(service: Service) -> None:
    service._session.run(service._session.node.platform.record_move("web_1", "h3", "test"))
    id = start(service, **{**WORK, "selection": Selection(hosts=("h2",))})
    assert (cordoned(service), active(service)) == ({"h2"}, [])
    assert steps_of(service, id) == {"h2": ["nothing to do", "started"]}
    put_back(service, "h2")
    assert state(service, id) == "done"


def test_a_host_is_worked_on_only_when_it_is_empty(service: Service) -> None:
    id = start(service, **{**WORK, "selection": Selection(hosts=("h2",))})
    service.clock.advance("10m")
    move(service, "db_1", "h2")  # while web_1 is still to leave
    service.clock.advance("18m")
    assert waiting(service, id) == {(WaitKind.EVENT, "h2")}
    service.clock.advance("30m")
    assert machines_on(service, "h2") == []
    move(service, "db_1", "h2")  # which was moved away last
    assert waiting(service, id) == {(WaitKind.WORK, "h2")}
    assert "not empty: db_1" in waits(service, id)
    move(service, "db_1", "h3")
    assert "empty and cordoned" in waits(service, id)


def test_a_host_that_was_put_back_stays_done_when_it_is_cordoned_again(service: Service) -> None:
    id = start(service, **{**WORK, "bake": HOUR})
    service.clock.advance("1h")
    put_back(service, "h1")
    service._session.run(service._session.node.hosts.cordon("h1", "test"))
    assert steps_of(service, id)["h1"] == ["done", "done"]
    assert cordoned(service) == {"h1"}
    assert (WaitKind.BAKE, "h1") in waiting(service, id)
    service.clock.advance("61m")
    assert cordoned(service) == {"h1", "h2"}


def test_an_evacuation_that_is_cancelled_blocks_its_host_until_somebody_resumes(
    service: Service,
) -> None:
    id = start(service, **{**WORK, "selection": Selection(hosts=("h2",))})
    put_back(service, "h2")  # which cancels it
    assert state(service, id) == "blocked"
    do(service, "resume", id)
    assert (state(service, id), cordoned(service)) == ("running", {"h2"})
    assert len(active(service)) == 1


def test_machines_leave_a_host_with_a_conflict_until_one_domain_is_left(crowded: Service) -> None:
    fields: dict[str, Any] = {"selection": ALL_HOSTS, "conflicts": Conflicts.EVACUATE}
    draft, forecast = planned(crowded, **fields)
    assert draft.problem is None
    assert [(p.lane, p.step.action.value, p.step.machines) for p in forecast.steps][:2] == [
        ("h1", "evacuation", ("web_1",)), ("h1", "maintenance", ("web_0", "db_0")),
    ]  # fmt: skip
    id = start(crowded, **fields)
    assert [(e.resources, e.moves) for e in active(crowded)] == [(("web_1",), True)]
    crowded.clock.advance("26m")
    assert {(e.resources, e.type) for e in active(crowded)} == {
        (("web_0",), EventType.REBOOT), (("db_0",), EventType.REBOOT),
    }  # fmt: skip
    crowded.clock.advance("5h")
    assert state(crowded, id) == "done"
    assert cordoned(crowded) == set()


def test_a_host_that_is_still_a_conflict_after_its_evacuation_pauses_the_rollout() -> None:
    class Stays(SimulatedDriver):
        """Says that the machines are where they were."""

        async def perform(self, task: Task) -> Performed:
            where = {machine.name: machine.host for machine in task.machines}
            return Done(where) if task.moves else await super().perform(task)

    with Service(CROWDED, driver=Stays(ImpactJournal(), Durations().paced)) as service:
        id = start(service, selection=Selection(hosts=("h1",)), conflicts=Conflicts.EVACUATE)
        service.clock.advance("1h")
        assert state(service, id) == "paused"
        assert "two update domains" in waits(service, id)


def test_a_step_whose_event_is_abandoned_has_failed() -> None:
    with Service(FLEET, driver=Failing(ImpactJournal(), Durations().paced)) as service:
        id = start(service, groups=("web",), max_failures=5)
        service.clock.advance("20m")
        (event,) = active(service)
        session = service._session
        session.run(session.node.platform.abandon(event.id, "ops", "stuck"))
        service.clock.advance("1m")
        assert [len(lane.failures) for lane in report_of(service, id).next.lanes] == [1]
        (ended,) = [old for old in past(service) if old.id == event.id]
        assert ended.abandoned


def heard(text: str) -> str:
    """The fleet, with groups whose events last until their machines have polled again."""
    return re.sub(r"(    kind: .*\n)", r"\1    policy: {over_when: heard}\n", text)


def poll(service: Service, *machines: str) -> None:
    for machine in machines:
        service.get(machine)
    service.clock.advance(0)


def test_a_machine_that_is_not_back_pauses_a_rollout_before_its_next_wave() -> None:
    with Service(heard(FLEET)) as service:
        poll(service, "web_0", "web_1", "db_0")
        id = start(service, groups=("web", "db"), waves=("1",), bake=MINUTE)
        service.clock.advance("15m")
        (event,) = active(service)
        service.clock.advance("9m")
        assert event.id in {e.id for e in active(service)}
        service.clock.advance("2m")
        assert f"waiting for {event.resources[0]} to poll again" in waits(service, id)
        service.clock.advance("1h")
        assert state(service, id) == "paused"
        assert waits(service, id).count(event.resources[0]) == 1
        assert {name for e in past(service) for name in e.resources} == set(event.resources)
        do(service, "resume", id)
        service.clock.advance("30m")
        assert len({name for e in past(service) for name in e.resources}) > len(event.resources)


def test_machines_that_come_back_do_not_hold_a_rollout_up() -> None:
    with Service(heard(FLEET)) as service:
        poll(service, "web_0", "web_1")
        id = start(service, groups=("web",))
        for _ in range(60):
            service.clock.advance("1m")
            poll(service, "web_0", "web_1")
        assert state(service, id) == "done"


def test_as_many_steps_may_fail_as_the_operator_says_also_by_machines_not_back() -> None:
    with Service(heard(FLEET)) as service:
        poll(service, "web_0", "web_1")
        id = start(service, groups=("web",), max_failures=1)
        service.clock.advance("40m")
        assert state(service, id) == "running"
        service.get("web_1")  # within the hour before its own event
        service.clock.advance("1h")
        assert state(service, id) in ("paused", "done")


@pytest.mark.parametrize("every", ["never", "1h"])
def test_machines_that_poll_rarely_or_never_do_not_hold_a_rollout_up(every: str) -> None:
    ends = []
    for fleet in (FLEET, heard(FLEET)):
        with Service(fleet) as service:
            for _ in range(3):
                if every != "never":
                    poll(service, "web_0", "web_1")
                service.clock.advance("1h")
            id = start(service, groups=("web",))
            service.clock.advance("2h")
            assert state(service, id) == "done"
            ends.append([event.ended_at for event in past(service)])
    assert ends[0] == ends[1]
