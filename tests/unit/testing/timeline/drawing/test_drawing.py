"""The pictures: SVG, page and terminal show what happened, to everybody, whatever it is called."""

from __future__ import annotations

import base64
import hashlib
import re
import runpy
import xml.etree.ElementTree as ET
from html import escape
from html.parser import HTMLParser
from io import StringIO
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from forewarn.testing.timeline import Lanes, html, live, svg, text
from forewarn.testing.timeline.choose_lanes import MAX_DRAWN
from forewarn.testing.timeline.drawing.lane import LEFT, RIGHT
from forewarn.testing.timeline.drawing.style import COLOURS
from forewarn.testing.timeline.terminal_lane import SHAPES
from forewarn.verdict.values import Complaint
from forewarn.verdict.verdict import Verdict
from helpers.paths import ROOT
from helpers.timeline_traces import (
    FREEZE,
    REBOOT,
    SVG,
    T,
    approval,
    elements,
    fleet,
    poll,
    shown,
    spans,
    step,
    words,
)

HOSTILE = '<script>alert("1")</script>&]]>\x1b[31m\x00\u202e\ud800\'"\ufffe日本'
COURSE = [
    fleet(web=["web_0", "web_1"]),
    step("raise", 0),
    poll("web_0", 60, shown()),
    approval("web_1", 300, REBOOT),
    step("start", 300),
    {
        "kind": "impact",
        "t": T + 310,
        "event": REBOOT,
        "type": "Reboot",
        "machines": ["web_0"],
        "seconds": 9,
    },
    step("finish", 600),
    {"kind": "end", "t": T + 1_200},
]


def test_the_svg_shows_each_period_with_its_times() -> None:
    drawn = svg(Lanes.of(COURSE))
    assert spans(drawn, "unseen") == [("2027-01-15 08:00:00Z", "2027-01-15 08:01:00Z")]
    assert spans(drawn, "seen") == [("2027-01-15 08:01:00Z", "2027-01-15 08:05:00Z")]
    assert spans(drawn, "started") == [("2027-01-15 08:05:00Z", "2027-01-15 08:10:00Z")]


def test_the_width_of_a_period_is_proportional_to_its_time() -> None:
    (started,) = elements(svg(Lanes.of(COURSE)), "started")[:1]
    whole = RIGHT - LEFT
    assert float(started.get("x") or 0) == pytest.approx(LEFT + whole * 300 / 1_200, abs=0.1)
    assert float(started.get("width") or 0) == pytest.approx(whole * 300 / 1_200, abs=0.1)


def test_the_svg_has_text_for_everything_shown_by_colour() -> None:
    drawn = svg(Lanes.of(COURSE), title="Two machines")
    assert "Reboot · approved by web_1" in words(drawn)
    assert {"Started", "Scheduled and seen", "first seen", "approved", "impact"} <= set(
        words(drawn)
    )
    assert "fault" not in words(drawn)  # the legend explains what is to be seen, and no more
    titles = [one.text or "" for one in ET.fromstring(drawn).iter(f"{SVG}title")]
    assert any("seen by web_0 2027-01-15 08:01:00Z, after 1 min" in title for title in titles)
    assert any("web_1 approved Reboot" in title for title in titles)


def test_the_svg_has_an_accessible_title_and_description() -> None:
    root = ET.fromstring(svg(Lanes.of(COURSE), title="Two machines"))
    named = {one.get("id"): one.text or "" for one in root if one.get("id")}
    assert root.get("role") == "img"
    title, description = (root.get("aria-labelledby") or "").split()
    assert named[title] == "Two machines"
    assert re.search("Reboot of web_0: .*08:00:00, .*web_1", named[description])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([step("raise", 0), step("withdraw", 60)], "Reboot · not seen · withdrawn"),
        ([step("raise", 0), step("start", 900)], "Reboot · not seen · notice over"),
        ([step("strike", 0, not_before=T)], "Reboot · not seen · without notice"),
        (
            [step("raise", 0), step("start", 900), poll("web_0", 905, shown(status="Started"))],
            "Reboot · seen too late · notice over",
        ),
    ],
)
def test_a_bar_shows_how_its_event_ended(lines: list[Any], message: str) -> None:
    assert message in words(svg(Lanes.of(lines)))


def test_faults_refusals_and_absences_have_their_own_signs() -> None:
    fault = {**poll("web_0", 20, status=410), "fault": "gone"}
    lines = [
        {"kind": "up", "t": T},
        poll("web_0", 10, status=400),
        fault,
        {"kind": "up", "t": T + 60},
    ]
    drawn = svg(Lanes.of(lines))
    assert [one.text for one in elements(drawn, "sign")][:2] == ["?", "!"]
    (away, *_) = elements(drawn, "away")
    assert float(away.get("width") or 0) == pytest.approx((RIGHT - LEFT) * 40 / 60, abs=0.1)


def test_the_time_in_which_a_node_is_cut_off_is_shaded_on_its_lane() -> None:
    machines = {"host": "rack-1", "machines": ["web_0"]}
    lines = [poll("web_0", 0), poll("web_1", 0), poll("web_0", 60)]
    lines += [
        {"kind": kind, "t": T + at, **machines}
        for kind, at in (("disconnected", 20), ("joined", 50))
    ]
    drawn = svg(Lanes.of(lines))
    (box, _legend) = elements(drawn, "disconnected")
    assert float(box.get("width") or 0) == pytest.approx((RIGHT - LEFT) * 30 / 60, abs=0.1)
    assert "could not reach" in drawn


def test_simultaneous_events_are_stacked() -> None:
    lines = [step("raise", 0), step("raise", 1, FREEZE, type="Freeze"), step("start", 100)]
    first, second = elements(svg(Lanes.of(lines)), "unseen")[:2]
    assert first.get("y") != second.get("y")


def test_an_approval_and_an_impact_at_the_same_time_are_both_visible() -> None:
    struck = {"kind": "impact", "t": T + 300, "event": REBOOT, "machines": ["web_0"]}
    drawn = svg(Lanes.of([*COURSE[:5], struck, *COURSE[6:]]))
    at = LEFT + (RIGHT - LEFT) * 300 / 1_200
    beside = [float(one.get("cx") or 0) for one in elements(drawn, "approved")]
    assert min(beside) < at - 5


def test_a_drawing_of_hundreds_of_machines_shows_those_with_events() -> None:
    names = [f"web_{at}" for at in range(600)]
    lines = [fleet(web=names), *(poll(name, at) for at, name in enumerate(names))]
    lines += [step("raise", 700, machines=["web_17"]), step("start", 800, machines=["web_17"])]
    lanes = Lanes.of(lines)
    drawn = svg(lanes)
    assert [one.text for one in elements(drawn, "name")] == ["web_17"]
    assert "… and 599 quiet machines (599 polls)" in words(drawn)
    assert "… and 599 quiet machines (599 polls)" in text(lanes)


def test_the_size_of_a_drawing_is_bounded() -> None:
    names = [f"web_{at}" for at in range(1_500)]
    lines = [fleet(web=names)]
    for at, name in enumerate(names):
        lines += [step("raise", at, f"E{at}", machines=[name]), poll(name, at, status=400)]
    lanes = Lanes.of(lines)
    drawn, page = svg(lanes), html(lanes)
    assert len(elements(drawn, "name")) == MAX_DRAWN
    assert re.search(r"1,460 more machines.*\(1,460 polls\)", "\n".join(words(drawn)))
    assert len(drawn) < 400_000
    assert len(page) < 2_000_000
    assert len(text(lanes).splitlines()) < MAX_DRAWN + 20


def test_among_many_affected_machines_the_one_that_polls_is_drawn() -> None:
    lines = [step("raise", 0, f"E{at}", machines=[f"m{at}"]) for at in range(300)]
    drawn = svg(Lanes.of([*lines, poll("m299", 5, status=304)]))
    assert [one.text for one in elements(drawn, "name")][:2] == ["m299", "m0"]


def test_an_event_seen_when_it_is_announced_has_a_bar() -> None:
    lanes = Lanes.of([step("raise", 0)])
    assert spans(svg(lanes), "unseen") == [("2027-01-15 08:00:00Z", "2027-01-15 08:00:00Z")]
    lanes.add(poll("web_0", 0, shown()))
    assert len(spans(svg(lanes), "seen")) == 1


class Page(HTMLParser):
    """What a browser would make of it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.output: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.output.append(data)


def test_the_page_loads_nothing_and_runs_no_scripts() -> None:
    page = Page(html(Lanes.of(COURSE), Verdict(), "Two machines"))
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    loading = {"href", "src", "style", "action", "xlink:href"}
    assert not [name for name, _ in page.attributes if name in loading or name.startswith("on")]
    (policy,) = [value for _, value in page.attributes if value and "default-src" in value]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy


def test_a_drawing_that_is_wider_than_the_screen_scrolls_with_the_keyboard() -> None:
    page = Page(html(Lanes.of(COURSE)))
    assert page.attributes.count(("tabindex", "0")) == 1
    assert ("aria-label", "Timeline") in page.attributes


def luminance(colour: str) -> float:
    """As WCAG defines it."""
    digits = colour.removeprefix("#")
    digits = "".join(digit * 2 for digit in digits) if len(digits) == 3 else digits
    shares = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_stand_out_from_their_background(scheme: int) -> None:
    colours = dict(re.findall(r"--([\w-]+):(#\w+);", COLOURS.split("@media")[scheme]))
    for background in (colours["paper"], colours["band"]):
        for text_colour in ("ink", "soft", "approved", "refused"):
            assert contrast(colours[text_colour], background) >= 4.5, text_colour
        for shape in ("scheduled-line", "started", "impact", "fault"):
            assert contrast(colours[shape], background) >= 3, shape


def test_the_policy_names_exactly_the_styles_of_the_page() -> None:
    page = html(Lanes.of(COURSE))
    styles = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(css.encode()).digest()).decode() for css in styles]
    assert len(styles) == 2
    assert all(f"'sha256-{digest}'" in page for digest in digests)
    assert "&" not in "".join(styles)  # SVG as a file is XML, where the style is text
    assert "<" not in "".join(styles)


def test_the_page_has_a_table_with_the_course_of_each_machine() -> None:
    output = Page(html(Lanes.of(COURSE))).output
    assert "08:01:00, after 1 min" in output
    assert "08:05:00, by web_1" in output
    assert "08:05:00, approved by web_1" in output
    assert "08:05:10, 9 s" in output
    assert "08:10:00, finished after 5 min" in output


def test_the_page_shows_machines_that_never_saw_an_event() -> None:
    output = Page(html(Lanes.of([step("raise", 0), step("start", 900)]))).output
    assert "never" in output


def test_the_page_shows_the_verdict() -> None:
    wrong = Complaint(rule="missing-header", machine="web_0", at=T, message="send it")
    note = Complaint(rule="polls-seldom", severity="note", machine="web_0", at=T, message="oftener")
    bad = Page(html(Lanes.of(COURSE), Verdict(complaints=(note, wrong)))).output
    assert "✗ 1 mistake" in bad
    assert bad.index("missing-header") < bad.index("note: polls-seldom")
    assert "✓ no mistakes" in Page(html(Lanes.of(COURSE), Verdict())).output
    assert "wrong" not in "".join(Page(html(Lanes.of(COURSE))).output).split("</style>")[-1][-500:]


def test_names_are_escaped_in_every_drawing() -> None:
    lines = [
        fleet(**{HOSTILE: [HOSTILE]}),
        step("raise", 0, HOSTILE, machines=[HOSTILE], type=HOSTILE, group=HOSTILE),
        {"kind": "approval", "t": T + 1, "event": HOSTILE.upper(), "by": HOSTILE},
        {**poll(HOSTILE, 2, status=410), "fault": HOSTILE},
        {"kind": "disabled", "t": T + 3, "group": HOSTILE},
    ]
    lanes = Lanes.of(lines)
    drawn = svg(lanes, title=HOSTILE)
    root = ET.fromstring(drawn.encode())
    assert not [one for one in root.iter() if one.tag.endswith("script")]
    complaint = Complaint(rule=HOSTILE, machine=HOSTILE, event=HOSTILE, at=T, message=HOSTILE)
    page = html(lanes, Verdict(complaints=(complaint,)), HOSTILE)
    assert "script" not in Page(page).tags
    page.encode()
    output = text(lanes, title=HOSTILE)
    output.encode()
    assert "\x1b" not in output
    assert "\u202e" not in output


@pytest.mark.parametrize("width", [60, 100, 200])
def test_the_text_drawing_fits_any_width(width: int) -> None:
    output = text(Lanes.of(COURSE), width=width)
    lines = output.splitlines()
    assert max(cell_len(line) for line in lines) <= width
    (lane,) = [line for line in lines if line.startswith("web_0")]
    assert re.search(r"░+▒+✓◆█+", lane), lane
    assert ("Reboot ended" in lane) == (width >= 90)
    (other,) = [line for line in lines if line.startswith("web_1")]
    assert "»" in other
    assert "✓ approved" in output
    assert re.match("08:10:00  Reboot 28512AF7 .*web_0.* ended", lines[-1])


def test_the_text_drawing_can_be_ascii_only() -> None:
    assert text(Lanes.of(COURSE), ascii_only=True).isascii()


def test_wide_characters_in_names_keep_columns_aligned() -> None:
    wide = "日本語" * 20
    lanes = Lanes.of([poll(wide, 0), poll("web_0", 0), poll("web_0", 60), poll(wide, 60)])
    assert max(cell_len(line) for line in text(lanes, width=80).splitlines()) <= 80


def _console(height: int, **options: Any) -> tuple[Console, StringIO]:
    out = StringIO()
    options = {"color_system": "standard", "force_terminal": True, **options}
    return Console(file=out, width=100, height=height, **options), out


def test_the_live_drawing_changes_with_new_lines() -> None:
    lanes = Lanes()
    picture = live(lanes, title="live")
    console, out = _console(40)
    console.print(picture)
    assert "nothing has happened" in out.getvalue()
    for line in COURSE[:2]:
        lanes.add(line)
    console.print(picture)
    assert "░" in out.getvalue()
    assert "█" not in out.getvalue()
    for line in COURSE[2:]:
        lanes.add(line)
    console.print(picture)
    assert "█" in out.getvalue()


@pytest.mark.parametrize("height", [10, 24, 40])
def test_the_live_drawing_fits_the_screen(height: int) -> None:
    lanes = Lanes.of([step("raise", at, f"E{at}", machines=[f"m{at}"]) for at in range(100)])
    console, out = _console(height)
    console.print(live(lanes))
    assert height - 3 < len(out.getvalue().splitlines()) < height
    assert "more machines" in out.getvalue()
    console, out = _console(24)
    console.print(live(lanes, full=True))
    assert len(out.getvalue().splitlines()) > MAX_DRAWN


def test_lanes_can_be_drawn_in_a_change_callback() -> None:
    lanes: Lanes
    drawn: list[str] = []
    lanes = Lanes(on_change=lambda *_: drawn.append(text(lanes)))
    for line in COURSE:
        lanes.add(line)
    assert len(drawn) == 6


def test_without_colours_periods_differ_by_shape() -> None:
    coloured, with_colour = _console(40)
    plain, without = _console(40, no_color=True)
    coloured.print(live(Lanes.of(COURSE)))
    plain.print(live(Lanes.of(COURSE)))
    assert "\x1b[33m" in with_colour.getvalue()
    assert "\x1b[33m" not in without.getvalue()
    bare = re.sub("\x1b\\[[0-9;]*m", "", without.getvalue())
    assert bare == re.sub("\x1b\\[[0-9;]*m", "", with_colour.getvalue())


def test_the_example_in_the_documentation_draws_a_page() -> None:
    output = (ROOT / "docs" / "test" / "timeline.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", output, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert "approved by web_1" in names["page"]


def test_the_documentation_explains_every_sign() -> None:
    output = (ROOT / "docs" / "test" / "timeline.md").read_text()
    assert [shape.sign for shape in SHAPES.values() if f"\n| `{shape.sign}` |" not in output] == []


def test_the_example_draws_everything_once() -> None:
    example = ROOT / "examples" / "timeline.py"
    lanes, verdict = runpy.run_path(str(example))["half_an_hour"]()
    drawn = svg(lanes)
    legend = {"approved", "impact", "withdrawn", "fault", "refused", "service down", "NotBefore"}
    assert legend <= set(words(drawn))
    assert "Preempt · not seen · notice over" in words(drawn)
    assert not verdict.ok


def result_line(*expectations: tuple[str, bool, str], **more: Any) -> dict[str, Any]:
    keys = ("expected", "ok", "message")
    entries = [dict(zip(keys, item, strict=True)) for item in expectations]
    ok = all(item[1] for item in expectations)
    line = {"kind": "scenario", "t": T + 1_100, "scenario": "trial", "expectations": entries}
    return line | {"ok": ok, "problems": []} | more


FAILED = [
    ("reboot is seen in time", True, ""),
    ("reboot is approved by <web_0>", False, "web_0 never approved it"),
]


def test_a_page_of_a_failed_scenario_begins_with_the_failures() -> None:
    page = html(Lanes.of([*COURSE, result_line(*FAILED)]), verdict=Verdict())
    assert "result well" not in page
    assert re.search("✗ scenario trial failed: 1 of 2", page)
    failure = page.index(f"<b>✗ {escape(FAILED[1][0])}</b>: {FAILED[1][2]}")
    assert page.index("</header>") < failure < page.index("<figure")
    assert page.index("<figure") < page.index(f"<b>✓ {FAILED[0][0]}</b>")


def test_complaints_are_shown_beside_a_failed_scenario() -> None:
    verdict = Verdict(
        complaints=(Complaint(rule="gave-up", machine="web_0", at=T, message="stopped"),)
    )
    page = html(Lanes.of([*COURSE, result_line(*FAILED)]), verdict=verdict)
    assert page.count('class="result wrong"') == 2
    assert "result well" not in page


def test_a_scenario_that_could_not_be_played_is_shown_as_failed() -> None:
    problem = "line 4: restart web_9 was refused"
    lanes = Lanes.of([*COURSE, result_line(ok=False, problems=[problem])])
    assert f"<b>✗ {problem}</b>" in html(lanes, verdict=Verdict())
    assert problem in text(lanes)
    assert "result well" not in html(lanes, verdict=Verdict())


def test_a_scenario_without_expectations_is_shown_as_such() -> None:
    lanes = Lanes.of([*COURSE, result_line()])
    page = html(lanes)
    assert '<p class="result soft">scenario trial' in page
    assert "result well" not in page
    for drawn in (page, text(lanes), svg(lanes)):
        assert "expects nothing" in drawn


def test_a_scenario_that_passed_has_its_badge() -> None:
    page = html(Lanes.of([*COURSE, result_line(FAILED[0])]), verdict=Verdict())
    assert '<p class="result well">✓ scenario trial passed</p>' in page
    assert "result wrong" not in page


def test_a_scenario_line_without_a_result_is_not_a_success() -> None:
    lanes = Lanes.of([*COURSE, {"kind": "scenario", "t": T + 1_100, "scenario": "trial"}])
    assert "scenario trial failed" in html(lanes, verdict=Verdict())
    assert "result well" not in html(lanes, verdict=Verdict())


def test_every_drawing_of_a_failed_scenario_shows_the_failure() -> None:
    lanes = Lanes.of([*COURSE, result_line(*FAILED)])
    [heading] = elements(svg(lanes), "failed")
    drawn = text(lanes).splitlines()
    assert re.match("scenario trial failed: 1 of 2", drawn[1])
    assert heading.text == f"✗ {drawn[1]}"
    assert drawn[2] == f"  ✗ {FAILED[1][0]}: {FAILED[1][2]}"
    assert "  x reboot" in text(lanes, ascii_only=True)
