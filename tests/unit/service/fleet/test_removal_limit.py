"""How many machines a change may remove: the syntax of the setting, its arithmetic, its words."""

from __future__ import annotations

import pytest

from forewarn.service.fleet.removal_limit import RemovalLimit, Removals, too_many


@pytest.mark.parametrize(
    ("text", "machines", "most"),
    [
        ("20, 10%", 40_000, 20),
        ("20, 10%", 200, 20),
        ("20, 10%", 199, 20),
        ("20, 10%", 150, 15),
        ("20, 10%", 11, 2),
        ("20, 10%", 3, 1),
        ("10%,20", 150, 15),
        ("0.5 %", 1_000, 5),
        ("20", 10, 10),
        ("0", 1_000, 0),
        ("0%", 1_000, 0),
        ("100%", 7, 7),
        ("20, 10%", 0, 0),
    ],
)
def test_the_smaller_part_applies_and_a_share_is_rounded_up(
    text: str, machines: int, most: int
) -> None:
    limit = RemovalLimit.parse(text)
    assert limit is not None
    assert limit.most(machines) == most


@pytest.mark.parametrize(
    "text", ["many", "-1", "2.5", "101%", "10%, 20%", "3, 4", "10%%", "1e3", "20,", ""]
)
def test_an_invalid_limit_is_refused(text: str) -> None:
    assert RemovalLimit.parse(text) is None


def test_a_refusal_names_the_first_machines_of_the_first_groups() -> None:
    groups = {f"g{n}": [f"g{n}-{m}" for m in range(n)] for n in range(1, 8)}
    message = str(too_many(Removals(groups, 100), 10))
    assert message == (
        "28 of 100 machines would be removed from the inventory (in g1: g1-0; in g2: g2-0, g2-1;"
        " in g3: g3-0, g3-1, g3-2; in g4: g4-0, g4-1, g4-2 and 1 more; in g5: g5-0, g5-1, g5-2 and"
        " 2 more; and 2 more groups), which is more than the limit of 10"
    )
