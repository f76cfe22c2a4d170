"""The story of a test: what is told, what is only counted, and how much is kept."""

from __future__ import annotations

import re

from forewarn.testing import Service
from forewarn.testing.kit.failure_report import MAX_LINES, FailureReport


def test_polls_that_show_nothing_new_are_counted() -> None:
    with Service() as service:
        web = service.scale_set("web", 1)[0]
        tag = web.get().headers["etag"]
        web.get()
        web.get(headers={"If-None-Match": tag})
        shown, polled, *_ = service.report().splitlines()
    assert re.match(r"\+0 s +web_0 .*document 1: no events", shown)
    assert re.search("web_0 .*2 more times", polled)


def test_the_report_has_every_step_of_an_event_with_its_time() -> None:
    with Service() as service:
        web = service.scale_set("web", 1)[0]
        event = web.schedule("Freeze")
        service.clock.advance("1m30s")
        event.approve()
        event.until_over()
        web.delete()
        service.clock.interrupt("5s")
        service.disable("web")
        story = service.report().partition("\n\n")[0].replace(event.id[:8], "ID").splitlines()
    assert story[:4] == [
        "+0 s          Freeze ID of web_0 is announced",
        "+1 min 30 s   operator approves ID",
        "+1 min 30 s   Freeze ID of web_0 is Started, as operator has approved it",
        "+1 min 30 s   Freeze is carried out on web_0",
    ]
    assert any(line.endswith("Freeze ID of web_0 is Finished") for line in story)
    assert any("of web_0 starts, unannounced" in line for line in story)
    assert any(line.endswith("the clock is stepped by 5 s") for line in story)
    assert story[-1].endswith("group web is disabled")


def test_control_characters_in_the_report_are_escaped() -> None:
    with Service() as service:
        web = service.scale_set("web", 1)[0]
        web.request("GET", "/\x1b[2J")
        web.post(b"no \x1b json")
        story = service.report()
    assert "web_0: GET /\\x1b[2J → 404" in story
    assert "\x1b" not in story


def test_a_long_report_keeps_its_end() -> None:
    story = FailureReport()
    for n in range(MAX_LINES + 5):
        story.add({"kind": "disabled", "t": float(n), "group": f"g{n}"})
    lines = story.text().splitlines()
    assert (lines[0], len(lines)) == ("… 5 earlier lines", MAX_LINES + 1)
    assert lines[-1].endswith(f"group g{MAX_LINES + 4} is disabled")


def test_the_report_of_a_test_without_requests_is_not_empty() -> None:
    assert FailureReport().text() == "nothing has happened"
    with Service(front=True) as service:
        assert "front=True" in service.report()


def test_a_refusal_that_is_repeated_is_one_line_with_a_count() -> None:
    with Service() as service:
        web = service.scale_set("web", 1)[0]
        for _ in range(15):
            web.request("GET", "/metadata/scheduledevents?api-version=2020-07-01")
            web.request("GET", "/nowhere", {"Metadata": "true"})
            service.clock.advance("1s")
        web.restart()
        web.request("GET", "/nowhere", {"Metadata": "true"})
        story = service.report().partition("\n\n")[0].splitlines()
    assert len(story) == 4
    assert story[0].startswith("+0 s          web_0: GET /metadata/scheduledevents?api-version=")
    assert story[0].endswith(" (15 times, last at +14 s)")
    assert "web_0: GET /nowhere → 404" in story[1]
    assert story[1].endswith(" (15 times, last at +14 s)")
    assert story[2].endswith("is announced")
    assert "web_0: GET /nowhere → 404" in story[3]
    assert "times" not in story[3]
