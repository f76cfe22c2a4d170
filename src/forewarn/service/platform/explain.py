"""Explanations of what an event waits for.

The holds of a Scheduled event come from the predicates that decide (core/deciding/holds.py,
core/deciding/joint.py); those of a Started event come from its attempt.
"""

from __future__ import annotations

import msgspec

from forewarn.core import Event, Status, Time
from forewarn.core.deciding.holds import Hold, HoldKind
from forewarn.core.deciding.start import carried_out_jointly


class EventExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """An event, what it waits for, and who could unblock it."""

    event: Event
    holds: tuple[Hold, ...]
    message: str
    seen_by: dict[str, Time]  # machines that were shown it, and when first


def under_way(event: Event) -> tuple[Hold, ...]:
    """Return what a Started event waits for before it is over."""
    if event.status is not Status.STARTED:
        return ()
    since, attempt = event.started_at or event.raised_at, event.attempt
    if attempt is None:
        if not carried_out_jointly(event):
            return ()
        return (
            _driver(
                f"it is carried out together with the others on host '{event.host}'",
                since,
                "the lead event",
            ),
        )
    operator = "an operator, by retrying the event if it did not happen, or finishing it if it did"
    if attempt.open:
        message = f"the driver is at work (attempt {attempt.number})"
        ends = "the driver, or an operator, by finishing the event"
        return (_driver(message, attempt.at, ends),)
    if attempt.stuck:
        message = (
            f"it is unknown whether it was carried out (attempt {attempt.number}: {attempt.note})"
        )
        return (_driver(message, attempt.at, operator),)
    if attempt.note:
        message = f"attempt {attempt.number} failed ({attempt.note}); the next one comes by itself"
    else:
        message = "it is being carried out; the driver will check again whether it is done"
    return (_driver(message, attempt.at, operator, attempt.next_at),)


def _driver(message: str, since: Time, unblocked_by: str, until: Time | None = None) -> Hold:
    return Hold(
        kind=HoldKind.DRIVER, message=message, since=since, until=until, unblocked_by=unblocked_by
    )


def summary(event: Event, holds: tuple[Hold, ...]) -> str:
    """Return the status of an event and its holds in one line."""
    if event.status.over:
        return f"it is over: {event.ending or event.status.value.lower()}"
    if not holds:
        return "nothing holds it: it starts now"
    if event.status is Status.STARTED:
        head = "started"
    else:
        head = "approved, but waiting" if event.approved else "waiting"
    return f"{head}: {'; '.join(hold.message for hold in holds)}"
