"""What is certainly before what.

An exchange took effect somewhere between being asked and being answered. One is certainly
before another only if it was answered before the other was asked; exchanges that overlap have
no order. Everything that accuses by sequence goes through this file.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from .document import Document
from .fleet import RECORD_SLACK, Caller
from .records import Disabled, Exchange, Trace

# Clocks of one machine read by two programs; an accusation is never about less than this.
TOLERANCE = 0.01

# Without a GET for this long a group is disabled, and its documents start over.
SILENCE = 24 * 3600.0

Period = tuple[int, int]  # how often disabled, how often silent


@dataclass(frozen=True, eq=False, slots=True)
class Sighting:
    """A document that a caller saw (or was told, by a 304, to go on believing)."""

    exchange: Exchange
    document: Document
    caller: Caller
    period: Period | None  # None: too close to a disabling to say


class _Timed(Protocol):
    @property
    def exchange(self) -> Exchange: ...


T = TypeVar("T", bound=_Timed)


@dataclass(frozen=True, slots=True)
class Step(Generic[T]):
    """`judge` an item by all that is certainly before it, or let it count as `settled`."""

    what: Literal["judge", "settle"]
    item: T


class Order:
    def __init__(self, trace: Trace) -> None:
        # Where the clock was stepped back, times say less: only what lies further apart than
        # all the steps together has a certain order.
        self.blur = trace.backstep
        self._by_line = trace.complete and not trace.backstep

    def before(self, one: Exchange, other: Exchange) -> bool:
        if one.t + self.blur < other.asked:
            return True
        # A virtual clock stands still while much happens. One recorder of everything writes
        # in order, so among exchanges that took no time the order of lines is proof.
        return (
            self._by_line
            and one.t == other.asked == other.t
            and one.asked == one.t
            and one.index < other.index
        )

    def sweep(self, items: Iterable[T]) -> Iterator[Step[T]]:
        """Every item once to judge; before it, as settled, exactly what is certainly earlier."""
        by_end = sorted(items, key=lambda i: (i.exchange.t, i.exchange.index))
        # Among those asked at one instant, the ones that took time settle nothing that took none.
        by_start = sorted(
            by_end,
            key=lambda i: (i.exchange.asked, i.exchange.asked == i.exchange.t, i.exchange.index),
        )
        settled = 0
        slow: list[T] = []  # ended at the instant at which others begin
        for item in by_start:
            exchange = item.exchange
            if slow and slow[0].exchange.t < exchange.asked:
                yield from (Step("settle", earlier) for earlier in slow)
                slow = []
            while settled < len(by_end):
                earlier = by_end[settled].exchange
                if earlier.t + self.blur < exchange.asked or self.before(earlier, exchange):
                    yield Step("settle", by_end[settled])
                elif self._by_line and earlier.t == exchange.t and earlier.index < exchange.index:
                    slow.append(by_end[settled])
                else:
                    break
                settled += 1
            yield Step("judge", item)
        yield from (Step("settle", item) for item in (*slow, *by_end[settled:]))


class Periods:
    """Which enabled period of its group a document belongs to. To be asked in order of `asked`."""

    def __init__(self, trace: Trace) -> None:
        self._complete = trace.complete
        self._slack = 0.0 if trace.complete else RECORD_SLACK + trace.backstep
        self._disabled = trace.disabled
        self._of: dict[str | None, tuple[list[Disabled], list[float]]] = {}
        self._silent: dict[str, int] = {}
        self._last: dict[str, float] = {}

    def period(self, exchange: Exchange, caller: Caller) -> Period | None:
        assert caller.key is not None
        silent = self._silent.setdefault(caller.key, 0)
        last = self._last.get(caller.key, exchange.asked)
        if not self._complete and exchange.asked - last >= SILENCE:
            silent = self._silent[caller.key] = silent + 1
        self._last[caller.key] = max(last, exchange.t)
        if not self._disabled:
            return 0, silent
        lines, times = self._lines(caller.group)
        count = bisect_left(times, exchange.asked - self._slack)
        while count < len(lines) and not self._after(lines[count], exchange):
            if not self._before(lines[count], exchange):
                return None
            count += 1
        return count, silent

    def _lines(self, group: str | None) -> tuple[list[Disabled], list[float]]:
        # A caller of no known group may belong to any that was disabled.
        found = self._of.get(group)
        if found is None:
            lines = [d for d in self._disabled if group is None or d.group == group]
            found = self._of[group] = (lines, [line.t for line in lines])
        return found

    def _before(self, disabled: Disabled, exchange: Exchange) -> bool:
        if disabled.t + self._slack < exchange.asked:
            return True
        return self._at_once(disabled, exchange) and disabled.index < exchange.index

    def _after(self, disabled: Disabled, exchange: Exchange) -> bool:
        if exchange.t + self._slack < disabled.t:
            return True
        return self._at_once(disabled, exchange) and disabled.index > exchange.index

    def _at_once(self, disabled: Disabled, exchange: Exchange) -> bool:
        return self._complete and disabled.t == exchange.asked == exchange.t
