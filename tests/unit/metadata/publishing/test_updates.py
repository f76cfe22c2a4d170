"""What nodes are told: what guests could notice, in pieces, and nothing else."""

from __future__ import annotations

import msgspec
import pytest

from forewarn.core import Group, Machine
from forewarn.core.fleet import Place
from forewarn.metadata.publishing import updates
from forewarn.metadata.publishing.messages import Changed, Publication


def group(name: str, machines: int = 1, **more: object) -> Group:
    made = tuple(Machine(name=f"{name}_{n}", host="h", labels={"a": "b"}) for n in range(machines))
    return msgspec.structs.replace(Group(name=name, machines=made), **more)


def changed(before: Group | None, after: Group) -> Changed:
    found = updates.changed(before, after)
    assert found is not None
    return found


def test_data_for_operators_is_not_sent() -> None:
    before = group("web", 3)
    machines = tuple(msgspec.structs.replace(m, labels={}) for m in before.machines)
    after = msgspec.structs.replace(before, machines=machines, labels={"new": "label"})
    assert updates.changed(before, after) is None
    assert updates.guest_news(before).machines == updates.guest_news(after).machines


def test_machines_of_other_hosts_are_sent_without_their_host() -> None:
    before = group("web", 3)
    machines = tuple(msgspec.structs.replace(m, host="x") for m in before.machines)
    reported = changed(before, msgspec.structs.replace(before, machines=machines))
    assert [(m.name, m.host) for m in reported.machines or ()] == [(m.name, "") for m in machines]


def test_only_changed_parts_are_sent() -> None:
    before = group("web", 2)
    enabled = msgspec.structs.replace(before, enabled=True, incarnation=1)
    reported = changed(before, enabled)
    assert (reported.view.enabled, reported.machines, reported.place) == (True, None, None)
    moved = msgspec.structs.replace(before, place=Place(location="here"))
    reported = changed(before, moved)
    assert (reported.machines, reported.place) == (None, Place(location="here"))
    reported = changed(before, group("web", 3))
    assert len(reported.machines or ()) == 3
    reported = changed(before, msgspec.structs.replace(before, machines=()))
    assert reported.machines == ()
    reported = changed(None, before)
    assert reported == updates.in_full(reported, before)


def test_only_the_last_piece_is_marked_as_complete() -> None:
    changes = [Changed(updates.guest_news(group(f"g{n}", 300)).view, ()) for n in range(2)]
    small = [Publication(7, tuple(changes)), Publication(8, tuple(changes))]
    (one,) = updates.news(small)
    assert (one.publications, one.more) == (tuple(small), False)
    large = [updates.in_full(changes[n], group(f"g{n}", 600)) for n in range(2)]
    pieces = updates.news([Publication(7, tuple(large)), Publication(8, tuple(large))])
    assert [piece.more for piece in pieces] == [True, True, True, False]
    reported = [
        (p.number, g.view.name) for piece in pieces for p in piece.publications for g in p.groups
    ]
    assert reported == [(7, "g0"), (7, "g1"), (8, "g0"), (8, "g1")]


def test_machines_of_a_large_group_are_sorted_by_host_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sorted_groups: list[str] = []
    by_host = updates._by_host

    def note(group: Group) -> dict[str, tuple[Machine, ...]]:
        sorted_groups.append(group.name)
        return by_host(group)

    monkeypatch.setattr(updates, "_by_host", note)
    machines = tuple(Machine(name=f"m{n}", host=f"h{n // 2}") for n in range(2 * updates.LARGE))
    web, placed = Group(name="web", machines=machines), updates.PlacedMachines()
    for n in range(updates.LARGE):
        there = [(m.name, m.host) for m in placed.on_host(web, f"h{n}")]
        assert there == [(f"m{2 * n}", ""), (f"m{2 * n + 1}", "")]
    assert sorted_groups == ["web"]
    fewer = msgspec.structs.replace(web, machines=machines[:-1])
    assert [m.name for m in placed.on_host(fewer, f"h{updates.LARGE - 1}")] == [machines[-2].name]
    placed.forget("web")
    assert placed.on_host(web, "elsewhere") == ()
