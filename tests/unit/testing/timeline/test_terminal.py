"""The timeline in a terminal shows what happened, on any terminal, whatever it is called."""

from __future__ import annotations

import re
import runpy
from io import StringIO
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from forewarn.testing.timeline import Lanes, live, text
from forewarn.testing.timeline.choose_lanes import MAX_DRAWN
from forewarn.testing.timeline.terminal_lane import SHAPES
from helpers.paths import ROOT
from helpers.timeline_traces import (
    COURSE,
    FAILED,
    REBOOT,
    T,
    fleet,
    poll,
    result_line,
    shown,
    step,
)


def lane(drawn: str, machine: str) -> str:
    """Return the line of a machine."""
    (line,) = [line for line in drawn.splitlines() if line.startswith(machine)]
    return line


def test_faults_refusals_and_outages_have_their_own_signs() -> None:
    fault = {**poll("web_0", 20, status=410), "fault": "gone"}
    lines = [
        {"kind": "up", "t": T},
        poll("web_0", 10, status=400),
        fault,
        {"kind": "up", "t": T + 60},
    ]
    drawn = text(Lanes.of(lines))
    assert re.search(r"\?.*!╱+", lane(drawn, "web_0"))
    assert "╱ service down" in drawn


def test_the_time_in_which_a_node_is_cut_off_is_shaded_on_its_lane() -> None:
    machines = {"host": "rack-1", "machines": ["web_0"]}
    lines = [poll("web_0", 0), poll("web_1", 0), poll("web_0", 60)]
    lines += [
        {"kind": kind, "t": T + at, **machines}
        for kind, at in (("disconnected", 20), ("joined", 50))
    ]
    drawn = text(Lanes.of(lines))
    assert "╲" in lane(drawn, "web_0")
    assert "╲" not in lane(drawn, "web_1")


def test_an_approval_and_an_impact_at_the_same_time_are_both_visible() -> None:
    struck = {"kind": "impact", "t": T + 300, "event": REBOOT, "machines": ["web_0"]}
    drawn = text(Lanes.of([*COURSE[:5], struck, *COURSE[6:]]))
    assert "✓◆" in lane(drawn, "web_0")


def test_a_drawing_of_hundreds_of_machines_shows_those_with_events() -> None:
    names = [f"web_{at}" for at in range(600)]
    lines = [fleet(web=names), *(poll(name, at) for at, name in enumerate(names))]
    lines += [step("raise", 700, machines=["web_17"]), step("start", 800, machines=["web_17"])]
    drawn = text(Lanes.of(lines))
    assert re.findall(r"(?m)^web_\d+", drawn) == ["web_17"]
    assert "… and 599 quiet machines (599 polls)" in drawn


def test_the_size_of_a_drawing_is_bounded() -> None:
    names = [f"web_{at}" for at in range(1_500)]
    lines = [fleet(web=names)]
    for at, name in enumerate(names):
        lines += [step("raise", at, f"E{at}", machines=[name]), poll(name, at, status=400)]
    drawn = text(Lanes.of(lines))
    assert len(re.findall(r"(?m)^web_\d+", drawn)) == MAX_DRAWN
    assert re.search(r"1,460 polls", drawn)
    assert "only the last 1,000 events" in drawn
    assert len(drawn.splitlines()) < MAX_DRAWN + 20


def test_among_many_affected_machines_the_one_that_polls_is_drawn() -> None:
    lines = [step("raise", 0, f"E{at}", machines=[f"m{at}"]) for at in range(300)]
    drawn = text(Lanes.of([*lines, poll("m299", 5, status=304)]))
    assert re.findall(r"(?m)^m\d+", drawn)[:2] == ["m299", "m0"]


def test_an_event_seen_when_it_is_announced_has_a_bar() -> None:
    lanes = Lanes.of([step("raise", 0)])
    assert "░" in lane(text(lanes), "web_0")
    lanes.add(poll("web_0", 0, shown()))
    assert "▒" in lane(text(lanes), "web_0")


def test_the_example_draws_everything_once() -> None:
    example = ROOT / "examples" / "timeline.py"
    lanes, verdict = runpy.run_path(str(example))["half_an_hour"]()
    drawn = text(lanes)
    for meaning in ("approved", "impact", "withdrawn", "fault", "refused", "service down"):
        assert f" {meaning}" in drawn
    assert not verdict.ok


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


def test_the_documentation_explains_every_sign() -> None:
    output = (ROOT / "docs" / "test" / "timeline.md").read_text()
    assert [shape.sign for shape in SHAPES.values() if f"\n| `{shape.sign}` |" not in output] == []


def test_the_result_of_a_scenario_is_drawn_above_the_lanes() -> None:
    lanes = Lanes.of([*COURSE, result_line(*FAILED)])
    drawn = text(lanes).splitlines()
    assert re.match("scenario trial failed: 1 of 2", drawn[1])
    assert drawn[2] == f"  ✗ {FAILED[1][0]}: {FAILED[1][2]}"
    assert "  x reboot" in text(lanes, ascii_only=True)
    assert "scenario trial expects nothing" in text(Lanes.of([*COURSE, result_line()]))
    problem = "line 4: restart web_9 was refused"
    assert problem in text(Lanes.of([*COURSE, result_line(ok=False, problems=[problem])]))
    unknown = {"kind": "scenario", "t": T + 1_100, "scenario": "trial"}
    assert "scenario trial failed" in text(Lanes.of([*COURSE, unknown]))
