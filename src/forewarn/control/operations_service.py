"""The calls about the inventory, the history, the feed, tokens and the service itself."""

from __future__ import annotations

from collections.abc import Mapping

from forewarn.control.operation import REPEATABLE, Link, Operation, listed

_GROUP_TEXT = {"kind": "availability-set", "machines": [{"name": "app-0"}, {"name": "app-1"}]}

OPERATIONS: Mapping[str, Operation] = {
    "GET /v1/status": Operation(
        id="getStatus", tag="service", summary="How the service stands", says="clock show"
    ),
    "GET /v1/clock": Operation(
        id="getClock",
        tag="service",
        summary="What time it is for the service",
        commands=("clock show",),
        says="clock show",
    ),
    "POST /v1/clock/advance": Operation(
        id="advanceClock",
        tag="service",
        summary="Wind a virtual clock forward",
        keyless="nothing of it is stored",
        refuses=(400, 409),
        commands=("clock advance",),
        says="clock advance 10m",
        example={"by": 600},
    ),
    "DELETE /v1/machines/{name}": Operation(
        id="removeMachine",
        tag="fleet",
        summary="Take a machine out of the inventory",
        keyless=REPEATABLE,
        conditional=True,
        refuses=(400, 409),
    ),
    "PUT /v1/groups/{name}": Operation(
        id="putGroup",
        tag="fleet",
        summary="Make one group what a text says",
        keyless=REPEATABLE,
        conditional=True,
        text="group",
        refuses=(409,),
        example=_GROUP_TEXT,
    ),
    "DELETE /v1/groups/{name}": Operation(
        id="removeGroup",
        tag="fleet",
        summary="Take a group and its machines out of the inventory",
        keyless=REPEATABLE,
        conditional=True,
        refuses=(400, 409),
    ),
    "PUT /v1/hosts/{name}": Operation(
        id="putHost",
        tag="fleet",
        summary="Make one host what a text says",
        keyless=REPEATABLE,
        conditional=True,
        text="host",
        refuses=(409,),
        example={"labels": {"rack": "r1"}},
    ),
    "DELETE /v1/hosts/{name}": Operation(
        id="removeHost",
        tag="fleet",
        summary="Take a host out of the inventory",
        keyless=REPEATABLE,
        conditional=True,
        refuses=(400, 409),
    ),
    "GET /v1/fleet": Operation(
        id="getFleet",
        tag="fleet",
        summary="The inventory, as the fleet file that would change nothing",
        tagged=True,
    ),
    "PUT /v1/fleet": Operation(
        id="putFleet",
        tag="fleet",
        summary="Make the inventory what a fleet file says, or tell what that would change",
        keyless=REPEATABLE,
        conditional=True,
        text="fleet",
        refuses=(409,),
        commands=("apply",),
        says="apply fleet.yaml --plan",
        example={"hosts": ["h1"], "groups": [{"name": "web", **_GROUP_TEXT}]},
    ),
    "GET /v1/fleet/schema": Operation(
        id="getFleetSchema",
        tag="fleet",
        summary="The JSON Schema of a fleet file",
        says="apply --schema",
    ),
    "GET /v1/fleet/progress": Operation(
        id="getFleetProgress",
        tag="fleet",
        summary="How far the fleet that is being applied has come",
        commands=("apply",),
    ),
    "GET /v1/history": Operation(
        id="getHistory",
        tag="history",
        summary="What happened, a page at a time",
        paged=True,
        refuses=(400, 404, 409),
        commands=("history",),
        says="history --machine web_2",
    ),
    "GET /v1/history/export": Operation(
        id="exportHistory",
        tag="history",
        summary="All that happened and matches, as JSON lines",
        refuses=(400, 404, 409),
        commands=("history",),
        says="history --export",
    ),
    "GET /v1/feed": Operation(
        id="followFeed",
        tag="feed",
        summary="Every change as it happens, as server-sent events",
        refuses=(400, 409, 410, 503),
        commands=("feed",),
        says="feed",
    ),
    "GET /v1/changes": Operation(
        id="getChanges",
        tag="feed",
        summary="What came after a commit, waiting for it if need be",
        refuses=(400, 409, 410, 503),
    ),
    "POST /v1/tokens": Operation(
        id="createToken",
        tag="tokens",
        summary="Make a token; the answer is the only one that has it",
        status=201,
        keyless="its answer has a secret in it and is kept nowhere; revoke a token that was lost",
        refuses=(400, 404, 409),
        links=(
            Link("getToken", "id", "$response.body#/id"),
            Link("revokeToken", "id", "$response.body#/id"),
        ),
        commands=("token create",),
        says="token create alice --role operator",
        example={"name": "alice", "role": "operator"},
    ),
    "GET /v1/tokens": Operation(
        id="listTokens",
        tag="tokens",
        summary="Tokens, a page at a time",
        paged=True,
        refuses=(400,),
        links=listed("getToken", parameter="id"),
        commands=("token list",),
        says="token list",
    ),
    "GET /v1/tokens/{id}": Operation(
        id="getToken",
        tag="tokens",
        summary="One token",
        refuses=(400, 409),
        says="token list",
    ),
    "POST /v1/tokens/{id}/revoke": Operation(
        id="revokeToken",
        tag="tokens",
        summary="Let a token be of no use any more",
        keyless=REPEATABLE,
        refuses=(400, 409),
        links=(Link("getToken", "id", "$response.body#/id"),),
        commands=("token revoke",),
        says="token revoke alice",
        example={},
    ),
    "GET /v1/backup": Operation(
        id="getBackup",
        tag="service",
        summary="A copy of the whole state, an SQLite file",
        refuses=(409, 503),
        commands=("backup",),
        says="backup copy.db",
    ),
    "GET /metrics": Operation(id="getMetrics", tag="service", summary="Numbers, for Prometheus"),
    "GET /healthz": Operation(
        id="getHealth", tag="service", summary="Does the service work?", also=(503,)
    ),
    "GET /readyz": Operation(
        id="getReadiness", tag="service", summary="Can it do what it is there for?", also=(503,)
    ),
}
