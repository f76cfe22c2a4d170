"""The calls about events and rollouts."""

from __future__ import annotations

from collections.abc import Mapping

from forewarn.control.openapi.operation import (
    Link,
    Makes,
    Operation,
    event_links,
    listed,
    rollout_links,
)

_SCHEDULE = {"type": "Reboot", "machines": ["web_0"], "notice": 1200}
_ROLLOUT = {"type": "Reboot", "groups": ["web"], "notice": 1800, "bake": 300}

OPERATIONS: Mapping[str, Operation] = {
    "GET /v1/events": Operation(
        id="listEvents",
        tag="events",
        summary="Events, a page at a time",
        paged=True,
        refuses=(400, 404),
        links=listed("getEvent", "explainEvent", parameter="id"),
        commands=("event list",),
        says="event list --all",
    ),
    "POST /v1/events": Operation(
        id="scheduleEvent",
        tag="events",
        summary="Announce an event",
        status=201,
        makes=Makes.OUTCOME,
        refuses=(400, 404, 409),
        links=event_links(),
        commands=("event schedule",),
        says="event schedule Reboot web_0 --notice 20m",
        example=_SCHEDULE,
    ),
    "GET /v1/events/{id}": Operation(
        id="getEvent",
        tag="events",
        summary="One event, also when it is over",
        tagged=True,
        refuses=(400, 409),
        commands=("event show",),
        says="event show 4933F66C",
    ),
    "GET /v1/events/{id}/explain": Operation(
        id="explainEvent",
        tag="events",
        summary="What an event waits for",
        refuses=(400, 409),
        commands=("event explain",),
        says="event explain 4933F66C",
    ),
    **{
        f"POST /v1/events/{{id}}/{verb}": Operation(
            id=f"{verb}Event",
            tag="events",
            summary=summary,
            makes=Makes.OUTCOME,
            conditional=True,
            refuses=(400, 409),
            links=(Link("getEvent", "id", "$response.body#/id"),),
            commands=(f"event {verb}",),
            says=f"event {verb} 4933F66C{more}",
            example=example,
        )
        for verb, summary, more, example in (
            ("approve", "Let an event start without waiting for its notice", "", None),
            ("cancel", "Withdraw an event that has not started", "", None),
            ("retry", "Have a started event carried out again", "", None),
            (
                "finish",
                "Declare a started event over",
                " --reason 'done by hand'",
                {"reason": "done by hand"},
            ),
        )
    },
    "GET /v1/rollouts": Operation(
        id="listRollouts",
        tag="rollouts",
        summary="Rollouts, a page at a time",
        paged=True,
        refuses=(400,),
        links=listed("getRollout", "explainRollout", parameter="id"),
        commands=("rollout list",),
        says="rollout list",
    ),
    "POST /v1/rollouts": Operation(
        id="startRollout",
        tag="rollouts",
        summary="Start a rollout",
        status=201,
        makes=Makes.ROLLOUT,
        refuses=(400, 404, 409),
        links=rollout_links(),
        commands=("rollout start",),
        says="rollout start --type Reboot --group web --notice 30m --bake 5m",
        example=_ROLLOUT,
    ),
    "POST /v1/rollouts/plan": Operation(
        id="planRollout",
        tag="rollouts",
        summary="What would happen when, if it were started now",
        refuses=(400, 404, 409),
        commands=("rollout plan",),
        says="rollout plan --type Reboot --group web",
        example=_ROLLOUT,
    ),
    "GET /v1/rollouts/{id}": Operation(
        id="getRollout",
        tag="rollouts",
        summary="One rollout, and where it stands",
        tagged=True,
        refuses=(400, 409),
        commands=("rollout show", "rollout watch"),
        says="rollout show 1B2C",
    ),
    "GET /v1/rollouts/{id}/explain": Operation(
        id="explainRollout",
        tag="rollouts",
        summary="What a rollout waits for",
        refuses=(400, 409),
        commands=("rollout explain", "rollout show"),
        says="rollout explain 1B2C",
    ),
    **{
        f"POST /v1/rollouts/{{id}}/{verb}": Operation(
            id=f"{verb}Rollout",
            tag="rollouts",
            summary=summary,
            makes=Makes.ROLLOUT,
            conditional=True,
            refuses=(400, 409),
            links=(Link("getRollout", "id", "$response.body#/id"),),
            commands=(f"rollout {verb}",),
            says=f"rollout {verb} 1B2C",
            example=example,
        )
        for verb, summary, example in (
            ("pause", "Announce nothing more for now", {"why": "errors in web"}),
            ("resume", "Go on after a pause, or after something was cancelled", None),
            ("abort", "Withdraw what has not started, and end", {"why": "wrong version"}),
        )
    },
}
