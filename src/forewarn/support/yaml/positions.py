"""Positions in a YAML text: the path into its values, the line of a path, and the error that has
both."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

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


class YamlError(Exception):
    """A text that cannot be used: what is wrong, and where, as values.

    Readers of a particular kind of file derive their own error from it.
    """

    def __init__(
        self,
        message: str,
        path: Where = (),
        line: int | None = None,
        mark: Any = None,
        suggestion: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.line = mark.line + 1 if mark is not None else line
        self.column: int | None = mark.column + 1 if mark is not None else None
        self.index: int | None = mark.index if mark is not None else None
        self.suggestion = suggestion  # the name that was probably meant

    @property
    def field(self) -> str:
        return written(self.path)

    def __str__(self) -> str:
        return self.named("")

    def named(self, file: str) -> str:
        """`fleet.yaml:17: groups[2].name: …`; without a file `line 17: …`."""
        if self.line is not None:
            file = f"{file}:{self.line}" if file else f"line {self.line}"
        return ": ".join(part for part in (file, self.field, self.message) if part)


class Problems:
    """Everything that is wrong with a file, collected while the rest of it is read."""

    def __init__(self) -> None:
        self.errors: list[YamlError] = []

    def add(self, error: YamlError) -> None:
        self.errors.append(error)

    def collected(self) -> Problems:
        """Collect an error that is raised in the block, and continue after the block."""
        return self  # no object for each block: there is one for every machine of a fleet

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if not isinstance(error, YamlError):
            return False
        self.add(error)
        return True


E = TypeVar("E", bound=YamlError)


def written(path: Where) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def line_of(event: Any) -> int:
    line: int = event.start_mark.line
    return line + 1


def unreadable(error: yaml.YAMLError) -> YamlError:
    """Return the parser's error as one of ours: in one line, with its position."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    parts = [getattr(error, "context", None), getattr(error, "problem", None)]
    message = ", ".join(part for part in parts if part) or " ".join(str(error).split())
    return YamlError(f"not YAML: {message}", line=1, mark=mark)


def placed(error: YamlError, text: str, kind: type[E]) -> E:
    """Return the error as one of this kind, with both line and field, whichever of them it has."""
    if error.index is not None:
        path, line = path_to(text, error.index), error.line
    else:
        path = error.path
        line = error.line if error.line is not None else locate(text, path)[0]
    return kind(error.message, path, line, suggestion=error.suggestion)


def all_placed(errors: Sequence[YamlError], text: str, kind: type[E]) -> list[E]:
    """Return errors as `placed` does, in the order of their lines, each once. The text is read
    once for all of them."""
    lines = _lines_of(text, [error.path for error in errors if error.line is None])
    with_lines = [
        kind(error.message, error.path, lines[error.path], suggestion=error.suggestion)
        if error.line is None
        else placed(error, text, kind)
        for error in errors
    ]
    ordered = sorted(with_lines, key=lambda error: error.line or 0)
    return list({(error.line, error.path, error.message): error for error in ordered}.values())


def path_to(text: str, index: int) -> Where:
    """Return the path to what is at this character of the text, as far as it can be read."""
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
    """Return the line of what is at the path, and how many steps of the path exist in the text.

    What came from an alias or a merge has the line of that. Meant for errors: it reads the text
    once more."""
    events = Loader(Slices(text)).get_event
    try:
        events(), events()  # the stream and the document begin
        event = events()
        line = line_of(event)
        for steps, step in enumerate(path):
            value = _step(events, event, step)
            if value is None:
                return line, steps
            line, event = value
        return line, len(path)
    except yaml.YAMLError as error:
        return unreadable(error).line or 1, 0


def _lines_of(text: str, paths: Collection[Where]) -> dict[Where, int]:
    """Return the line of what is at each path, or of as much of the path as exists."""
    wanted = {path[:steps] for path in paths for steps in range(len(path) + 1)}
    found: dict[Where, int] = {}
    if not wanted:
        return found
    events = Loader(Slices(text)).get_event
    with suppress(yaml.YAMLError):
        events(), events()  # the stream and the document begin
        event = events()
        found[()] = line_of(event)
        _collect(events, event, (), wanted.__contains__, found)
    return {
        path: next((found[path[:n]] for n in range(len(path), -1, -1) if path[:n] in found), 1)
        for path in paths
    }


def lines(text: str, depth: int) -> dict[Where, int]:
    """Return the lines of all paths of at most `depth` steps. The text is valid YAML."""
    events = Loader(Slices(text)).get_event
    events(), events()  # the stream and the document begin
    lines_by_path: dict[Where, int] = {}
    _collect(events, events(), (), lambda path: len(path) <= depth, lines_by_path)
    return lines_by_path


def _collect(
    events: Callable[[], Any],
    event: Any,
    path: Where,
    wanted: Callable[[Where], bool],
    lines: dict[Where, int],
) -> None:
    """Collect the lines of the paths below this one that are wanted; the others are skipped."""
    if type(event) is yaml.SequenceStartEvent:
        index = 0
        while type(event := events()) is not yaml.SequenceEndEvent:
            _collect_value(events, event, (*path, index), line_of(event), wanted, lines)
            index += 1
    elif type(event) is yaml.MappingStartEvent:
        while type(key := events()) is not yaml.MappingEndEvent:
            _skip(events, key)
            here = (*path, getattr(key, "value", "?"))
            _collect_value(events, events(), here, line_of(key), wanted, lines)


def _collect_value(
    events: Callable[[], Any],
    event: Any,
    path: Where,
    line: int,
    wanted: Callable[[Where], bool],
    lines: dict[Where, int],
) -> None:
    if wanted(path):
        lines.setdefault(path, line)
        _collect(events, event, path, wanted, lines)
    else:
        _skip(events, event)


def _step(events: Callable[[], Any], event: Any, step: str | int) -> tuple[int, Any] | None:
    """Take one step into the value that begins with this event: its line and first event."""
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
