"""One machine's strip of the picture: its events as bars with words, its polls and marks below."""

from __future__ import annotations

import unicodedata

from forewarn.testing.timeline import wording
from forewarn.testing.timeline.axis import Axis, exact, length
from forewarn.testing.timeline.drawing import symbols
from forewarn.testing.timeline.drawing.markup import escape, number, tag
from forewarn.testing.timeline.values import EventBar, Lane, Mark, Picture

LEFT, RIGHT = 196.0, 1_176.0  # the axis, in pixels of the drawing
PAD, ROW, FOOT = 5.0, 40.0, 16.0
BARE = 16.0  # a strip without bars has room for its name
BAR_TOP, BAR = 16.0, 14.0
MAX_STACKED = 6  # of bars one above the other; more events at once share the last
MAX_BARS = 60  # on one strip; of more than that the newest are drawn
LETTER, BROAD = 6.3, 12.0  # pixels of a letter in a label, roughly
APART = 12.0  # between two bars of one row
LEAST = 3.0  # pixels of a stretch that lasted but a moment


class LaneDrawing:
    def __init__(self, lane: Lane, picture: Picture, axis: Axis) -> None:
        known = picture.by_id
        mine = [known[id] for id in lane.events if id in known]
        self._events = [event for event in mine if event.begins is not None][-MAX_BARS:]
        self._events.sort(key=lambda event: event.begins or 0.0)
        self._lane, self._now, self._axis = lane, picture.now, axis
        self._known = known
        self.used: set[str] = set()
        self._rows = self._placed()
        rows = max(self._rows, default=-1) + 1
        self.height = PAD + rows * ROW + FOOT + (0 if rows else BARE)

    def band(self, top: float) -> str:
        return tag("rect", y=top, width=RIGHT + 24, height=self.height, class_="band")

    def drawn(self, top: float) -> str:
        lane = self._lane
        made = []
        foot = top + self.height - FOOT + 3
        made.append(self._name(top))
        made.append(self._polls(foot))
        for event, row in zip(self._events, self._rows, strict=True):
            made.append(self._bar(event, top + PAD + row * ROW))
        for t, id in lane.approvals:
            if id not in lane.events:
                made.append(self._approval(t, id, foot + 4))
        made += [self._mark(mark, foot + 4) for mark in lane.marks]
        return tag("g", *made)

    def _x(self, t: float) -> float:
        return x_of(self._axis, t)

    def _name(self, top: float) -> str:
        lane = self._lane
        said = [tag("title", escape(wording.polling(lane)))]
        middle = top + min(self.height / 2, 28) - 1
        said.append(tag("text", escape(clipped(lane.machine, 24)), x=16, y=middle, class_="name"))
        parts = [f"domain {lane.domain}"] if lane.domain else []
        parts.append(f"{lane.polls:,} poll{'' if lane.polls == 1 else 's'}")
        small = escape(" · ".join(parts))
        said.append(tag("text", small, x=16, y=middle + 14, class_="small"))
        return tag("g", *said)

    def _placed(self) -> list[int]:
        """A row for each event, so that neither bars nor their words run into each other."""
        free: list[float] = []
        rows = []
        for event in self._events:
            start, end = self._reach(event)
            row = next((at for at, until in enumerate(free) if until <= start), len(free))
            row = min(row, MAX_STACKED - 1)
            if row == len(free):
                free.append(end)
            free[row] = max(free[row], end) + APART
            rows.append(row)
        return rows

    def _reach(self, event: EventBar) -> tuple[float, float]:
        start, end = self._x(event.begins or 0.0), self._x(self._end(event))
        if event.not_before is not None and event.started is None and event.over is None:
            end = max(end, self._x(event.not_before))
        wide = extent(wording.label(event, self._lane.machine))
        return min(start, RIGHT - wide), max(end, min(start + wide, RIGHT))

    def _end(self, event: EventBar) -> float:
        return event.over if event.over is not None else max(self._now, event.begins or 0.0)

    def _bar(self, event: EventBar, top: float) -> str:
        name = self._lane.machine
        label = wording.label(event, name)
        start, _ = self._reach(event)
        bar = top + BAR_TOP
        made = [tag("text", escape(clipped(label, 80)), x=start, y=top + 11, class_="label")]
        made += self._stretches(event, bar)
        for impact in event.impacts:
            if name in impact.machines:
                x = self._x(impact.t)
                wide = self._x(impact.t + impact.seconds) - x
                if wide > 1:
                    made.append(tag("rect", x=x, y=bar + 4, width=wide, height=6, class_="struck"))
                made.append(symbols.impact(x, bar + BAR / 2))
                self.used.add("impact")
        if event.not_before is not None and _awaited(event):
            x, now = self._x(event.not_before), self._x(self._now)
            if event.started is None and event.over is None and x > now:
                ahead = f"M{number(now)} {number(bar + BAR / 2)}H{number(x)}"
                made.append(tag("path", d=ahead, class_="ahead"))
            made.append(symbols.due(x, bar - 1, BAR + 10))
            self.used.add("due")
        if event.approved is not None:
            x = self._x(event.approved)
            struck = [self._x(impact.t) for impact in event.impacts if name in impact.machines]
            aside = any(abs(x - at) < symbols.REACH for at in struck)  # else one hides the other
            made.append(symbols.approved(x - symbols.REACH * aside, bar + BAR / 2))
            self.used.add("approved")
        sight = event.sight(name)
        if sight is not None and sight.seen is not None:
            made.append(symbols.sight(self._x(sight.seen), bar + BAR + 1))
            self.used.add("sight")
        if event.ending == "withdrawn" and event.over is not None:
            made.append(symbols.cross(self._x(event.over), bar + BAR / 2))
            self.used.add("withdrawn")
        return symbols.titled(wording.course(event, name), *made)

    def _stretches(self, event: EventBar, bar: float) -> list[str]:
        end = self._end(event)
        made = []
        if event.visible is not None:
            until = min(event.started if event.started is not None else end, end)
            sight = event.sight(self._lane.machine)
            seen = sight.seen if sight is not None else None
            split = until if seen is None or seen > until else max(seen, event.visible)
            for kind, a, b in (("unseen", event.visible, split), ("seen", split, until)):
                if b > a:
                    made.append(self._stretch(event, kind, a, b, bar))
            if until <= event.visible and event.started is None:  # announced this very moment
                kind = "unseen" if seen is None else "seen"
                made.append(self._stretch(event, kind, event.visible, until, bar))
        if event.started is not None:
            made.append(self._stretch(event, "started", event.started, end, bar))
        return made

    def _stretch(self, event: EventBar, kind: str, a: float, b: float, bar: float) -> str:
        self.used.add(kind)
        x = self._x(a)
        wide = max(self._x(b) - x, LEAST)
        dashed = " withdrawn" if event.ending == "withdrawn" else ""
        return tag(
            "rect",
            x=x,
            y=bar,
            width=wide,
            height=BAR,
            class_=kind + dashed,
            data_from=exact(a),
            data_to=exact(b),
        )

    def _polls(self, y: float) -> str:
        points: dict[int, None] = {}
        made = []
        for tick in self._lane.ticks:
            x, end = self._x(tick.start), self._x(tick.end)
            if end - x > 2:
                made.append(tag("rect", x=x, y=y + 2, width=end - x, height=5, class_="many"))
            else:
                points[round(x)] = None
        if points:
            ticks = "".join(f"M{x} {number(y + 1)}v7" for x in points)
            made.append(tag("path", d=ticks, class_="polls"))
        if not made:
            return ""
        self.used.add("poll")
        hit = tag("rect", x=LEFT, y=y, width=RIGHT - LEFT, height=9, class_="hit")
        return symbols.titled(wording.polling(self._lane), hit, *made)

    def _approval(self, t: float, id: str, y: float) -> str:
        self.used.add("approved")
        event = self._known.get(id)
        what = f"{event.type} {id}" if event is not None else id
        says = f"{self._lane.machine} approved {what} at {exact(t)}"
        return symbols.titled(says, symbols.approved(self._x(t), y))

    def _mark(self, mark: Mark, y: float) -> str:
        self.used.add(mark.kind)
        x, end = self._x(mark.t), self._x(mark.until)
        often = f", {mark.count:,} times in {length(mark.until - mark.t)}" if mark.count > 1 else ""
        made = []
        if end - x > 2:
            path = f"M{number(x)} {number(y)}H{number(end)}"
            made.append(tag("path", d=path, class_=f"reach {mark.kind}"))
        made.append(symbols.mark(mark.kind, x, y))
        return symbols.titled(f"{mark.says} ({exact(mark.t)}{often})", *made)


def x_of(axis: Axis, t: float) -> float:
    return LEFT + axis.share(t) * (RIGHT - LEFT)


def extent(said: str) -> float:
    """About how many pixels it takes; measuring needs a font that nobody has yet."""
    broad = sum(unicodedata.east_asian_width(letter) in "WF" for letter in said)
    return broad * BROAD + (len(said) - broad) * LETTER


def clipped(said: str, most: int) -> str:
    return said if len(said) <= most else said[: most - 1] + "…"


def _awaited(event: EventBar) -> bool:
    """Does its NotBefore still say something? Not once it has started early, or is over."""
    if event.not_before is None or event.visible is None:
        return False
    ends = [t for t in (event.started, event.over) if t is not None]
    return not ends or event.not_before <= min(ends)
