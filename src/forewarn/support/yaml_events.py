"""YAML as it comes: values made from the parser's events, one at a time, so that nobody has to hold
a whole file.

Scalars mean what they mean to YAML 1.1 safe loading. Beyond that nothing can be had from a text:
no deep nesting, no expansion without end, no key twice. What a fleet is, is not known here; on
which line something stands is `yaml_positions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import yaml
from yaml.constructor import SafeConstructor

from forewarn.support.yaml_positions import Loader, Slices, YamlError, unreadable

MAX_DEPTH = 32  # of lists and mappings within each other
MAX_ALIASED = 2_000_000  # values that stand in a file only by way of its aliases

MAX_SCALAR = 100  # characters of a number, a time or a truth value
MAX_TEXT = 4_096  # characters of any value
MAX_KEYS = 1_000  # of a mapping that is read whole: of tags, labels and settings, few are allowed
MAX_SHOWN = 40  # characters of a wrong value in what is said about it

_RESOLVERS = {
    first: tuple(resolvers) for first, resolvers in Loader.yaml_implicit_resolvers.items()
}
_ANYWHERE = _RESOLVERS.get(None, ())
_TAG = "tag:yaml.org,2002:"
_PLAIN = {None, "!"}
_KINDS = {
    f"{_TAG}int": "whole number",
    f"{_TAG}float": "number",
    f"{_TAG}bool": "truth value",
    f"{_TAG}null": "null",
    f"{_TAG}timestamp": "timestamp",
}
_COLLECTIONS = {*_PLAIN, f"{_TAG}map", f"{_TAG}seq"}
_constructor = SafeConstructor()
MERGE = object()  # what a plain << means where a key is expected


class Events:
    """The events of one document, read once from front to back."""

    def __init__(self, text: str, kind: str, empty: str) -> None:
        """`kind` and `empty` are for errors: `a fleet`, and what an empty text should have."""
        self._kind = kind
        self._length = max(len(text), 1)
        self._anchors: dict[str, tuple[Any, int]] = {}  # the value, and of how many it is made
        self._named: set[str] = set()  # anchors, also those that are not whole yet
        self._made = self._aliased = 0
        self._depth = 0
        self._at = 0
        try:
            self._next: Callable[[], Any] = Loader(Slices(text)).get_event
        except yaml.YAMLError as error:  # a character that YAML does not have
            raise unreadable(error) from error
        self._begin(empty)

    @property
    def fraction(self) -> float:
        """How much of the text has been read."""
        return self._at / self._length

    def next(self) -> Any:
        try:
            event = self._next()
        except yaml.YAMLError as error:
            raise unreadable(error) from error
        return event

    def _begin(self, empty: str) -> None:
        self.next()  # the stream begins
        event = self.next()
        if type(event) is yaml.StreamEndEvent:
            raise YamlError(empty, line=1)

    def finish(self) -> None:
        self.next()  # the document ends
        event = self.next()
        if type(event) is not yaml.StreamEndEvent:
            raise YamlError(
                f"there is a second document; {self._kind} is one", mark=event.start_mark
            )

    def items(self) -> Iterator[Any]:
        """The events with which the items of a list begin, whose own event was taken already;
        the caller takes each item whole."""
        self._deeper()
        while type(event := self.next()) is not yaml.SequenceEndEvent:
            self._at = event.start_mark.index
            yield event
        self._depth -= 1

    def pairs(self) -> Iterator[tuple[Any, Any]]:
        """As `items`, of a mapping: each key, and the event with which its value begins. What a
        `MERGE` brings, `merged` says."""
        self._deeper()
        seen = set()
        while type(event := self.next()) is not yaml.MappingEndEvent:
            key = self._key(event)
            if key in seen:
                shown = "<<" if key is MERGE else key
                raise YamlError(f"key '{shown}' stands twice", mark=event.start_mark)
            seen.add(key)
            yield key, self.next()
        self._depth -= 1

    def _deeper(self, event: Any = None) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            mark = None if event is None else event.start_mark
            raise YamlError(f"it is nested too deeply (more than {MAX_DEPTH})", mark=mark)

    def value(self, event: Any) -> Any:
        """What begins with this event, taken whole."""
        self._made += 1
        kind = type(event)
        if kind is yaml.ScalarEvent:
            made = self._scalar(event)
            if event.anchor:
                self._name(event)
                self._anchors[event.anchor] = made, 1
            return made
        if kind is yaml.AliasEvent:
            return self._alias(event)
        if event.tag not in _COLLECTIONS:
            raise YamlError(f"tag '{event.tag}' has no meaning here", mark=event.start_mark)
        before = self._made
        if event.anchor:
            self._name(event)  # it means this once it is whole
        made = self._mapping(event) if kind is yaml.MappingStartEvent else self._list(event)
        if event.anchor:
            self._anchors[event.anchor] = made, self._made - before + 1
        return made

    def _name(self, event: Any) -> None:
        if event.anchor in self._named:
            raise YamlError(f"anchor '&{event.anchor}' stands twice", mark=event.start_mark)
        self._named.add(event.anchor)

    def _alias(self, event: Any) -> Any:
        found = self._anchors.get(event.anchor)
        if found is None:
            raise YamlError(
                f"alias '*{event.anchor}' comes before its anchor", mark=event.start_mark
            )
        made, size = found
        self._made += size
        self._aliased += size
        if self._aliased > MAX_ALIASED:
            raise YamlError(
                f"its aliases stand for more than {MAX_ALIASED:,} values", mark=event.start_mark
            )
        return made

    def _list(self, event: Any) -> list[Any]:
        self._deeper(event)
        made = []
        while type(event := self.next()) is not yaml.SequenceEndEvent:
            made.append(self.value(event))
        self._depth -= 1
        return made

    def _mapping(self, event: Any) -> dict[Any, Any]:
        self._deeper(event)
        made: dict[Any, Any] = {}
        merged: dict[Any, Any] | None = None
        while type(event := self.next()) is not yaml.MappingEndEvent:
            key = self._key(event)
            if key is MERGE:
                if merged is not None:
                    raise YamlError("key '<<' stands twice", mark=event.start_mark)
                merged = self.merged(self.next())
            elif key in made:
                raise YamlError(f"key '{key}' stands twice", mark=event.start_mark)
            elif len(made) == MAX_KEYS:
                says = f"a mapping has at most {MAX_KEYS:,} keys, and this one has more"
                raise YamlError(says, mark=event.start_mark)
            else:
                made[key] = self.value(self.next())
        self._depth -= 1
        return made if merged is None else {**merged, **made}

    def merged(self, event: Any) -> dict[Any, Any]:
        """What a << brings: a mapping, or several, of which the first to name a key wins."""
        found = self.value(event)
        several = found if isinstance(found, list) else [found]
        if not all(isinstance(one, dict) for one in several):
            raise YamlError("<< takes a mapping or a list of mappings", mark=event.start_mark)
        made: dict[Any, Any] = {}
        for one in reversed(several):
            made.update(one)
        return made

    def _key(self, event: Any) -> Any:
        if type(event) is yaml.ScalarEvent:
            if event.implicit[0] and event.value in ("<<", "=") and event.tag in _PLAIN:
                return MERGE if event.value == "<<" else "="
            return self.value(event)
        if type(event) is yaml.AliasEvent and not isinstance(
            found := self._alias(event), dict | list
        ):
            return found
        raise YamlError("a key is a plain value, not a list or mapping", mark=event.start_mark)

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
        says = f"the value has {len(text):,} characters; at most {MAX_TEXT:,} are allowed"
        raise YamlError(says, mark=event.start_mark)
    return text


def streams(event: Any, kind: Any) -> bool:
    """Can what begins here be taken piece by piece? Not if an alias may want it whole."""
    return type(event) is kind and not event.anchor and event.tag in _COLLECTIONS


def _constructed(tag: str, event: Any) -> Any:
    make = SafeConstructor.yaml_constructors.get(tag)
    if make is None or tag in (f"{_TAG}map", f"{_TAG}seq", f"{_TAG}set"):
        raise _wrong(event, f"means nothing here ({tag})")
    if len(event.value) > MAX_SCALAR and tag in _KINDS:
        raise _wrong(event, f"is no {_KINDS[tag]}")
    node = yaml.ScalarNode(tag, _text(event), event.start_mark, event.end_mark)
    try:
        return make(_constructor, node)
    except yaml.YAMLError as error:
        raise unreadable(error) from error
    except Exception as error:  # whatever a library makes of a value that is none
        raise _wrong(event, f"is no {_KINDS.get(tag, tag.removeprefix(_TAG))}") from error


def _wrong(event: Any, says: str) -> YamlError:
    shown = event.value if len(event.value) <= MAX_SHOWN else f"{event.value[:MAX_SHOWN]}…"
    return YamlError(f"'{shown}' {says}", mark=event.start_mark)
