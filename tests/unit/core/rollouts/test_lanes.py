"""From a selection to lanes: what is selected and left out, in which order, and in which waves."""

from __future__ import annotations

from typing import Any

import pytest

from forewarn.core.events import EventType
from forewarn.core.fleet import Host, Machine
from forewarn.core.group import Group
from forewarn.core.labels import parse
from forewarn.core.refusal import Hint, Refused
from forewarn.core.rollouts.lanes import Lanes, conflicts_problem, crowding, lanes
from forewarn.core.rollouts.model import Conflicts, Lane, Step
from forewarn.core.rollouts.selection import Selection
from forewarn.core.rollouts.waves import in_waves

HOSTS = {
    name: Host(name=name, labels=labels)
    for name, labels in {
        "r1-a": {"row": "1", "rack": "10"},
        "r1-b": {"row": "1", "rack": "9"},
        "r2-a": {"row": "2", "rack": "1"},
        "spare": {},
    }.items()
}


def group(name: str, *machines: tuple[str, int, str], **labels: str) -> Group:
    made = tuple(
        Machine(
            name=machine,
            update_domain=domain,
            host=host,
            labels={"canary": "yes"} if machine.endswith("0") else {},
        )
        for machine, domain, host in machines
    )
    return Group(name=name, machines=made, labels=labels)


GROUPS = {
    made.name: made
    for made in (
        group("web", ("web0", 0, "r1-a"), ("web1", 1, "r1-b"), ("web2", 2, "r2-a"), tier="front"),
        group("db", ("db0", 0, "r1-b"), ("db1", 1, "r1-b"), ("db2", 1, "r2-a"), tier="back"),
        group("empty"),
    )
}


def made(type: EventType = EventType.REBOOT, **fields: Any) -> Lanes | Refused:
    how = {name: fields.pop(name) for name in ("conflicts", "order_by") if name in fields}
    selectors: dict[str, Any] = {
        name: tuple(map(parse, value)) if name.endswith("labels") else value
        for name, value in fields.items()
    }
    return lanes("R", type, Selection(**selectors), GROUPS, HOSTS, **how)


def selected(**fields: Any) -> dict[str, list[tuple[str, ...]]]:
    found = made(**fields)
    assert isinstance(found, Lanes), found
    return {lane.name: [step.machines for step in lane.steps] for lane in found.lanes}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"groups": ("web",)}, {"web": [("web0",), ("web1",), ("web2",)]}),
        ({"labels": ("canary",)}, {"web": [("web0",)], "db": [("db0",)]}),
        ({"machines": ("web?", "db2"), "exclude_machines": ("web1",)},
         {"web": [("web0",), ("web2",)], "db": [("db2",)]}),
        ({"groups": ("web", "db"), "host_labels": ("row=2",)},
         {"web": [("web2",)], "db": [("db2",)]}),
        ({"groups": ("web", "db"), "exclude_host_labels": ("row=1",), "exclude_groups": ("web",)},
         {"db": [("db2",)]}),
        ({"labels": ("tier=front", "tier=back"), "exclude_labels": ("canary",),
          "exclude_hosts": ("r2-*",)},
         {"web": [("web1",)], "db": [("db1",)]}),
        ({"host_labels": ("row",), "exclude_hosts": ("r1-b",)},
         {"r1-a": [("web0",)], "r2-a": [("web2", "db2")]}),
        ({"hosts": ("*",), "host_labels": ("row=1",), "exclude_machines": ("db1",)},
         {"r1-a": [("web0",)]}),
        ({"hosts": ("*",), "exclude_groups": ("db",)}, {"r1-a": [("web0",)]}),
        ({"hosts": ("r2-a", "r1-a")}, {"r2-a": [("web2", "db2")], "r1-a": [("web0",)]}),
    ],
)  # fmt: skip
def test_kinds_narrow_each_other_and_exclusions_remove_from_that(
    fields: Any, expected: Any
) -> None:
    assert selected(**fields) == expected
    assert list(selected(**fields)) == list(expected)


def test_hosts_follow_the_values_of_labels_and_those_without_come_last() -> None:
    fields = {"hosts": ("*",), "conflicts": Conflicts.SKIP}
    assert list(selected(order_by=("row", "rack"), **fields)) == ["r1-b", "r1-a", "r2-a"]
    assert list(selected(order_by=("rack",), **fields)) == ["r2-a", "r1-b", "r1-a"]


def test_a_host_with_two_domains_of_a_group_is_split_skipped_or_refused() -> None:
    found = made(hosts=("*",))
    assert isinstance(found, Lanes)
    problem = conflicts_problem(found.conflicts)
    assert problem is not None
    (conflict,) = problem.others
    assert (problem.hint, conflict.field) == (Hint.CONFLICTS, "r1-b")
    assert "db0 of 0 and db1 of 1" in conflict.message
    assert selected(hosts=("r1-b",), conflicts=Conflicts.SPLIT) == {
        "r1-b": [("db0",), ("web1", "db1")]
    }
    skipped = made(hosts=("*",), conflicts=Conflicts.SKIP)
    assert isinstance(skipped, Lanes)
    assert skipped.skipped == ("rollout/R/host/r1-b",)


def test_the_update_domain_with_the_most_machines_stays_on_a_host_with_a_conflict() -> None:
    web = {0: ["web-0"], 1: ["web-1", "web-2"], 2: ["web-3"]}
    assert crowding({"web": web, "db": {4: ["db-0"]}}) == ("web-0", "web-3")
    assert crowding({"web": {2: ["web-2"], 1: ["web-1"]}}) == ("web-2",)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({}, "needs a selection"),
        ({"exclude_hosts": ("r1-a",)}, "needs a selection"),
        ({"hosts": ("*",), "exclude_hosts": ("r9-a",)}, "no host 'r9-a'; did you mean"),
        ({"machines": ("wbe0",)}, "no machine 'wbe0'; did you mean"),
        ({"groups": ("web",), "exclude_groups": ("empty",)}, "no group 'empty'"),
        ({"groups": ("web",), "machines": ("db0",)}, "no machine is selected by group web"),
        ({"host_labels": ("row=7",)}, "no machine is selected by host label row=7"),
        ({"type": EventType.PREEMPT, "groups": ("web",)}, "cannot be a Preempt"),
        (
            {"type": EventType.REDEPLOY, "hosts": ("*",)},
            "Reboot, live-migration, evacuate",
        ),
        ({"hosts": ("r1-a",) * 1_001}, "at most 1000 hosts"),
    ],
)
def test_an_invalid_selection_is_refused(fields: Any, complaint: str) -> None:
    found = made(**fields)
    assert isinstance(found, Refused)
    assert complaint in found.message


def many(count: int) -> tuple[Lane, ...]:
    return tuple(
        Lane(name=f"h{i}", steps=(Step(cause=f"rollout/R/host/h{i}", host=f"h{i}"),))
        for i in range(count)
    )


@pytest.mark.parametrize(
    ("count", "canary", "waves", "sizes"),
    [
        (100, (), (), [100]),
        (100, (), ("1", "5%", "25%", "100%"), [1, 4, 20, 75]),
        (100, (), ("10%",), [10, 90]),
        (100, ("2",), (), [2, 98]),
        (100, ("h7", "h9?"), ("50%",), [11, 39, 50]),
        (3, (), ("1", "5%", "25%", "100%"), [1, 2]),
        (1, ("1",), ("50%",), [1]),
    ],
)
def test_waves_are_shares_of_all_and_the_canary_is_the_first(
    count: int, canary: Any, waves: Any, sizes: list[int]
) -> None:
    found = in_waves(many(count), canary, waves)
    assert not isinstance(found, Refused), found
    assert [sum(lane.wave == wave for lane in found) for wave in range(found[-1].wave + 1)] == sizes
    assert sorted(lane.name for lane in found) == sorted(lane.name for lane in many(count))
    assert [lane.wave for lane in found] == sorted(lane.wave for lane in found)
    if "h7" in canary:
        assert found[0].name == "h7"


@pytest.mark.parametrize(
    ("canary", "waves", "complaint"),
    [
        (("x",), (), "canary 'x' is not one of"),
        (("11",), (), "a canary of 11 is not possible"),
        (("0",), (), "a canary of 0 is not possible"),
        ((), ("half",), "'half' is not the size of a wave"),
        ((), ("101%",), "not the size of a wave"),
        ((), ("1.5",), "not the size of a wave"),
        ((), ("0",), "not the size of a wave"),
        ((), ("50%", "1"), "is smaller than the wave before it"),
        ((), ("1",) * 21, "at most 20 waves"),
    ],
)
def test_invalid_waves_are_refused(canary: Any, waves: Any, complaint: str) -> None:
    found = in_waves(many(10), canary, waves)
    assert isinstance(found, Refused)
    assert complaint in found.message
