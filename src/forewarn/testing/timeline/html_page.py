"""`html`: picture, courses and complaints as one page that needs nothing from anywhere else.

No script, and a policy of its own that allows none; light and dark, narrow and wide, on paper too.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator

from forewarn.support.text import listing
from forewarn.testing.timeline import wording
from forewarn.testing.timeline.axis import after, exact, length, of_day
from forewarn.testing.timeline.drawing.markup import escape, tag
from forewarn.testing.timeline.drawing.picture import TITLE, draw
from forewarn.testing.timeline.drawing.style import COLOURS, PAGE, PICTURE
from forewarn.testing.timeline.lanes import Lanes
from forewarn.testing.timeline.values import EventBar, Picture, Sighting
from forewarn.verdict.rules import WRONG
from forewarn.verdict.values import Complaint
from forewarn.verdict.verdict import Verdict

MAX_ROWS = 1_000  # machines' courses in the table
MAX_COMPLAINTS = 500  # on a page
COLUMNS = ("Machine", "Seen", "Approved", "Started", "Impact", "Over")


def html(lanes: Lanes, verdict: Verdict | None = None, title: str = TITLE) -> str:
    picture = lanes.picture()
    parts = [
        tag("header", tag("h1", escape(title) or TITLE), _summary(picture), _result(verdict)),
        tag("figure", draw(picture, title, headed=False)),
        *_complaints(verdict),
        *_courses(picture),
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


def _policy() -> str:
    """Nothing may be loaded or run; of styles, these two and no other."""
    digests = (hashlib.sha256(css.encode()).digest() for css in (COLOURS + PAGE, COLOURS + PICTURE))
    styles = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return f"default-src 'none'; style-src {styles}; base-uri 'none'; form-action 'none'"


def _summary(picture: Picture) -> str:
    said = wording.heading(picture) if picture.recorded else "Nothing has happened yet."
    return tag("p", escape(said), class_="soft")


def _result(verdict: Verdict | None) -> str:
    if verdict is None:
        return ""
    if verdict.ok:
        return tag("p", "✓ nothing was done wrong", class_="result well")
    count = sum(not _is_note(complaint) for complaint in verdict.complaints)
    wrong = f"✗ {count:,} thing{' was' if count == 1 else 's were'} done wrong"
    return tag("p", wrong, class_="result wrong")


def _is_note(complaint: Complaint) -> bool:
    """Advice, as against something that was wrong."""
    return complaint.severity != WRONG


def _complaints(verdict: Verdict | None) -> Iterator[str]:
    if verdict is None or not verdict.complaints:
        return
    rows = []
    ordered = sorted(verdict.complaints, key=_is_note)
    for complaint in ordered[:MAX_COMPLAINTS]:
        about = f" · {complaint.event}" if complaint.event else ""
        often = f", {complaint.times:,} times" if complaint.times > 1 else ""
        when = f"{complaint.machine}{about} · {exact(complaint.at)}{often}"
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
    yield tag("h2", "What was done wrong" if not verdict.ok else "What to know")
    yield tag("ul", *rows, class_="complaints")
    more = len(verdict.complaints) - MAX_COMPLAINTS
    if more > 0:
        yield tag("p", f"… and {more:,} more", class_="soft")


def _courses(picture: Picture) -> Iterator[str]:
    yield tag("h2", "Events, and what each machine made of them")
    if not picture.events:
        yield tag("p", "There were none.", class_="soft")
        return
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in COLUMNS)))
    bodies = []
    left = MAX_ROWS
    shown = 0
    for event in picture.events:
        if left <= 0:
            break
        sights = event.sights[:left]
        left -= max(len(sights), 1)
        shown += 1
        rows = [_row(event, sight) for sight in sights]
        bodies.append(tag("tbody", _facts(event), *rows))
    yield tag("div", tag("table", head, *bodies), class_="scroll")
    more = len(picture.events) - shown
    if more > 0:
        yield tag("p", f"… and {more:,} more events", class_="soft")


def _facts(event: EventBar) -> str:
    source = f" ({event.source})" if event.source else ""
    said = []
    if event.visible is not None:
        said.append(f"visible {exact(event.visible)}")
    else:
        said.append("never visible")
    if event.not_before is not None:
        notice = after(event.visible, event.not_before)
        said.append(f"NotBefore {of_day(event.not_before)}{f', notice {notice}' * bool(notice)}")
    if event.approved is not None:
        said.append(f"approved by {event.approved_by}")
    if event.over is not None:
        said.append(f"{event.ending} {of_day(event.over)}")
    else:
        said.append("not over" if event.started is not None else "still to come")
    inside = [
        escape(f"{event.type}{source} of {listing(event.machines)} "),
        tag("code", escape(event.id), class_="soft"),
        tag("div", escape(" · ".join(said)), class_="soft"),
    ]
    return tag("tr", tag("th", *inside, colspan=len(COLUMNS), scope="rowgroup"))


def _row(event: EventBar, sight: Sighting) -> str:
    cells = [
        escape(sight.machine)
        + ("" if sight.concerned else tag("span", " looks on", class_="soft")),
        _seen(event, sight),
        escape(_approved(event, sight)),
        escape(_started(event)) if sight.concerned else "",
        escape(_impact(event, sight.machine)),
        escape(_over(event)) if sight.concerned else "",
    ]
    made = []
    for name, cell in zip(COLUMNS, cells, strict=True):
        made.append(f'<td data-label="{name}">{tag("div", cell) if cell else ""}</td>')
    return tag("tr", *made)


def _seen(event: EventBar, sight: Sighting) -> str:
    if sight.seen is None:
        return tag("span", "never", class_="absent")
    wait = after(event.visible, sight.seen)
    said = f"{of_day(sight.seen)}, after {wait}" if wait else of_day(sight.seen)
    if wording.late(event, sight.seen):
        return escape(f"{said}, as {sight.seen_as}: ") + tag("span", "too late", class_="absent")
    return escape(said if sight.seen_as in ("", "Scheduled") else f"{said}, as {sight.seen_as}")


def _approved(event: EventBar, sight: Sighting) -> str:
    if sight.approved is not None:
        return of_day(sight.approved)
    if sight.concerned and event.approved is not None:
        return f"{of_day(event.approved)}, by {event.approved_by}"
    return ""


def _started(event: EventBar) -> str:
    if event.started is None:
        return ""
    why = wording.started_why(event)
    return f"{of_day(event.started)}{f', {why}' if why else ''}"


def _impact(event: EventBar, machine: str) -> str:
    said = [
        f"{of_day(impact.t)}{f', {length(impact.seconds)}' if impact.seconds else ''}"
        for impact in event.impacts
        if machine in impact.machines
    ]
    return "; ".join(said)


def _over(event: EventBar) -> str:
    if event.over is None:
        return ""
    lasted = after(event.started, event.over)
    return f"{of_day(event.over)}, {event.ending}{f' after {lasted}' if lasted else ''}"
