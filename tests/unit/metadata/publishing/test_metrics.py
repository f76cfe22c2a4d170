"""Several workers as one: what they saw, what they counted, and whether they were there."""

from __future__ import annotations

from forewarn.core import Now
from forewarn.metadata.publishing.availability import Availability
from forewarn.metadata.publishing.metrics import WorkerMetrics
from forewarn.metadata.publishing.poll_report import MAX_EARLIER, REPORT_SLICE, PollReport
from forewarn.service.telemetry.samples import MetricKind, Sample


def at(second: int) -> Now:
    return Now(at=second * 1_000_000)


def polls(n: float) -> Sample:
    return Sample("polls", "Polls", MetricKind.COUNTER, ("v",), [(("x",), n)])


def held(n: float) -> Sample:
    return Sample("held", "Connections", MetricKind.GAUGE, (), [((), n)])


def sums(tally: WorkerMetrics, *there: str) -> dict[str, float]:
    return {r.name: sum(v for _, v in r.samples) for r in tally.readings(there)}


def test_counts_are_added_up_and_gauges_are_those_of_who_is_there() -> None:
    tally = WorkerMetrics()
    tally.update("a", [polls(10), held(3)])
    tally.update("b", [polls(5), held(4)])
    assert sums(tally, "a", "b") == {"polls": 15, "held": 7}
    assert sums(tally, "a") == {"polls": 15, "held": 3}


def test_what_a_worker_counted_before_it_was_replaced_is_not_lost() -> None:
    tally = WorkerMetrics()
    tally.update("a", [polls(10), held(3)])
    tally.update("b", [polls(5), held(4)])
    tally.update("c", [polls(1), held(1)])  # in the place of a
    tally.retain(["b", "c"])
    assert sums(tally, "b", "c") == {"polls": 16, "held": 5}
    tally.update("c", [polls(2), held(1)])
    tally.retain(["b", "c"])
    assert sums(tally, "b", "c") == {"polls": 17, "held": 5}


def test_what_a_worker_counted_before_we_met_it_is_not_counted_at_once() -> None:
    """Counts begin with the process that tells them: control was started anew, the worker not."""
    tally = WorkerMetrics()
    tally.add("old", counted_before=True)
    tally.add("new", counted_before=False)
    tally.update("old", [polls(1_000), held(3)])
    tally.update("new", [polls(5), held(1)])
    assert sums(tally, "old", "new") == {"polls": 5, "held": 4}
    tally.update("old", [polls(1_010), held(2)])
    assert sums(tally, "old", "new") == {"polls": 15, "held": 3}
    tally.retain(["new"])
    assert sums(tally, "new") == {"polls": 15, "held": 1}
    tally.add("old", counted_before=True)  # its line was broken for a moment
    tally.update("old", [polls(1_012), held(2)])
    tally.update("old", [polls(1_013), held(2)])
    assert sums(tally, "old", "new") == {"polls": 16, "held": 3}


def test_a_machines_polls_are_one_entry_until_it_is_shown_something_else() -> None:
    seen = PollReport()
    for second in range(5):
        seen.record_poll("m", "g", "2020-07-01", 1, (), at(second))
    seen.record_poll("m", "g", "2020-07-01", 2, ("E",), at(9))
    (report,) = seen.reports()
    first, second_entry = report.polled
    assert (first.count, first.first, first.last) == (5, 0, 4_000_000)
    assert (second_entry.count, second_entry.events, second_entry.incarnation) == (1, ("E",), 2)
    assert list(seen.reports()) == []


def test_reports_are_cut_into_pieces_and_what_piles_up_is_bounded() -> None:
    seen = PollReport()
    for n in range(REPORT_SLICE + 1):
        seen.record_poll(f"m{n}", "g", "v", 1, (), at(n))
    assert [len(r.polled) for r in seen.reports()] == [REPORT_SLICE, 1]
    for n in range(MAX_EARLIER + 10):
        seen.record_poll("m", "g", "v", n, (), at(n))
    entries = [entry for report in seen.reports() for entry in report.polled]
    assert len(entries) == MAX_EARLIER + 1
    assert entries[-1].incarnation == MAX_EARLIER + 9  # the oldest are lost


def test_a_worker_that_is_replaced_at_once_is_no_outage() -> None:
    attendance = Availability(2, 10.0, now=0.0)
    assert attendance.update(2, 1.0) == 0
    assert attendance.update(1, 2.0) == 0
    assert attendance.update(1, 11.0) == 0
    assert attendance.update(2, 11.5) == 0
    assert attendance.update(2, 99.0) == 0


def test_time_without_all_workers_is_lost_every_second_of_it_and_none_twice() -> None:
    attendance = Availability(2, 10.0, now=0.0)
    assert attendance.update(2, 1.0) == 0
    assert attendance.update(1, 5.0) == 0
    assert attendance.update(1, 15.0) == 10.0
    assert attendance.update(1, 20.0) == 5.0
    assert attendance.update(0, 25.0) == 5.0
    assert attendance.update(2, 29.0) == 4.0  # up to the moment at which all are back
    assert attendance.update(1, 30.0) == 0


def test_a_service_whose_workers_never_come_has_never_served() -> None:
    attendance = Availability(2, 10.0, now=100.0)
    assert attendance.update(1, 109.0) == 0
    assert attendance.update(1, 111.0) == 11.0


def test_an_absence_is_dated_from_the_last_word_and_told_at_every_look_from_then_on() -> None:
    attendance = Availability(2, 10.0, now=0.0)
    assert attendance.update(2, 20.0) == 0
    assert attendance.update(1, 24.0, since=21.0) == 0
    assert attendance.update(1, 30.0, since=21.0) == 0
    assert attendance.update(1, 31.0, since=21.0) == 10.0
    assert attendance.update(1, 32.0, since=21.0) == 1.0
    assert attendance.update(1, 33.0, since=21.0) == 1.0
    assert attendance.update(2, 33.5) == 0.5
    assert attendance.update(1, 44.0, since=30.0) == 10.5  # nothing is counted twice
