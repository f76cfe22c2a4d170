"""Judges when events are over: not before their machines are back.

A group that waits for its machines says for how long (`back_within` of its fleet line). A machine
that has polled in the hour before its event started has polled again when the event is over, or
that time has passed since the event was carried out. A machine that polls less than twice in that
time need not.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping

from forewarn.judge.dialect import DELETING
from forewarn.judge.findings import Findings
from forewarn.judge.reading.fleet import RECORD_SLACK, Fleets
from forewarn.judge.reading.order import TOLERANCE
from forewarn.judge.reading.records import Exchange, FleetLine, Impact, RecordedEvent, Trace

_POLLED_WITHIN = 3600.0  # seconds before the start, for a machine that is waited for
_POLLS_EXPECTED = 2  # of a machine that is waited for, in the time for which it is


class Returns:
    def __init__(self, trace: Trace, fleets: Fleets, findings: Findings) -> None:
        self._trace = trace
        self._findings = findings
        self._fleets = fleets
        self._margin = TOLERANCE + trace.clock_error + (0.0 if trace.complete else RECORD_SLACK)
        # By machine: everything that it has asked, and when its polls were answered.
        self._asked: dict[str, list[Exchange]] = {}
        self._polls: dict[str, list[float]] = {}

    def judge(self) -> None:
        if self._trace.partial or not any(fleet.back_within for fleet in self._trace.fleets):
            return
        for exchange in self._trace.exchanges:
            if (machine := self._fleets.caller(exchange).machine) is not None:
                self._asked.setdefault(machine, []).append(exchange)
                if (
                    exchange.method == "GET"
                    and exchange.status in (200, 304)
                    and not exchange.fault
                ):
                    self._polls.setdefault(machine, []).append(exchange.t)
        impacts: dict[tuple[str, str], Impact] = {}
        for impact in self._trace.impacts:
            impacts |= {(impact.event, machine): impact for machine in impact.machines}
        for id, event in self._trace.recorded.items():
            if event.carried_out is None or event.started is None or event.type in DELETING:
                continue
            within = self._within(event, event.started, event.carried_out)
            if not within or event.machines is None:
                continue
            for machine in event.machines:
                done = impacts.get((id, machine))
                since = event.started if done is None else done.t
                if self._is_early(machine, event, since, within):
                    message = (
                        f"It was over {event.carried_out - since:.3f} s after it was carried out,"
                        f" and {machine}, which had polled before, had not been heard of again."
                    )
                    self._findings.add(
                        "over-before-back",
                        message,
                        t=event.carried_out,
                        event=id,
                        group=event.group,
                        machine=machine,
                    )

    def _within(self, event: RecordedEvent, started: float, over: float) -> float:
        """Return for how long its machines are waited for at least; 0 if they may not be."""
        lines = self._trace.fleets
        times = [line.t for line in lines]
        first = max(0, bisect_left(times, started - self._margin) - 1)
        valid = lines[first : bisect_right(times, over + self._margin)]
        return min((_waits(line, event) for line in valid), default=0.0)

    def _is_early(self, machine: str, event: RecordedEvent, since: float, within: float) -> bool:
        started, over = event.started, event.carried_out
        assert started is not None
        assert over is not None
        if over + self._margin >= since + within or self._is_hidden(started, over):
            return False
        if machine in self._fleets.moved or not self._is_there(machine, started, over):
            return False
        polls = self._polls.get(machine, [])
        before = polls[: bisect_left(polls, started - self._margin)]
        if not before or before[-1] < started - _POLLED_WITHIN + self._margin:
            return False
        if len(before) > 1 and _POLLS_EXPECTED * (before[-1] - before[-2]) > within:
            return False
        return not any(
            exchange.t >= since - self._margin and exchange.asked <= over + self._margin
            for exchange in self._asked[machine]
        )

    def _is_hidden(self, started: float, over: float) -> bool:
        """Return whether a poll, a stop of the service or a step of its clock may be missing."""
        begin, end = started - self._margin, over + self._margin
        return any(gap.overlaps(begin, end) for gap in self._trace.gaps) or any(
            begin <= t <= end for t in self._trace.interruptions
        )

    def _is_there(self, machine: str, started: float, over: float) -> bool:
        """Return whether it was a machine of the fleet all the time: one that was deleted is not
        waited for."""
        return all(
            machine in line.machines
            for line in self._trace.fleets
            if started - self._margin <= line.t <= over + self._margin
        )


def _waits(line: FleetLine, event: RecordedEvent) -> float:
    within: Mapping[str, float] = line.back_within.get(event.group or "", {})
    return within.get(event.type or "", 0.0)
