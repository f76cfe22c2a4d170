"""Rollouts whose service is killed after every commit: each life begins with the state file as the
commit has left it, and all of them together do what one undisturbed service does."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from forewarn.core import EventType, Group, Refused, Status
from forewarn.core.changes import EventMoved
from forewarn.core.lifecycle import Move
from forewarn.core.registry import HostPut, Put, RolloutPut
from forewarn.core.rollouts.model import Conflicts, WorkBy
from forewarn.core.rollouts.selection import Selection
from forewarn.core.time import MINUTE
from forewarn.service.rollouts.request import PauseAfter, RolloutRequest
from forewarn.service.rollouts.rollouts import RolloutReport
from forewarn.store import base
from forewarn.store.port import Commit
from forewarn.store.sqlite.engine import SqliteStore
from forewarn.support.instants import to_datetime
from forewarn.testing import Service

FLEET = """
hosts: [{name: h1}, {name: h2}, {name: h3}]
groups:
  - name: web
    kind: availability-set
    machines:
      - {name: web_0, update_domain: 0, host: h1}
      - {name: web_1, update_domain: 1, host: h1}
      - {name: web_2, update_domain: 2, host: h2}
  - name: db
    kind: availability-set
    machines:
      - {name: db_0, update_domain: 1, host: h1}
"""
WAVES: dict[str, Any] = {
    "by": "test",
    "selection": Selection(hosts=("h1", "h2")),
    "canary": ("h2",),
    "pause_after": PauseAfter.CANARY,
    "bake": 5 * MINUTE,
}
SPLIT = RolloutRequest(type=EventType.REBOOT, conflicts=Conflicts.SPLIT, **WAVES)
EVACUATED = RolloutRequest(type=EventType.REBOOT, conflicts=Conflicts.EVACUATE, **WAVES)
WORKED_ON = RolloutRequest(type=EventType.FREEZE, works=True, **WAVES)
WORKED_ON_BY_DRIVER = RolloutRequest(
    type=EventType.FREEZE, works=True, work_by=WorkBy.DRIVER, **WAVES
)
IN_GROUPS: dict[str, Any] = {"selection": Selection(groups=("web", "db")), "canary": ("web",)}
NOT_BACK = RolloutRequest(type=EventType.REBOOT, **{**WAVES, **IN_GROUPS})
HEARD = "    policy: {over_when: heard, back_within: 1h}\n"
LOST = "web_1"  # where machines poll: does not poll any more once its event has started
STEP = "5m"
REPEATED = (Move.ATTEMPT, Move.ANSWER)  # by every service that finds an event started
MAX_LIVES = 100


class Life:
    """A service until its first commit about a rollout, an event or a host; with `mortal` false,
    until the end."""

    def __init__(
        self, state: Path, start: int | None, *, mortal: bool = True, polls: bool = False
    ) -> None:
        """With `polls`, machines poll, and events wait for them."""
        self.state, self.mortal, self.polls = state, mortal, polls
        self.killed_at: int | None = None
        self.left_behind = state.with_suffix(".killed")
        begins: dict[str, Any] = {} if start is None else {"start": to_datetime(start)}
        fleet = FLEET.replace("    machines:\n", f"{HEARD}    machines:\n") if polls else FLEET
        self._service = Service(fleet, state=state, **begins)

    def __enter__(self) -> Life:
        opened = SqliteStore.open

        async def open_and_listen(store: SqliteStore) -> None:
            store.on_commit(self._on_commit)  # from the first commit on
            await opened(store)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SqliteStore, "open", open_and_listen)
            self._service.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._service.__exit__(*error)
        if self.killed_at is not None:
            for file in self.state.parent.glob(f"{self.state.name}*"):
                file.unlink()
            for file in self.state.parent.glob(f"{self.left_behind.name}*"):
                suffix = file.name.removeprefix(self.left_behind.name)
                file.rename(self.state.parent / f"{self.state.name}{suffix}")

    def _on_commit(self, commit: Commit, _changed: Mapping[str, Group]) -> None:
        items = [item for entry in commit.entries for item in entry.items]
        decided = any(map(_decided, commit.puts)) or any(
            isinstance(item, EventMoved) and (item.what not in REPEATED or item.event.waiting)
            for item in items
        )
        if decided and self.mortal and self.killed_at is None:
            self.killed_at = commit.at
            for suffix in ("", "-wal"):
                file = self.state.with_name(f"{self.state.name}{suffix}")
                if file.exists():
                    shutil.copy(file, f"{self.left_behind}{suffix}")

    def run(self, wanted: RolloutRequest) -> bool:
        """Start the rollout or carry it on as its operators do; return whether it is over."""
        session = self._service._session
        session.settle()
        while self.killed_at is None:
            rollouts = session.node.rollouts
            if self.polls:
                self._poll()
            started = list(session.node.store.registry.rollouts)
            if not started:
                assert not isinstance(session.run(rollouts.start(wanted)), Refused)
                continue
            report = session.run(rollouts.report(started[0]))
            assert isinstance(report, RolloutReport)
            if report.state == "done":
                return True
            if report.state == "paused":
                session.run(rollouts.resume(started[0], "test"))
            for wait in report.next.waits:
                if wait.kind.value == "work" and wanted.work_by is WorkBy.OPERATOR:
                    session.run(session.node.hosts.put_back(wait.lane, "test"))
            session.settle()
            if self.killed_at is None:
                self._service.clock.advance(STEP)
        return False

    def _poll(self) -> None:
        groups = self._service._session.node.store.groups.values()
        events = [event for group in groups for event in group.events]
        started = {
            name for event in events if event.status is Status.STARTED for name in event.resources
        }
        for machine in [machine for group in groups for machine in group.machines]:
            if machine.name != LOST or (machine.not_back is None and LOST not in started):
                self._service.get(machine.name)
        self._service._session.settle()

    def outcome(self) -> dict[str, Any]:
        session = self._service._session
        (id,) = session.node.store.registry.rollouts
        report = session.run(session.node.rollouts.report(id))
        assert isinstance(report, RolloutReport)
        events = session.run(session.node.store.events_by_cause(f"rollout/{id}/"))
        finished = [e for e in events if e.status is Status.FINISHED]
        return {
            "steps": [step.state for lane in report.next.lanes for step in lane.steps],
            "finished": sorted((e.cause.split("/", 2)[2], e.resources) for e in finished),
            "cordoned": [h.name for h in session.node.store.registry.hosts.values() if h.cordoned],
            "not back": [m.name for m in session.node.store.groups["web"].machines if m.not_back],
            "missed": sorted(name for event in finished for name in event.not_back),
            "emptied": [m.name for m in session.node.hosts.machines_on("h1")],
        }


def _decided(put: Put) -> bool:
    """Is this about a rollout or a host, and more than an attempt that every service repeats?"""
    if not isinstance(put, RolloutPut):
        return isinstance(put, HostPut)
    again = any(work.attempt and work.attempt.number > 1 for work in put.rollout.work)
    return not (put.what.startswith("not done yet") or (put.what.startswith("working") and again))


@pytest.mark.parametrize(
    ("wanted", "polls"),
    [
        (SPLIT, False),
        (EVACUATED, False),
        (WORKED_ON, False),
        (WORKED_ON_BY_DRIVER, False),
        (NOT_BACK, True),
    ],
    ids=["split", "evacuated", "work", "work by the driver", "not back"],
)
def test_a_rollout_ends_the_same_though_its_service_is_killed_after_every_commit(
    tmp_path: Path, wanted: RolloutRequest, polls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Commits that are made at the same time are written as one: how many depends on the machine.
    monkeypatch.setattr(base, "MAX_BATCH", 1)
    with Life(tmp_path / "whole.db", None, mortal=False, polls=polls) as life:
        assert life.run(wanted)
        undisturbed = life.outcome()
        assert undisturbed["missed"] == ([LOST] if polls else [])
    at: int | None = None
    for lives in range(MAX_LIVES):
        with Life(tmp_path / "state.db", at, polls=polls) as life:
            if life.run(wanted):
                assert life.outcome() == undisturbed
                assert lives > 10
                return
            at = life.killed_at
    raise AssertionError("it never ends")
