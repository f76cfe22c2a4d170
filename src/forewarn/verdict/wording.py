"""Moments, lengths and what others have said, as words for people."""

from __future__ import annotations

from datetime import UTC, datetime


def plain(text: str, most: int = 80) -> str:
    """So that it can be shown: nothing in it acts upon a terminal or ends a line."""
    cut = text if len(text) <= most else text[:most] + "…"
    if cut.isprintable():
        return cut
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)


def moment(t: float) -> str:
    try:
        found = datetime.fromtimestamp(t, UTC)
    except (ValueError, OverflowError, OSError):
        return str(t)
    return found.isoformat(sep=" ", timespec="milliseconds").replace(".000", "")[:-6] + "Z"


def length(seconds: float) -> str:
    """`0.2 s`, `30 s`, `15 min`, `1 h 30 min`."""
    if seconds < 0:
        return "-" + length(-seconds)
    if seconds < 120:
        said = f"{seconds:.3f}" if seconds < 10 else f"{seconds:.1f}"
        return said.rstrip("0").rstrip(".") + " s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [f"{hours} h"] * bool(hours) + [f"{minutes} min"] * bool(minutes)
    return " ".join(parts + [f"{rest} s"] * bool(rest and not hours))


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
