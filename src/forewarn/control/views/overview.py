"""The overview of a fleet: hosts or groups as rows, or sums of them by a label."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

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


class Member(msgspec.Struct, frozen=True):
    """A host or a group. `part`: the sum that it is in."""

    name: str
    part: str
    domains: ByDomain
    health: Health | None = None
    cordoned: bool = False
    unreachable: bool = False

    def ranks(self, of_machines: frozenset[int]) -> frozenset[int]:
        """Return the ranks of all states that apply, of which `of_machines` are known."""
        if self.unreachable or self.health not in (None, Health.HEALTHY):
            of_machines |= {_UNHEALTHY}
        if self.cordoned:
            of_machines |= {_CORDONED}
        return of_machines or frozenset((_QUIET,))


class _Machines(msgspec.Struct, frozen=True, eq=False):
    """Machines by state, in the order of `StateCounts`, and the ranks that follow from them. Those
    of hosts that are alike are the same object."""

    counts: tuple[int, ...]
    ranks: frozenset[int]


@functools.lru_cache(maxsize=10_000)
def _machines(of_domains: tuple[StateCounts, ...]) -> _Machines:
    counts = tuple(map(sum, zip(*map(msgspec.structs.astuple, of_domains), strict=True)))
    return _Machines(
        counts, frozenset(rank for rank, place in _OF_MACHINES if counts and counts[place])
    )


class _Row(msgspec.Struct):
    first: Member
    rank: int
    counts: list[int]  # of members, by rank
    machines: dict[_Machines, int]  # of members: how many have these


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
    every: dict[_Machines, int] = {}
    wanted = None if state is None else _RANKS[state]
    for member in members:
        machines = _machines(tuple(member.domains.values()))
        ranks = member.ranks(machines.ranks)
        rank = min(ranks)
        if wanted is not None and (rank != wanted if wanted == _QUIET else wanted not in ranks):
            continue
        name = member.part if summed else member.name
        if (row := rows.get(name)) is None:
            row = rows[name] = _Row(member, rank, [0] * len(_STATES), {})
        row.rank = min(row.rank, rank)
        row.counts[rank] += 1
        for of in (row.machines, every):
            of[machines] = of.get(machines, 0) + 1

    def key(name: str) -> tuple[Any, ...]:
        return rows[name].rank if order is RowOrder.STATE else 0, not name, natural_key(name)

    names = sorted(rows, key=key)
    shown = names if limit is None else names[:limit]
    counts = map(sum, zip(*(row.counts for row in rows.values()), strict=True))
    return s.Overview(
        at=to_datetime(at),
        counts=_row_counts([*counts]),
        machines=_machine_counts(every),
        rows=[_view(name, rows[name], summed=summed) for name in shown],
        left_out=len(names) - len(shown),
        labels=sorted(labels),
    )


def _view(name: str, row: _Row, *, summed: bool) -> s.OverviewRow:
    state, machines, first = _STATES[row.rank].value, _machine_counts(row.machines), row.first
    if summed:
        return s.OverviewRow(
            name=name, state=state, machines=machines, counts=_row_counts(row.counts)
        )
    return s.OverviewRow(
        name=name,
        state=state,
        machines=machines,
        health=None if first.health is None else first.health.value,
        cordoned=first.cordoned,
        unreachable=first.unreachable,
        domains=[
            s.DomainCounts(update_domain=domain, **_named(msgspec.structs.astuple(counts)))
            for domain, counts in sorted(first.domains.items())
        ],
    )


def _named(counts: Sequence[int]) -> dict[str, int]:
    return dict(zip(StateCounts.__struct_fields__, counts, strict=False))


def _machine_counts(members: Mapping[_Machines, int]) -> s.MachineCounts:
    products = [
        [n * number for n in alike.counts] for alike, number in members.items() if alike.counts
    ]
    return s.MachineCounts(**_named([*map(sum, zip(*products, strict=True))]))


def _row_counts(counts: Sequence[int]) -> s.RowCounts:
    return s.RowCounts(**dict(zip((state.value for state in _STATES), counts, strict=False)))
