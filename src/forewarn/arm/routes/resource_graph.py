"""Azure Resource Graph: resources that are chosen by a query. A query that is not understood is
refused: a program that asks for a few machines and gets all of them may go on to stop them.

A query runs on the event loop, in turns that are so short that no other request waits for long.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from forewarn.arm import inventory as i
from forewarn.arm.errors import ArmError
from forewarn.arm.kusto.parser import Query, parse
from forewarn.arm.kusto.rows import KustoError, Row, Rows, Value
from forewarn.arm.request import Answer, Request
from forewarn.arm.routes.resources import Resource, resources_at
from forewarn.arm.routing import route
from forewarn.control.views import azure
from forewarn.core import Event, Group, Time
from forewarn.service.access.machine_tokens import TENANT_ID
from forewarn.service.access.secret import hidden
from forewarn.support import guard

# Those of Azure; what there is nothing of here is empty.
COLUMNS = (
    *("id", "name", "type", "tenantId", "kind", "location", "resourceGroup", "subscriptionId"),
    *("managedBy", "sku", "plan", "properties", "tags", "identity", "zones", "extendedLocation"),
)
RESOURCES, EVENTS = "Resources", "MaintenanceResources"
TABLES = {RESOURCES: COLUMNS, EVENTS: COLUMNS}
MAX_ROWS, MAX_BYTES = 1_000, 16_000_000  # of one answer
PAGE = 200  # events that are read at a time
MAX_SECONDS = 20.0  # of a query
TURN = 0.002  # seconds until other requests have their turn

_encode = msgspec.json.Encoder().encode


@route("POST", "/providers/Microsoft.ResourceGraph/resources")
async def query_resources(request: Request) -> Answer:
    body = request.body()
    options = {} if body.get("options") is None else body["options"]
    text, subscriptions = body.get("query"), body.get("subscriptions")
    if not isinstance(text, str) or body.get("managementGroups"):
        raise _invalid("expected a query, of subscriptions, not of management groups")
    if not isinstance(options, dict) or not isinstance(subscriptions, list | None):
        raise _invalid("options must be an object, and subscriptions a list")
    if body.get("facets"):
        raise _invalid("facets are not supported; send each of them as a query that summarizes")
    form = str(options.get("resultFormat") or "objectArray").lower()
    if form not in ("objectarray", "table"):
        raise _invalid("resultFormat must be objectArray or table")
    size = min(_number(options.get("$top"), MAX_ROWS), MAX_ROWS)
    start, until = _place(options, request.now)
    if not size:
        raise _invalid("$top must be at least 1")
    wanted = None if subscriptions is None else {str(each).lower() for each in subscriptions}
    inventory = i.Inventory(request.call)
    visible = [s for s in inventory.subscriptions() if wanted is None or s.lower() in wanted]
    try:
        table, query = parse(text, TABLES)
        async with request.queries:
            page = _Page(query.columns, start, size, form)
            if table == EVENTS:
                events = _Events(request, inventory, visible, until)
                await _run(query, events.rows(), page, events.load)
            else:
                await _run(query, _resources(inventory, visible, request.now), page)
    except KustoError as error:
        raise _invalid(hidden(str(error))) from error
    answer: dict[str, Any] = {"totalRecords": page.total, "count": len(page.rows), "facets": []}
    answer |= {"data": page.data(), "resultTruncated": "false"}
    if start + size < page.total:
        answer |= {"$skipToken": f"{start + size}-{until}", "resultTruncated": "true"}
    return Answer(body=answer)


class _Page:
    """A part of the rows, each of which is encoded at once, and how many there are in all."""

    def __init__(self, columns: Iterable[str], start: int, size: int, form: str) -> None:
        self._types: dict[str, set[type]] = {name: set() for name in columns}
        self._wanted, self._table = range(start, start + size), form == "table"
        self.rows: list[msgspec.Raw] = []
        self.total = self._bytes = 0

    def add(self, row: Row) -> None:
        if self.total in self._wanted:
            cells = {name: row[name] for name in self._types}
            for name, value in cells.items():
                self._types[name].add(type(value))
            shown = _encode([*cells.values()] if self._table else cells)
            self._bytes += len(shown)
            if self._bytes > MAX_BYTES:
                raise KustoError(f"an answer has at most {MAX_BYTES // 1_000_000} MB; set $top")
            self.rows.append(msgspec.Raw(shown))
        self.total += 1

    def data(self) -> Any:
        columns = [{"name": n, "type": _type(types)} for n, types in self._types.items()]
        return {"columns": columns, "rows": self.rows} if self._table else self.rows


async def _run(
    query: Query, rows: Rows, page: _Page, load: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Add the rows of a query to a page; `load` gets those that are to come. Raises KustoError."""
    turn = began = guard.monotonic()
    for row in query.run(rows):
        if row is not None:
            page.add(row)
        elif load is not None:
            await load()
        if guard.monotonic() - turn > TURN:
            await guard.pause(0)
            turn = guard.monotonic()
            if turn - began > MAX_SECONDS:
                raise KustoError(f"it takes more than {MAX_SECONDS:g} s; choose fewer rows")


def _resources(inventory: i.Inventory, subscriptions: Iterable[str], now: Time) -> Rows:
    for subscription in subscriptions:
        for resource in resources_at(inventory, subscription):
            yield _row(subscription, resource, now)


class _Events:
    """Events that are published, the latest first: those that are over as long as they are kept.
    What was announced after the first page is on none, so that pages fit together. Among the rows,
    None stands for those that `load` gets."""

    def __init__(
        self, request: Request, inventory: i.Inventory, subscriptions: Iterable[str], until: Time
    ) -> None:
        self._platform, self._now, self._until = request.call.platform, request.now, until
        within = {subscription.lower() for subscription in subscriptions}
        groups = inventory.visible()
        self._groups = {g.name: g for g in groups if azure.subscription_of(g).lower() in within}
        active = sorted(self._platform.active(), key=lambda event: event.raised_at)
        self._active, self._ids = active, {event.id for event in active}
        self._page: list[Event] = []
        self._rest: list[Event] = []  # read, and for a later page
        self._before: str | None = None
        self._over = False

    def rows(self) -> Rows:
        while self._page or not self._over:
            for event in self._page:
                group = self._groups.get(event.group)
                if group and event.raised_at <= self._until and azure.is_published(group, event):
                    yield self._row(group, event)
            self._page = []
            yield None

    async def load(self) -> None:
        if self._page or self._over:
            return
        past = await self._platform.past(None, PAGE, self._before)
        self._over = len(past) < PAGE
        self._before = past[-1].id if past else None
        self._rest += [event for event in past if event.id not in self._ids]
        last = 0 if self._over else past[-1].raised_at + 1  # there may be more of that instant
        while self._active and self._active[-1].raised_at >= last:
            self._rest.append(self._active.pop())
        self._rest.sort(key=lambda event: (event.raised_at, event.id), reverse=True)
        number = sum(event.raised_at >= last for event in self._rest)
        self._page, self._rest = self._rest[:number], self._rest[number:]

    def _row(self, group: Group, event: Event) -> Row:
        owner, zone = azure.event_owner(group, event), group.place.zone

        def view(_: Time) -> dict[str, Any]:
            return {**azure.event_resource(owner, group, event), "zones": [zone] if zone else None}

        id, type = azure.event_id(owner, event), "Microsoft.Maintenance/scheduledEvents"
        resource = Resource(id, event.id, type, azure.location_of(group), view)
        return _row(azure.subscription_of(group), resource, self._now)


class _Columns(msgspec.Struct, frozen=True, gc=False):
    """Makes the columns of a row that its resource has to be viewed for."""

    resource: Resource
    now: Time

    def __call__(self, column: str) -> Value:
        view = self.resource.view(self.now)
        if column != "properties":
            return view.get(column)
        properties = view["properties"]
        if instance := properties.pop("instanceView", None):  # Azure has it elsewhere
            is_machine = self.resource.type == azure.MACHINES
            power = {"powerState": instance["statuses"][-1]} if is_machine else {}
            properties["extended"] = {"instanceView": {**instance, **power}}
        return properties


def _row(subscription: str, resource: Resource, now: Time) -> Row:
    return Row(
        {
            "id": resource.id,
            "name": resource.name,
            "type": resource.type.lower(),  # Azure shows these in lower case
            "tenantId": TENANT_ID,
            "kind": "",
            "location": resource.location,
            "resourceGroup": resource.resource_group.lower(),
            "subscriptionId": subscription,
            "managedBy": "",
            "plan": None,
            "tags": resource.tags,
            "identity": None,
            "extendedLocation": None,
        },
        _Columns(resource, now),
    )


def _type(types: set[type]) -> str:
    """Return the type of a column, by those of its values."""
    types = types - {type(None)}
    names = {str: "string", bool: "boolean", int: "integer", float: "number"}
    return names.get(types.pop(), "object") if len(types) == 1 else "object" if types else "string"


def _place(options: dict[str, Any], now: Time) -> tuple[int, Time]:
    """Return how many rows to leave out, and when the first page was read."""
    token = options.get("$skipToken")
    if token is None:
        return _number(options.get("$skip"), 0), now
    if not (match := re.fullmatch("([0-9]{1,9})-([0-9]{1,18})", str(token))):
        raise _invalid("$skipToken must be that of the page before")
    return int(match[1]), int(match[2])


def _number(value: Any, otherwise: int) -> int:
    if value is None:
        return otherwise
    if not re.fullmatch("[0-9]{1,9}", str(value)):
        raise _invalid(f"'{hidden(str(value)[:40])}' is not a number of rows; expected digits only")
    return int(value)


def _invalid(problem: str) -> ArmError:
    return ArmError(
        400, "BadRequest", f"The query is invalid: {problem}.", [("InvalidQuery", problem)]
    )
