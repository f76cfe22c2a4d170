"""The overview of a fleet: hosts or groups as rows, or sums of them by a label."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from forewarn.control.schema import overview as s
from forewarn.core import Time
from forewarn.core.fleet import Health
from forewarn.service.indexes.overview import ByDomain, RowOrder, RowState, StateCounts
from forewarn.support.instants import to_datetime
from forewarn.support.text import natural_key

_STATES = tuple(RowState)
_RANKS = {state: rank for rank, state in enumerate(_STATES)}
_UNHEALTHY, _CORDONED = _RANKS[RowState.UNHEALTHY], _RANKS[RowState.CORDONED]
_QUIET = _RANKS[RowState.QUIET]
_MACHINES = StateCounts.__struct_fields__
# In the order of rows: a state of a row, and the place of that of its machines in their counts.
_OF_MACHINES = [
    (_RANKS[state], _MACHINES.index(state.value)) for state in _STATES if state.value in _MACHINES
]

C = TypeVar("C", bound=s.MachineCounts)


class Member(msgspec.Struct, frozen=True):
    """A host or a group. `part`: the sum that it is in."""

    name: str
    part: str
    domains: ByDomain
    health: Health | None = None
    cordoned: bool = False
    unreachable: bool = False

    def ranks(self) -> list[int]:
        """Return the ranks of all states that apply, unordered."""
        counts = self.domains.values()
        sums = [sum(each) for each in zip(*map(msgspec.structs.astuple, counts), strict=True)]
        ranks = [rank for rank, place in _OF_MACHINES if sums and sums[place]]
        if self.unreachable or self.health not in (None, Health.HEALTHY):
            ranks.append(_UNHEALTHY)
        if self.cordoned:
            ranks.append(_CORDONED)
        return ranks


class _Row(msgspec.Struct):
    name: str
    rank: int
    members: list[Member]
    counts: list[int]  # of members, by rank


def overview(
    members: Iterable[Member],
    labels: Collection[str],
    *,
    summed: bool,
    state: RowState | None,
    order: RowOrder,
    limit: int | None,
    at: Time,
) -> s.Overview:
    """Return the overview of some hosts or groups. `state` is that of those that are wanted."""
    rows: dict[str, _Row] = {}
    total = [0] * len(_STATES)
    for member, rank in _selected(members, state):
        name = member.part if summed else member.name
        if (row := rows.get(name)) is None:
            row = rows[name] = _Row(name, rank, [], [0] * len(_STATES))
        row.rank = min(row.rank, rank)
        row.members.append(member)
        row.counts[rank] += 1
        total[rank] += 1

    def key(row: _Row) -> tuple[Any, ...]:
        rank = row.rank if order is RowOrder.STATE else 0
        return rank, not row.name, natural_key(row.name)

    ordered = sorted(rows.values(), key=key)
    shown = ordered if limit is None else ordered[:limit]
    return s.Overview(
        at=to_datetime(at),
        counts=_row_counts(total),
        machines=_plus(s.MachineCounts(), _all_counts(rows.values())),
        rows=[_view(row, summed=summed) for row in shown],
        left_out=len(ordered) - len(shown),
        labels=sorted(labels),
    )


def _selected(members: Iterable[Member], state: RowState | None) -> Iterator[tuple[Member, int]]:
    wanted = None if state is None else _RANKS[state]
    for member in members:
        ranks = member.ranks() or [_QUIET]
        rank = min(ranks)
        if wanted is None or (rank == wanted if wanted == _QUIET else wanted in ranks):
            yield member, rank


def _view(row: _Row, *, summed: bool) -> s.OverviewRow:
    first = row.members[0]
    return s.OverviewRow(
        name=row.name,
        state=_STATES[row.rank].value,
        counts=_row_counts(row.counts) if summed else None,
        health=None if summed or first.health is None else first.health.value,
        cordoned=not summed and first.cordoned,
        unreachable=not summed and first.unreachable,
        domains=_domains(row.members),
    )


def _row_counts(counts: Sequence[int]) -> s.RowCounts:
    return s.RowCounts(**{state.value: counts[rank] for state, rank in _RANKS.items()})


def _all_counts(rows: Iterable[_Row]) -> Iterator[StateCounts]:
    for row in rows:
        for member in row.members:
            yield from member.domains.values()


def _domains(members: Iterable[Member]) -> list[s.DomainCounts]:
    by_domain: dict[int, list[StateCounts]] = {}
    for member in members:
        for domain, counts in member.domains.items():
            by_domain.setdefault(domain, []).append(counts)
    return [
        _plus(s.DomainCounts(update_domain=domain), counts)
        for domain, counts in sorted(by_domain.items())
    ]


def _plus(view: C, counts: Iterable[StateCounts]) -> C:
    """Add numbers to a view, and return it."""
    for name, numbers in zip(
        _MACHINES, zip(*map(msgspec.structs.astuple, counts), strict=True), strict=False
    ):
        setattr(view, name, getattr(view, name) + sum(numbers))
    return view
