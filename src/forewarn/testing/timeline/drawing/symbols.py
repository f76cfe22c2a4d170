"""The small symbols of a drawing, each distinguished by its shape as well as its colour."""

from __future__ import annotations

from forewarn.testing.timeline.drawing.markup import escape, number, tag

REACH = 7.0  # half the width of the widest symbol, in pixels

LEGEND = (
    ("unseen", "Scheduled, not seen yet"),
    ("seen", "Scheduled and seen"),
    ("started", "Started"),
    ("sight", "first seen"),
    ("approved", "approved"),
    ("due", "NotBefore"),
    ("impact", "impact"),
    ("withdrawn", "withdrawn"),
    ("poll", "polls"),
    ("fault", "fault"),
    ("refused", "refused"),
    ("ready", "readiness report"),
    ("away", "service down"),
    ("disconnected", "node cut off"),
)


def titled(title: str, *content: str) -> str:
    """Return a group with a tooltip."""
    return tag("g", tag("title", escape(title)), *content)


def approved(x: float, y: float) -> str:
    check = f"M{number(x - 3)} {number(y)}l2.2 2.4 4-4.6"
    return tag("circle", cx=x, cy=y, r=6.5, class_="approved") + tag(
        "path", d=check, class_="check"
    )


def impact(x: float, y: float) -> str:
    return tag("path", d=f"M{number(x)} {number(y - 6.5)}l6 6.5-6 6.5-6-6.5z", class_="impact")


def due(x: float, top: float, height: float) -> str:
    foot = number(top + height)
    flag = f"M{number(x)} {number(top)}V{foot}l7-3-7-3"
    return tag("path", d=flag, class_="due")


def sight(x: float, top: float) -> str:
    return tag("path", d=f"M{number(x)} {number(top)}l4.5 6h-9z", class_="sight")


def cross(x: float, y: float) -> str:
    x, y = x - 4, y - 4
    return tag("path", d=f"M{number(x)} {number(y)}l8 8m0-8l-8 8", class_="cross")


def mark(kind: str, x: float, y: float) -> str:
    """Draw a diamond for a fault, a square for a refused request, a circle for readiness."""
    if kind == "fault":
        shape = tag("path", d=f"M{number(x)} {number(y - 7)}l7 7-7 7-7-7z", class_="fault")
    elif kind == "refused":
        shape = tag("rect", x=x - 6, y=y - 6, width=12, height=12, rx=2, class_="refused")
    else:
        shape = tag("circle", cx=x, cy=y, r=6, class_="ready")
    sign = {"fault": "!", "refused": "?"}.get(kind, "r")
    return shape + tag("text", sign, x=x, y=y + 3.6, class_="sign")


def sample(kind: str, x: float, y: float) -> str:
    """Return a symbol as the legend shows it, centred on (x, y)."""
    match kind:
        case "unseen" | "seen" | "started":
            return tag("rect", x=x - 9, y=y - 5, width=18, height=10, rx=2, class_=kind)
        case "withdrawn":
            box = tag("rect", x=x - 9, y=y - 5, width=14, height=10, class_="seen withdrawn")
            return box + cross(x + 5, y)
        case "sight":
            return sight(x, y - 3)
        case "approved":
            return approved(x, y)
        case "due":
            return due(x - 3, y - 7, 14)
        case "impact":
            return impact(x, y)
        case "poll":
            ticks = "".join(f"M{number(x + at)} {number(y - 3)}v6" for at in (-8, -4, 0, 4, 8))
            return tag("path", d=ticks, class_="polls")
        case "away" | "disconnected":
            return tag("rect", x=x - 9, y=y - 6, width=18, height=12, class_=kind)
        case _:
            return mark(kind, x, y)
