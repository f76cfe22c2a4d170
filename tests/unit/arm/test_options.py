"""The filters of Azure Resource Manager's lists."""

from __future__ import annotations

import pytest

from forewarn.arm.options import predicate

FIELDS = {"name": lambda item: item["name"], "tag/of": lambda item: item["tags"]}
ITEMS = [
    {"name": "web-a", "tags": ["Shop", "it's"]},
    {"name": "web-b", "tags": []},
    {"name": "this and that", "tags": ["shop"]},
]


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ("name eq 'web-a'", [0]),
        ("'NAME' EQ 'WEB-A'", [0]),
        ("name eq web-a", [0]),
        ("tag/of eq 'shop'", [0, 2]),
        ("tag/of eq 'it''s'", [0]),
        ("tag/of eq 'shop' and name eq 'web-a'", [0]),
        ("name eq 'this and that' AND tag/of eq 'shop'", [2]),
        ("startswith(name, 'web') eq true", [0, 1]),
        ("substringof('and', name)", [2]),
        ("name eq ''", []),
    ],
)
def test_a_filter_selects_items(filter: str, expected: list[int]) -> None:
    wanted = predicate({"$filter": filter}, FIELDS)
    assert wanted is not None
    assert [index for index, item in enumerate(ITEMS) if wanted(item)] == expected
