"""Checks that recordings belong together, before they are judged as one.

Control and its nodes write a recording each. The fleet is usually in control's, and the requests in
those of the nodes, so what one of them lacks is found in another. Recordings of different services
would contradict each other everywhere.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

# How many names a message lists.
_LISTED = 3


@dataclass(slots=True)
class _Contents:
    """The machines of one recording: those of its fleets, and those that it says anything about."""

    name: str
    fleet: set[str] = field(default_factory=set)
    mentioned: set[str] = field(default_factory=set)
    by_node: bool = False


class Recordings:
    """Recordings that are read one after the other."""

    def __init__(self) -> None:
        self._contents: list[_Contents] = []

    def read(self, name: str, records: Iterable[object]) -> Iterator[object]:
        """Yield the records of one recording, and remember what it is about."""
        contents = _Contents(name)
        self._contents.append(contents)
        for record in records:
            if isinstance(record, Mapping):
                _note(record, contents)
            yield record

    def contradiction(self) -> str:
        """Return why the recordings do not belong together; empty if they may."""
        described = [contents for contents in self._contents if contents.fleet]
        if not described:
            return ""
        first, known = described[0], set(described[0].fleet)
        remaining = described[1:]
        while related := [one for one in remaining if not known.isdisjoint(one.fleet)]:
            known.update(*(one.fleet for one in related))
            remaining = [one for one in remaining if one not in related]
        if remaining:
            other = remaining[0]
            return (
                f"{first.name} and {other.name} describe fleets that have no machine in common"
                f" ({_names(first.fleet)}; {_names(other.fleet)})"
            )
        for contents in self._contents:
            if contents.mentioned and known.isdisjoint(contents.mentioned):
                return (
                    f"{contents.name} is about {_names(contents.mentioned)}, and the fleet in"
                    f" {first.name} has no such machine"
                )
        return ""

    @property
    def lack_fleet(self) -> bool:
        """Whether nodes have written them, and none says which machines form a group."""
        return any(contents.by_node for contents in self._contents) and not any(
            contents.fleet for contents in self._contents
        )


def _note(record: Mapping[object, object], contents: _Contents) -> None:
    kind, machine, machines = (record.get(key) for key in ("kind", "machine", "machines"))
    if kind == "fleet" and isinstance(machines, Mapping):
        contents.fleet.update(name for name in machines if isinstance(name, str))
    elif kind in ("disconnected", "joined") and isinstance(machines, list):
        contents.by_node = True
        contents.mentioned.update(name for name in machines if isinstance(name, str))
    elif kind == "exchange" and isinstance(machine, str):
        contents.by_node = contents.by_node or record.get("host") is not None
        contents.mentioned.add(machine)


def _names(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = len(ordered) - _LISTED
    return ", ".join(ordered[:_LISTED]) + (f" and {more} more" if more > 0 else "")
