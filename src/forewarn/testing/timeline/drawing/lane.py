"""One lane of a drawing: a machine's events as labelled bars, with its polls and marks below."""

from __future__ import annotations

import unicodedata

from forewarn.testing.timeline import wording
from forewarn.testing.timeline.axis import Axis, duration, exact
from forewarn.testing.timeline.drawing import symbols
from forewarn.testing.timeline.drawing.markup import escape, number, tag
from forewarn.testing.timeline.values import EventBar, Lane, Mark, Outage, Picture

LEFT, RIGHT = 196.0, 1_176.0  # the axis, in pixels of the drawing
PAD, ROW, FOOT = 5.0, 40.0, 16.0  # heights: above the bars, of a row of bars, below the bars
EMPTY_HEIGHT = 16.0  # added to a lane without bars, so that there is room for its name
BAR_TOP, BAR = 16.0, 14.0  # the top of a bar in its row, and its height
MAX_STACKED = 6  # rows of bars; more events at the same time share the last
MAX_BARS = 60  # bars on one lane; if there are more events, the newest are drawn
LETTER, WIDE_LETTER = 6.3, 12.0  # approximate width of a letter in a label
BAR_GAP = 12.0  # between two bars of one row
MIN_WIDTH = 3.0  # of a section of a bar


class LaneDrawing:
    """Draws one lane. `height` is known before it is drawn; `used` are the symbols it has used."""

    def __init__(self, lane: Lane, picture: Picture, axis: Axis) -> None:
        events_by_id = picture.by_id
        events = [events_by_id[id] for id in lane.events if id in events_by_id]
        self._events = [event for event in events if event.begins is not None][-MAX_BARS:]
        self._events.sort(key=lambda event: event.begins or 0.0)
        self._lane, self._now, self._axis = lane, picture.now, axis
        self._events_by_id = events_by_id
        self.used: set[str] = set()
        self._rows = self._assign_rows()
        rows = max(self._rows, default=-1) + 1
        self.height = PAD + rows * ROW + FOOT + (0 if rows else EMPTY_HEIGHT)

    def band(self, top: float) -> str:
        return tag("rect", y=top, width=RIGHT + 24, height=self.height, class_="band")

    def draw(self, top: float) -> str:
        lane = self._lane
        elements = []
        foot = top + self.height - FOOT + 3
        elements.append(self._name(top))
        elements += [self._disconnected(time, top) for time in lane.disconnected]
        elements.append(self._polls(foot))
        for event, row in zip(self._events, self._rows, strict=True):
            elements.append(self._bar(event, top + PAD + row * ROW))
        for t, id in lane.approvals:
            if id not in lane.events:
                elements.append(self._approval(t, id, foot + 4))
        elements += [self._mark(mark, foot + 4) for mark in lane.marks]
        return tag("g", *elements)

    def _x(self, t: float) -> float:
        return x_of(self._axis, t)

    def _name(self, top: float) -> str:
        lane = self._lane
        elements = [tag("title", escape(wording.poll_summary(lane)))]
        middle = top + min(self.height / 2, 28) - 1
        elements.append(tag("text", escape(crop(lane.machine, 24)), x=16, y=middle, class_="name"))
        parts = [f"domain {lane.domain}"] if lane.domain else []
        parts.append(f"{lane.polls:,} poll{'' if lane.polls == 1 else 's'}")
        details = escape(" · ".join(parts))
        elements.append(tag("text", details, x=16, y=middle + 14, class_="small"))
        return tag("g", *elements)

    def _assign_rows(self) -> list[int]:
        """Return a row for each event, so that neither bars nor labels overlap."""
        free_from: list[float] = []
        rows = []
        for event in self._events:
            start, end = self._bar_extent(event)
            row = next((at for at, until in enumerate(free_from) if until <= start), len(free_from))
            row = min(row, MAX_STACKED - 1)
            if row == len(free_from):
                free_from.append(end)
            free_from[row] = max(free_from[row], end) + BAR_GAP
            rows.append(row)
        return rows

    def _bar_extent(self, event: EventBar) -> tuple[float, float]:
        start, end = self._x(event.begins or 0.0), self._x(self._end(event))
        if event.not_before is not None and event.started is None and event.ended is None:
            end = max(end, self._x(event.not_before))
        label_width = text_width(wording.label(event, self._lane.machine))
        return min(start, RIGHT - label_width), max(end, min(start + label_width, RIGHT))

    def _end(self, event: EventBar) -> float:
        return event.ended if event.ended is not None else max(self._now, event.begins or 0.0)

    def _bar(self, event: EventBar, top: float) -> str:
        name = self._lane.machine
        label = wording.label(event, name)
        start, _ = self._bar_extent(event)
        bar_top = top + BAR_TOP
        elements = [tag("text", escape(crop(label, 80)), x=start, y=top + 11, class_="label")]
        elements += self._sections(event, bar_top)
        for impact in event.impacts:
            if name in impact.machines:
                x = self._x(impact.t)
                width = self._x(impact.t + impact.seconds) - x
                if width > 1:
                    elements.append(
                        tag("rect", x=x, y=bar_top + 4, width=width, height=6, class_="struck")
                    )
                elements.append(symbols.impact(x, bar_top + BAR / 2))
                self.used.add("impact")
        if event.not_before is not None and _shows_not_before(event):
            x, now = self._x(event.not_before), self._x(self._now)
            if event.started is None and event.ended is None and x > now:
                ahead = f"M{number(now)} {number(bar_top + BAR / 2)}H{number(x)}"
                elements.append(tag("path", d=ahead, class_="ahead"))
            elements.append(symbols.due(x, bar_top - 1, BAR + 10))
            self.used.add("due")
        if event.approved is not None:
            x = self._x(event.approved)
            impact_positions = [
                self._x(impact.t) for impact in event.impacts if name in impact.machines
            ]
            # Or one would hide the other.
            shifted = any(abs(x - at) < symbols.REACH for at in impact_positions)
            elements.append(symbols.approved(x - symbols.REACH * shifted, bar_top + BAR / 2))
            self.used.add("approved")
        sighting = event.sighting(name)
        if sighting is not None and sighting.seen is not None:
            elements.append(symbols.sight(self._x(sighting.seen), bar_top + BAR + 1))
            self.used.add("sight")
        if event.ending == "withdrawn" and event.ended is not None:
            elements.append(symbols.cross(self._x(event.ended), bar_top + BAR / 2))
            self.used.add("withdrawn")
        return symbols.titled(wording.tooltip(event, name), *elements)

    def _sections(self, event: EventBar, bar_top: float) -> list[str]:
        end = self._end(event)
        sections = []
        if event.visible is not None:
            scheduled_until = min(event.started if event.started is not None else end, end)
            sighting = event.sighting(self._lane.machine)
            seen = sighting.seen if sighting is not None else None
            split = (
                scheduled_until
                if seen is None or seen > scheduled_until
                else max(seen, event.visible)
            )
            for kind, a, b in (("unseen", event.visible, split), ("seen", split, scheduled_until)):
                if b > a:
                    sections.append(self._section(event, kind, a, b, bar_top))
            if scheduled_until <= event.visible and event.started is None:  # announced just now
                kind = "unseen" if seen is None else "seen"
                sections.append(self._section(event, kind, event.visible, scheduled_until, bar_top))
        if event.started is not None:
            sections.append(self._section(event, "started", event.started, end, bar_top))
        return sections

    def _section(self, event: EventBar, kind: str, start: float, end: float, bar_top: float) -> str:
        self.used.add(kind)
        x = self._x(start)
        width = max(self._x(end) - x, MIN_WIDTH)
        dashed = " withdrawn" if event.ending == "withdrawn" else ""
        return tag(
            "rect",
            x=x,
            y=bar_top,
            width=width,
            height=BAR,
            class_=kind + dashed,
            data_from=exact(start),
            data_to=exact(end),
        )

    def _disconnected(self, time: Outage, top: float) -> str:
        self.used.add("disconnected")
        x = self._x(time.start)
        width = max(self._x(time.end) - x, MIN_WIDTH)
        box = tag("rect", x=x, y=top, width=width, height=self.height, class_="disconnected")
        return symbols.titled(f"{time.message}: {exact(time.start)} to {exact(time.end)}", box)

    def _polls(self, y: float) -> str:
        points: dict[int, None] = {}
        elements = []
        for tick in self._lane.ticks:
            x, end = self._x(tick.start), self._x(tick.end)
            if end - x > 2:
                elements.append(tag("rect", x=x, y=y + 2, width=end - x, height=5, class_="many"))
            else:
                points[round(x)] = None
        if points:
            ticks = "".join(f"M{x} {number(y + 1)}v7" for x in points)
            elements.append(tag("path", d=ticks, class_="polls"))
        if not elements:
            return ""
        self.used.add("poll")
        hit = tag("rect", x=LEFT, y=y, width=RIGHT - LEFT, height=9, class_="hit")
        return symbols.titled(wording.poll_summary(self._lane), hit, *elements)

    def _approval(self, t: float, id: str, y: float) -> str:
        self.used.add("approved")
        event = self._events_by_id.get(id)
        subject = f"{event.type} {id}" if event is not None else id
        tooltip = f"{self._lane.machine} approved {subject} at {exact(t)}"
        return symbols.titled(tooltip, symbols.approved(self._x(t), y))

    def _mark(self, mark: Mark, y: float) -> str:
        self.used.add(mark.kind)
        x, end = self._x(mark.t), self._x(mark.until)
        repetitions = (
            f", {mark.count:,} times in {duration(mark.until - mark.t)}" if mark.count > 1 else ""
        )
        elements = []
        if end - x > 2:
            path = f"M{number(x)} {number(y)}H{number(end)}"
            elements.append(tag("path", d=path, class_=f"reach {mark.kind}"))
        elements.append(symbols.mark(mark.kind, x, y))
        return symbols.titled(f"{mark.message} ({exact(mark.t)}{repetitions})", *elements)


def x_of(axis: Axis, t: float) -> float:
    return LEFT + axis.share(t) * (RIGHT - LEFT)


def text_width(text: str) -> float:
    """Estimate the width of a text in pixels: the font of the viewer is not known."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return wide * WIDE_LETTER + (len(text) - wide) * LETTER


def crop(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def _shows_not_before(event: EventBar) -> bool:
    """Return whether to draw the NotBefore: not if the event started or ended before it."""
    if event.not_before is None or event.visible is None:
        return False
    times = [t for t in (event.started, event.ended) if t is not None]
    return not times or event.not_before <= min(times)
