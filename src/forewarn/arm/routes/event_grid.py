"""System topics of Event Grid, and the webhooks that are subscribed to them.

Both are kept with the positions of notifications, by name: that of the topic, a colon, and that of
the subscription, which is empty for the topic itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from forewarn.arm.errors import ArmError
from forewarn.arm.inventory import Inventory
from forewarn.arm.options import FILTER, PAGED, predicate
from forewarn.arm.paging import page
from forewarn.arm.request import Answer, Request
from forewarn.arm.routing import RESOURCE_GROUP, SUBSCRIPTION, route
from forewarn.arm.scale_set_update import differences
from forewarn.core.access import Role
from forewarn.notify.config import MAX_TABLES, url_problem
from forewarn.notify.targets.event_grid import EVENT_TYPE
from forewarn.service.access.secret import hidden
from forewarn.support.text import listing

TOPICS = "/providers/Microsoft.EventGrid/systemTopics"
TOPIC = RESOURCE_GROUP + TOPICS + "/{topic}"
WEBHOOKS = TOPIC + "/eventSubscriptions"
WEBHOOK = WEBHOOKS + "/{name}"
TOPIC_TYPE = EVENT_TYPE.rpartition(".")[0]
SCHEMAS = {name.lower(): name for name in ("EventGridSchema", "CloudEventSchemaV1_0")}
URL = "destination.properties.endpointUrl"
BEGINS, TYPES = "filter.subjectBeginsWith", "filter.includedEventTypes"
SCHEMA, LABELS = "eventDeliverySchema", "labels"
# What clients send although it cannot be set, because Azure has it.
FIXED: dict[str, Any] = {
    "destination": {
        "endpointType": "WebHook",
        "properties": {"maxEventsPerBatch": 1, "preferredBatchSizeInKilobytes": 64},
    },
    "filter": {
        "subjectEndsWith": "",
        "isSubjectCaseSensitive": False,
        "enableAdvancedFilteringOnArrays": False,
    },
    "retryPolicy": {"maxDeliveryAttempts": 30, "eventTimeToLiveInMinutes": 1440},
}
_NAME = re.compile(r"[A-Za-z0-9-]{3,64}", re.ASCII)


@route("PUT", TOPIC, role=Role.OPERATOR, limited=False)
async def put_topic(request: Request) -> Answer:
    body, names = request.body(), request.names
    groups = Inventory(request.call).resource_groups(names["subscription"])
    if names["resource_group"].lower() not in [name.lower() for name in groups]:
        name = hidden(names["resource_group"][:100])
        raise ArmError(404, "ResourceGroupNotFound", f"Resource group '{name}' was not found.")
    wanted = {"topicType": TOPIC_TYPE, "source": f"/subscriptions/{names['subscription']}"}
    fixed = {**wanted, "provisioningState": "Succeeded"}
    for path, _ in differences(body.get("properties"), fixed, "properties"):
        has = listing([f"{name} '{value}'" for name, value in wanted.items()])
        raise _invalid(f"{hidden(path[:100])} cannot be changed: a topic has {has}")
    location, tags = body.get("location"), body.get("tags")
    if not isinstance(location, str | None) or not isinstance(tags, dict | None):
        raise _invalid("location must be a string, and tags an object")
    place = TOPIC.format(**names)
    known = (await _kept(request)).get(_key(request))
    if known is not None and known["id"].lower() != place.lower():
        raise ArmError(409, "Conflict", f"There is another topic of this name: '{known['id']}'.")
    kept = {"id": place, "location": location, "tags": tags, **wanted}
    return await _subscribe(request, kept, _topic)


@route("GET", SUBSCRIPTION + TOPICS, limited=False, options=(FILTER, *PAGED))
@route("GET", RESOURCE_GROUP + TOPICS, limited=False, options=(FILTER, *PAGED))
async def list_topics(request: Request) -> Answer:
    prefix = request.path.lower().rpartition("/providers/")[0] + "/"
    kept = await _kept(request)
    topics = [each for name, each in kept.items() if name.endswith(":")]
    return _page(request, [t for t in topics if t["id"].lower().startswith(prefix)], _topic)


@route("GET", TOPIC, limited=False)
async def get_topic(request: Request) -> Answer:
    return Answer(body=_topic(await _found(request)))


@route("DELETE", TOPIC, role=Role.OPERATOR, limited=False)
@route("DELETE", WEBHOOK, role=Role.OPERATOR, limited=False)
async def delete(request: Request) -> Answer:
    """Delete a subscription, or a topic with its subscriptions."""
    key, kept = _key(request), await _kept(request)
    if key not in kept:
        return Answer(status=204)
    for name in kept:
        if name == key or (key.endswith(":") and name.startswith(key)):
            await request.context.subscriptions().unsubscribe(name)
    return Answer()


@route("PUT", WEBHOOK, role=Role.OPERATOR, limited=False)
async def put_webhook(request: Request) -> Answer:
    topic = await _found(request, "")
    values = _settable(request.body().get("properties") or {})
    begins = str(values.get(BEGINS) or "")
    if not isinstance(labels := values.get(LABELS), list | None):
        raise _invalid(f"properties.{LABELS} must be a list")
    table = {"event-grid": _target(values, begins, topic["source"] + "/")}
    id = WEBHOOK.format(**request.names)
    kept = {"id": id, "labels": labels, "begins": begins, "table": table}
    return await _subscribe(request, kept, _webhook)


def _settable(properties: dict[str, Any]) -> dict[str, Any]:
    """Return what is set of a subscription, by path. Raises ArmError for what cannot be."""
    values: dict[str, Any] = {}
    for path, value in differences(properties, FIXED, ""):
        if path not in (URL, BEGINS, TYPES, SCHEMA, LABELS, "topic", "provisioningState"):
            raise _invalid(
                f"properties.{hidden(path[:100])} cannot be set: events are sent to webhooks only,"
                " one at a time, until they have been received"
            )
        values[path] = value
    return values


def _target(values: Mapping[str, Any], begins: str, source: str) -> dict[str, Any]:
    """Return the options of the target of notifications. Raises ArmError."""
    url, schema = values.get(URL), str(values.get(SCHEMA) or "EventGridSchema")
    if not isinstance(url, str) or url_problem(url):
        raise _invalid(f"properties.{URL} {url_problem(str(url or ''))}")
    types = values.get(TYPES) or [EVENT_TYPE]
    if not isinstance(types, list) or [str(t).lower() for t in types] != [EVENT_TYPE.lower()]:
        raise _invalid(f"properties.{TYPES} must be '{EVENT_TYPE}', or be left out")
    if schema.lower() not in SCHEMAS:
        raise _invalid(f"properties.{SCHEMA} must be one of {', '.join(SCHEMAS.values())}")
    shorter, longer = sorted((begins.lower(), source.lower()), key=len)
    if not longer.startswith(shorter):
        raise _invalid(f"properties.{BEGINS} must begin with '{source}'")
    begins = max(begins, source, key=len)
    return {"url": url, "schema": SCHEMAS[schema.lower()], "subject_begins_with": begins}


@route("GET", WEBHOOKS, limited=False, options=(FILTER, *PAGED))
async def list_webhooks(request: Request) -> Answer:
    prefix, kept = _key(request), await _kept(request)
    found = [each for name, each in kept.items() if name.startswith(prefix) and name != prefix]
    answer = _page(request, found, _webhook)  # a wrong option is refused, whatever is there
    await _found(request, "")
    return answer


@route("GET", WEBHOOK, limited=False)
async def get_webhook(request: Request) -> Answer:
    return Answer(body=_webhook(await _found(request)))


@route("POST", WEBHOOK + "/getFullUrl", role=Role.OPERATOR, limited=False)
async def get_full_url(request: Request) -> Answer:
    return Answer(body={"endpointUrl": (await _found(request))["table"]["event-grid"]["url"]})


async def _subscribe(request: Request, kept: dict[str, Any], view: Any) -> Answer:
    name, known = request.names.get("name") or request.names["topic"], await _kept(request)
    if not _NAME.fullmatch(name):
        raise _invalid(f"'{hidden(name[:100])}' is not a name: use 3 to 64 letters, digits and '-'")
    if len(known) >= MAX_TABLES and _key(request) not in known:
        raise ArmError(409, "QuotaExceeded", f"There can be {MAX_TABLES} topics and subscriptions.")
    if problem := await request.context.subscriptions().subscribe(_key(request), kept):
        raise _invalid(f"The webhook could not be validated: {problem}")
    return Answer(status=201, body=view(kept))  # the only one that SDKs take


def _key(request: Request, name: str | None = None) -> str:
    name = request.names.get("name", "") if name is None else name
    return f"{request.names['topic']}:{name}".lower()


async def _kept(request: Request) -> dict[str, Any]:
    positions = await request.context.store.notify_positions()
    return {name: each.asked for name, each in sorted(positions.items()) if each.asked is not None}


async def _found(request: Request, name: str | None = None) -> dict[str, Any]:
    """Return what is kept of the topic or subscription in the path. Raises ArmError."""
    kept = (await _kept(request)).get(_key(request, name))
    if kept is None or not request.path.lower().startswith(kept["id"].lower()):
        place = hidden(request.path[:500])
        raise ArmError(404, "ResourceNotFound", f"The resource '{place}' was not found.")
    return dict(kept)


def _page(request: Request, found: list[Any], view: Any) -> Answer:
    wanted = predicate(request.parameters, {"name": lambda each: each["id"].rpartition("/")[2]})
    return page(request, filter(wanted, found), lambda each: (each["id"],), view)


def _topic(kept: Mapping[str, Any]) -> dict[str, Any]:
    properties = {"source": kept["source"], "topicType": kept["topicType"]}
    return _resource(kept, "", properties) | {
        "location": kept["location"] or "global",
        "tags": kept["tags"] or {},
    }


def _webhook(kept: Mapping[str, Any]) -> dict[str, Any]:
    options, destination = kept["table"]["event-grid"], FIXED["destination"]
    shown = {**destination["properties"], "endpointBaseUrl": options["url"].partition("?")[0]}
    properties = {
        **FIXED,
        "topic": kept["id"].rpartition("/eventSubscriptions/")[0],
        "destination": {**destination, "properties": shown},
        "filter": {
            **FIXED["filter"],
            "subjectBeginsWith": kept["begins"],
            "includedEventTypes": [EVENT_TYPE],
        },
        "eventDeliverySchema": options["schema"],
        "labels": kept["labels"] or [],
    }
    return _resource(kept, "/eventSubscriptions", properties)


def _resource(kept: Mapping[str, Any], below: str, properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": kept["id"],
        "name": kept["id"].rpartition("/")[2],
        "type": f"Microsoft.EventGrid/systemTopics{below}",
        "properties": {**properties, "provisioningState": "Succeeded"},
    }


def _invalid(problem: str) -> ArmError:
    return ArmError(400, "InvalidRequest", f"{problem}.")
