"""Adds the dates of calendars to the text of a fleet file: `blackouts: [{calendar: holidays.ics}]`.

Whoever reads the file from disk does this: the `apply` command, and a service that is given a file.
The service never reads a file that a request names. Only the entries themselves are changed, so
that lines stay where they are, and mistakes in the rest of the text are reported as if it were the
file.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from forewarn.service.fleet.build import FleetError
from forewarn.service.fleet.calendar import CalendarError, load_blackouts, no_events
from forewarn.support import extras
from forewarn.support.instants import Time
from forewarn.support.text import visible
from forewarn.support.yaml.positions import Loader, Slices, Where


def with_dates(
    text: str,
    directory: Path,
    now: Callable[[], Time],
    note: Callable[[str], None] = lambda _: None,
) -> str:
    """Return a fleet file with the dates of its calendars, whose paths are relative to `directory`.

    `note` is called with what is worth knowing about a calendar. Raises FleetError with all
    calendars that cannot be read; a text that is not YAML is returned as it is.
    """
    if "calendar" not in text:
        return text
    text = text.removeprefix("\ufeff")  # which the parser does not count
    parts: list[str] = []
    problems: list[FleetError] = []
    done = 0  # characters of the text
    for entry in _entries(text):
        name = entry.file.value
        try:
            extras.need("server", "reading a calendar")
            dates = load_blackouts(directory / name, now())
        except (extras.MissingExtraError, CalendarError) as error:
            line = entry.file.start_mark.line + 1
            problems.append(FleetError(f"{visible(name)}: {error}", entry.path, line))
            continue
        if not dates:
            note(no_events(visible(name)))
        added = f', "dates": {_quoted(dates)}'
        begin, end = entry.key.start_mark, entry.file.end_mark
        if entry.start.flow_style:
            parts += [text[done : end.index], added]
        else:  # put it in braces; line feeds keep the lines of what follows
            lines = f"\n{' ' * begin.column}" * (end.line - begin.line)
            entry_text = f'{{"calendar": {_quoted(name)}{added}{lines}}}'
            parts += [text[done : begin.index], entry_text]
        done = end.index
    if problems:
        problems[0].others = tuple(problems[1:])
        raise problems[0]
    return "".join([*parts, text[done:]])


class _Entry(NamedTuple):
    """A mapping in a list of blackouts whose only key is `calendar`: where it is, and the events of
    the parser."""

    path: Where
    start: Any
    key: Any
    file: Any


def _entries(text: str) -> Iterator[_Entry]:
    recent: deque[Any] = deque(maxlen=4)
    steps: list[str | int | None] = []  # into each open collection; None: a key comes next
    for event in _events(text):
        recent.append(event)
        if isinstance(event, yaml.CollectionEndEvent):
            steps.pop()
            if len(steps) > 1 and steps[-2] == "blackouts" and _is_calendar(*recent):
                path = tuple(step for step in steps if step is not None)
                yield _Entry((*path, "calendar"), *list(recent)[:3])
        elif isinstance(event, yaml.CollectionStartEvent):
            steps.append(0 if type(event) is yaml.SequenceStartEvent else None)
            continue
        if steps:
            step = steps[-1]
            after = getattr(event, "value", "?") if step is None else None
            steps[-1] = step + 1 if isinstance(step, int) else after


def _quoted(value: str | list[str]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _events(text: str) -> Iterator[Any]:
    try:
        next_event = Loader(Slices(text)).get_event
        while (event := next_event()) is not None:
            if isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent):
                yield event
    except yaml.YAMLError:
        return  # what is wrong is reported when the text is parsed


def _is_calendar(start: Any, key: Any, file: Any, end: Any) -> bool:
    return (
        type(start) is yaml.MappingStartEvent
        and type(key) is type(file) is yaml.ScalarEvent
        and type(end) is yaml.MappingEndEvent
        and key.value == "calendar"
    )
