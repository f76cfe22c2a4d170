"""The search in the control API: by a part of a name, or by the beginning of an id."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable

from litestar import Response

from forewarn.control.http.access import authorization
from forewarn.control.http.context import Call, context
from forewarn.control.http.errors import encode_in_thread
from forewarn.control.http.operation import route
from forewarn.control.http.parameters import Parameters
from forewarn.control.operations import fleet as operations
from forewarn.control.schema import queries as q
from forewarn.control.schema import search as s
from forewarn.core import Event
from forewarn.core.refusal import Refused

MAX_HITS = 8  # of each kind

_ID = re.compile(r"[0-9A-F][0-9A-F-]{3,35}")  # shorter beginnings of ids are found by chance


@route(operations.SEARCH)
async def search(call: Call, given: Parameters[q.SearchQuery]) -> Response[bytes]:
    """Finds up to eight of each kind: names that begin with the text first, the shortest first. An
    id is found by its beginning, that of an event that is over only if no other event has it."""
    wanted = given.text.strip().casefold()
    by_id = await _by_id(call, wanted.upper()) if _ID.fullmatch(wanted.upper()) else []
    groups = [g for g in context().platform.machine_index.groups() if call.sees(g.name)]
    hosts = [host.name for host in authorization.visible_hosts(call)]

    def build() -> s.Hits:
        if not wanted:
            return s.Hits(hits=[])
        machines = ((m.name, g.name) for g in groups for m in g.machines)
        named = [
            s.Hit(kind="group", name=n) for n, _ in _best(wanted, ((g.name, "") for g in groups))
        ]
        named += [s.Hit(kind="host", name=n) for n, _ in _best(wanted, ((n, "") for n in hosts))]
        named += [s.Hit(kind="machine", name=n, group=g) for n, g in _best(wanted, machines)]
        return s.Hits(hits=by_id + named)

    return await encode_in_thread(build)


def _best(wanted: str, names: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the names that contain the text: those that begin with it first, then by length."""
    found = (
        (at > 0, len(folded), folded, name, of)
        for name, of in names
        if (at := (folded := name.casefold()).find(wanted)) >= 0
    )
    return [(name, of) for *_, name, of in heapq.nsmallest(MAX_HITS, found)]


async def _by_id(call: Call, beginning: str) -> list[s.Hit]:
    """Return the events and rollouts whose ids begin so."""
    platform = context().platform
    events = [e for e in platform.active() if e.id.startswith(beginning)]
    if not events:
        past = await platform.event(beginning)
        events = [] if isinstance(past, Refused) else [past]
    rollouts = [
        summary.rollout
        for summary in await context().rollouts.list()
        if summary.rollout.id.startswith(beginning)
        and authorization.rollout_visible(call, summary.rollout)
    ]
    visible = [event for event in events if call.sees(event.group)][:MAX_HITS]
    return [
        *(_event(event) for event in visible),
        *(s.Hit(kind="rollout", name=r.id, type=r.kind) for r in rollouts[:MAX_HITS]),
    ]


def _event(event: Event) -> s.Hit:
    machines = list(event.resources)
    return s.Hit(
        kind="event", name=event.id, group=event.group, type=event.type.value, machines=machines
    )
