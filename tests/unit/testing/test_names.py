"""The names that an editor completes are those of the tables that decide."""

from __future__ import annotations

from enum import Enum
from typing import Any, get_args

import pytest

from forewarn import core
from forewarn.core.events import TYPE_TRAITS
from forewarn.service.faults.kinds import KINDS
from forewarn.service.faults.validate import METHODS
from forewarn.service.platform import hosts
from forewarn.testing import names
from forewarn.wire.versions import TYPE_NAMES


def values(members: Any) -> list[str]:
    return [member.value if isinstance(member, Enum) else member for member in members]


TABLES: list[tuple[Any, Any]] = [
    (names.EventType, TYPE_TRAITS),
    (names.EventType, TYPE_NAMES),
    (names.EventSource, core.Source),
    (names.EventStatus, [status for status in core.Status if not status.over]),
    (names.GroupKind, core.GroupKind),
    (names.MaintenanceMode, hosts.MAINTENANCE_MODES),
    (names.FaultKind, KINDS),
    (names.FaultMethod, METHODS),
]


@pytest.mark.parametrize(("literal", "table"), TABLES, ids=str)
def test_a_type_has_the_names_of_its_table(literal: Any, table: Any) -> None:
    assert list(get_args(literal)) == values(table)


def test_every_type_is_compared() -> None:
    compared = [literal for literal, _ in TABLES]
    types = [value for value in vars(names).values() if get_args(value)]
    assert len(types) >= 7
    assert [value for value in types if value not in compared] == []
