"""Streaming YAML: values built one at a time from the parser's events, so that a large file is
never in memory as a whole.

Scalars are those of YAML 1.1 safe loading. Texts from unknown sources cannot do harm: nesting and
the expansion of aliases are limited, and duplicate keys are refused. Knows nothing of fleets; line
numbers are `positions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from forewarn.support.text import unstorable
from forewarn.support.yaml.positions import Loader, Slices, YamlError, unreadable

MAX_DEPTH = 32  # of nested lists and mappings
MAX_ALIASED = 2_000_000  # values that all aliases of a file expand to

MAX_SCALAR = 100  # characters of a number, timestamp or boolean
MAX_TEXT = 4_096  # characters of any value
MAX_KEYS = 1_000  # of a mapping that is read as a whole, such as tags and labels
MAX_SHOWN = 40  # characters of a wrong value in a message

_RESOLVERS = {
    first: tuple(resolvers) for first, resolvers in Loader.yaml_implicit_resolvers.items()
}
_ANYWHERE = _RESOLVERS.get(None, ())
_TAG = "tag:yaml.org,2002:"
_PLAIN = {None, "!"}
_KINDS = {
    f"{_TAG}int": "whole number",
    f"{_TAG}float": "number",
    f"{_TAG}bool": "boolean",
    f"{_TAG}null": "null",
    f"{_TAG}timestamp": "timestamp",
}
_COLLECTIONS = {*_PLAIN, f"{_TAG}map", f"{_TAG}seq"}
_constructor = SafeConstructor()
MERGE = object()  # the key `<<`


class Events:
    """The events of one document, read once from front to back."""

    def __init__(self, text: str, kind: str, empty: str) -> None:
        """`kind` (such as `a fleet`) and `empty`, the message for an empty text, are for errors."""
        self._kind = kind
        self._length = max(len(text), 1)
        self._anchors: dict[str, tuple[Any, int]] = {}  # the value, and how many values it contains
        self._anchor_names: set[str] = set()  # also of anchors whose value is not complete yet
        self._values = self._aliased = 0
        self._depth = 0
        self._at = 0
        try:
            self._next: Callable[[], Any] = Loader(Slices(text)).get_event
        except yaml.YAMLError as error:  # a character that YAML does not have
            raise unreadable(error) from error
        self._skip_start(empty)

    @property
    def fraction(self) -> float:
        """How much of the text has been read, from 0 to 1."""
        return self._at / self._length

    def next(self) -> Any:
        try:
            event = self._next()
        except yaml.YAMLError as error:
            raise unreadable(error) from error
        return event

    def _skip_start(self, empty: str) -> None:
        self.next()  # the stream begins
        event = self.next()
        if type(event) is yaml.StreamEndEvent:
            raise YamlError(empty, line=1)

    def finish(self) -> None:
        self.next()  # the document ends
        event = self.next()
        if type(event) is not yaml.StreamEndEvent:
            raise YamlError(
                f"there is a second document; {self._kind} must be a single one",
                mark=event.start_mark,
            )

    def items(self) -> Iterator[Any]:
        """Yield the first event of each item of a list, after the list's own start event.

        The caller has to consume each item, for example with `value`."""
        self._enter()
        while type(event := self.next()) is not yaml.SequenceEndEvent:
            self._at = event.start_mark.index
            yield event
        self._depth -= 1

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """Yield each key of a mapping and the first event of its value, like `items`.

        For the key `MERGE`, `merged` returns the merged values."""
        self._enter()
        keys = set()
        while type(event := self.next()) is not yaml.MappingEndEvent:
            key = self._key(event)
            if key in keys:
                shown = "<<" if key is MERGE else key
                raise YamlError(f"key '{shown}' occurs twice", mark=event.start_mark)
            keys.add(key)
            yield key, self.next()
        self._depth -= 1

    def _enter(self, event: Any = None) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            mark = None if event is None else event.start_mark
            raise YamlError(f"it is nested too deeply (more than {MAX_DEPTH})", mark=mark)

    def value(self, event: Any) -> Any:
        """Build the value that begins with this event."""
        self._values += 1
        kind = type(event)
        if kind is yaml.ScalarEvent:
            value = self._scalar(event)
            if event.anchor:
                self._define_anchor(event)
                self._anchors[event.anchor] = value, 1
            return value
        if kind is yaml.AliasEvent:
            return self._alias(event)
        if event.tag not in _COLLECTIONS:
            raise YamlError(
                f"tag '{event.tag}' is not supported; write a plain value", mark=event.start_mark
            )
        before = self._values
        if event.anchor:
            self._define_anchor(event)  # an alias inside it is refused: the value is not complete
        value = self._mapping(event) if kind is yaml.MappingStartEvent else self._list(event)
        if event.anchor:
            self._anchors[event.anchor] = value, self._values - before + 1
        return value

    def _define_anchor(self, event: Any) -> None:
        if event.anchor in self._anchor_names:
            raise YamlError(f"anchor '&{event.anchor}' occurs twice", mark=event.start_mark)
        self._anchor_names.add(event.anchor)

    def _alias(self, event: Any) -> Any:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            raise YamlError(
                f"alias '*{event.anchor}' comes before its anchor", mark=event.start_mark
            )
        value, size = anchored
        self._values += size
        self._aliased += size
        if self._aliased > MAX_ALIASED:
            raise YamlError(
                f"its aliases expand to more than {MAX_ALIASED:,} values", mark=event.start_mark
            )
        return value

    def _list(self, event: Any) -> list[Any]:
        self._enter(event)
        items = []
        while type(event := self.next()) is not yaml.SequenceEndEvent:
            items.append(self.value(event))
        self._depth -= 1
        return items

    def _mapping(self, event: Any) -> dict[Any, Any]:
        self._enter(event)
        mapping: dict[Any, Any] = {}
        merged: dict[Any, Any] | None = None
        while type(event := self.next()) is not yaml.MappingEndEvent:
            key = self._key(event)
            if key is MERGE:
                if merged is not None:
                    raise YamlError("key '<<' occurs twice", mark=event.start_mark)
                merged = self.merged(self.next())
            elif key in mapping:
                raise YamlError(f"key '{key}' occurs twice", mark=event.start_mark)
            elif len(mapping) == MAX_KEYS:
                message = f"a mapping can have at most {MAX_KEYS:,} keys; this one has more"
                raise YamlError(message, mark=event.start_mark)
            else:
                mapping[key] = self.value(self.next())
        self._depth -= 1
        return mapping if merged is None else {**merged, **mapping}

    def merged(self, event: Any) -> dict[Any, Any]:
        """Return what `<<` merges: one mapping, or several, of which the first with a key wins."""
        value = self.value(event)
        mappings = value if isinstance(value, list) else [value]
        if not all(isinstance(source, dict) for source in mappings):
            raise YamlError("<< takes a mapping or a list of mappings", mark=event.start_mark)
        mapping: dict[Any, Any] = {}
        for source in reversed(mappings):
            mapping.update(source)
        return mapping

    def _key(self, event: Any) -> Any:
        if type(event) is yaml.ScalarEvent:
            if event.implicit[0] and event.value in ("<<", "=") and event.tag in _PLAIN:
                return MERGE if event.value == "<<" else "="
            return self.value(event)
        if type(event) is yaml.AliasEvent and not isinstance(
            value := self._alias(event), dict | list
        ):
            return value
        raise YamlError("a key must be a scalar, not a list or mapping", mark=event.start_mark)

    def _scalar(self, event: Any) -> Any:
        text = event.value
        if event.tag in _PLAIN:
            if not event.implicit[0]:
                return _text(event)
            tag = None
            for candidate, pattern in _RESOLVERS.get(text[:1], ()):
                if pattern.match(text):
                    tag = candidate
                    break
            else:
                for candidate, pattern in _ANYWHERE:
                    if pattern.match(text):
                        tag = candidate
                        break
            if tag is None:
                return _text(event)
        else:
            tag = event.tag
        return _constructed(tag, event)


def _text(event: Any) -> str:
    text: str = event.value
    if len(text) > MAX_TEXT:
        message = f"the value has {len(text):,} characters; at most {MAX_TEXT:,} are allowed"
        raise YamlError(message, mark=event.start_mark)
    if event.style == '"' and (character := unstorable(text)):  # others have no escapes
        message = f"the value contains the character {character}, which cannot be stored"
        raise YamlError(message, mark=event.start_mark)
    return text


def streams(event: Any, kind: Any) -> bool:
    """Can the value that begins here be read item by item? Not if it has an anchor, because an
    alias may need it as a whole."""
    return type(event) is kind and not event.anchor and event.tag in _COLLECTIONS


def _constructed(tag: str, event: Any) -> Any:
    construct = SafeConstructor.yaml_constructors.get(tag)
    if construct is None or tag in (f"{_TAG}map", f"{_TAG}seq", f"{_TAG}set"):
        raise _scalar_error(event, f"has an unknown tag ({tag})")
    if len(event.value) > MAX_SCALAR and tag in _KINDS:
        raise _scalar_error(event, f"is not a valid {_KINDS[tag]}")
    node = yaml.ScalarNode(tag, _text(event), event.start_mark, event.end_mark)
    try:
        return construct(_constructor, node)
    except yaml.YAMLError as error:
        raise unreadable(error) from error
    except Exception as error:  # the library raises all kinds of errors for invalid values
        raise _scalar_error(
            event, f"is not a valid {_KINDS.get(tag, tag.removeprefix(_TAG))}"
        ) from error


def _scalar_error(event: Any, message: str) -> YamlError:
    shown = event.value if len(event.value) <= MAX_SHOWN else f"{event.value[:MAX_SHOWN]}…"
    return YamlError(f"'{shown}' {message}", mark=event.start_mark)
