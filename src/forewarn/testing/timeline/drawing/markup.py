"""Elements of XML and HTML as text, with whatever names and words there are in them made harmless.

What others have written may hold anything: `<`, quotes, an escape sequence, half a character.
"""

from __future__ import annotations

import html as entities
import re

from forewarn.support.text import visible

# XML 1.0 has no way to write these, not even escaped.
_ILLEGAL = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")


def escape(said: str) -> str:
    """As text or as the value of an attribute."""
    return entities.escape(_ILLEGAL.sub("\ufffd", visible(said)), quote=True)


def tag(name: str, *content: str, **attributes: str | float | None) -> str:
    """An element around content that is markup already. `class_` and `aria_label` are as they
    read; an attribute that is None is left out."""
    made = [name]
    for key, value in attributes.items():
        if value is None:
            continue
        said = number(value) if isinstance(value, int | float) else escape(value)
        made.append(f'{key.rstrip("_").replace("_", "-")}="{said}"')
    inside = "".join(content)
    return f"<{' '.join(made)}>{inside}</{name}>" if inside else f"<{' '.join(made)}/>"


def number(value: float) -> str:
    """A tenth of a pixel is as fine as anybody sees."""
    return f"{value:.1f}".removesuffix(".0")
