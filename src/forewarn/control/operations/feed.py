"""Operations of the control API on the feed of changes and its notifications."""

from __future__ import annotations

from forewarn.control.operations.operation import Operation
from forewarn.control.schema import queries as q
from forewarn.control.schema.feed import ChangesPage
from forewarn.control.schema.notify import NotifyState, NotifyTest

FOLLOW_FEED = Operation(
    "GET /v1/feed",
    "Stream every change as it happens, as server-sent events",
    bytes,
    query=q.FeedQuery,
    respects_limits=True,
    refuses=(409, 410, 503),
    command="feed",
)

GET_CHANGES = Operation(
    "GET /v1/changes",
    "Get the changes after a commit, waiting for them if there are none",
    ChangesPage,
    query=q.ChangesQuery,
    respects_limits=True,
    refuses=(409, 410, 503),
)

GET_NOTIFICATIONS = Operation(
    "GET /v1/notify",
    "List notifications, and how far each has been delivered",
    list[NotifyState],
    respects_limits=True,
    command="notify list",
    help=(
        "List the notifications of the settings: where they are sent, the last delivery and error."
    ),
)

TEST_NOTIFICATION = Operation(
    "POST /v1/notify/{name}/test",
    "Send a test message",
    NotifyTest,
    why_no_key="a test that is repeated only sends another test message",
    refuses=(404,),
    command="notify test ops",
)
