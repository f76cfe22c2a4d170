"""Places in a text: a path into what it says, the line where that stands, and the error that tells
both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import yaml

Where: TypeAlias = tuple[str | int, ...]  # ("groups", 2, "machines", 0, "name")
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same, where C is built in


SLICE = 16 * 1024  # characters of a text that a parser is given at a time


class Slices:
    """A text as a file object that is read in slices.

    The C parser holds the interpreter's lock until it has found the next event, which may take
    long, for example in a long comment. Each call of `read` lets other threads run."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self, size: int) -> str:
        begin = self._at
        self._at += min(size, SLICE)
        return self._text[begin : self._at]


class FleetError(Exception):
    """The text cannot be used: where, and what would be right. Prefix it with the file's name."""

    def __init__(
        self, says: str, path: Where = (), line: int | None = None, mark: Any = None
    ) -> None:
        super().__init__(says)
        self.says = says
        self.path = path
        self.line = mark.line + 1 if mark is not None else line
        self.index: int | None = mark.index if mark is not None else None

    @property
    def field(self) -> str:
        return written(self.path)

    def __str__(self) -> str:
        return self.named("")

    def named(self, file: str) -> str:
        """`fleet.yaml:17: groups[2].name: …`; without a file `line 17: …`."""
        if self.line is not None:
            file = f"{file}:{self.line}" if file else f"line {self.line}"
        return ": ".join(part for part in (file, self.field, self.says) if part)


def written(path: Where) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def line_of(event: Any) -> int:
    line: int = event.start_mark.line
    return line + 1


def unreadable(error: yaml.YAMLError) -> FleetError:
    """The parser's complaint in one line, and where."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    parts = [getattr(error, "context", None), getattr(error, "problem", None)]
    says = ", ".join(part for part in parts if part) or " ".join(str(error).split())
    return FleetError(f"not YAML: {says}", line=1, mark=mark)


def placed(error: FleetError, text: str) -> FleetError:
    """The error with both line and field, whichever of them it knew."""
    if error.index is not None:
        return FleetError(error.says, path_to(text, error.index), error.line)
    line = error.line if error.line is not None else locate(text, error.path)[0]
    return FleetError(error.says, error.path, line)


def path_to(text: str, index: int) -> Where:
    """What stands at this character of the text, as far as it can be read."""
    events = Loader(Slices(text)).get_event
    steps: list[str | int] = []  # into each collection that is open
    keyed: list[bool | None] = []  # is a key expected there? None: it is a list
    try:
        while type(event := events()) is not yaml.StreamEndEvent:
            if isinstance(event, yaml.CollectionEndEvent):
                steps.pop(), keyed.pop()
                continue
            if not isinstance(event, yaml.NodeEvent):
                continue
            if keyed and keyed[-1] is None:
                steps[-1] = int(steps[-1]) + 1
            elif keyed:
                if keyed[-1]:
                    steps[-1] = getattr(event, "value", "?")
                keyed[-1] = not keyed[-1]
            if event.start_mark is not None and event.start_mark.index >= index:
                break
            if isinstance(event, yaml.CollectionStartEvent):
                listed = type(event) is yaml.SequenceStartEvent
                steps.append(-1 if listed else "")
                keyed.append(None if listed else True)
    except yaml.YAMLError:
        pass
    return tuple(step for step in steps if step not in (-1, ""))


def locate(text: str, path: Where) -> tuple[int, int]:
    """The line of what stands at the path, and how many steps of it were found: what came by way
    of an alias or a merge has the line of that. For errors: it reads the text once more."""
    events = Loader(Slices(text)).get_event
    try:
        events(), events()  # the stream and the document begin
        event = events()
        line = line_of(event)
        for found, step in enumerate(path):
            there = _step(events, event, step)
            if there is None:
                return line, found
            line, event = there
        return line, len(path)
    except yaml.YAMLError as error:
        return unreadable(error).line or 1, 0


def lines(text: str, depth: int) -> dict[Where, int]:
    """The lines of all that is at most so many steps into a text that could be read."""
    events = Loader(Slices(text)).get_event
    events(), events()  # the stream and the document begin
    found: dict[Where, int] = {}
    _collect(events, events(), (), depth, found)
    return found


def _collect(
    events: Callable[[], Any], event: Any, path: Where, depth: int, found: dict[Where, int]
) -> None:
    if depth == 0:
        _skip(events, event)
    elif type(event) is yaml.SequenceStartEvent:
        index = 0
        while type(event := events()) is not yaml.SequenceEndEvent:
            found[*path, index] = line_of(event)
            _collect(events, event, (*path, index), depth - 1, found)
            index += 1
    elif type(event) is yaml.MappingStartEvent:
        while type(key := events()) is not yaml.MappingEndEvent:
            _skip(events, key)
            here = (*path, getattr(key, "value", "?"))
            found[here] = line_of(key)
            _collect(events, events(), here, depth - 1, found)


def _step(events: Callable[[], Any], event: Any, step: str | int) -> tuple[int, Any] | None:
    """One step into what begins with this event."""
    if isinstance(step, int):
        if type(event) is not yaml.SequenceStartEvent:
            return None
        for _ in range(step):
            if type(event := events()) is yaml.SequenceEndEvent:
                return None
            _skip(events, event)
        event = events()
        return None if type(event) is yaml.SequenceEndEvent else (line_of(event), event)
    if type(event) is not yaml.MappingStartEvent:
        return None
    while type(key := events()) is not yaml.MappingEndEvent:
        _skip(events, key)
        event = events()
        if type(key) is yaml.ScalarEvent and key.value == step:
            return line_of(key), event
        _skip(events, event)
    return None


def _skip(events: Callable[[], Any], event: Any) -> None:
    depth = int(isinstance(event, yaml.CollectionStartEvent))
    while depth:
        event = events()
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
