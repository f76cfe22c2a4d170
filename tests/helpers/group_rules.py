"""The promises, written down a second time and as plainly as possible.

Nothing here is taken from the code under test but its values: what holds an event back, what
may be announced, and with how much notice. `group_checker.py` judges by these.
"""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import msgspec

from forewarn.core import Group, Policy, World, commands
from forewarn.core.deciding.holds import HoldKind
from forewarn.core.events import Event, EventType, Source, Status
from forewarn.core.fleet import OverWhen
from forewarn.core.time import DAY, MINUTE, SECOND, Duration, Time

NOTICE: dict[EventType, Duration] = {
    EventType.FREEZE: 15 * MINUTE,
    EventType.REBOOT: 15 * MINUTE,
    EventType.REDEPLOY: 10 * MINUTE,
    EventType.PREEMPT: 30 * SECOND,
    EventType.TERMINATE: 5 * MINUTE,
}
NIGHTS = "22:00-04:00 Europe/Berlin"
DELETES = (EventType.PREEMPT, EventType.TERMINATE)
BY_USER = (EventType.REBOOT, EventType.REDEPLOY)


def paced(duration: Duration, now: World) -> Duration:
    return round(duration / now.rules.speed)


def back_within(policy: Policy, type: EventType, now: World) -> Duration:
    """For how long machines are waited for after an event, if they are."""
    heard = policy.over_when is OverWhen.HEARD or (
        policy.over_when is None and now.rules.until_heard
    )
    if not heard or type in DELETES:
        return 0
    longest = policy.back_within or 10 * MINUTE
    return paced(min(longest, MINUTE) if type is EventType.FREEZE else longest, now)


def grace_end(now: World) -> Time:
    if now.steady_since is None:
        return 0
    return now.steady_since + paced(now.rules.start_grace, now)


def expired(event: Event, now: World) -> bool:
    return now.at >= event.not_before and now.at >= grace_end(now)


def from_copy(event: Event, now: World) -> bool:
    """Was it there when a copy became the state, and is the grace after that not over?"""
    return now.restored is not None and event.raised_at <= now.restored and now.at < grace_end(now)


def waits_for_machine(event: Event) -> bool:
    return event.type not in DELETES and not event.failure


def waits_for_domain(event: Event) -> bool:
    return waits_for_machine(event) and event.source is Source.PLATFORM


def halted(event: Event, group: Group, now: World) -> bool:
    """Has somebody halted it: everything, its group, or one of its machines by a label k=v?"""
    labels = {
        f"{name}={value}"
        for machine in group.machines
        if machine.name in event.resources
        for name, value in {**group.labels, **machine.labels}.items()
    }
    return any(
        (not halt.groups or group.name in halt.groups) and (not halt.label or halt.label in labels)
        for halt in now.halts
    )


def out_of_reach(event: Event, group: Group, now: World) -> bool:
    """Is a living machine of its on a host that cannot be reached; or could not until a moment ago,
    if nobody has approved it? Or does one poll on another host?"""
    for machine in group.machines:
        if machine.name not in event.resources or machine.gone:
            continue
        if machine.name in now.strayed:
            return True
        for host in {machine.host, machine.disputed} & set(now.unreachable):
            joined = now.unreachable[host]
            if joined is None:
                return True
            fresh = now.at < joined + paced(now.rules.start_grace, now)
            if fresh and event.approved is None:
                return True
        left = now.left_unreachable.get(machine.name)
        fresh = left is not None and now.at < left + paced(now.rules.start_grace, now)
        if fresh and event.approved is None:
            return True
    return False


def with_left(now: World, before: Group, after: Group) -> World:
    """`now`, and who has left a host that is unreachable: its guests have not had time to poll."""
    left = dict(now.left_unreachable)
    for machine in before.machines:
        present = after.machine(machine.name)
        if machine.gone or present is None or machine.host not in now.unreachable:
            continue
        if present.host != machine.host:
            left[machine.name] = now.at
    return msgspec.structs.replace(now, left_unreachable=left)


def unheard(group: Group, now: World) -> bool:
    """Is every living machine on a host that cannot be reached, and so can tell nothing either?"""
    alive = [machine for machine in group.machines if not machine.gone]
    hosts = {host for machine in alive for host in (machine.host, machine.disputed or machine.host)}
    return bool(alive) and all(
        host in now.unreachable and now.unreachable[host] is None for host in hosts
    )


def obeys_windows(event: Event) -> bool:
    return waits_for_domain(event) and not event.ignore_windows


def closed(policy: Policy, at: Time) -> set[HoldKind]:
    """What keeps maintenance from starting at an instant. The only window that groups have here is
    NIGHTS, so that a look at a clock in Berlin is enough."""
    kinds: set[HoldKind] = set()
    assert all(window.text == NIGHTS for window in policy.windows)
    berlin = datetime.fromtimestamp(at // SECOND, ZoneInfo("Europe/Berlin"))
    if policy.windows and 4 <= berlin.hour < 22:
        kinds.add(HoldKind.WINDOW)
    if any(blackout.begins <= at < blackout.ends for blackout in policy.blackouts):
        kinds.add(HoldKind.BLACKOUT)
    return kinds


def held_by(event: Event, events: tuple[Event, ...], now: World, group: Group) -> set[HoldKind]:
    """What holds a Scheduled event back, among these events of its group."""
    kinds = closed(group.policy, now.at) if obeys_windows(event) else set[HoldKind]()
    others = [other for other in events if other.id != event.id]
    busy = [other for other in others if other.status is Status.STARTED]
    if event.approved is None:
        if now.at < event.not_before:
            kinds.add(HoldKind.NOTICE)
        if now.at < grace_end(now) and not from_copy(event, now):
            kinds.add(HoldKind.GRACE)
    elif event.type is EventType.TERMINATE and not expired(event, now):
        for other in others:
            if (
                other.type is EventType.TERMINATE
                and other.status is Status.SCHEDULED
                and other.not_before <= event.not_before
                and other.approved is None
                and not expired(other, now)
            ):
                kinds.add(HoldKind.COUPLING)
    if from_copy(event, now):
        kinds.add(HoldKind.RESTORED)
    if halted(event, group, now):
        kinds.add(HoldKind.HALT)
    if out_of_reach(event, group, now):
        kinds.add(HoldKind.REACH)
    lost = {m.not_back.cause for m in group.machines if m.not_back and not m.gone}
    if event.moves and event.cause.startswith("host/") and event.cause in {*lost, *now.not_back}:
        kinds.add(HoldKind.BACK)
    if waits_for_machine(event) and any(set(o.resources) & set(event.resources) for o in busy):
        kinds.add(HoldKind.MACHINE)
    if waits_for_domain(event) and any(o.domain != event.domain for o in busy):
        kinds.add(HoldKind.DOMAIN)
    return kinds


def unsuitable(group: Group, names: tuple[str, ...]) -> bool:
    """May no event name these machines together, now?"""
    known = {machine.name: machine for machine in group.machines}
    if not names or len(set(names)) < len(names) or not known.keys() >= set(names):
        return True
    if any(known[name].gone for name in names):
        return True
    if len({known[name].update_domain for name in names}) > 1:
        return True
    return any(
        event.type in DELETES
        and event.status is Status.STARTED
        and set(event.resources) & set(names)
        for event in group.events
    )


def pending_user_events(group: Group) -> list[Event]:
    return [
        event
        for event in group.events
        if event.source is Source.USER and event.status is Status.SCHEDULED
    ]


def same_request(group: Group, command: commands.UserMaintenance) -> Event | None:
    """The event that an earlier, equal request of a user has brought about and that waits."""
    for event in pending_user_events(group):
        if event.type is command.type and event.resources == (command.machine,):
            return event
    return None


def goes_at_once(group: Group, command: commands.UserMaintenance | commands.Raise) -> bool:
    """Does a user's event need nobody's approval? Nobody listens, or a policy has approved it."""
    if command.type in group.policy.auto_approve:
        return True
    return not group.enabled


def too_many(group: Group, command: commands.UserMaintenance | commands.Raise) -> bool:
    limit = group.policy.user_event_limit
    if limit is None or goes_at_once(group, command):
        return False
    return len(pending_user_events(group)) >= limit


def misworded(command: commands.Raise) -> bool:
    if command.source is Source.USER and (command.type not in BY_USER or command.duration != -1):
        return True
    return not -1 <= command.duration <= 86_400 or len(command.description) > 1_024


def notice_is_wrong(command: commands.Raise, now: World) -> bool | None:
    """None where the promise leaves it open: an absolute time under a hurried clock."""
    promised = NOTICE[command.type]
    if command.notice is not None and command.not_before is not None:
        return True
    if command.not_before is not None:
        notice = command.not_before - now.at - now.rules.telling
        if paced(promised, now) <= notice < promised and not command.short_notice:
            return None
    else:
        notice = promised if command.notice is None else command.notice
    short = notice < promised and not command.short_notice
    return short or notice < -now.rules.telling or notice > 90 * DAY


def outside(group: Group, command: commands.Raise) -> bool:
    """Is this a time that the caller has chosen and at which maintenance may not start?"""
    platform = command.source is Source.PLATFORM and command.type not in DELETES
    if command.not_before is None or not platform or command.ignore_windows:
        return False
    shown = -(-command.not_before // SECOND) * SECOND
    return bool(closed(group.policy, shown))
