"""Notifications in the control API: how far each table [[notify]] has come, and a test message."""

from __future__ import annotations

from forewarn.control.http.context import Call, context
from forewarn.control.http.errors import RefusedError, unwrap
from forewarn.control.http.operation import route
from forewarn.control.http.parameters import Name
from forewarn.control.operations import feed as operations
from forewarn.control.schema.notify import NotifyState, NotifyTest
from forewarn.core.refusal import unknown_name


@route(operations.GET_NOTIFICATIONS)
def get_notifications(call: Call) -> list[NotifyState]:
    """One entry for each table `[[notify]]` of the settings; none for a token that is limited to
    groups. Where messages are sent is shown without secrets."""
    notifications = context().notifications()
    return [] if notifications is None or call.limited else notifications.states()


@route(operations.TEST_NOTIFICATION)
async def test_notification(name: Name) -> NotifyTest:
    """The message says that it is a test. It is sent once; `delivered` is false, with the reason in
    `error`, if the target does not accept it."""
    notifications = context().notifications()
    if notifications is None:
        raise RefusedError(unknown_name("notification", name, ()))
    outcome: NotifyTest = unwrap(await notifications.test(name))
    return outcome
