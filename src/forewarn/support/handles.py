"""Objects that stand for a machine or an event, whichever package they come from."""

from __future__ import annotations

from typing import Protocol, TypeAlias


class HasName(Protocol):
    """An object with a name, such as a machine of the test kit."""

    @property
    def name(self) -> str:
        """Its name."""
        ...


class HasId(Protocol):
    """An object with an id, such as an event of the test kit or of the client."""

    @property
    def id(self) -> str:
        """Its id."""
        ...


MachineRef: TypeAlias = HasName | str
"""A machine, or its name."""

EventRef: TypeAlias = HasId | str
"""An event, or its id."""


def name_of(machine: MachineRef) -> str:
    """Return the name of a machine."""
    return machine if isinstance(machine, str) else machine.name


def id_of(event: EventRef) -> str:
    """Return the id of an event."""
    return event if isinstance(event, str) else event.id
