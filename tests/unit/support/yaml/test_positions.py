"""YAML read event by event means what it means to safe loading, and cannot be used against us."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from forewarn.support.yaml.events import Events
from forewarn.support.yaml.positions import YamlError, locate, path_to, placed

PLAIN = [
    "null",
    "~",
    "Null",
    "NULL",
    "true",
    "True",
    "TRUE",
    "yes",
    "Yes",
    "on",
    "off",
    "no",
    "NO",
    "y",
    "n",
    "false",
    "0",
    "7",
    "-7",
    "+12",
    "0x1F",
    "0b101",
    "0o14",
    "014",
    "1_000",
    "12:30:45",
    "1.5",
    "-1.5e3",
    "1e3",
    ".5",
    ".inf",
    "-.inf",
    ".NaN",
    "1:30.5",
    "2001-12-14",
    "2001-12-14t21:59:43.10-05:00",
    "=",
    "<<",
    "abc",
    "10.0.0.1",
    "fd00::1",
    "-foo",
    "a:b",
    "a#b",
    "é",
    "08",
    "1__0",
    "0x",
    ".",
    "..",
    "...",
    "+",
    "-",
    "1.",
    "3.e",
    "6e+1",
    ".e1",
    "12e03",
    "~foo",
    "nullx",
    "true1",
]
LINES = [
    "a: 1",
    "b:",
    "c: &x {k: 1, l: 2}",
    "d: *x",
    "<<: *x",
    "e: [*x, 2]",
    "- 3",
    "- *x",
    "<<: [*x, *y]",
    "f: &y {l: 3, m: 4}",
    "k: mine",
    "? g",
    ": h",
    "- &y {n: 1}",
    "'<<': 5",
    "=: 6",
    "i: !!str 5",
    "j: |",
    "  text",
    "l: >-",
    "# note",
    "m: 'a",
    "b'",
    "---",
    "...",
]


STRICTER = (
    "occurs twice",
    "before its anchor",
    "be a scalar",
    "is empty",
    "is not supported",
)


def read(text: str) -> Any:
    events = Events(text, "a fleet", "it is empty; a fleet has at least groups")
    value = events.value(events.next())
    events.finish()
    return value


def attempted(text: str) -> tuple[Any, str]:
    try:
        return read(text), ""
    except YamlError as error:
        return None, str(error)


@pytest.mark.parametrize(
    "form", ["{}", "k: {}", "- {}", "{{{}: v}}", "[{}]", "'{}'", '"{}"', "!!str {}"]
)
def test_a_scalar_means_what_it_means_to_safe_loading(form: str) -> None:
    for text in map(form.format, PLAIN):
        try:
            expected = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, AttributeError, TypeError):
            assert attempted(text)[1], text
        else:
            assert (text, repr(read(text))) == (text, repr(expected))


_texts = st.characters(exclude_characters="\0", exclude_categories=["Cs"])  # which are refused
_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(_texts, max_size=12)
    | st.sampled_from(PLAIN)
    | st.dates()
    | st.binary(max_size=6)
)
_values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(_texts, max_size=5) | st.sampled_from(PLAIN), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(_values, st.sampled_from([None, True, False]), st.booleans())
def test_any_written_value_is_read_as_safe_loading_would(
    value: Any, flow: bool | None, unicode: bool
) -> None:
    text = yaml.safe_dump(value, default_flow_style=flow, allow_unicode=unicode)
    assert read(text) == yaml.safe_load(text)


_lines = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(LINES)), max_size=8)


@given(_lines)
@example([(0, "c: &x {k: 1, l: 2}"), (0, "f: &y {l: 3, m: 4}"), (0, "b:"), (2, "<<: [*x, *y]")])
@example([(0, "c: &x {k: 1, l: 2}"), (0, "b:"), (2, "k: mine"), (2, "<<: *x")])
@example([(0, "- &y {n: 1}"), (0, "- &y {n: 1}")])
@example([(0, "- &y 1"), (0, "- &y 2")])
def test_any_text_is_read_as_safe_loading_reads_it_or_refused(lines: list[tuple[int, str]]) -> None:
    text = "\n".join("  " * depth + line for depth, line in lines)
    found, refusal = attempted(text)
    try:
        expected = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, TypeError):
        assert refusal
    else:
        assert found == expected or any(word in refusal for word in STRICTER)


def test_anchors_aliases_and_merges_work() -> None:
    text = """
base: &base {spot: true, host: a}
more: &more {host: b, tags: {k: v}}
one: {<<: *base, host: c}
two: {<<: [*base, *more], name: n}
all: [*base, *base]
"""
    found = read(text)
    assert found["one"] == {"spot": True, "host": "c"}
    assert found["two"] == {"spot": True, "host": "a", "tags": {"k": "v"}, "name": "n"}
    assert found["all"] == [{"spot": True, "host": "a"}] * 2
    assert found == yaml.safe_load(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nb: 2\na: 3", "line 3: a: key 'a'"),
        ("x:\n- {b: 1, c: 2,\n   b: 3}", "line 3: x[0].b: key 'b'"),
        ("a: {<<: {b: 1}, <<: {c: 1}}", "line 1: a.<<: key '<<'"),
        ("a: [1, *none]", "line 1: a[1]: alias '*none'"),
        ("a: &a [*a]", "line 1: a[0]: alias '*a'"),
        ("a:\n  <<: 3", "line 2: a.<<: << takes"),
        ("a: !!python/object:os.system x", "unknown tag"),
        ("a: !thing {}", "line 1: a: tag '!thing'"),
        ("{[1]: 2}", "a scalar"),
        ("a: 2001-13-45", "line 1: a: '2001-13-45'"),
        ("a: 1\n---\nb: 2", "line 2: there is a second"),
        ("a: [1,\nb: }", "line 2: "),
    ],
)
def test_invalid_yaml_is_refused_with_line_and_field(text: str, says: str) -> None:
    with pytest.raises(YamlError) as refusal:
        read(text)
    assert says in str(placed(refusal.value, text, YamlError))


def test_exploding_aliases_are_refused_early() -> None:
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    for n in range(1, 100):
        text += f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n"
    with pytest.raises(YamlError, match="2,000,000 values"):
        read(text)


@pytest.mark.parametrize("text", ["[", "{a: ", "- ", "a: ["])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(YamlError, match=r"nested too deeply|not YAML"):
        read(text * 1_000_000)
    with pytest.raises(YamlError, match="nested too deeply"):
        read("[" * 33 + "]" * 33)
    assert read("[" * 32 + "]" * 32)


TEXT = "a: 1\nb:\n  - x\n  - {c: 2,\n     d: 3}\ne: &e {f: 4}\ng: *e\n"


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ((), (1, 0)),
        (("a",), (1, 1)),
        (("b", 0), (3, 2)),
        (("b", 1, "d"), (5, 3)),
        (("b", 7), (2, 1)),
        (("e", "f"), (6, 2)),
        (("g", "f"), (7, 1)),  # it came by an alias, which stands here
        (("none",), (1, 0)),
    ],
)
def test_a_place_has_a_line(path: tuple[str | int, ...], line: tuple[int, int]) -> None:
    assert locate(TEXT, path) == line


def test_a_character_has_a_place() -> None:
    assert path_to(TEXT, TEXT.index("d: 3")) == ("b", 1, "d")
    assert path_to(TEXT, TEXT.index("x")) == ("b", 0)
