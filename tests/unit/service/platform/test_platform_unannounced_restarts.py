"""A user's restart of a group that is not enabled: carried out at once, told to operators, to the
trace and to the verdict as unannounced, and shown to no guest, whenever the group is enabled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forewarn.core import Refused
from forewarn.judge import judge_files
from forewarn.store import MemoryStore
from forewarn.store.memory import Disk
from forewarn.testing import Service
from forewarn.testing.timeline.lanes import Lanes
from forewarn.wire.versions import VERSIONS

FLEET = """
groups:
  - name: web
    kind: scale-set
    machines:
      - {name: web_0, update_domain: 0}
      - {name: web_1, update_domain: 1}
"""
EMPTY = b'{"DocumentIncarnation":1,"Events":[]}'


def recorded(path: Path, *kinds: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if line["kind"] in kinds]


def judged(path: Path) -> None:
    judgement = judge_files([path])
    assert judgement.ok, judgement.render()


@pytest.mark.parametrize("verb", ["restart", "redeploy"])
def test_an_unannounced_restart_is_in_no_document_and_no_client_is_blamed(
    verb: str, tmp_path: Path
) -> None:
    path = tmp_path / "trace"
    with Service(FLEET, record=path) as service:
        event = getattr(service, verb)("web_0")
        assert event.status == "Started"
        for version in VERSIONS:
            answer = service.get("web_0", version=version.name)
            assert answer.body == EMPTY, version.name
        assert service.approve("web_1", event.id).status == 400
        service.disable("web")
        assert service.get("web_1").body == EMPTY
        service.clock.advance("20m")
        assert event.status == "Finished"
        assert service.get("web_0").body == EMPTY
        assert service.approve("web_1", event.id).status == 400
        verdict = service.verdict()
        assert verdict.courses == ()
        (hidden,) = verdict.unannounced
        assert (hidden.event, hidden.machines) == (event.id, ("web_0",))
        assert hidden.over is not None
        text = verdict.render()
        assert f"{event.type} {event.id[:8]} (User) of web_0: unannounced" in text
        assert "too late" not in text
        assert verdict.of("web_1").unannounced == ()
        assert verdict.about(event.id).unannounced == (hidden,)
    begin, end = recorded(path, "unannounced", "over")
    assert (begin["event"], begin["type"], begin["source"]) == (event.id, event.type, "User")
    assert end["event"] == event.id
    assert not recorded(path, "event", "approval")
    assert any("has started, unannounced" in line for _, line in reported(path))
    judged(path)


def reported(path: Path) -> list[tuple[float, str]]:
    lanes = Lanes.of(json.loads(line) for line in path.read_text().splitlines())
    return list(lanes.picture().latest_changes)


def test_an_unannounced_restart_is_not_shown_after_a_restart_of_the_service(tmp_path: Path) -> None:
    disk, path = Disk(), tmp_path / "trace"
    with Service(FLEET, store=MemoryStore(disk)) as service:
        event = service.restart("web_0")
    with Service(FLEET, store=MemoryStore(disk), record=path) as service:
        (active,) = service.events
        assert (active.id, active.status) == (event.id, "Started")
        assert service.get("web_0").body == EMPTY
        service.clock.advance("20m")
        assert service.events == []
        assert service.get("web_0").body == EMPTY
    assert recorded(path, "unannounced")[0]["event"] == event.id
    judged(path)


def test_a_hold_by_an_unannounced_restart_says_that_guests_do_not_see_it() -> None:
    with Service(FLEET) as service:
        restart = service.restart("web_0")
        service.get("web_1")
        freeze = service.schedule("Freeze", "web_1")
        service.approve("web_1", freeze.id)
        explanation = service._session.run(service._session.node.platform.explain(freeze.id))
        assert not isinstance(explanation, Refused)
        (hold,) = explanation.holds
        assert hold.waits_for == (restart.id,)
        assert f"not shown {restart.id}" in hold.message
        service.clock.advance("20m")
        assert freeze.status in ("Started", "Finished")
