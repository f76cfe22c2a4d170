"""The page has what the terminal shows and the verdict, and neither loads nor runs anything."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

from forewarn.testing.timeline import Lanes, html, text
from forewarn.verdict.values import Complaint
from forewarn.verdict.verdict import Verdict
from helpers.paths import ROOT
from helpers.timeline_traces import COURSE, FAILED, T, fleet, poll, result_line, step

HOSTILE = '<script>alert("1")</script>&]]>\x1b[31m\x00\u202e\ud800\'"\ufffe日本'


class Page(HTMLParser):
    """What a browser would make of it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_loads_nothing_and_runs_no_scripts() -> None:
    page = Page(html(Lanes.of(COURSE), Verdict(), "Two machines"))
    assert set(page.tags) <= {
        *("html", "head", "meta", "title", "style", "body", "pre", "code", "span")
    }
    assert not [name for name, _ in page.attributes if name in ("href", "src")]
    (policy,) = [value for _, value in page.attributes if value and "default-src" in value]
    assert policy.startswith("default-src 'none'")


def test_the_page_shows_the_drawing_of_a_terminal() -> None:
    page = Page(html(Lanes.of(COURSE), title="Two machines"))
    assert text(Lanes.of(COURSE), title="Two machines", width=140).splitlines()[2] in page.text
    assert re.search(r"web_0 +░+▒+✓◆█+ +Reboot ended", page.text)


def test_the_page_shows_the_verdict() -> None:
    wrong = Complaint(rule="missing-header", machine="web_0", at=T, message="send it")
    bad = Page(html(Lanes.of(COURSE), Verdict(complaints=(wrong,)))).text
    assert "missing-header" in bad
    assert "1 thing wrong" in bad
    assert "nothing wrong" in Page(html(Lanes.of(COURSE), Verdict())).text
    assert "verdict" not in Page(html(Lanes.of(COURSE))).text


def test_a_page_of_a_failed_scenario_begins_with_the_failures() -> None:
    page = Page(html(Lanes.of([*COURSE, result_line(*FAILED)]), Verdict())).text
    assert "nothing wrong" not in page
    assert "scenario trial failed: 1 of 2" in page
    assert page.index(f"✗ {FAILED[1][0]}: {FAILED[1][2]}") < page.index("web_0  ")


def test_names_are_escaped() -> None:
    lines = [
        fleet(**{HOSTILE: [HOSTILE]}),
        step("raise", 0, HOSTILE, machines=[HOSTILE], type=HOSTILE, group=HOSTILE),
        {"kind": "approval", "t": T + 1, "event": HOSTILE.upper(), "by": HOSTILE},
        {**poll(HOSTILE, 2, status=410), "fault": HOSTILE},
        {"kind": "disabled", "t": T + 3, "group": HOSTILE},
    ]
    lanes = Lanes.of(lines)
    complaint = Complaint(rule=HOSTILE, machine=HOSTILE, event=HOSTILE, at=T, message=HOSTILE)
    page = html(lanes, Verdict(complaints=(complaint,)), HOSTILE)
    assert "script" not in Page(page).tags
    page.encode()
    for drawn in (page, text(lanes, title=HOSTILE)):
        drawn.encode()
        assert "\x1b" not in drawn
        assert "\u202e" not in drawn


def test_the_example_in_the_documentation_draws_a_page() -> None:
    output = (ROOT / "docs" / "test" / "timeline.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", output, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert "approved by web_1" in names["page"]
