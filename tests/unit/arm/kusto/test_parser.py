"""Queries in the Kusto Query Language, compared with what Python makes of the same rows."""

from __future__ import annotations

import contextlib
import gc
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forewarn.arm.kusto import rows as r
from forewarn.arm.kusto.parser import MAX_DEPTH, MAX_QUERY, MAX_STEPS, parse
from forewarn.arm.kusto.rows import KustoError, Row

COLUMNS = ("id", "name", "type", "location", "tags", "properties")
TABLES = {"Resources": COLUMNS}
VM, SET = "microsoft.compute/virtualmachines", "microsoft.compute/availabilitysets"
SAMPLE = [
    {
        "id": f"/subscriptions/s/resourceGroups/g/providers/{type}/{name}",
        "name": name,
        "type": type,
        "location": location,
        "tags": tags,
        "properties": {"os": {"osType": os}, "zones": ["1", "2"], "count": number, "on": True},
    }
    for name, type, location, tags, os, number in [
        ("web-1", VM, "west", {"environment": "Internal"}, "Linux", 3),
        ("web-2", VM, "east", {}, "Windows", 10),
        ("Web", VM, "west", {"my tag": "it's"}, "Linux", None),
        ("sql", SET, "east", {"environment": "prod"}, None, 2.5),
    ]
]


def run(text: str, rows: list[dict[str, Any]] = SAMPLE) -> list[dict[str, Any]]:
    """Return the rows of a result. Of each row, the properties are made when they are read."""

    def source() -> Iterator[Row | None]:
        for row in rows:
            yield None
            shown = {name: value for name, value in row.items() if name != "properties"}
            yield Row(shown, row.__getitem__)

    _, query = parse(text, TABLES)
    found = [row for row in query.run(source()) if row is not None]
    return [{name: row[name] for name in query.columns} for row in found]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("| summarize count()", [{"count_": 4}]),
        ("| where name == 'none' | summarize count()", [{"count_": 0}]),
        ("| count", [{"Count": 4}]),
        ("| project Name, location | order by name asc | take 1", [("Web", "west")]),
        (
            "| project name, type | where type =~ 'Microsoft.Compute/AvailabilitySets'",
            [("sql", SET)],
        ),
        ("| where type has 'availabilitysets' | project name", [("sql",)]),
        ("| where type has 'availability' | project name", []),
        ("| where type has '/availabilitySets' | project name", [("sql",)]),
        ("| where type has '/availabilitySet' or type has 'ompute/' | project name", []),
        ("| where id has 'g/providers/' and ['name'] =~ 'SQL' | project ['name']", [("sql",)]),
        ("| project name | top 2 by name desc", [("web-2",), ("web-1",)]),
        ("| project name | top 1 by name", [("web-2",)]),
        (
            "| extend os = properties.os.osType | summarize count() by tostring(os)",
            [("Linux", 2), ("Windows", 1), ("", 1)],
        ),
        (
            "| summarize count() by tostring(properties.os.osType)",
            [{"properties_os_osType": "Linux", "count_": 2}, ("Windows", 1), ("", 1)],
        ),
        (
            "| project id, type, location | where type =~ 'Microsoft.Compute/virtualMachines'"
            " | summarize count() by location | top 3 by count_",
            [("west", 2), ("east", 1)],
        ),
        (
            "| summarize n = count() by place = location | where n > 1 | sort by place",
            [("west", 2), ("east", 2)],
        ),
        (
            "| where tags.environment=~'internal' | project name, tags",
            [("web-1", {"environment": "Internal"})],
        ),
        (
            "| where tags['my tag'] == \"it's\" or tags['my tag'] == 'it\\'s' | project name",
            [("Web",)],
        ),
        (
            "| where isnotempty(tags.environment) | project x = toupper(name)",
            [("WEB-1",), ("SQL",)],
        ),
        (
            "| where isempty(tags.environment) and not(name startswith 'web-') | project name",
            [("Web",)],
        ),
        ("| where name !startswith 'WEB' | project name", [("sql",)]),
        ("| where name startswith_cs 'W' | project name", [("Web",)]),
        ("| where location in ('west') and name !in~ ('WEB') | project name", [("web-1",)]),
        ("| distinct location", [("west",), ("east",)]),
        ("| project type | distinct *", [(VM,), (SET,)]),
        (
            "| where properties.on == true and properties.count >= 2.5 | project name",
            [("web-1",), ("web-2",), ("sql",)],
        ),
        ("| where properties.count != 10 | where properties.count < 3 | project name", [("sql",)]),
        ("| where properties.count <> 10 and location <> 'west' | project name", [("sql",)]),
        (
            "| where name == 'sql' | project split(id, '/')[2], split(id, '/', 6)[0],"
            " tolower(name), properties.zones[-1]",
            [
                {
                    "Column1": "s",
                    "Column2": "microsoft.compute",
                    "Column3": "sql",
                    "properties_zones_-1": "2",
                }
            ],
        ),
        (
            "| sort by tostring(location) asc, properties.count desc | project name",
            [("web-2",), ("sql",), ("web-1",), ("Web",)],
        ),
        (
            "| sort by properties.count nulls first | project name",
            [("Web",), ("web-2",), ("web-1",), ("sql",)],
        ),
        (
            "| sort by properties.count asc | project name",
            [("Web",), ("sql",), ("web-1",), ("web-2",)],
        ),
        ("| sort by properties.count asc nulls last | take 1 | project name", [("sql",)]),
        (
            "// all of them\n | where name == 'sql' // but one\n"
            "| extend name = location | project name",
            [("east",)],
        ),
        ("| take 0", []),
        (
            "| where tags contains 'internal' | project name, TAGS.environment",
            [("web-1", "Internal")],
        ),
        ("| where (name == 'sql') == false and (name =~ 'web') != true | count", [(2,)]),
    ],
)
def test_a_query_gives_the_rows_that_kusto_gives(steps: str, expected: list[Any]) -> None:
    found = run(f"resources {steps}")
    shown = [
        row if isinstance(one, dict) else tuple(row.values())
        for row, one in zip(found, expected, strict=True)
    ]
    assert shown == expected


@pytest.mark.parametrize(
    ("text", "at", "named"),
    [
        ("", 1, "Resources"),
        ("Machines", 1, "Resources"),
        ("Resources where", 11, "'|'"),
        ("Resources | join kind=inner (Resources) on id", 13, "summarize"),
        ("Resources | project-away id", 13, "'project-away'"),
        ("Resources | where", 18, "a column"),
        ("Resources | where name", 19, "true or false"),
        ("Resources | where name == 'a' and name", 35, "true or false"),
        ("Resources | where nam == 'a'", 19, "location"),
        ("Resources | where name matches regex '.*'", 24, "contains"),
        ("Resources | where name !like 'a'", 24, "!contains"),
        ("Resources | where name = 'a'", 24, "=~"),
        ("Resources | where name == 'a", 27, "'a"),
        (r"Resources | where name == 'C:\Users'", 27, r"\Users"),
        ("Resources | where name > 'a'", 26, "a number"),
        ("Resources | where name == a", 27, "column"),
        ("Resources | where name in 'a'", 27, "'('"),
        ("Resources | where name in ()", 28, "a column"),
        ("Resources | where name in ('a' 'b')", 32, "')'"),
        ("Resources | where not(name)", 19, "not(name == 'web')"),
        ("Resources | where split(name) == 'a'", 19, "split(id, '/')"),
        ("Resources | where ago(1h) == 'a'", 19, "tolower"),
        ("Resources | where name == 'a' ; drop", 31, "'|'"),
        ("Resources | where tags. == 'a'", 25, "property"),
        ("Resources | where ['nam'] == 'a'", 20, "location"),
        ("Resources | where ['name' == 'a'", 27, "']'"),
        ("Resources | where [name] == 'a'", 19, "a column"),
        ("Resources | where [0] == 'a'", 19, "a column"),
        ("Resources | where tags[name] == 'a'", 24, "number"),
        ("Resources | take many", 18, "number of rows"),
        ("Resources | take -1", 18, "number of rows"),
        ("Resources | top 3", 18, "'by'"),
        ("Resources | summarize sum(name)", 23, "'count'"),
        ("Resources | sort name", 18, "'by'"),
        ("Resources | project id, x = name, x = id", 35, "twice"),
        ("Resources | project id | where name == 'a'", 32, "there are id"),
        ("Resources | ", 13, "operator"),
        ("Resources | where " + "(" * MAX_DEPTH + "name", 19 + MAX_DEPTH, "nested"),
        ("Resources" + " | count" * (MAX_STEPS + 1), 13 + 8 * MAX_STEPS, str(MAX_STEPS)),
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_its_position(text: str, at: int, named: str) -> None:
    with pytest.raises(KustoError, match=f"^at character {at}: ") as refused:
        parse(text, TABLES)
    assert named in str(refused.value)


def test_a_query_of_a_megabyte_is_refused() -> None:
    with pytest.raises(KustoError, match=f"{MAX_QUERY:,} characters, not 1,000,009"):
        parse("Resources" + " " * 1_000_000, TABLES)


def test_rows_that_are_kept_and_texts_that_are_made_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(r, "MAX_KEPT", 3)
    for step in ("sort by name", "top 1 by name", "distinct name", "sample 1"):
        with pytest.raises(KustoError, match="at most 3 rows"):
            run(f"Resources | {step}")
    assert run("Resources | summarize count() by location") != []
    monkeypatch.setattr(r, "MAX_KEPT", 4)
    monkeypatch.setattr(r, "MAX_BYTES", 500)
    for step in (
        "extend p = properties | sort by id",
        "sort by tostring(properties)",
        "distinct *",
    ):
        with pytest.raises(KustoError, match="choose rows by where, or columns by project"):
            run(f"Resources | {step}")
    assert len(run("Resources | project name | sort by name")) == 4
    monkeypatch.setattr(r, "MAX_TEXT", 20)
    with pytest.raises(KustoError, match="at most 20 characters"):
        run("Resources | project tostring(properties)")


@pytest.mark.parametrize(
    "steps",
    ["where name == ''", "sort by name", "top 9 by name", "sample 9", "distinct *", "count"],
)
def test_a_step_gives_something_for_every_row_that_it_takes(steps: str) -> None:
    taken = 0

    def source() -> Iterator[Row]:
        nonlocal taken
        for number in range(100):
            taken += 1
            yield Row(dict.fromkeys(COLUMNS, str(number)))

    for query in (steps, f"where name != '' | {steps} | where ''== 'a'"):
        taken = given = 0
        for _ in parse(f"Resources | {query}", TABLES)[1].run(source()):
            given += 1
            assert given >= taken
        assert given >= 100


def test_the_garbage_collector_looks_at_no_row_that_is_kept() -> None:
    def source() -> Iterator[Row | None]:
        for number in range(1_000):
            yield Row(dict.fromkeys(COLUMNS, str(number)))
        yield None

    found = parse("Resources | sort by name", TABLES)[1].run(source())
    assert [next(found) for _ in range(1_001)] == [None] * 1_001  # all have been read
    assert sum(isinstance(each, Row) for each in gc.get_objects()) < 100


WORDS = ["Resources", "|", "where", "name", "==", "'a'", "(", ")", "and", "or", "not", ",", "by"]
WORDS += ["project", "summarize", "count", "sort", "top", "3", "-", ".", "[", "]", "in", "in~", "'"]


@given(st.lists(st.sampled_from(WORDS) | st.text(max_size=3)).map(" ".join))
@example("Resources | where " + "'\\" * 4_000)
def test_whatever_is_written_is_parsed_or_refused(text: str) -> None:
    with_table = f"Resources | {text}"
    for query in (text, with_table):
        with contextlib.suppress(KustoError):
            run(query)


# The same in Kusto and in Python: conditions, and steps that rows go through.

TEXTS = st.sampled_from(["", "a", "A", "b-a", "1", "ab", "a b", "B", "true", "é's"])
VALUES = TEXTS | st.integers(-3, 3) | st.booleans() | st.none() | st.just(2.5)
RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "id": TEXTS,
            "name": TEXTS,
            "type": TEXTS,
            "location": TEXTS,
            "tags": st.fixed_dictionaries({}, optional={"t": TEXTS}),
            "properties": st.fixed_dictionaries({}, optional={"v": VALUES, "x y": VALUES}),
        }
    ),
    max_size=6,
)
Pair = tuple[str, Callable[[dict[str, Any]], Any]]


def text_of(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def same(a: Any, b: Any) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return text_of(a) == text_of(b)
    return bool(a == b) and (type(a) is type(b) or (is_number(a) and is_number(b)))


def is_number(value: Any) -> bool:
    return type(value) in (int, float)


def literal(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return text_of(value)


def terms(text: str) -> str:
    return "".join(c if c.isalnum() else " " for c in text.lower())


COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "==": same,
    "!=": lambda a, b: not same(a, b),
    "=~": lambda a, b: text_of(a).lower() == text_of(b).lower(),
    "!~": lambda a, b: text_of(a).lower() != text_of(b).lower(),
    "contains": lambda a, b: text_of(b).lower() in text_of(a).lower(),
    "!contains": lambda a, b: text_of(b).lower() not in text_of(a).lower(),
    "startswith": lambda a, b: text_of(a).lower().startswith(text_of(b).lower()),
    "endswith_cs": lambda a, b: text_of(a).endswith(text_of(b)),
    "<": lambda a, b: is_number(a) and is_number(b) and a < b,
    ">=": lambda a, b: is_number(a) and is_number(b) and a >= b,
}
OPERANDS: st.SearchStrategy[Pair] = st.sampled_from(
    [
        ("id", lambda row: row["id"]),
        ("name", lambda row: row["name"]),
        ("tags.t", lambda row: row["tags"].get("t")),
        ("tags['none']", lambda _: None),
        ("properties.v", lambda row: row["properties"].get("v")),
        ("properties['x y']", lambda row: row["properties"].get("x y")),
        ("tolower(name)", lambda row: row["name"].lower()),
        ("tostring(properties.v)", lambda row: text_of(row["properties"].get("v"))),
        ("split(name, '-')[1]", lambda row: [*row["name"].split("-"), None][1]),
        ("split(name, 'a')[-1]", lambda row: row["name"].split("a")[-1]),
    ]
)
NUMBERS = (st.integers(-3, 3) | st.just(2.5)).map(lambda v: (literal(v), lambda _: v))
LITERALS = (TEXTS | st.booleans()).map(lambda v: (literal(v), lambda _: v)) | NUMBERS
ORDERS = ["<", ">="]


def compared(left: Pair, operator: str, right: Pair) -> Pair:
    test = COMPARED[operator]
    return f"{left[0]} {operator} {right[0]}", lambda row: test(left[1](row), right[1](row))


def listed(left: Pair, operator: str, values: list[Any]) -> Pair:
    test = COMPARED["=~" if "~" in operator else "=="]
    wanted = not operator.startswith("!")
    text = f"{left[0]} {operator} ({', '.join(map(literal, values))})"
    return text, lambda row: any(test(left[1](row), value) for value in values) is wanted


def joined(word: str, parts: list[Pair]) -> Pair:
    join = any if word == "or" else all
    text = f" {word} ".join(f"({part})" for part, _ in parts)
    return text, lambda row: join(of(row) for _, of in parts)


LEAVES = (
    st.builds(
        compared, OPERANDS, st.sampled_from(sorted(COMPARED.keys() - ORDERS)), OPERANDS | LITERALS
    )
    | st.builds(compared, OPERANDS, st.sampled_from(ORDERS), OPERANDS | NUMBERS)
    | st.builds(
        listed, OPERANDS, st.sampled_from(["in", "!in", "in~", "!in~"]), st.lists(TEXTS, min_size=1)
    )
    | OPERANDS.map(lambda of: (f"isempty({of[0]})", lambda row: text_of(of[1](row)) == ""))
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(joined, st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3))
        | inner.map(lambda of: (f"not({of[0]})", lambda row: not of[1](row)))
    ),
    max_leaves=6,
)


@given(RECORDS, CONDITIONS)
def test_conditions_choose_what_python_chooses(
    records: list[dict[str, Any]], condition: Pair
) -> None:
    text, chosen = condition
    assert run(f"Resources | where {text}", records) == list(filter(chosen, records))


@given(RECORDS, st.lists(CONDITIONS, min_size=2, max_size=4), st.data())
def test_and_binds_more_tightly_than_or(
    records: list[dict[str, Any]], conditions: list[Pair], data: st.DataObject
) -> None:
    words = [data.draw(st.sampled_from(["and", "or"])) for _ in conditions[1:]]
    text = f"({conditions[0][0]})"
    groups = [[conditions[0]]]
    for word, condition in zip(words, conditions[1:], strict=True):
        text += f" {word} ({condition[0]})"
        if word == "or":
            groups.append([])
        groups[-1].append(condition)

    def chosen(row: dict[str, Any]) -> bool:
        return any(all(of(row) for _, of in group) for group in groups)

    assert run(f"Resources | where {text}", records) == list(filter(chosen, records))


@given(RECORDS, OPERANDS, OPERANDS, st.booleans(), st.booleans(), st.integers(0, 4))
def test_steps_do_what_python_does(
    records: list[dict[str, Any]], one: Pair, other: Pair, up: bool, low: bool, number: int
) -> None:
    made = [{"a": one[1](row), "b": other[1](row), "n": row["name"]} for row in records]
    project = f"Resources | project a = {one[0]}, b = {other[0]}, n = name"
    assert run(project, records) == made
    extend = f"Resources | extend a = {one[0]} | extend name = {other[0]} | project a, b = name"
    assert run(extend, records) == [{"a": row["a"], "b": row["b"]} for row in made]
    assert run(f"{project} | limit {number} | count", records) == [{"Count": len(made[:number])}]

    def key(row: dict[str, Any]) -> tuple[int, Any]:
        value = row["a"]
        if value is None:
            return (0 if low is up else 9), 0
        return (2 if is_number(value) else {bool: 1, str: 3}[type(value)]), value

    by = f"a {'asc' if up else 'desc'} nulls {'first' if low else 'last'}"
    inner = sorted(made, key=lambda row: row["n"], reverse=True)
    expected = sorted(inner, key=key, reverse=not up)
    assert run(f"{project} | sort by {by}, n", records) == expected
    assert run(f"{project} | sort by n | top {number} by {by}", records) == expected[:number]

    counts = Counter((type(row["a"]), text_of(row["a"])) for row in made)
    summary = run(f"{project} | summarize x = count() by a", records)
    assert {(type(row["a"]), text_of(row["a"])): row["x"] for row in summary} == counts
    assert len(run(f"{project} | distinct a", records)) == len(counts)
