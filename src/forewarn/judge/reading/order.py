"""The certain order of exchanges in time.

An exchange took effect at some time between its request and its answer. One is certainly before
another only if it was answered before the other was requested; exchanges that overlap have no
order. Every rule about a sequence uses this module.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from .disconnected_times import DisconnectedTime
from .document import Document
from .fleet import RECORD_SLACK, Caller
from .records import Disabled, Exchange, Trace

# Seconds by which two programs on one machine may read the clock differently.
TOLERANCE = 0.01

# Seconds without a GET after which a group is disabled, and its incarnations start again.
DISABLED_AFTER = 24 * 3600.0

Period = tuple[int, int]  # how often disabled, how often silent


@dataclass(frozen=True, eq=False, slots=True)
class Sighting:
    """A document that a caller got, or that a 304 confirmed."""

    exchange: Exchange
    document: Document
    caller: Caller
    period: Period | None  # None: too close to the disabling of the group
    disconnected: bool = False  # it may have been answered while the machine was disconnected


class _Timed(Protocol):
    @property
    def exchange(self) -> Exchange: ...


T = TypeVar("T", bound=_Timed)


@dataclass(frozen=True, slots=True)
class Step(Generic[T]):
    """`judge` an item by all settled ones, or `settle` it: it is certainly before the next."""

    action: Literal["judge", "settle"]
    item: T


class Order:
    def __init__(self, trace: Trace) -> None:
        # Where the clock was stepped back, times say less: only what lies further apart than
        # all the steps together has a certain order.
        self.clock_error = trace.clock_error
        self._by_line = trace.complete and not trace.clock_error

    def before(self, earlier: Exchange, later: Exchange) -> bool:
        if earlier.t + self.clock_error < later.asked:
            return True
        # A virtual clock stands still while much happens. One recorder of everything writes
        # in order, so among exchanges that took no time the order of lines is proof.
        return (
            self._by_line
            and earlier.t == later.asked == later.t
            and earlier.asked == earlier.t
            and earlier.index < later.index
        )

    def sweep(self, items: Iterable[T]) -> Iterator[Step[T]]:
        """Yield every item once to judge, and before it the certainly earlier ones to settle."""
        by_end = sorted(items, key=lambda item: (item.exchange.t, item.exchange.index))
        # Among those asked at one instant, the ones that took time settle nothing that took none.
        by_start = sorted(
            by_end,
            key=lambda item: (
                item.exchange.asked,
                item.exchange.asked == item.exchange.t,
                item.exchange.index,
            ),
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
                if earlier.t + self.clock_error < exchange.asked or self.before(earlier, exchange):
                    yield Step("settle", by_end[settled])
                elif self._by_line and earlier.t == exchange.t and earlier.index < exchange.index:
                    slow.append(by_end[settled])
                else:
                    break
                settled += 1
            yield Step("judge", item)
        yield from (Step("settle", item) for item in (*slow, *by_end[settled:]))


class Periods:
    """Finds the enabled period of a document. Exchanges have to come in the order of `asked`."""

    def __init__(self, trace: Trace) -> None:
        self._complete = trace.complete
        self._slack = 0.0 if trace.complete else RECORD_SLACK + trace.clock_error
        self._disabled = trace.disabled
        self._by_group: dict[str | None, tuple[list[Disabled], list[float]]] = {}
        self._silent: dict[str, int] = {}
        self._last: dict[str, float] = {}

    def period(self, exchange: Exchange, caller: Caller) -> Period | None:
        assert caller.key is not None
        silent = self._silent.setdefault(caller.key, 0)
        last = self._last.get(caller.key, exchange.asked)
        if not self._complete and exchange.asked - last >= DISABLED_AFTER:
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

    def period_while_disconnected(
        self, exchange: Exchange, caller: Caller, time: DisconnectedTime
    ) -> Period | None:
        """Return the period of a document that a machine got while it was disconnected: if the
        group was disabled since, its node does not know. Nor does anybody know of its polls."""
        assert caller.key is not None
        silent = self._silent.get(caller.key, 0)
        _, times = self._lines(caller.group)
        first = bisect_left(times, time.begin - self._slack)
        last = bisect_left(times, time.begin + self._slack)
        # Or in the one in which it joined again, or if it was not disconnected.
        if exchange.t + self._slack >= time.end or not time.known:
            last = bisect_left(times, exchange.t + self._slack)
        return (first, silent) if first == last else None

    def _lines(self, group: str | None) -> tuple[list[Disabled], list[float]]:
        # A caller of an unknown group may belong to any group that was disabled.
        entry = self._by_group.get(group)
        if entry is None:
            lines = [line for line in self._disabled if group is None or line.group == group]
            entry = self._by_group[group] = (lines, [_end(line) for line in lines])
        return entry

    def _before(self, disabled: Disabled, exchange: Exchange) -> bool:
        if _end(disabled) + self._slack < exchange.asked:
            return True
        return self._same_instant(disabled, exchange) and disabled.index < exchange.index

    def _after(self, disabled: Disabled, exchange: Exchange) -> bool:
        if exchange.t + self._slack < disabled.t:
            return True
        return self._same_instant(disabled, exchange) and disabled.index > exchange.index

    def _same_instant(self, disabled: Disabled, exchange: Exchange) -> bool:
        return self._complete and disabled.t == exchange.asked == exchange.t


def _end(disabled: Disabled) -> float:
    """Return by when the group was certainly disabled."""
    return disabled.t if disabled.hidden_until is None else disabled.hidden_until
