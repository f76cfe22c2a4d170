"""What a trace says that no document shows: hosts, windows, and deletes that nobody is told of."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from forewarn.core import Durations, EventType, Refused
from forewarn.core import commands as c
from forewarn.core.events import Joint
from forewarn.core.time import DAY, HOUR, MINUTE, SECOND
from forewarn.core.windows.model import Blackout, MaintenanceConfiguration, Span
from forewarn.core.windows.syntax import parse_window
from forewarn.judge import judge_files
from forewarn.judge.reading.disconnected_times import DisconnectedTimes
from forewarn.judge.reading.trace import read_trace
from forewarn.service.engine.writer import CommitPlan
from forewarn.service.platform.configurations import Configurations
from forewarn.service.telemetry.event_trace import TAIL, EventTrace, FileEventTrace
from forewarn.store import MemoryStore
from forewarn.store.memory import Disk
from forewarn.testing import FaultKind, Service
from helpers.reachable_hosts import cut_off, join
from helpers.times import START

A = "AAAAAAAA-0000-4000-8000-000000000001"
B = "BBBBBBBB-0000-4000-8000-000000000002"
FLEET = """
groups:
  - name: web
    kind: scale-set
    machines:
      - {name: web_0, update_domain: 0}
      - {name: web_1, update_domain: 1}
  - name: jump
    kind: standalone
    machines:
      - {name: jump}
"""


def output(path: Path, *kinds: str) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [record for record in records if record["kind"] in kinds]


def submit(service: Service, *commands: tuple[str, c.Command]) -> None:
    outcome = service._session.run(service._session.node.writer.commit(CommitPlan(list(commands))))
    assert not isinstance(outcome, Refused), outcome.message
    service._session.settle()


def maintain_host(service: Service) -> None:
    joint = Joint("j", ("jump", "web"))
    submit(
        service,
        *(
            (
                group,
                c.Raise(
                    id=id,
                    type=EventType.FREEZE,
                    machines=(machine,),
                    by="test",
                    host="rack-1",
                    joint=joint,
                    span=Span(START, START + 60 * MINUTE),
                ),
            )
            for group, id, machine in (("web", A, "web_0"), ("jump", B, "jump"))
        ),
    )


def test_the_events_of_a_host_and_their_window_are_recorded_once_raised(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    with Service(FLEET, record=path) as service:
        service.get("web_0")
        service.get("jump")
        maintain_host(service)
        service.approve("web_0", A)
        service.clock.advance("10s")
        assert service.document("web_0")["Events"][0]["EventStatus"] == "Scheduled"
        service.approve("jump", B)
        service._session.settle()
        assert service.document("web_0")["Events"][0]["EventStatus"] == "Started"
        assert service.document("jump")["Events"][0]["EventStatus"] == "Started"
        service.clock.advance("20m")
        assert service.document("web_0")["Events"] == service.document("jump")["Events"] == []
    (joint,) = output(path, "joint")
    assert joint == {
        "kind": "joint",
        "t": START / SECOND,
        "id": "j",
        "host": "rack-1",
        "events": {A: "web", B: "jump"},
    }
    times = {"opens": START / SECOND, "closes": START / SECOND + 3600}
    windows = [{"kind": "window", "t": START / SECOND, "event": id, **times} for id in (A, B)]
    assert output(path, "window") == windows
    assert [line["event"] for line in output(path, "impact")] in ([A, B], [B, A])
    judgement = judge_files([path])
    assert judgement.ok, judgement.render()


def test_an_unannounced_delete_is_recorded_from_start_to_end(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    with Service(FLEET, record=path) as service:
        service.get("web_0")
        submit(service, ("web", c.Delete(id=A, machine="web_1", by="test")))
        assert service.document("web_0")["Events"] == []
        service.clock.advance("2m")
    begins, ends = output(path, "unannounced", "over")
    assert begins == {
        "kind": "unannounced",
        "t": START / SECOND,
        "event": A,
        "group": "web",
        "type": "Terminate",
        "source": "Platform",
        "machines": ["web_1"],
    }
    assert (ends["kind"], ends["event"]) == ("over", A)
    assert begins["t"] < ends["t"] <= begins["t"] + 120
    judgement = judge_files([path])
    assert judgement.ok, judgement.render()


def test_existing_events_are_recorded_when_a_recording_begins(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "trace"
    with Service(FLEET, store=MemoryStore(disk)) as service:
        maintain_host(service)
    with Service(FLEET, store=MemoryStore(disk), record=path) as service:
        service.get("web_0")
    (joint,) = output(path, "joint")
    assert joint["events"] == {A: "web", B: "jump"}
    assert set(output(path, "fleet")[0]["machines"]) == {"web_0", "web_1", "jump"}
    assert [line["event"] for line in output(path, "window")] == [A, B]
    judgement = judge_files([path])
    assert judgement.ok, judgement.render()


HOSTS = """
hosts: [h1, h2]
groups:
  - name: web
    kind: scale-set
    labels: {tier: web}
    policy: {may_postpone: 2h}
    machines:
      - {name: web_0, host: h1}
      - {name: web_1, host: h2}
  - name: jump
    kind: standalone
    machines:
      - {name: jump, host: h1}
"""


def run(service: Service, work: Any) -> Any:
    outcome = service._session.run(work)
    assert not isinstance(outcome, Refused), outcome.message
    service._session.settle()
    return outcome


def test_halts_are_recorded_and_recorded_again(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "trace"
    with Service(HOSTS, store=MemoryStore(disk), record=path) as service:
        node = service._session.node
        service.get("web_0")
        event = service.schedule("Freeze", "web_0").id
        run(service, node.platform.postpone(event, "tenant", duration=HOUR))
        halt = run(service, node.halts.place(by="test", label="tier=web")).halt
        nights = MaintenanceConfiguration(
            name="nights", blackouts=(Blackout(begins=START + DAY, ends=START + 2 * DAY),)
        )
        run(service, Configurations(node.store, node.writer).set(nights, "test"))
        run(service, node.platform.record_move("web_1", "h1", "test"))
        run(service, node.platform.approve(event, "test", ignore_windows=True))
    at = START / SECOND
    halts = {"kind": "halts", "t": at, "halts": [{"id": halt.id, "machines": ["web_0", "web_1"]}]}
    day = DAY / SECOND
    limits = {
        "kind": "maintenance",
        "t": at,
        "until": at + 35 * day,
        "configurations": [
            {"name": "nights", "open": [[at, at + day], [at + 2 * day, at + 35 * day]]}
        ],
    }
    placement = {"kind": "placement", "t": at, "machines": {"web_1": ["h1"]}}
    ignores = {"kind": "ignores-windows", "t": at, "event": event}
    kinds = ("halts", "maintenance", "placement", "ignores-windows", "postponed")
    assert output(path, *kinds) == [halts, limits, placement, ignores]
    assert output(path, "fleet")[-1]["machines"]["web_1"]["hosts"] == ["h2"]
    with Service(HOSTS, store=MemoryStore(disk), record=path) as service:
        run(service, service._session.node.halts.release(halt.id, "test"))
        service.document("web_0")
    again = output(path, *kinds)[4:]
    later = {"kind": "postponed", "t": at, "event": event, "not_before": at + 15 * 60 + 3600}
    assert again == [halts, limits, ignores, later, {**halts, "halts": []}]
    assert output(path, "fleet")[-1]["machines"]["web_1"]["hosts"] == ["h1"]
    judgement = judge_files([path])
    assert judgement.ok, judgement.render()


def test_a_halt_of_hosts_is_recorded_with_the_machines_that_are_on_them(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    with Service(HOSTS, record=path) as service:
        node = service._session.node
        run(service, node.halts.place(by="test", host_label="!row"))
        run(service, node.platform.record_move("web_1", "h1", "test"))
        labelled = HOSTS.replace("h1", "{name: h1, labels: {row: west}}", 1)
        run(service, node.fleet_apply.text(labelled, by="test"))
    lines = [line["halts"] for line in output(path, "halts")]
    covered = [halt["machines"] for halts in lines for halt in halts]
    assert covered[0] == ["web_0", "web_1", "jump"]
    assert covered[-1] == ["web_1"]  # which is on h1 now, but which the file has on h2


def test_times_at_which_maintenance_may_start_are_recorded_again_before_they_end(
    tmp_path: Path,
) -> None:
    path = tmp_path / "trace"
    with Service(HOSTS, record=path) as service:
        node = service._session.node
        nights = MaintenanceConfiguration(name="nights", windows=(parse_window("01:00-02:00"),))
        run(service, Configurations(node.store, node.writer).set(nights, "test"))
        for _ in range(2):
            service.clock.advance("34d12h")
            service.get("web_0")
            service.schedule("Freeze", "web_0")
    lines = output(path, "maintenance")
    assert [len(line["configurations"][0]["open"]) for line in lines] == [35, 35, 35]
    assert all(earlier["until"] > later["t"] for earlier, later in pairwise(lines))


def announce(service: Service, id: str, type: EventType, **more: Any) -> None:
    raised = c.Raise(id=id, type=type, machines=("web_0",), by="test", **more)
    submit(service, ("web", raised))


def test_notice_that_is_short_on_purpose_is_recorded_and_not_held_against_the_service(
    tmp_path: Path,
) -> None:
    path = tmp_path / "trace"
    with Service(FLEET, record=path) as service:
        service.get("web_0")
        service.clock.advance("1s")
        announce(service, A, EventType.REBOOT, notice=MINUTE, short_notice=True)
        service.clock.advance("1s")
        service.get("web_0")
        announce(service, B, EventType.REBOOT, short_notice=True)
        service.get("web_0")
    assert output(path, "short-notice") == [
        {"kind": "short-notice", "t": START / SECOND + 1, "event": A}
    ], "the other has all the notice that is promised"
    judgement = judge_files([path])
    assert judgement.ok, judgement.render()
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{line}\n" for line in lines if '"kind":"short-notice"' not in line))
    (finding,) = judge_files([path]).findings
    assert (finding.rule, finding.event) == ("short-notice", A)


def test_short_notice_is_recorded_again_when_a_recording_begins(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "trace"
    with Service(FLEET, store=MemoryStore(disk)) as service:
        announce(service, A, EventType.REBOOT, notice=MINUTE, short_notice=True)
    with Service(FLEET, store=MemoryStore(disk), record=path):
        pass
    assert [line["event"] for line in output(path, "short-notice")] == [A]


@pytest.mark.parametrize("kind", ["sudden", "short-notice"])
def test_notice_that_a_fault_takes_away_is_recorded(tmp_path: Path, kind: FaultKind) -> None:
    path = tmp_path / "trace"
    with Service(FLEET, record=path) as service:
        service.get("web_0")
        service.faults.add(kind, times=1)
        service.clock.advance("1s")
        event = service.schedule("Freeze", "web_0")
        service.clock.advance("1s")
        service.get("web_0")
    assert [line["event"] for line in output(path, "short-notice")] == [event.id]
    judgement = judge_files([path])
    assert judgement.ok, judgement.render()


def test_the_speed_of_a_service_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    with Service(FLEET, record=path, speed=60, silence="24h") as service:
        service.get("web_0")
        service.clock.advance("1s")
        service.schedule("Reboot", "web_0")
        service.clock.advance("1s")
        service.get("web_0")
    assert {line["speed"] for line in output(path, "fleet")} == {60}
    judgement = judge_files([path])
    assert judgement.ok, judgement.render()


def test_the_judge_reads_what_is_recorded_about_unreachable_machines() -> None:
    lines: list[dict[str, Any]] = []
    trace = EventTrace(lines.append)
    trace.disconnected(START, "rack-1", ["web_0"])
    trace.joined(START + MINUTE, "rack-1", ["web_0"])
    [time] = DisconnectedTimes(read_trace(lines)).of("web_0")
    assert (time.begin, time.end, time.host) == (START / SECOND, START / SECOND + 60, "rack-1")


def test_a_host_that_is_no_longer_expected_to_have_a_node_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    fleet = "hosts: [h1, h2]\n" + FLEET
    with Service(fleet, record=path) as service:
        hosts = service._session.node.hosts
        cut_off(service, "h1")
        join(service, "h2")
        for _ in range(2):
            assert not isinstance(service._session.run(hosts.without_node("h1", "test")), Refused)
        at = service.clock.now.timestamp()
    assert output(path, "without-node") == [{"kind": "without-node", "t": at, "host": "h1"}]
    # Which of them control could reach is recorded, too.
    reach = [(line["kind"], line["hosts"]) for line in output(path, "unreachable", "reachable")]
    assert reach == [("unreachable", ["h1"]), ("reachable", ["h1"])]


@pytest.mark.parametrize(
    ("before", "cut_off"),
    [
        ("", None),
        ('{"kind":"up","t":1.0}\n{"kind":"down","t":5.5}\n', None),
        ('{"kind":"up","t":1.0}\n{"kind":"down","t":5.5}\n{"kind":"end","t":5.5}\n', None),
        ('{"kind":"up","t":1.0}\n{"kind":"halts","t":5.5}\n', 5.5),
        (f'{{"kind":"halts","t":5.5,"x":"{"y" * 3 * TAIL}"}}\n', 5.5),
        ("not a trace\n", None),
    ],
    ids=["new", "stopped", "ended", "killed", "long line", "another file"],
)
@pytest.mark.parametrize("torn", ["", '{"kind":"exchange","t":6'], ids=["whole", "torn"])
def test_a_recording_that_is_continued_says_where_it_was_cut_off(
    tmp_path: Path, before: str, cut_off: float | None, torn: str
) -> None:
    path = tmp_path / "trace"
    path.write_text(before + torn)
    trace = FileEventTrace(path, Durations())
    trace.continued(9 * SECOND)
    trace.write("up", 9 * SECOND)
    trace.close()
    added = path.read_text().removeprefix(before).splitlines()
    if torn and before in ("", "not a trace\n"):  # nobody knows whose line that was
        assert added.pop(0) == torn
    lines = [json.loads(line) for line in added]
    gaps = [] if cut_off is None else [{"kind": "gap", "t": cut_off, "until": 9.0}]
    assert lines == [*gaps, {"kind": "up", "t": 9.0}]
