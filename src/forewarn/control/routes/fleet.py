"""The control API for the inventory: a whole fleet put or shown, or one thing of it changed.

Bodies are text, YAML or JSON, and are read where lines are known: an error names line and field.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from litestar import Request, Response, delete, get, put
from litestar.exceptions import HTTPException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge
from litestar.params import FromPath, FromQuery

from forewarn.control.http.authorization import KEEPS_LIMITS
from forewarn.control.http.context import Ask, AtHand
from forewarn.control.http.errors import RefusedError, allowed
from forewarn.control.http.preconditions import bytes_tag, fleet_tag
from forewarn.control.schema.fleet import MAX_FLEET_BYTES, FleetDifference, FleetProgress
from forewarn.core import Group, Refused
from forewarn.core.fleet import Host
from forewarn.core.refusal import invalid
from forewarn.service.fleet import edit, shapes
from forewarn.service.fleet.diff import Difference
from forewarn.service.fleet.export import entry_of

MAX_HOST_BYTES = 1024 * 1024  # of one host that is put
JSON = "application/json"


def handlers(desk: AtHand) -> list[Any]:
    def snapshot() -> tuple[dict[str, Group], dict[str, Host]]:
        return dict(desk().store.groups), dict(desk().store.registry.hosts)

    @put("/v1/fleet", status_code=200, request_max_body_size=MAX_FLEET_BYTES)
    async def put_fleet(
        ask: Ask,
        request: Request[Any, Any, Any],
        plan: FromQuery[bool] = False,
        force: FromQuery[bool] = False,
    ) -> FleetDifference:
        text = await _text(request)
        # Before it is compared, so that a change in between is noticed by whoever says If-Match.
        tag = await asyncio.to_thread(fleet_tag, *snapshot()) if plan else ""
        done = await desk().fleet_apply.text(
            text, by=ask.by, force=force, plan=plan, unless=ask.unless
        )
        return _shown(done, planned=plan, etag=tag)

    @get("/v1/fleet")
    async def fleet(ask: Ask) -> Response[bytes]:
        """Putting it back changes nothing."""
        current = desk().fleet_apply.current()
        encoded = await asyncio.to_thread(lambda: msgspec.json.encode(entry_of(current)))
        ask.heads["ETag"] = bytes_tag(encoded)
        return Response(encoded, media_type=JSON)

    @get("/v1/fleet/schema", sync_to_thread=False, opt=KEEPS_LIMITS)
    def schema() -> dict[str, Any]:
        return shapes.schema()

    @get("/v1/fleet/progress", sync_to_thread=False)
    def progress() -> FleetProgress:
        now = desk().fleet_apply.progress
        return FleetProgress(now.stage, now.fraction)

    async def changed(ask: Ask, change: edit.Change, *, force: bool) -> FleetDifference:
        done = await desk().fleet_apply.change(change, by=ask.by, force=force, unless=ask.unless)
        return _shown(done, planned=False)

    def host_of(machine: str) -> str:
        found = desk().platform.machine_index.machine(machine)
        return found[1].host if found else ""

    @put("/v1/groups/{name:str}", status_code=200, request_max_body_size=MAX_FLEET_BYTES)
    async def put_group(
        ask: Ask,
        name: FromPath[str],
        request: Request[Any, Any, Any],
        force: FromQuery[bool] = False,
    ) -> FleetDifference:
        return await changed(ask, edit.put_group(name, await _text(request, "group")), force=force)

    @delete("/v1/groups/{name:str}", status_code=200)
    async def remove_group(
        ask: Ask, name: FromPath[str], force: FromQuery[bool] = False
    ) -> FleetDifference:
        return await changed(ask, edit.remove_group(name), force=force)

    @put("/v1/hosts/{name:str}", status_code=200, request_max_body_size=MAX_HOST_BYTES)
    async def put_host(
        ask: Ask, name: FromPath[str], request: Request[Any, Any, Any]
    ) -> FleetDifference:
        text = await _text(request, "host", MAX_HOST_BYTES)
        return await changed(ask, edit.put_host(name, text), force=False)

    @delete("/v1/hosts/{name:str}", status_code=200)
    async def remove_host(
        ask: Ask, name: FromPath[str], force: FromQuery[bool] = False
    ) -> FleetDifference:
        return await changed(ask, edit.remove_host(name, host_of), force=force)

    @delete("/v1/machines/{name:str}", status_code=200)
    async def remove_machine(
        ask: Ask, name: FromPath[str], force: FromQuery[bool] = False
    ) -> FleetDifference:
        return await changed(ask, edit.remove_machine(name), force=force)

    return [
        *(put_fleet, fleet, schema, progress),
        *(put_group, remove_group, put_host, remove_host, remove_machine),
    ]


async def _text(
    request: Request[Any, Any, Any], what: str = "fleet", most: int = MAX_FLEET_BYTES
) -> str:
    try:
        return (await request.body()).decode("utf-8")
    except RequestEntityTooLarge as error:
        says = f"a {what} has at most {most:,} bytes"
        raise HTTPException(says, status_code=413) from error
    except UnicodeDecodeError as error:
        raise RefusedError(invalid(f"the body is not UTF-8: {error}")) from error


def _shown(done: Difference | Refused, *, planned: bool, etag: str = "") -> FleetDifference:
    found = {**msgspec.structs.asdict(allowed(done)), "planned": planned, "etag": etag}
    return msgspec.convert(found, FleetDifference, from_attributes=True)
