"""Elements of XML and HTML as text, with everything in them escaped.

Names in a trace may hold anything: `<`, quotes, escape sequences, half a character.
"""

from __future__ import annotations

import html as entities
import re

from forewarn.support.text import visible

# XML 1.0 has no way to write these, not even escaped.
_ILLEGAL = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def escape(text: str) -> str:
    """Escape a text for content and for the values of attributes."""
    return entities.escape(_ILLEGAL.sub("\ufffd", visible(text)), quote=True)


def tag(name: str, *content: str, **attributes: str | float | None) -> str:
    """Return an element around content that is markup already.

    `class_` and `aria_label` stand for `class` and `aria-label`; None leaves an attribute out.
    """
    parts = [name]
    for key, value in attributes.items():
        if value is None:
            continue
        text = number(value) if isinstance(value, int | float) else escape(value)
        parts.append(f'{key.rstrip("_").replace("_", "-")}="{text}"')
    inside = "".join(content)
    return f"<{' '.join(parts)}>{inside}</{name}>" if inside else f"<{' '.join(parts)}/>"


def number(value: float) -> str:
    """Format a length, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")
