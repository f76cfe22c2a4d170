"""Applying a fleet: the difference is what changes, all of it or nothing, and nothing twice."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.core import Durations, Group, Machine, Refused
from forewarn.core.fleet import Capacity, Health, Host, Placement, Size
from forewarn.core.refusal import Hint, Reason
from forewarn.core.registry import HostPut
from forewarn.service.engine.clock import VirtualClock
from forewarn.service.engine.ledger import Ledger
from forewarn.service.engine.writer import CommitPlan, Writer
from forewarn.service.fleet import edit
from forewarn.service.fleet.apply import FleetApply, fleet_of
from forewarn.service.fleet.diff import MAX_DETAILED, Difference, compare
from forewarn.service.fleet.export import entry_of
from forewarn.service.fleet.read import Fleet, parse
from forewarn.service.indexes.hosts import HostIndex
from forewarn.store import MemoryStore
from forewarn.testing import Service

FLEET = """
hosts: [a, b, c]
groups:
  - name: web
    kind: availability-set
    machines: [{name: w0, host: a}, {name: w1, host: b}, {name: w2, host: a}]
  - name: db
    kind: availability-set
    machines: [{name: d0, host: b}]
"""


class Applied:
    """A service, and applying to it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.node = service._session.node

    def __call__(self, text: str, **more: Any) -> Difference:
        done = self.refused_or_done(text, **more)
        assert isinstance(done, Difference), done
        return done

    def refused_or_done(self, text: str, **more: Any) -> Difference | Refused:
        done = self.service._session.run(self.node.fleet_apply.text(text, by="test", **more))
        self.service._session.settle()
        return done

    def refusal(self, text: str, **more: Any) -> str:
        before = self.node.store.seq
        done = self.refused_or_done(text, **more)
        assert isinstance(done, Refused)
        assert self.node.store.seq == before
        return str(done)

    def machine(self, name: str) -> Machine:
        found = self.node.machine_index.machine(name)
        assert found is not None, name
        return found[1]

    def group(self, name: str) -> Group:
        return self.node.store.groups[name]


@pytest.fixture
def applied() -> Any:
    with Service(FLEET) as service:
        yield Applied(service)


def reported(difference: Difference) -> list[tuple[str, str, str]]:
    return [(item.what, item.action, item.name) for item in difference.items]


def test_applying_the_same_fleet_again_changes_nothing(applied: Applied) -> None:
    before = applied.node.store.seq
    assert applied(FLEET).nothing
    assert applied.node.store.seq == before


def test_a_plan_shows_the_difference_and_changes_nothing(applied: Applied) -> None:
    before = applied.node.store.seq
    text = FLEET.replace("{name: w2, host: a}", "{name: w3}").replace(
        "{name: w1, host: b}", "{name: w1, host: a, spot: true}"
    )
    planned = applied(text, plan=True)
    assert reported(planned) == [
        ("machine", "changed", "w1"),
        ("machine", "added", "w3"),
        ("machine", "removed", "w2"),
    ]
    fields = {change.field: (change.before, change.after) for change in planned.items[0].fields}
    assert fields == {"host": ("b", "a"), "spot": (False, True)}
    assert applied.node.store.seq == before
    assert applied(text) == planned
    assert applied.node.store.seq == before + 1


def test_sizes_and_capacities_are_compared_and_exported(applied: Applied) -> None:
    text = FLEET.replace("[a, b, c]", "[{name: a, capacity: {memory: 64, machines: 9}}, b, c]")
    text = text.replace("{name: w0, host: a}", "{name: w0, host: a, size: {memory: 4, cpus: 2}}")
    items = {item.name: item.fields for item in applied(text, plan=True).items}
    assert {change.field: (change.before, change.after) for change in items["a"]} == {
        "machines": (None, 9),
        "memory": (None, 64),
    }
    assert {change.field: (change.before, change.after) for change in items["w0"]} == {
        "memory": (0, 4),
        "cpus": (0, 2),
    }
    applied(text)
    assert applied.machine("w0").size == Size(memory=4, cpus=2)
    assert applied.node.store.registry.hosts["a"].capacity == Capacity(memory=64, machines=9)
    exported = applied.node.fleet_apply.current()
    assert applied(msgspec.json.encode(entry_of(exported)).decode()).nothing
    assert not applied(FLEET).nothing
    assert applied.machine("w0").size == Size()


def test_an_apply_is_one_commit(applied: Applied) -> None:
    before = applied.node.store.seq
    found = applied(
        """
hosts: [a, {name: n, labels: {rack: r1}}]
groups:
  - {name: db, kind: availability-set, labels: {tier: data}, machines: [{name: d0}, {name: w0}]}
  - {name: new, kind: standalone, machines: [{name: n, host: n}]}
"""
    )
    assert applied.node.store.seq == before + 1
    assert sorted(reported(found)) == sorted(
        [
            ("host", "added", "n"),
            ("host", "removed", "c"),
            ("host", "removed", "b"),
            ("group", "changed", "db"),
            ("group", "added", "new"),
            ("group", "removed", "web"),
            ("machine", "changed", "d0"),
            ("machine", "moved", "w0"),
            ("machine", "added", "n"),
            ("machine", "removed", "w1"),
            ("machine", "removed", "w2"),
        ]
    )
    assert set(applied.node.store.registry.hosts) == {"a", "n"}
    assert [group.name for group in applied.node.machine_index.groups()] == ["db", "new"]
    assert applied.node.machine_index.group_of("w0") == "db"


def test_a_fleet_with_one_invalid_machine_changes_nothing(applied: Applied) -> None:
    machines = ", ".join(f"{{name: n{n}}}" for n in range(500))
    text = f"groups: [{{name: big, kind: cloud-service, machines: [{machines}, {{name: 'b d'}}]}}]"
    assert "groups[0].machines[500].name" in applied.refusal(text)
    assert applied.node.machine_index.group("big") is None
    assert applied.machine("w0").alive


def test_removing_a_machine_with_an_active_event_is_refused_with_the_event(
    applied: Applied,
) -> None:
    event = applied.service.schedule("Reboot", "w1")
    text = FLEET.replace("{name: w1, host: b}, ", "").replace("{name: d0, host: b}", "{name: d1}")
    says = applied.refusal(text)
    assert "machine 'w1'" in says
    assert event.id in says
    assert applied.machine("d0").alive  # nothing of the rest happened either
    planned = applied(text, plan=True)
    assert [(one.name, one.event) for one in planned.blocked_by] == [("w1", event.id)]


def test_removing_a_machine_by_force_withdraws_its_event(applied: Applied) -> None:
    applied.service.schedule("Reboot", "w1")
    applied(FLEET.replace("{name: w1, host: b}, ", ""), force=True)
    assert [m.name for m in applied.group("web").machines] == ["w0", "w2"]
    assert applied.group("web").events == ()


def test_moving_a_machine_with_an_active_event_is_refused_too(applied: Applied) -> None:
    applied.service.schedule("Reboot", "w1")
    text = FLEET.replace("{name: w1, host: b}, ", "").replace(
        "[{name: d0, host: b}]", "[{name: d0, host: b}, {name: w1, host: a, update_domain: 1}]"
    )
    assert "machine 'w1'" in applied.refusal(text)
    found = applied(text, force=True)
    (moved,) = [item for item in found.items if item.name == "w1"]
    assert (moved.action, moved.previous_group, moved.group) == ("moved", "web", "db")
    assert [(f.field, f.before, f.after) for f in moved.fields] == [("host", "b", "a")]
    assert applied.node.machine_index.group_of("w1") == "db"


def test_removing_a_host_that_something_is_planned_for_is_refused(applied: Applied) -> None:
    groups, hosts = applied.node.store.groups, applied.node.store.registry.hosts
    event = applied.service.schedule("Reboot", "w1")._record
    about = msgspec.structs.replace(event, host="b")
    changed = {**groups, "web": msgspec.structs.replace(groups["web"], events=(about,))}
    without = fleet_of(groups, hosts)
    fleet = Fleet(without.groups, (Host(name="a"), Host(name="c")))
    found = compare(changed, hosts, fleet).difference
    assert [(one.what, one.name, one.event) for one in found.blocked_by] == [
        ("host", "b", event.id)
    ]


def test_what_has_happened_to_machines_survives_an_apply(applied: Applied) -> None:
    node, run = applied.node, applied.service._session.run
    sick = Host(name="a", health=Health.DEGRADED, note="fans")
    run(node.writer.commit(CommitPlan(puts=[HostPut(sick)])))
    applied.service.get("w0")
    moved = applied.service.redeploy("w1")
    applied.service.approve("w1", moved)
    applied.service.clock.advance("1h")
    assert applied.machine("w1").moved_from == "b"
    gone = applied.service.schedule("Terminate", "d0")
    applied.service.clock.advance("1h")
    assert gone.id
    assert applied.machine("d0").gone == "deleted"
    assert applied(FLEET).conflicts == ()  # it only does not know of the move
    before = node.store.seq
    assert applied(FLEET).nothing
    assert node.store.seq == before
    applied(FLEET.replace("hosts: [a, b, c]", "hosts: [{name: a, labels: {x: y}}, b, c]"))
    assert node.store.registry.hosts["a"] == msgspec.structs.replace(sick, labels={"x": "y"})
    applied(
        FLEET.replace(", {name: w2, host: a}]", "]")
        .replace("{name: w1, host: b}", "")
        .replace("[{name: d0, host: b}]", "[{name: w1, host: b, update_domain: 1}]")
        .replace("[{name: w0, host: a}, ]", "[{name: w0, host: a}, {name: d0, host: b}]")
    )
    assert applied.node.machine_index.group_of("w1") == "db"
    assert applied.machine("w1").moved_from == "b"
    assert applied.machine("d0").gone == "deleted"


def test_a_host_to_which_a_machine_was_moved_cannot_be_removed(applied: Applied) -> None:
    applied.service.get("w0")
    moved = applied.service.redeploy("w1")
    applied.service.approve("w1", moved)
    applied.service.clock.advance("1h")
    assert applied.machine("w1").host == "c"
    text = FLEET.replace("[a, b, c]", "[a, b]")
    refused = applied.refused_or_done(text, force=True)
    assert isinstance(refused, Refused)
    assert (refused.hint, refused.about) == (Hint.RECORD_MOVE, "w1")
    applied(text.replace("w1, host: b", "w1, host: a"), placement=Placement.FILE)
    assert (applied.machine("w1").host, applied.machine("w1").moved_from) == ("a", None)


def test_a_second_apply_is_refused_while_one_is_under_way(applied: Applied) -> None:
    async def both() -> Any:
        fleet_apply = applied.node.fleet_apply
        return await asyncio.gather(
            fleet_apply.text(FLEET.replace("w2", "w3"), by="test"),
            fleet_apply.text(FLEET, by="test"),
        )

    first, second = applied.service._session.run(both())
    assert isinstance(first, Difference)
    assert isinstance(second, Refused)
    assert second.reason is Reason.CONFLICT
    assert "being applied" in second.message
    assert applied.node.fleet_apply.progress.stage == ""
    assert not applied(FLEET).nothing  # and afterwards it is free again


def test_a_decision_of_a_group_during_an_apply_is_not_lost(
    applied: Applied, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events that come up between looking and committing are seen in the transaction."""
    node = applied.node
    text = FLEET.replace("{name: w1, host: b}, ", "")
    original = node.fleet_apply._decided

    def slow(*arguments: Any) -> Any:
        made = original(*arguments)
        applied.service.schedule("Reboot", "w1")  # from the thread: the loop is free
        return made

    monkeypatch.setattr(node.fleet_apply, "_decided", slow)
    done = applied.refused_or_done(text)
    assert isinstance(done, Refused)
    assert "'w1'" in done.message
    assert applied.machine("w1").alive


def test_many_differences_are_counted_and_some_are_listed() -> None:
    with Service(FLEET) as service:
        machines = ", ".join(f"{{name: n{n}}}" for n in range(MAX_DETAILED + 500))
        found = Applied(service)(
            f"groups: [{{name: big, kind: cloud-service, machines: [{machines}]}}]"
        )
    assert found.machines.added == MAX_DETAILED + 500
    assert len([item for item in found.items if item.what == "machine"]) == MAX_DETAILED
    assert found.omitted == 504


def test_a_change_of_one_object_is_checked_like_a_whole_fleet(applied: Applied) -> None:
    def change(wanted: edit.Change, **more: Any) -> Any:
        done = applied.service._session.run(
            applied.node.fleet_apply.change(wanted, by="test", **more)
        )
        return done if isinstance(done, Refused) else reported(done)

    twice = change(edit.put_group("g", "kind: standalone\nmachines: [{name: w0}]"))
    assert (twice.line, twice.field) == (2, "machines[0].name")
    assert "'w0' occurs twice" in twice.message
    nowhere = change(edit.put_group("g", "kind: standalone\nmachines: [{name: x, host: z}]"))
    assert nowhere.field == "machines[0].host"
    assert "host 'z'" in nowhere.message
    assert change(edit.put_group("g", "kind: standalone\nmachines: [{name: x}]")) == [
        ("group", "added", "g"),
        ("machine", "added", "x"),
    ]
    other = change(edit.put_group("g", "name: h\nkind: standalone\nmachines: []"))
    assert (other.line, other.field, "'g'" in other.message) == (1, "name", True)
    assert change(edit.remove_machine("x")) == [
        ("group", "removed", "g"),
        ("machine", "removed", "x"),
    ]
    assert change(edit.put_host("d", "labels: {a: b}")) == [("host", "added", "d")]
    assert change(edit.remove_host("d")) == [("host", "removed", "d")]
    assert "w0, w2" in change(edit.remove_host("a")).message
    assert change(edit.remove_group("wep")).suggestion == "web"
    assert "no machine 'w9'" in change(edit.remove_machine("w9")).message
    event = applied.service.schedule("Reboot", "w1")
    assert event.id in str(change(edit.remove_group("web")))
    assert event.id in str(change(edit.remove_machine("w1")))
    assert change(edit.remove_machine("w1"), force=True) == [("machine", "removed", "w1")]


_names = st.integers(0, 7).map(lambda n: f"m{n}")
_machines = st.dictionaries(
    _names, st.tuples(st.integers(0, 4), st.sampled_from(["", "a", "b"]), st.booleans())
)


@st.composite
def _fleets(draw: st.DrawFn) -> str:
    machines = draw(_machines)
    groups: dict[str, list[str]] = {}
    for name, (domain, host, spot) in machines.items():
        group = draw(st.sampled_from(["g", "h", "i"]))
        groups.setdefault(group, []).append(
            f"{{name: {name}, update_domain: {domain}, host: '{host}', spot: {str(spot).lower()}}}"
        )
    lines = [
        f"  - {{name: {name}, kind: cloud-service, machines: [{', '.join(some)}]}}"
        for name, some in groups.items()
    ]
    return "hosts: [a, b]\ngroups:" + ("\n" + "\n".join(lines) if lines else " []")


@given(st.lists(_fleets(), min_size=1, max_size=4))
def test_applying_any_fleet_over_any_other_gives_its_inventory(texts: list[str]) -> None:
    async def live() -> None:
        store = MemoryStore()
        await store.open()
        host_index = HostIndex(store)
        writer = Writer(store, VirtualClock(0), Durations(), Ledger(), host_index)
        fleet_apply = FleetApply(store, writer, host_index)
        for text in texts:
            done = await fleet_apply.text(text, by="test")
            assert isinstance(done, Difference)
            found, wanted = fleet_apply.current(), parse(text)
            assert _sorted(found) == _sorted(wanted)
            seq = store.seq
            for again in (text, msgspec.json.encode(entry_of(found)).decode()):
                done = await fleet_apply.text(again, by="test")
                assert isinstance(done, Difference)
                assert done.nothing
            assert store.seq == seq

    asyncio.run(live())


def _sorted(fleet: Fleet) -> Any:
    groups = {
        name: msgspec.structs.replace(
            define, machines=tuple(sorted(define.machines, key=lambda m: m.name))
        )
        for name, define in fleet.groups.items()
        if define.machines
    }
    return groups, sorted(fleet.hosts, key=lambda host: host.name)
