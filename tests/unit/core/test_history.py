"""What a commit means to people: one record per thing that happened, each saying who did it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from forewarn.core import EventType, Group, GroupKind, Machine, Policy, World, apply, decide
from forewarn.core import commands as c
from forewarn.core.changes import Changes
from forewarn.core.fleet import Health, Host
from forewarn.core.history import MOVES, ROLLOUT, HistoryWriter, Record, RecordKind, seen
from forewarn.core.lifecycle import Move
from forewarn.core.registry import HostPut, HostRemoved, Put, RolloutPut, RolloutRemoved
from forewarn.core.rollouts.model import Rollout, Switch

NOW = World(at=1_800_000_000_000_000)


def later(minutes: float) -> World:
    return World(at=NOW.at + round(minutes * 60_000_000))


class Written:
    """A group, and the records of what it is told to do."""

    def __init__(self, *names: str, spot: bool = False) -> None:
        self.group = Group(name="web")
        machines = tuple(Machine(name=name, host="rack-1", spot=spot) for name in names)
        self.reported(c.Define(kind=GroupKind.SCALE_SET, machines=machines, by="ann"))

    def reported(self, command: c.Command, now: World = NOW) -> list[Record]:
        decision = decide(self.group, command, now)
        assert isinstance(decision, Changes), decision
        scribe = HistoryWriter({"web": self.group}, {})
        records = list(scribe.records(now.at, [("web", decision.items)]))
        self.group = apply(self.group, decision.items)
        return records

    def raised(self, id: str, *machines: str, **more: Any) -> list[Record]:
        command = c.Raise(id=id, type=EventType.REBOOT, machines=machines, by="ann", **more)
        return self.reported(command)


def short(records: list[Record]) -> list[tuple[str, str, str]]:
    return [(record.what.value, record.by, record.note) for record in records]


def beside(*puts: Put, hosts: dict[str, Host] | None = None) -> list[tuple[str, str, str, str]]:
    records = HistoryWriter({}, hosts or {}).records(NOW.at, [], puts)
    return [(r.what.value, r.by, r.host or r.cause, r.note) for r in records]


def test_every_move_of_an_event_has_its_record() -> None:
    assert set(MOVES) == set(Move)
    assert len(set(MOVES.values())) == len(Move)


def test_a_record_of_an_event_has_its_group_machines_and_type() -> None:
    web = Written("web_0", "web_1")
    (record,) = web.raised("A", "web_0", cause="rollout/7/x", host="rack-1", description="Words.")
    assert record == Record(
        at=NOW.at,
        what=RecordKind.RAISED,
        by="ann",
        group="web",
        event="A",
        type="Reboot",
        machines=("web_0",),
        host="rack-1",
        cause="rollout/7/x",
        note="Words.",
    )


def test_a_start_by_approval_is_recorded_with_its_approver() -> None:
    web = Written("web_0", "web_1")
    web.reported(c.Enable())
    web.raised("A", "web_0")
    records = web.reported(c.Approve(ids=("A",), by="web_1"))
    assert short(records) == [("approved", "web_1", ""), ("started", "web_1", "approved")]
    assert records[0].machine == "web_1"  # found by whoever looks for that machine, too


def test_a_start_by_time_is_recorded_without_an_approver() -> None:
    web = Written("web_0")
    web.raised("A", "web_0")
    ((what, by, note),) = short(web.reported(c.Tick(), later(15)))
    assert (what, by) == ("started", "")
    assert "notice" in note


def test_what_a_policy_approves_as_it_is_raised_is_approved_by_the_policy() -> None:
    web = Written("web_0")
    web.reported(c.Enable())
    policy = Policy(auto_approve=(EventType.REBOOT,))
    assert short(web.reported(c.SetPolicy(policy=policy, by="ann"))) == [
        ("group-changed", "ann", "policy")
    ]
    records = web.reported(
        c.UserMaintenance(id="A", type=EventType.REBOOT, machine="web_0", by="bob")
    )
    assert [(what, by) for what, by, _ in short(records)] == [
        ("raised", "bob"),
        ("approved", "policy"),
        ("started", "policy"),
    ]


def test_the_output_of_the_driver_is_recorded() -> None:
    web = Written("web_0")
    web.raised("A", "web_0")
    web.reported(c.Tick(), later(15))

    def answered(attempt: int, outcome: c.Outcome) -> list[tuple[str, str, str]]:
        return short(web.reported(c.Answer(id="A", attempt=attempt, outcome=outcome), later(16)))

    failed = c.Failed("exit code 3", output="no domain")
    assert answered(1, failed) == [("answered", "driver", "exit code 3: no domain")]
    assert short(web.reported(c.Retry(id="A", by="ann"), later(16))) == [
        ("attempted", "ann", "attempt 2")
    ]
    again = c.Again(later(17).at, output="shutting down")
    assert answered(2, again) == [("answered", "driver", "shutting down")]
    web.reported(c.Tick(), later(17))
    ((what, by, note),) = answered(3, c.Done(output="up again"))
    assert (what, by) == ("finished", "driver")
    assert note.endswith(": up again")


def test_a_finish_or_cancel_by_an_operator_is_recorded_with_its_reason() -> None:
    web = Written("web_0")
    web.raised("A", "web_0")
    ((what, by, note),) = short(web.reported(c.Cancel(id="A", by="ann", why="not now")))
    assert (what, by) == ("withdrawn", "ann")
    assert note.endswith(": not now")
    web.raised("B", "web_0")
    web.reported(c.Tick(), later(15))
    ((what, by, note),) = short(
        web.reported(c.Finish(id="B", by="bob", reason="by hand"), later(16))
    )
    assert (what, by) == ("finished", "bob")
    assert note.endswith(": by hand")


def test_a_report_of_readiness_is_recorded_with_its_machine() -> None:
    web = Written("web_0")
    web.reported(c.Enable())
    web.raised("A", "web_0")
    printed = web.reported(c.Prepare(id="A", machine="web_0", note="drained"))
    assert short(printed) == [("ready", "web_0", "ready: drained")]


def test_machines_come_change_go_and_come_back() -> None:
    web = Written("web_0", spot=True)
    moved = Machine(name="web_0", host="rack-2", spot=True)
    kind = GroupKind.SCALE_SET
    assert short(web.reported(c.Define(kind=kind, machines=(moved,), by="ann"))) == [
        ("machine-moved", "ann", "from rack-1 to rack-2")
    ]
    tagged = msgspec.structs.replace(moved, tags={"a": "b"})
    assert short(web.reported(c.Define(kind=kind, machines=(tagged,), by="ann"))) == [
        ("machine-changed", "ann", "tags")
    ]
    web.reported(c.Evict(id="A", machine="web_0", by="ann"))
    web.reported(c.Tick(), later(1))
    records = web.reported(c.Answer(id="A", attempt=1, outcome=c.Done()), later(2))
    assert short(records) == [
        ("finished", "driver", "carried out"),
        ("machine-gone", "", "evicted"),
    ]
    assert (records[1].event, records[1].machines) == ("A", ("web_0",))
    assert short(web.reported(c.Restore(machine="web_0", by="bob"), later(3))) == [
        ("machine-restored", "bob", "had been evicted")
    ]
    assert short(web.reported(c.Define(kind=kind, machines=(), by="ann"), later(3))) == [
        ("machine-removed", "ann", "")
    ]


def test_an_object_put_twice_in_a_commit_is_compared_with_the_state_before() -> None:
    web = Written()
    added = c.Define(kind=GroupKind.SCALE_SET, machines=(Machine(name="web_9"),))
    first = decide(web.group, added, NOW)
    assert isinstance(first, Changes)
    other = Machine(name="web_9", spot=True)
    group = apply(web.group, first.items)
    second = decide(group, msgspec.structs.replace(added, machines=(other,)), NOW)
    assert isinstance(second, Changes)
    scribe = HistoryWriter({"web": web.group}, {})
    records = scribe.records(NOW.at, [("web", (*first.items, *second.items))])
    assert [r.what for r in records] == [RecordKind.MACHINE_ADDED, RecordKind.MACHINE_CHANGED]


def test_enabling_and_disabling_a_group_is_recorded() -> None:
    web = Written("web_0")
    web.raised("A", "web_0")
    assert short(web.reported(c.Enable())) == [("enabled", "", ""), ("listed", "", "")]
    assert short(web.reported(c.Disable(by="ann"))) == [("disabled", "ann", "on request")]


def test_changes_of_hosts_are_recorded() -> None:
    host = Host(name="rack-1")
    bad = msgspec.structs.replace(host, health=Health.DEGRADED, note="disk")
    dead = msgspec.structs.replace(host, health=Health.FAILED)
    labelled = msgspec.structs.replace(host, labels={"row": "1"})
    assert beside(
        HostPut(host, "ann"),
        HostPut(bad, "bob"),
        HostPut(dead, "bob"),
        HostPut(host, "ann"),
        HostPut(labelled, "ann"),
        HostRemoved("rack-1", "ann"),
        HostPut(host, "ann"),
    ) == [
        ("host-added", "ann", "rack-1", ""),
        ("host-degraded", "bob", "rack-1", "disk"),
        ("host-failed", "bob", "rack-1", ""),
        ("host-repaired", "ann", "rack-1", ""),
        ("host-changed", "ann", "rack-1", ""),
        ("host-removed", "ann", "rack-1", ""),
        ("host-added", "ann", "rack-1", ""),
    ]
    assert beside(HostPut(bad, "ann"), hosts={"rack-1": host}) == [
        ("host-degraded", "ann", "rack-1", "disk")
    ]


@pytest.mark.parametrize("what", [*ROLLOUT, "something new"])
def test_changes_of_rollouts_are_recorded(what: str) -> None:
    switch = Switch(by="ann", at=NOW.at, why="because")
    rollout = Rollout(
        id="7",
        type=EventType.REBOOT,
        lanes=(),
        by="ann",
        created_at=NOW.at,
        selection="group=web",
        paused=switch,
        resumed=switch,
        aborted=switch,
    )
    note = {"started": "group=web", "ended": ""}.get(what, "because")
    if what in ("changed", "something new"):
        note = what
    kind = f"rollout-{what}" if what in ROLLOUT else "rollout-changed"
    assert beside(RolloutPut(rollout, what, "ann", "because")) == [(kind, "ann", "7", note)]
    assert beside(RolloutRemoved("7")) == []  # it is forgotten, which is nothing that happened


def test_the_first_sighting_of_an_event_is_recorded_with_its_machine() -> None:
    web = Written("web_0", "web_1")
    web.raised("A", "web_0")
    (event,) = web.group.events
    first = seen(event, "web_1", NOW.at + 7)
    assert (first.what, first.by, first.at) == (RecordKind.SEEN, "web_1", NOW.at + 7)
    assert (first.machines, first.machine) == (("web_0",), "web_1")


def test_an_event_whose_machines_leave_its_host_records_which() -> None:
    web = Written("web_0")
    web.raised("A", "web_0", notice=40 * 60_000_000)
    web.reported(c.UserMaintenance(id="B", type=EventType.REDEPLOY, machine="web_0", by="ann"))
    done = c.Answer(id="B", attempt=1, outcome=c.Done({"web_0": "rack-2"}))
    records = web.reported(done, later(1))
    assert [(record.what.value, record.machines) for record in records[1:]] == [
        ("machine-moved", ("web_0",)),
        ("left", ("web_0",)),
        ("withdrawn", ("web_0",)),
    ]
    assert records[0].what.value == "finished"
    assert [record.note for record in records[1:3]] == ["from rack-1 to rack-2", "web_0"]
    assert records[3].note.endswith("with B")
