"""What an event type means is said once for the core, and once for the wire; both agree."""

from forewarn.core.events import TYPE_TRAITS, EventType, types_that
from forewarn.core.rollouts.lanes import HOST_TYPES
from forewarn.service.platform.hosts import LIVE_MIGRATION, MAINTENANCE_MODES
from forewarn.wire.versions import DELETING, NEWEST, RESTARTING, TYPE_NAMES


def test_every_type_has_a_row() -> None:
    assert set(TYPE_TRAITS) == set(EventType)


def test_core_and_wire_know_the_same_types() -> None:
    assert tuple(type.value for type in EventType) == TYPE_NAMES == NEWEST.types
    assert tuple(type.value for type in types_that(lambda traits: traits.restarts)) == RESTARTING
    assert tuple(type.value for type in types_that(lambda traits: traits.deletes)) == DELETING


def test_a_host_can_be_maintained_with_each_type_that_allows_it() -> None:
    assert list(MAINTENANCE_MODES.values()) == [*HOST_TYPES, LIVE_MIGRATION]
