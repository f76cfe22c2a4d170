"""Poll reports: new documents at once, repeated polls now and then, and none is lost."""

from __future__ import annotations

from forewarn.core import Durations, World
from forewarn.core.time import SECOND
from forewarn.metadata.publishing.messages import Polled
from forewarn.metadata.publishing.poll_report import MAX_EARLIER, REPORT_SLICE, PollReport


def poll(report: PollReport, at: int, incarnation: int = 1, machine: str = "web_0") -> None:
    report.record_poll(
        machine, "web", "2020-07-01", incarnation, (), World(at=at, rules=Durations())
    )


def polled(report: PollReport) -> list[tuple[int, int, int, int]]:
    """Return incarnation, first, last and count of what is reported now."""
    entries: list[Polled] = [entry for message in report.reports() for entry in message.polled]
    return [(entry.incarnation, entry.first, entry.last, entry.count) for entry in entries]


def test_every_report_has_all_polls_by_default() -> None:
    report = PollReport()
    for at in (1, 2, 3):
        poll(report, at)
    assert polled(report) == [(1, 1, 3, 3)]
    poll(report, 4)
    assert polled(report) == [(1, 4, 4, 1)]
    assert polled(report) == []


def test_polls_of_a_document_that_was_reported_are_reported_together_later() -> None:
    report = PollReport(repeat_every=3, first_repeat=2)
    poll(report, 1)
    assert polled(report) == [(1, 1, 1, 1)]
    poll(report, 2)
    assert polled(report) == [(1, 2, 2, 1)]  # the second report
    for at in (3, 4):
        poll(report, at)
        assert polled(report) == []
    poll(report, 5)
    assert polled(report) == [(1, 5, 5, 3)]


def test_a_new_document_is_reported_at_once_and_the_polls_before_it_with_it() -> None:
    report = PollReport(repeat_every=9, first_repeat=9)
    poll(report, 1)
    polled(report)
    poll(report, 2)
    poll(report, 3, incarnation=2)
    assert polled(report) == [(1, 2, 2, 1), (2, 3, 3, 1)]
    poll(report, 4, incarnation=3)  # nothing was polled in between
    assert polled(report) == [(3, 4, 4, 1)]


def test_polls_of_a_machine_that_something_is_done_to_are_reported_at_once() -> None:
    disturbed: set[str] = set()
    report = PollReport(9, 9, disturbed={"web": disturbed}.__getitem__)
    now = World(at=1, rules=Durations())
    for machine in ("web_0", "web_1"):
        report.record_poll(machine, "web", "2020-07-01", 1, ("E",), now)
    assert len(polled(report)) == 2
    disturbed.add("web_0")
    assert polled(report) == []  # it has not polled again
    for machine in ("web_0", "web_1"):
        report.record_poll(machine, "web", "2020-07-01", 1, ("E",), World(at=2, rules=now.rules))
    assert polled(report) == [(1, 2, 2, 1)]
    disturbed.clear()
    report.record_poll("web_0", "web", "2020-07-01", 1, ("E",), now)
    assert polled(report) == []


def test_another_control_node_gets_everything_at_once() -> None:
    report = PollReport(repeat_every=9, first_repeat=9)
    for machine in ("web_0", "web_1"):
        poll(report, 1, machine=machine)
    polled(report)
    poll(report, 2)
    poll(report, 3)
    report.begin()
    assert polled(report) == [(1, 1, 3, 2), (1, 1, 1, 0)]
    poll(report, 4, machine="web_1")
    assert polled(report) == []


def test_a_machine_that_polls_no_longer_is_forgotten() -> None:
    report = PollReport(repeat_every=2, first_repeat=2)
    poll(report, 1)
    assert polled(report) == [(1, 1, 1, 1)]
    assert polled(report) == []
    poll(report, 9)
    assert polled(report) == [(1, 9, 9, 1)]  # at once, as if it were new


def test_a_machines_polls_are_one_entry_until_it_is_shown_something_else() -> None:
    seen = PollReport()
    for second in range(5):
        seen.record_poll("m", "g", "2020-07-01", 1, (), World(at=second * SECOND))
    seen.record_poll("m", "g", "2020-07-01", 2, ("E",), World(at=9 * SECOND))
    (report,) = seen.reports()
    first, second_entry = report.polled
    assert (first.count, first.first, first.last) == (5, 0, 4 * SECOND)
    assert (second_entry.count, second_entry.events, second_entry.incarnation) == (1, ("E",), 2)
    assert list(seen.reports()) == []


def test_reports_are_cut_into_pieces_and_what_piles_up_is_bounded() -> None:
    seen = PollReport()
    for n in range(REPORT_SLICE + 1):
        seen.record_poll(f"m{n}", "g", "v", 1, (), World(at=n * SECOND))
    assert [len(r.polled) for r in seen.reports()] == [REPORT_SLICE, 1]
    for n in range(MAX_EARLIER + 10):
        seen.record_poll("m", "g", "v", n, (), World(at=n * SECOND))
    entries = [entry for report in seen.reports() for entry in report.polled]
    assert len(entries) == MAX_EARLIER + 1
    assert entries[-1].incarnation == MAX_EARLIER + 9  # the oldest are lost
