"""What is going to be disturbed, in the control API: the answer to "what happens tonight?"."""

from __future__ import annotations

from litestar import Response

from forewarn.control.http.access.authorization import visible_hosts
from forewarn.control.http.context import Call, context
from forewarn.control.http.errors import encode_in_thread, parse_selector, parse_time_or_age
from forewarn.control.http.operation import route
from forewarn.control.http.parameters import Parameters
from forewarn.control.operations import events as operations
from forewarn.control.routes.calendar import upcoming
from forewarn.control.routes.events import require_known, require_visible
from forewarn.control.routes.overview import HOSTS, row_names
from forewarn.control.schema import queries as q
from forewarn.control.views.tonight import Fleet, Period, tonight
from forewarn.core.labels import labels_of, matches
from forewarn.core.rollouts.outlook import outlook
from forewarn.core.time import HOUR


@route(operations.GET_TONIGHT)
async def get_tonight(call: Call, given: Parameters[q.TonightQuery]) -> Response[bytes]:
    """Announced events, what running rollouts are still to announce (as in the calendar), windows
    and blackouts, in the next 24 hours or another time. Events that start together are one
    disturbance; one that has not started begins as soon as its NotBefore and the windows allow. It
    names the groups that have not approved a disturbance, and the machines that were never shown
    it. `label` selects machines. A token that is limited to groups gets only what is about these,
    and no windows of others."""
    group, host = given.group, given.host
    require_visible(call, group, None, host)
    require_known(group, None, host)
    by_host, selector = given.by == HOSTS, parse_selector(given.label) or ()
    row_name, labels = row_names(call, given.sums, by_host=by_host)
    platform, now = call.platform, call.platform.writer.now()
    index, sights = platform.machine_index, platform.poll_index
    begins = parse_time_or_age("from", given.from_, now.at)
    begins = now.at if begins is None else begins
    groups = {g.name: g for g in index.groups() if call.sees(g.name) and group in (None, g.name)}
    events = [e for e in platform.active() if not e.unannounced and e.group in groups]
    remaining = await upcoming(call, None)
    configurations = () if call.limited else now.configurations
    decides = context().decides
    on_hosts: set[str] | None = None
    if (hosts_of := parse_selector(given.host_label)) is not None:
        on_hosts = {host.name for host in visible_hosts(call, hosts_of)}

    def build() -> object:
        disturbed = {name for event in events for name in event.resources}
        disturbed.update(
            name for _, steps in remaining for of in steps for name in of.step.machines
        )
        group_of, host_of, row_of = {}, {}, {}
        for each in groups.values():
            for machine in each.machines:
                name, on = machine.name, machine.host
                if name not in disturbed:
                    continue
                if on_hosts is not None and on not in on_hosts:
                    continue
                if host in (None, on) and matches(selector, labels_of(each, machine)):
                    group_of[name], host_of[name] = each.name, on
                    row_of[name] = row_name(on if by_host else each.name)
        fleet = Fleet(
            groups=groups,
            group_of=group_of,
            host_of=host_of,
            row_of=row_of,
            shown=(lambda event: sights.first_sights(event.id, event.resources))
            if decides
            else None,
        )
        period = Period(begins, begins + given.hours * HOUR)
        planned = [
            steps
            for rollout, steps_of in remaining
            for steps in outlook(
                rollout,
                (each for each in steps_of if period.has(each.not_before, each.ends_at)),
                row_of.__contains__,
                row_of.__getitem__,
            )
        ]
        return tonight(events, planned, configurations, fleet, period, now, labels)

    return await encode_in_thread(build)
