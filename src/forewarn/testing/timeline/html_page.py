"""`html`: drawing, results of scenarios, complaints and table of events on one self-contained page.

The page has no scripts and a content security policy that allows none. It follows light and dark,
fits narrow screens, and can be printed.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator

from forewarn.support.text import counted, listing
from forewarn.testing.timeline import wording
from forewarn.testing.timeline.axis import duration, elapsed, exact, moment
from forewarn.testing.timeline.drawing.markup import escape, tag
from forewarn.testing.timeline.drawing.picture import TITLE, draw
from forewarn.testing.timeline.drawing.style import COLOURS, PAGE, PICTURE
from forewarn.testing.timeline.lanes import Lanes
from forewarn.testing.timeline.values import EventBar, Picture, ScenarioExpectation, Sighting
from forewarn.verdict.rules import WRONG
from forewarn.verdict.values import Complaint
from forewarn.verdict.verdict import Verdict

MAX_ROWS = 1_000  # of the table: one for each event and machine
MAX_COMPLAINTS = 500  # on a page
COLUMNS = ("Machine", "Seen", "Approved", "Started", "Impact", "Ended")


def html(lanes: Lanes, verdict: Verdict | None = None, title: str = TITLE) -> str:
    """Return the timeline, and what a verdict complains about, as an HTML page.

    Args:
        lanes: What to draw.
        verdict: The verdict to show beside it.
        title: The title of the page; by default `Scheduled events`.
    """
    picture = lanes.picture()
    parts = [
        tag(
            "header",
            tag("h1", escape(title) or TITLE),
            _summary(picture),
            *_results(picture, verdict),
        ),
        *_failures(picture),
        _figure(picture, title),
        *_complaints(verdict),
        *_met(picture),
        *_event_table(picture),
        tag("footer", "Times are those of the service's clock, in UTC. Drawn by forewarn."),
    ]
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        tag("title", escape(title) or TITLE),
        f"<style>{COLOURS + PAGE}</style>",
    ]
    body = tag("main", *parts)
    return (
        f'<!doctype html>\n<html lang="en"><head>{"".join(head)}</head><body>{body}</body></html>'
    )


def _figure(picture: Picture, title: str) -> str:
    """Return the drawing in a frame that scrolls on narrow screens, with the keyboard as well."""
    drawing = draw(picture, title, headed=False)
    return tag("figure", drawing, tabindex=0, aria_label="Timeline")


def _policy() -> str:
    """Return a content security policy that allows nothing but the page's two style sheets."""
    digests = (hashlib.sha256(css.encode()).digest() for css in (COLOURS + PAGE, COLOURS + PICTURE))
    styles = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return f"default-src 'none'; style-src {styles}; base-uri 'none'; form-action 'none'"


def _summary(picture: Picture) -> str:
    summary = wording.heading(picture) if picture.recorded else "Nothing has happened yet."
    return tag("p", escape(summary), class_="soft")


def _results(picture: Picture, verdict: Verdict | None) -> Iterator[str]:
    """Yield a badge for each scenario, those that failed first, and one for the verdict.

    Beside a scenario that failed there is no badge that something went well.
    """
    failed = [scenario for scenario in picture.scenarios if not scenario.ok]
    for scenario in failed:
        yield _badge(f"✗ {wording.outcome(scenario)}", "wrong")
    if verdict is not None and not verdict.ok:
        count = sum(not _is_note(complaint) for complaint in verdict.complaints)
        yield _badge(f"✗ {count:,} mistake{'' if count == 1 else 's'}", "wrong")
    if failed:
        return
    for scenario in picture.scenarios:
        if scenario.expectations:
            yield _badge(f"✓ {wording.outcome(scenario)}", "well")
        else:
            yield _badge(wording.outcome(scenario), "soft")
    if verdict is not None and verdict.ok:
        yield _badge("✓ no mistakes", "well")


def _badge(text: str, kind: str) -> str:
    return tag("p", escape(text), class_=f"result {kind}")


def _failures(picture: Picture) -> Iterator[str]:
    """Yield what failed in a scenario, before anything else."""
    for scenario in picture.scenarios:
        if scenario.ok:
            continue
        items = [tag("li", tag("b", escape(f"✗ {problem}"))) for problem in scenario.problems]
        items += [_expectation(item) for item in scenario.expectations if not item.ok]
        yield tag("h2", escape(f"What failed in scenario {scenario.scenario}"))
        yield tag("ul", *items, class_="complaints failures")


def _met(picture: Picture) -> Iterator[str]:
    for scenario in picture.scenarios:
        met = [_expectation(item) for item in scenario.expectations if item.ok]
        if met:
            yield tag("h2", escape(f"What was met in scenario {scenario.scenario}"))
            yield tag("ul", *met, class_="complaints met")


def _expectation(item: ScenarioExpectation) -> str:
    sign = "✓" if item.ok else "✗"
    message = f": {escape(item.message)}" if item.message else ""
    return tag("li", tag("b", escape(f"{sign} {item.expected}")), message)


def _is_note(complaint: Complaint) -> bool:
    """Return whether a complaint is advice, not a mistake."""
    return complaint.severity != WRONG


def _complaints(verdict: Verdict | None) -> Iterator[str]:
    if verdict is None or not verdict.complaints:
        return
    rows = []
    ordered = sorted(verdict.complaints, key=_is_note)
    for complaint in ordered[:MAX_COMPLAINTS]:
        about = f" · {complaint.event}" if complaint.event else ""
        repetitions = f", {complaint.times:,} times" if complaint.times > 1 else ""
        when = f"{complaint.machine}{about} · {exact(complaint.at)}{repetitions}"
        note = _is_note(complaint)
        rows.append(
            tag(
                "li",
                tag("b", escape(f"{'note: ' if note else ''}{complaint.rule}")),
                f" {escape(complaint.message)}",
                tag("div", escape(when), class_="soft"),
                class_="note" if note else None,
            )
        )
    yield tag("h2", "Mistakes" if not verdict.ok else "Notes")
    yield tag("ul", *rows, class_="complaints")
    more = len(verdict.complaints) - MAX_COMPLAINTS
    if more > 0:
        yield tag("p", f"… and {more:,} more", class_="soft")


def _event_table(picture: Picture) -> Iterator[str]:
    yield tag("h2", "Events by machine")
    if not picture.events:
        yield tag("p", "There were no events.", class_="soft")
        return
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in COLUMNS)))
    bodies = []
    rows_left = MAX_ROWS
    events_shown = 0
    for event in picture.events:
        if rows_left <= 0:
            break
        sightings = event.sightings[:rows_left]
        rows_left -= max(len(sightings), 1)
        events_shown += 1
        rows = [_row(event, sighting) for sighting in sightings]
        bodies.append(tag("tbody", _event_heading(event), *rows))
    yield tag("div", tag("table", head, *bodies), class_="scroll")
    more = len(picture.events) - events_shown
    if more > 0:
        yield tag("p", f"… and {counted(more, 'more event')}", class_="soft")


def _event_heading(event: EventBar) -> str:
    source = f" ({event.source})" if event.source else ""
    facts = []
    if event.visible is not None:
        facts.append(f"visible {exact(event.visible)}")
    else:
        facts.append("never visible")
    if event.not_before is not None:
        notice = elapsed(event.visible, event.not_before)
        not_before = moment(event.not_before, event.visible)
        facts.append(f"NotBefore {not_before}{f', notice {notice}' * bool(notice)}")
    if event.approved is not None:
        facts.append(f"approved by {event.approved_by}")
    if event.ended is not None:
        facts.append(f"{event.ending} {moment(event.ended, event.visible)}")
    else:
        facts.append("in progress" if event.started is not None else "upcoming")
    inside = [
        escape(f"{event.type}{source} of {listing(event.machines)} "),
        tag("code", escape(event.id), class_="soft"),
        tag("div", escape(" · ".join(facts)), class_="soft"),
    ]
    return tag("tr", tag("th", *inside, colspan=len(COLUMNS), scope="rowgroup"))


def _row(event: EventBar, sighting: Sighting) -> str:
    cells = [
        escape(sighting.machine)
        + ("" if sighting.concerned else tag("span", " (not affected)", class_="soft")),
        _seen(event, sighting),
        escape(_approved(event, sighting)),
        escape(_started(event)) if sighting.concerned else "",
        escape(_impact(event, sighting.machine)),
        escape(_ended(event)) if sighting.concerned else "",
    ]
    columns = []
    for name, cell in zip(COLUMNS, cells, strict=True):
        columns.append(f'<td data-label="{name}">{tag("div", cell) if cell else ""}</td>')
    return tag("tr", *columns)


def _seen(event: EventBar, sighting: Sighting) -> str:
    if sighting.seen is None:
        return tag("span", "never", class_="absent")
    wait = elapsed(event.visible, sighting.seen)
    text = moment(sighting.seen, event.visible) + (f", after {wait}" if wait else "")
    if wording.seen_too_late(event, sighting.seen):
        return escape(f"{text}, as {sighting.seen_as}: ") + tag("span", "too late", class_="absent")
    return escape(
        text if sighting.seen_as in ("", "Scheduled") else f"{text}, as {sighting.seen_as}"
    )


def _approved(event: EventBar, sighting: Sighting) -> str:
    if sighting.approved is not None:
        return moment(sighting.approved, event.visible)
    if sighting.concerned and event.approved is not None:
        return f"{moment(event.approved, event.visible)}, by {event.approved_by}"
    return ""


def _started(event: EventBar) -> str:
    if event.started is None:
        return ""
    reason = wording.start_reason(event)
    return f"{moment(event.started, event.visible)}{f', {reason}' if reason else ''}"


def _impact(event: EventBar, machine: str) -> str:
    impacts = [
        moment(impact.t, event.visible)
        + (f", {duration(impact.seconds)}" if impact.seconds else "")
        for impact in event.impacts
        if machine in impact.machines
    ]
    return "; ".join(impacts)


def _ended(event: EventBar) -> str:
    if event.ended is None:
        return ""
    lasted = elapsed(event.started, event.ended)
    after = f" after {lasted}" if lasted else ""
    return f"{moment(event.ended, event.visible)}, {event.ending}{after}"
