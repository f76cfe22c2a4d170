"""Azure Resource Graph, as far as programs choose resources with it: queries in the Kusto Query
Language of which a few operators are offered. Everything else is refused: a program that asks for a
few machines and gets all of them may go on to stop them."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from forewarn.arm import inventory as i
from forewarn.arm.admission import TENANT
from forewarn.arm.errors import ArmError
from forewarn.arm.request import Answer, Request
from forewarn.arm.routes.resources import Resource, resources_at
from forewarn.arm.routing import route
from forewarn.service.access.secret import hidden

COLUMNS = ("id", "name", "type", "tenantId", "location", "resourceGroup", "subscriptionId", "tags")
MAX_ROWS = 1_000  # of one answer
MAX_QUERY = 10_000  # characters
MAX_COMPARISONS = 32

Row: TypeAlias = dict[str, Any]
Condition: TypeAlias = Callable[[Row], bool]

_TEXT = r"""(?:'[^'\\]*'|"[^"\\]*")"""
_TOKENS = re.compile(rf"\s*({_TEXT}|\w+|[=!]=|[=!]~|[^\s\w])", re.ASCII)
_COMPARISONS: dict[str, Callable[[str, str], bool]] = {
    "==": lambda text, value: text == value,
    "!=": lambda text, value: text != value,
    "=~": lambda text, value: text.lower() == value.lower(),
    "!~": lambda text, value: text.lower() != value.lower(),
    "contains": lambda text, value: value.lower() in text.lower(),
    "startswith": lambda text, value: text.lower().startswith(value.lower()),
    "endswith": lambda text, value: text.lower().endswith(value.lower()),
}
_PARTS = ("contains", "startswith", "endswith")
_COUNTED = ("take", "limit", "sample")


@route("POST", "/providers/Microsoft.ResourceGraph/resources")
async def query_resources(request: Request) -> Answer:
    body = request.body()
    options = {} if body.get("options") is None else body["options"]
    text, subscriptions = body.get("query"), body.get("subscriptions")
    if not isinstance(text, str) or body.get("managementGroups"):
        raise _invalid("expected a query of subscriptions, not of management groups")
    if not isinstance(options, dict) or not isinstance(subscriptions, list | None):
        raise _invalid("options must be an object, and subscriptions a list")
    if body.get("facets"):
        raise _invalid("facets are not supported")
    steps = _steps(text)
    size = min(_number(options.get("$top"), MAX_ROWS), MAX_ROWS)
    start = _number(options.get("$skipToken"), _number(options.get("$skip"), 0))
    if not size:
        raise _invalid("$top must be at least 1")
    inventory = i.Inventory(request.call)
    names = [str(each).lower() for each in subscriptions or ()]
    found = [
        (subscription, resources_at(inventory, {"subscription": subscription}))
        for subscription in inventory.subscriptions()
        if subscriptions is None or subscription.lower() in names
    ]
    rows = await asyncio.to_thread(lambda: _run(_rows(found), steps))
    shown = rows[start : start + size]
    answer: dict[str, Any] = {"totalRecords": len(rows), "count": len(shown)}
    answer |= {"facets": [], "resultTruncated": "false", "data": shown}
    if start + size < len(rows):
        answer |= {"$skipToken": str(start + size), "resultTruncated": "true"}
    if str(options.get("resultFormat")).lower() == "table":
        columns = [{"name": name, "type": _type(name)} for name in COLUMNS]
        answer["data"] = {
            "columns": columns,
            "rows": [[row[name] for name in COLUMNS] for row in shown],
        }
    return Answer(body=answer)


def _rows(found: Sequence[tuple[str, Iterable[Resource]]]) -> list[Row]:
    rows = [
        {
            "id": resource.id,
            "name": resource.name,
            "type": resource.type.lower(),  # Azure shows these in lower case
            "tenantId": TENANT,
            "location": resource.location,
            "resourceGroup": resource.resource_group.lower(),
            "subscriptionId": subscription,
            "tags": resource.tags,
        }
        for subscription, resources in found
        for resource in resources
    ]
    return sorted(rows, key=lambda row: str(row["id"]).lower())


def _run(rows: list[Row], steps: Sequence[tuple[str, Any]]) -> list[Row]:
    for operator, argument in steps:
        if operator == "where":
            rows = [row for row in rows if all(condition(row) for condition in argument)]
        elif operator == "sample":
            rows = random.sample(rows, min(argument, len(rows)))
        else:
            rows = rows[:argument]
    return rows


def _steps(text: str) -> list[tuple[str, Any]]:
    """Return the operators of a query, each with its conditions or its number. Raises ArmError."""
    if len(text) > MAX_QUERY:
        raise _invalid(f"a query has at most {MAX_QUERY:,} characters")
    tokens = [found[1] for found in _TOKENS.finditer(text)]
    parts: list[list[str]] = [[]]
    for token in tokens:
        if token == "|":
            parts.append([])
        else:
            parts[-1].append(token)
    if [token.lower() for token in parts[0]] != ["resources"]:
        raise _invalid("expected the table Resources first; there are no other tables")
    if sum(token.lower() in ("where", "and") for token in tokens) > MAX_COMPARISONS:
        raise _invalid(f"a query has at most {MAX_COMPARISONS} comparisons")
    return [_step(part) for part in parts[1:]]


def _step(tokens: list[str]) -> tuple[str, Any]:
    match [token.lower() for token in tokens[:1]], tokens[1:]:
        case ["where"], [*rest] if rest:
            return "where", _conditions(rest)
        case [operator], [number] if operator in _COUNTED and re.fullmatch("[0-9]{1,9}", number):
            return operator, int(number)
    raise _invalid(
        f"'{_shown(tokens)}' is not supported; expected 'where' with comparisons that are joined"
        f" with 'and', or one of {', '.join(_COUNTED)} with a number"
    )


def _conditions(tokens: list[str]) -> list[Condition]:
    conditions, part = [], list[str]()
    for token in [*tokens, "and"]:
        if token.lower() == "and":
            conditions.append(_condition(part))
            part = []
        else:
            part.append(token)
    return conditions


def _condition(tokens: list[str]) -> Condition:
    """Return one comparison: `name == 'text'`, or `tags.team in~ ('a', 'b')`. Raises ArmError."""
    columns = {name.lower(): name for name in COLUMNS if name != "tags"}
    match tokens:
        case ["tags", ".", tag, *rest] | ["tags", "[", tag, "]", *rest]:
            tag = _literal(tag) if _is_text(tag) else tag

            def value(row: Row) -> str:
                return str(row["tags"].get(tag, ""))

        case [name, *rest] if name.lower() in columns:
            column = columns[name.lower()]

            def value(row: Row) -> str:
                return str(row[column])

        case _:
            rest = []
    match rest:
        case [operator, text] if operator.lower() in _COMPARISONS and _is_text(text):
            compare, wanted = _COMPARISONS[operator.lower()], _literal(text)
            if not wanted and operator.lower() in _PARTS:
                raise _invalid("an empty text would match every row")
            return lambda row: compare(value(row), wanted)
        case ["in", "(", *texts, ")"] if texts:
            exact = _literals(texts)
            return lambda row: value(row) in exact
        case ["in", "~", "(", *texts, ")"] if texts:
            folded = {text.lower() for text in _literals(texts)}
            return lambda row: value(row).lower() in folded
    raise _invalid(
        f"'{_shown(tokens)}' is not supported; expected a comparison of {', '.join(COLUMNS[:-1])}"
        f" or tags.NAME by {', '.join(_COMPARISONS)}, in or in~ with a text in quotes"
    )


def _literals(tokens: list[str]) -> set[str]:
    texts, commas = tokens[::2], tokens[1::2]
    if not all(map(_is_text, texts)) or commas != [","] * (len(texts) - 1):
        raise _invalid(f"'{_shown(tokens)}' is not a list of texts in quotes")
    return {_literal(text) for text in texts}


def _is_text(token: str) -> bool:
    return re.fullmatch(_TEXT, token) is not None


def _literal(token: str) -> str:
    return token[1:-1]


def _number(value: Any, otherwise: int) -> int:
    if value is None:
        return otherwise
    if not re.fullmatch("[0-9]{1,9}", str(value)):
        raise _invalid(f"'{hidden(str(value)[:40])}' is not a number of rows; expected digits only")
    return int(value)


def _type(column: str) -> str:
    return "object" if column == "tags" else "string"


def _shown(tokens: Sequence[str]) -> str:
    return hidden(" ".join(tokens)[:200])


def _invalid(problem: str) -> ArmError:
    return ArmError(
        400, "BadRequest", f"The query is invalid: {problem}.", [("InvalidQuery", problem)]
    )
