"""The words of notifications: a subject, and a text that says what happens to which machines, when,
why, and what the reader can do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, tzinfo

from forewarn.control.schema.core import Event
from forewarn.control.schema.feed import FeedChange
from forewarn.core.history import RecordKind as K
from forewarn.core.rollouts.model import BY_ITSELF
from forewarn.notify import kinds as k
from forewarn.notify.notification import Message, Notification, Skipped
from forewarn.support.instants import from_datetime
from forewarn.support.text import SECOND, counted, in_words, in_zone, listing, utc, visible

MAX_SUBJECT = 160  # characters
SHOWN_BLOCKS = 20  # events, hosts and rollouts that are described; others are counted
SHOWN_NAMES = 3  # machines in a subject; others are counted

_ABOUT_EVENT = {
    K.RAISED.value: "{what}: announced, not before {when}",
    K.STRUCK.value: "{what}: started without notice, after a failure",
    K.LISTED.value: "{what}: now visible to its machines, not before {when}",
    K.APPROVED.value: "{what}: approved",
    K.POSTPONED.value: "{what}: postponed, not before {when}",
    K.READY.value: "{what}: a machine has changed its readiness",
    K.LEFT.value: "{what}: machines have moved away",
    K.STARTED.value: "{what}: started",
    K.ATTEMPTED.value: "{what}: being tried again",
    K.ANSWERED.value: "{what}: not done yet",
    K.CARRIED_OUT.value: "{what}: carried out, waiting until its machines are back",
    K.FINISHED.value: "{what}: finished",
    K.WITHDRAWN.value: "{what}: withdrawn, will not happen",
    K.RETIMED.value: "{what}: times corrected",
}
_ABOUT_MACHINES = {
    K.MACHINE_NOT_BACK.value: "not back after an event: {what}",
    K.MACHINE_BACK.value: "back: {what}",
}
_ABOUT_HOST = {
    K.HOST_DEGRADED.value: "{what} is degraded",
    K.HOST_FAILED.value: "{what} has failed",
    K.HOST_REPAIRED.value: "{what} is healthy again",
    K.HOST_CORDONED.value: "{what} can no longer receive machines",
    K.HOST_UNCORDONED.value: "{what} can receive machines again",
    K.HOST_NODE_JOINED.value: "{what} has a node now, and is expected to have one",
    K.HOST_WITHOUT_NODE.value: "{what} is no longer expected to have a node",
    K.HOST_ENROLLMENT.value: "a token for the node of {what} was created",
    K.HOST_ENROLLED.value: "the node of {what} has got a certificate",
    K.HOST_REVOKED.value: "the certificates of {what} were revoked",
}
_ABOUT_ROLLOUT = {
    K.ROLLOUT_STARTED.value: "{what} has started",
    K.ROLLOUT_PAUSED.value: "{what} is paused",
    K.ROLLOUT_RESUMED.value: "{what} continues",
    K.ROLLOUT_ABORTED.value: "{what} was aborted",
    K.ROLLOUT_ENDED.value: "{what} has ended",
}
_ABOUT_HALT = {
    K.HALT_PLACED.value: "A halt was placed: events do not start until it is released",
    K.HALT_RELEASED.value: "A halt was released: events can start again",
}
# What readers can do, by kind, with the id of the event or rollout, or the name of the host.
_ACTIONS = {
    K.RAISED.value: (
        ("Start it before that time", "forewarn event approve {id}"),
        ("See what it waits for", "forewarn event explain {id}"),
    ),
    K.STRUCK.value: (("See what happened", "forewarn history --event {id}"),),
    K.ANSWERED.value: (("See what it waits for", "forewarn event explain {id}"),),
    K.WITHDRAWN.value: (("See what happened", "forewarn history --event {id}"),),
    K.MACHINE_NOT_BACK.value: (
        ("See which are not back", "forewarn machine list --not-back"),
        ("See what was done to it", "forewarn history --event {id}"),
    ),
    K.HOST_DEGRADED.value: (("See what is on it", "forewarn host show {id}"),),
    K.HOST_FAILED.value: (("See what is on it", "forewarn host show {id}"),),
    K.ROLLOUT_PAUSED.value: (
        ("See why", "forewarn rollout explain {id}"),
        ("Continue it", "forewarn rollout resume {id}"),
        ("End it", "forewarn rollout abort {id}"),
    ),
    K.HALT_PLACED.value: (("Release it", "forewarn halt release {id}"),),
    K.ROLLOUT_STARTED.value: (("See its steps", "forewarn rollout show {id}"),),
}


def subject(message: Message, zone: tzinfo) -> str:
    """Return one line about a message."""
    if message.what == k.TEST:
        text = "This is a test"
    elif message.what == k.SKIPPED and message.skipped is not None:
        text = _skipped(message.skipped)
    elif message.count == 1:
        text = _headline(message.notifications[0], zone)
    else:
        worst = next(
            (note for note in message.notifications if note.what == message.what),
            message.notifications[0],
        )
        text = f"{_headline(worst, zone)}; and {counted(message.count - 1, 'other change')}"
    text = visible(text)
    return text if len(text) <= MAX_SUBJECT else f"{text[: MAX_SUBJECT - 1]}…"


def body(message: Message, zone: tzinfo) -> str:
    """Return the text of a message."""
    return visible_lines(_body(message, zone))


def visible_lines(lines: Iterator[str]) -> str:
    return "\n".join(visible(line) for line in lines)


def _body(message: Message, zone: tzinfo) -> Iterator[str]:
    if message.what == k.TEST:
        yield "This is a test: notifications from forewarn arrive here. Nothing has happened."
        yield f"It was sent at {in_zone(message.at, zone)}."
        return
    if message.skipped is not None:
        yield f"{_skipped(message.skipped)}."
        yield from _skipped_details(message.skipped, zone)
        if message.notifications:
            yield ""
    for number, notification in enumerate(message.notifications):
        if number:
            yield ""
        if message.count > 1:
            yield f"{in_zone(notification.at, zone)}"
        yield f"{_headline(notification, zone)}."
        yield from _details(notification, zone)
    if message.more:
        kinds = ", ".join(f"{count:,} {what}" for what, count in sorted(message.more.items()))
        total = counted(sum(message.more.values()), "more change")
        yield ""
        yield f"And {total}: {kinds}. See 'forewarn history'."


def _headline(notification: Notification, zone: tzinfo) -> str:
    what, commit = notification.what, notification.commit
    if what in _ABOUT_EVENT and commit.events:
        first = min(event.not_before for event in commit.events)
        when = in_zone(first, zone)
        return _ABOUT_EVENT[what].format(what=_events(commit.events), when=when)
    hosts = list(dict.fromkeys(change.host for change in commit.changes if change.host))
    if what in _ABOUT_HOST and hosts:
        noun = f"Host {hosts[0]}" if len(hosts) == 1 else f"{len(hosts):,} hosts"
        return _ABOUT_HOST[what].format(what=noun)
    change = commit.changes[0]
    if what in _ABOUT_ROLLOUT:
        by_itself = " by itself" if what == K.ROLLOUT_PAUSED.value and _by_itself(change) else ""
        return _ABOUT_ROLLOUT[what].format(what=f"Rollout {change.cause[:8]}, {change.type},") + (
            by_itself
        )
    if what in _ABOUT_HALT:
        return _ABOUT_HALT[what]
    if what in _ABOUT_MACHINES:
        machines = list(dict.fromkeys(name for c in commit.changes for name in c.machines))
        return _ABOUT_MACHINES[what].format(what=_names(machines))
    names = list(dict.fromkeys(name for c in commit.changes for name in _subjects(c)))
    return f"{what}: {_names(names)}" if names else what


def _by_itself(change: FeedChange) -> bool:
    return change.by == BY_ITSELF


def _subjects(change: FeedChange) -> Sequence[str]:
    return change.machines or [name for name in (change.host or change.group,) if name]


def _events(events: Sequence[Event]) -> str:
    types = list(dict.fromkeys(event.type for event in events))
    machines = list(dict.fromkeys(name for event in events for name in event.machines))
    groups = list(dict.fromkeys(event.group for event in events))
    hosts = list(dict.fromkeys(event.host for event in events if event.host))
    where = f"group {groups[0]}" if len(groups) == 1 else f"{len(groups):,} groups"
    if len(hosts) == 1 and len(groups) > 1:
        where += f" on host {hosts[0]}"
    return f"{' and '.join(types)} of {_names(machines)} ({where})"


def _names(names: Sequence[str]) -> str:
    if len(names) <= SHOWN_NAMES:
        return ", ".join(names)
    return f"{len(names):,} machines"


def _details(notification: Notification, zone: tzinfo) -> Iterator[str]:
    what, commit = notification.what, notification.commit
    if what in _ABOUT_EVENT and commit.events:
        changes = {change.event: change for change in commit.changes}
        for event in commit.events[:SHOWN_BLOCKS]:
            yield ""
            yield from _event(what, event, changes[event.id], zone)
        yield from _rest(len(commit.events), "event")
        return
    for change in commit.changes[:SHOWN_BLOCKS]:
        yield from _change(what, change)
    yield from _rest(len(commit.changes), "change")


def _rest(count: int, noun: str) -> Iterator[str]:
    if count > SHOWN_BLOCKS:
        yield ""
        yield f"And {counted(count - SHOWN_BLOCKS, f'more {noun}')}."


def _event(what: str, event: Event, change: FeedChange, zone: tzinfo) -> Iterator[str]:
    yield _field("What", f"{event.type} of {listing(event.machines)}, group {event.group}")
    yield _field("When", _when(event, zone))
    if event.host:
        yield _field("Where", f"maintenance of host {event.host}")
    if event.description:
        yield _field("Why", event.description)
    if event.ticket:
        yield _field("Ticket", event.ticket)
    if change.by:
        yield _field("By", change.by)
    if change.note and change.note != event.description:
        yield _field("Note", change.note)
    yield _field("Event", event.id)
    yield from _actions(what, event.id)


def _when(event: Event, zone: tzinfo) -> str:
    if event.ended_at is not None:
        if event.started_at is None:
            return f"was planned for {in_zone(event.not_before, zone)}"
        started, ended = in_zone(event.started_at, zone), in_zone(event.ended_at, zone)
        return f"from {started} to {ended}"
    duration = f", for about {in_words(event.duration * SECOND)}" if event.duration > 0 else ""
    if event.started_at is not None:
        return f"since {in_zone(event.started_at, zone)}{duration}"
    return f"not before {in_zone(event.not_before, zone)}{duration}"


def _change(what: str, change: FeedChange) -> Iterator[str]:
    subject = change.host if what in _ABOUT_HOST else change.cause
    if what in _ABOUT_MACHINES:
        subject = change.event
    if what in _ABOUT_ROLLOUT:
        yield _field("Rollout", change.cause)
    elif names := _subjects(change):
        yield _field("What", listing(names))
    if change.note:
        yield _field("Why", change.note)
    if change.by:
        yield _field("By", change.by)
    yield from _actions(what, subject)


def _actions(what: str, id: str) -> Iterator[str]:
    for title, command in _ACTIONS.get(what, ()):
        yield _field(title, command.format(id=id))


def _field(name: str, value: str) -> str:
    return f"{name}: {value}"


def _skipped(skipped: Skipped) -> str:
    if not skipped.count:
        return "Older notifications were skipped"
    at_least = "At least " if skipped.unknown else ""
    verb = "was" if skipped.count == 1 else "were"
    return f"{at_least}{counted(skipped.count, 'older notification')} {verb} skipped"


def _skipped_details(skipped: Skipped, zone: tzinfo) -> Iterator[str]:
    if skipped.unknown:
        yield "They are no longer stored: the history is not kept for that long."
    if skipped.since is not None and skipped.until is not None:
        yield f"They were about changes from {in_zone(skipped.since, zone)}"
        yield f"to {in_zone(skipped.until, zone)}."
        since, until = _instant(skipped.since), _instant(skipped.until + timedelta(seconds=1))
        yield _field("See them", f"forewarn history --since {since} --until {until}")


def _instant(time: datetime) -> str:
    return utc(from_datetime(time)).replace(" ", "T")
