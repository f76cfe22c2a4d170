"""One section of results measured anew, the others left as they were."""

from __future__ import annotations

import re

TARGETS, NOTES = "## Targets", "## How to read it"


def renewed(text: str, title: str, section: str, targets: list[str], notes: str, date: str) -> str:
    """The results with this section in the place of the one of that title, or as the last; with its
    targets among the others, and the notes as they are now."""
    head, *sections = re.split(r"(?m)^(?=## )", text.partition(NOTES)[0])
    new = f"{section.rstrip()}\n\nMeasured by itself on {date}.\n\n"
    found = False
    for n, old in enumerate(sections):
        if old.startswith(f"## {title}\n"):
            sections[n], found = new, True
        elif old.startswith(TARGETS):
            sections[n] = _with(old, targets)
    return "".join([head, *sections, *([] if found else [new]), notes])


def _with(table: str, rows: list[str]) -> str:
    """Rows of the same name are replaced, others added."""
    lines = table.rstrip().splitlines()
    for row in rows:
        same = [n for n, line in enumerate(lines) if line[:1] == "|" and _name(line) == _name(row)]
        if same:
            lines[same[0]] = row
        else:
            lines.append(row)
    return "\n".join(lines) + "\n\n"


def _name(line: str) -> str:
    return line.split("|")[1].strip()
