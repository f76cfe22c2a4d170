"""How many machines one change of the inventory may remove without being told their number.

A file that was truncated, or generated from a source that did not answer, would otherwise remove
machines that still exist: their guests would no longer be warned.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from forewarn.core import Refused
from forewarn.core.refusal import Hint, conflict

NAMED = -1  # in place of their number, if each machine that is removed was named
SHOWN_GROUPS = 5  # that a refusal names
SHOWN_MACHINES = 3  # of each of these groups


class RemovalLimit(msgspec.Struct, frozen=True):
    """Each part that is given applies: a number of machines, and a share of all machines."""

    machines: int | None = None
    percent: float | None = None

    @classmethod
    def parse(cls, text: str) -> RemovalLimit | None:
        """Read `20`, `10%`, or both separated by a comma. Return None if it is none of these."""
        machines: int | None = None
        percent: float | None = None
        for part in map(str.strip, text.split(",")):
            if machines is None and re.fullmatch(r"[0-9]{1,9}", part, re.ASCII):
                machines = int(part)
            elif percent is None and re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3})?\s*%", part, re.ASCII):
                percent = float(part.removesuffix("%"))
            else:
                return None
        return None if percent is not None and percent > 100 else cls(machines, percent)

    def most(self, machines: int) -> int:
        """Return how many of so many machines may be removed. A share is rounded up."""
        limits = [machines]
        if self.machines is not None:
            limits.append(self.machines)
        if self.percent is not None:
            limits.append(int(-(-machines * self.percent // 100)))
        return min(limits)


class Removals(msgspec.Struct, frozen=True):
    """The machines that a change removes and that exist as far as is known. Those that were
    evicted or deleted before do not count."""

    by_group: Mapping[str, Sequence[str]] = {}
    machines: int = 0  # in the inventory before the change, without those
    remaining: int = 0  # in the inventory after it

    @property
    def count(self) -> int:
        return sum(map(len, self.by_group.values()))

    @property
    def empties(self) -> bool:
        """Would no machine at all remain?"""
        return self.count > 0 and not self.remaining

    def __str__(self) -> str:
        groups = list(self.by_group.items())
        named = "; ".join(_group_text(name, machines) for name, machines in groups[:SHOWN_GROUPS])
        more = len(groups) - SHOWN_GROUPS
        return f"{named}; and {more} more group{'s' if more > 1 else ''}" if more > 0 else named


def _group_text(name: str, machines: Sequence[str]) -> str:
    shown = ", ".join(machines[:SHOWN_MACHINES])
    more = len(machines) - SHOWN_MACHINES
    return f"in {name}: {shown} and {more} more" if more > 0 else f"in {name}: {shown}"


def too_many(removals: Removals, most: int) -> Refused:
    count = removals.count
    return conflict(
        f"{count} of {removals.machines} machines would be removed from the inventory ({removals}),"
        f" which is more than the limit of {most}",
        hint=Hint.REMOVE,
        about=str(count),
    )


def wrong_number(removals: Removals, given: int) -> Refused:
    count = removals.count
    which = f" ({removals})" if count else ""
    return conflict(
        f"{count} of {removals.machines} machines would be removed from the inventory{which}, not"
        f" {given}; those that were evicted or deleted before do not count",
        hint=Hint.REMOVE,
        about=str(count),
    )


def empties(removals: Removals) -> Refused:
    return conflict(
        f"it does not list any machines, so all {removals.count} machines would be removed from"
        f" the inventory ({removals})",
        hint=Hint.REMOVE,
        about=str(removals.count),
    )
