"""What a trace says that no document shows: hosts, windows, and deletes that nobody is told of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forewarn.core import EventType, Refused
from forewarn.core import commands as c
from forewarn.core.events import Joint
from forewarn.core.time import MINUTE, SECOND
from forewarn.core.windows import Span
from forewarn.judge import judge_files
from forewarn.service.engine.writer import CommitPlan
from forewarn.store import MemoryStore
from forewarn.store.memory import Disk
from forewarn.testing import FaultKind, Service
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


def said(path: Path, *kinds: str) -> list[dict[str, Any]]:
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
    (joint,) = said(path, "joint")
    assert joint == {
        "kind": "joint",
        "t": START / SECOND,
        "id": "j",
        "host": "rack-1",
        "events": {A: "web", B: "jump"},
    }
    times = {"opens": START / SECOND, "closes": START / SECOND + 3600}
    windows = [{"kind": "window", "t": START / SECOND, "event": id, **times} for id in (A, B)]
    assert said(path, "window") == windows
    assert [line["event"] for line in said(path, "impact")] in ([A, B], [B, A])
    judgement = judge_files([path])
    assert judgement.ok, judgement.render()


def test_a_delete_that_nobody_is_told_of_is_recorded_from_beginning_to_end(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    with Service(FLEET, record=path) as service:
        service.get("web_0")
        submit(service, ("web", c.Delete(id=A, machine="web_1", by="test")))
        assert service.document("web_0")["Events"] == []
        service.clock.advance("2m")
    begins, ends = said(path, "unannounced", "over")
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


def test_what_stands_already_is_recorded_when_a_recording_begins(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "trace"
    with Service(FLEET, store=MemoryStore(disk)) as service:
        maintain_host(service)
    with Service(FLEET, store=MemoryStore(disk), record=path) as service:
        service.get("web_0")
    (joint,) = said(path, "joint")
    assert joint["events"] == {A: "web", B: "jump"}
    assert set(said(path, "fleet")[0]["machines"]) == {"web_0", "web_1", "jump"}
    assert [line["event"] for line in said(path, "window")] == [A, B]
    judgement = judge_files([path])
    assert judgement.ok, judgement.render()


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
    assert said(path, "short-notice") == [
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
    assert [line["event"] for line in said(path, "short-notice")] == [A]


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
    assert [line["event"] for line in said(path, "short-notice")] == [event.id]
    judgement = judge_files([path])
    assert judgement.ok, judgement.render()


def test_a_service_that_divides_durations_says_so(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    with Service(FLEET, record=path, speed=60, silence="24h") as service:
        service.get("web_0")
        service.clock.advance("1s")
        service.schedule("Reboot", "web_0")
        service.clock.advance("1s")
        service.get("web_0")
    assert {line["speed"] for line in said(path, "fleet")} == {60}
    judgement = judge_files([path])
    assert judgement.ok, judgement.render()
