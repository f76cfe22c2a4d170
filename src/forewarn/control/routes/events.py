"""Events in the control API: announcing, listing, explaining, approving and ending them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

from litestar.params import JSONBody

from forewarn.control.http import filters
from forewarn.control.http.access import authorization
from forewarn.control.http.context import Call, CallContext, context, require_known_hosts
from forewarn.control.http.errors import (
    RefusedError,
    duration_of,
    each_once,
    instant,
    outcome,
    parse_id,
    parse_selector,
    parse_time_or_age,
    parse_time_or_delay,
    unwrap,
)
from forewarn.control.http.filters import EventFilter
from forewarn.control.http.operation import route
from forewarn.control.http.paging import parse_start_cursor, parse_time_cursor
from forewarn.control.http.parameters import Id, Parameters
from forewarn.control.http.preconditions import event_tag
from forewarn.control.http.requests import arguments
from forewarn.control.operations import events as operations
from forewarn.control.operations.table import ID_OF
from forewarn.control.schema import core as s
from forewarn.control.schema import queries as q
from forewarn.control.views import core
from forewarn.core import Event, Status
from forewarn.core.refusal import invalid
from forewarn.service.indexes.events import start_key
from forewarn.service.platform.explain import Verb
from forewarn.service.platform.platform import Platform

BY_START = "not_before"
NOT_OF_EVENTS = ("raised_since", "from_", "until", "order", "limit", "after")  # but of their list


@route(operations.LIST_EVENTS)
async def list_events(call: Call, given: Parameters[q.EventQuery]) -> list[s.Event]:
    """Lists active events in the order in which they were announced, or may start (`not_before`).
    With `past`, or if `status` is Finished or Withdrawn, events that are over follow, the latest
    first; that is not possible in the order of `not_before`. `label` selects events that affect a
    machine with these labels."""
    require_visible(call, given.group, given.machine, given.host)
    now = context().platform.writer.now().at
    criteria = EventFilter(
        **_criteria(call, given, without=NOT_OF_EVENTS),
        raised_since=parse_time_or_age("raised_since", given.raised_since, now),
        start=parse_time_or_delay("from", given.from_, now),
        end=parse_time_or_delay("until", given.until, now),
    )
    page: list[Event] = []
    async for event in _listed(criteria, given):
        if len(page) == given.limit:
            by_start = given.order == BY_START
            last = page[-1]
            call.add_next_link(("s", *start_key(last)) if by_start else filters.event_key(last))
            break
        page.append(event)
    if not page:  # not earlier: a resource that was removed may still have past events
        require_known(given.group, given.machine, given.host)
    return [core.event(event) for event in page]


def _criteria(
    call: CallContext,
    data: q.EventQuery | s.CancelEventsRequest,
    *,
    without: Collection[str],
) -> dict[str, Any]:
    """Return what a list of events and a cancellation of several can be limited to."""
    return arguments(data, EventFilter, without=("label", "rollout", *without)) | {
        "rollout": None if data.rollout is None else parse_id("rollout", data.rollout),
        "sees": call.sees,
        "labelled": labelled_by(data.label),
    }


def _listed(criteria: EventFilter, given: q.EventQuery) -> AsyncIterator[Event]:
    """Iterate over the events after a page."""
    if given.order != BY_START:
        return filters.events(context().platform, criteria, parse_time_cursor(given.after))
    if criteria.over:
        raise RefusedError(
            invalid(
                "order=not_before is for events that are not over; leave out past, or list those"
                " that are over with order=raised_at"
            )
        )
    return filters.events_by_start(context().platform, criteria, parse_start_cursor(given.after))


@route(operations.SCHEDULE_EVENT)
async def schedule_event(call: Call, data: JSONBody[s.ScheduleRequest]) -> s.Outcome:
    """The event is for machines of one group. Without `notice` and `not_before`, it gets the
    minimum notice of its type."""
    machines = each_once("machines", data.machines)
    authorization.require_machines(call, *machines)
    fields = arguments(data, Platform.schedule)
    authorization.require_source(call, fields["source"])
    announced = outcome(await call.platform.schedule(**fields, by=call.by))
    call.headers["Location"] = f"/v1/events/{announced.id}"
    return announced


@route(operations.GET_EVENT)
async def get_event(call: Call, id: Id) -> s.EventDetails:
    """Events that are over are found as long as the history is kept."""
    id = await authorization.require_event(call, id)
    event = unwrap(await context().platform.event(id))
    call.headers["ETag"] = event_tag(event)
    return core.event_details(
        event,
        await call.platform.shown(event),
        call.platform.progress(event),
        context().platform.poll_index.polls,
    )


@route(operations.APPROVE_EVENT)
async def approve_event(call: Call, id: Id, given: Parameters[q.ApproveQuery]) -> s.Outcome:
    """The event starts before its `not_before`, as soon as nothing else holds it. A token that is
    limited to groups cannot use `ignore_windows`."""
    if given.ignore_windows:
        authorization.require_no_limit(call, "`ignore_windows`")
    id = await authorization.require_event(call, id)
    return outcome(await call.platform.approve(id, call.by, ignore_windows=given.ignore_windows))


@route(operations.POSTPONE_EVENT)
async def postpone_event(call: Call, id: Id, data: JSONBody[s.PostponeRequest]) -> s.Outcome:
    """Moves `not_before`, as far and as often as the policy of the event's group allows
    (`may_postpone`). If it would be outside of the maintenance windows, it moves on to the next
    opening. All events of the maintenance of a host move together."""
    if (data.by is None) == (data.until is None):
        raise RefusedError(invalid("give either by or until"))
    id = await authorization.require_event(call, id)
    by = 0 if data.by is None else duration_of("by", data.by)
    until = None if data.until is None else instant(data.until)
    return outcome(await call.platform.postpone(id, call.by, duration=by, until=until))


@route(operations.REPORT_READY)
async def report_ready(call: Call, id: Id, data: JSONBody[s.ReadyRequest]) -> s.Outcome:
    """For a machine that does not report it itself. The event must be listed in the document of the
    group; nothing starts because of the report."""
    id = await authorization.require_event(call, id)
    return outcome(
        await call.platform.report_ready(
            id, call.by, data.machine, ready=data.ready, note=data.note
        )
    )


@route(operations.CANCEL_EVENT)
async def cancel_event(
    call: Call, id: Id, data: JSONBody[s.CancelRequest | None] = None
) -> s.Outcome:
    """With the maintenance of a host, its events of all groups are cancelled."""
    id = await authorization.require_requested_event(call, id)
    return outcome(await call.platform.cancel(id, call.by, data.reason if data else ""))


@route(operations.CANCEL_EVENTS)
async def cancel_events(call: Call, data: JSONBody[s.CancelEventsRequest]) -> s.CancelledEvents:
    """Cancels them in one commit. Events that have started, and ids that are unknown or ambiguous,
    are reported and left alone. With the maintenance of a host, its events of all groups are
    cancelled. With `plan`, nothing is changed: the response says what would be cancelled."""
    named = s.CancelEventsRequest(ids=data.ids, reason=data.reason, plan=data.plan)
    if bool(data.ids) is (data != named):
        raise RefusedError(
            invalid(
                "pass either ids, or fields that select events: group, machine, host, label, type,"
                " source, rollout"
            )
        )
    ids = [
        await authorization.require_requested_event(call, id)
        for id in data.ids or await _selected(call, data)
    ]
    done = unwrap(await call.platform.cancel_all(ids, call.by, data.reason, plan=data.plan))
    return s.CancelledEvents(
        events=[core.event(event) for event in done.events],
        refused=[str(refused) for refused in done.refused],
        notes=list(done.notes),
    )


async def _selected(call: CallContext, data: s.CancelEventsRequest) -> list[str]:
    """Return the ids of the Scheduled events that a request selects."""
    require_visible(call, data.group, data.machine, data.host)
    require_known(data.group, data.machine, data.host)
    fields = _criteria(call, data, without=("ids", "plan", "reason"))
    criteria = EventFilter(**fields, status=Status.SCHEDULED)
    return [event.id async for event in filters.events(call.platform, criteria, None)]


@route(operations.RETRY_EVENT)
async def retry_event(call: Call, id: Id) -> s.Outcome:
    """The driver carries the event out again."""
    id = await authorization.require_requested_event(call, id)
    return outcome(await call.platform.retry(id, call.by))


@route(operations.FINISH_EVENT)
async def finish_event(call: Call, id: Id, data: JSONBody[s.FinishRequest]) -> s.Outcome:
    """Use this after the work was done by hand, or if the driver cannot complete it."""
    id = await authorization.require_requested_event(call, id)
    return outcome(await call.platform.finish(id, call.by, data.reason, data.moved))


@route(operations.ABANDON_EVENT)
async def abandon_event(call: Call, id: Id, data: JSONBody[s.AbandonRequest]) -> s.Outcome:
    """Its machines stay as they were: none is deleted or moved. A rollout counts it as a failed
    step."""
    id = await authorization.require_requested_event(call, id)
    return outcome(await call.platform.abandon(id, call.by, data.reason))


@route(operations.EXPLAIN_EVENT)
async def explain_event(call: Call, id: Id) -> s.Explanation:
    id = await authorization.require_event(call, id)
    require_known_hosts()
    explanation = unwrap(await context().platform.explain(id))
    verbs = [_VERBS[verb] for verb in explanation.verbs]
    if not authorization.may_end(call, explanation.event):
        verbs = [operation for operation in verbs if operation not in _ENDING]
    allowed = [
        ID_OF[operation]
        for operation in verbs
        if not authorization.why_denied(call.caller, operation)
    ]
    return core.explanation(authorization.hide_other_groups(call, explanation), allowed)


_VERBS = {
    Verb.APPROVE: operations.APPROVE_EVENT,
    Verb.POSTPONE: operations.POSTPONE_EVENT,
    Verb.READY: operations.REPORT_READY,
    Verb.CANCEL: operations.CANCEL_EVENT,
    Verb.RETRY: operations.RETRY_EVENT,
    Verb.FINISH: operations.FINISH_EVENT,
    Verb.ABANDON: operations.ABANDON_EVENT,
}
# Not for what is the platform's.
_ENDING = tuple(_VERBS[verb] for verb in (Verb.CANCEL, Verb.RETRY, Verb.FINISH, Verb.ABANDON))


def labelled_by(label: str | None) -> Callable[[Event], bool]:
    """Return whether an event affects a machine that a label selector selects."""
    return filters.labelled(parse_selector(label) or (), context().store.groups)


def require_visible(
    call: CallContext, group: str | None, machine: str | None, host: str | None
) -> None:
    """Refuse to filter by what is outside of the caller's limit."""
    if group is not None:
        authorization.require_group(call, group)
    if machine is not None:
        authorization.require_machines(call, machine)
    if host is not None:
        authorization.require_host(call, host, whole=False)


def require_known(group: str | None, machine: str | None, host: str | None) -> None:
    """Refuse to filter by what does not exist."""
    machine_index = context().platform.machine_index
    if group is not None and machine_index.group(group) is None:
        raise RefusedError(machine_index.unknown_group(group))
    if machine is not None and machine_index.machine(machine) is None:
        raise RefusedError(machine_index.unknown_machine(machine))
    if host is not None:
        unwrap(context().hosts.host(host))
