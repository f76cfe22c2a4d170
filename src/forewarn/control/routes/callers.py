"""Unknown callers, in the control API."""

from __future__ import annotations

from forewarn.control.http.context import Call, context
from forewarn.control.http.operation import route
from forewarn.control.http.paging import parse_name_cursor
from forewarn.control.http.parameters import Given
from forewarn.control.operations import machines as operations
from forewarn.control.schema import core as s
from forewarn.control.schema import queries as q
from forewarn.control.views import core


@route(operations.LIST_UNKNOWN_CALLERS)
def list_unknown_callers(call: Call, given: Given[q.PageQuery]) -> list[s.UnknownCaller]:
    """Addresses that have sent requests to the metadata endpoint and that belong to no machine, to
    one that no longer exists, or to one that is known to be on another host, ordered by address and
    host. They are kept in memory from the start of the service, at most 1,024 of them; those with
    the fewest requests are forgotten first."""
    cursor = parse_name_cursor(given.after)
    last = ("", "") if cursor is None else cursor
    platform = context().platform
    callers = platform.poll_index.unknown_callers.all()
    later = (caller for caller in callers if (caller.address, caller.host) > last)
    page = call.take_page(later, given.limit, lambda caller: (caller.address, caller.host))
    return [
        core.unknown_caller(caller, platform.machine_index.at(caller.address)) for caller in page
    ]
