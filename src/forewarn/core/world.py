"""The world as a decision knows it outside its group: the instant, whether the endpoint has been
serving without a break, the rules in force, when maintenance is allowed, what operators have
halted, which machines nobody has informed of the maintenance of their host, which hosts cannot be
reached, and which machines poll.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from forewarn.core.halts import Halt
from forewarn.core.time import Duration, Durations, Time, ceil_second
from forewarn.core.windows.model import MaintenanceConfiguration
from forewarn.support.text import utc


class LastPoll(Protocol):
    """When a machine has polled last."""

    @property
    def last(self) -> Time: ...

    @property
    def interval(self) -> Duration:
        """The time between its last two polls; 0: not known."""


class UntrustedClock(msgspec.Struct, frozen=True):
    """The wall clock contradicts the time that the service has reached. Until the two agree again,
    or an operator accepts the wall clock, nothing is started, carried out or forgotten."""

    wall: Time  # what the wall clock showed when this was noticed
    since: Time  # the time that the service had reached by then


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What a decision knows beside its group."""

    at: Time
    steady_since: Time | None = None  # last end of an outage or step of the clock, if there was one
    lost: Duration = 0  # total time during which the endpoint has not been serving
    restored: Time | None = None  # when a backup was restored, if the grace after it is not over
    untrusted: UntrustedClock | None = None  # why time alone changes nothing now
    rules: Durations = Durations()
    halts: tuple[Halt, ...] = ()  # those that stand
    halted_hosts: Mapping[str, frozenset[str]] = {}  # by `host_label` of a halt: hosts that match
    configurations: tuple[MaintenanceConfiguration, ...] = ()  # of the fleet
    uninformed: Mapping[str, tuple[str, ...]] = {}  # by host with planned maintenance: the machines
    # that are on it, or may be, and to which the maintenance is not announced
    # By host that cannot be reached, because its node is cut off: None, or when its node joined
    # again, if the grace after that is not over.
    unreachable: Mapping[str, Time | None] = {}
    unreachable_since: Mapping[str, Time] = {}  # by such a host: when its node was cut off
    # By machine that has left such a host: when it did, if the grace after that is not over.
    left_unreachable: Mapping[str, Time] = {}
    strayed: Mapping[str, Time] = {}  # by machine that polls on another host: since when
    polls: Mapping[str, LastPoll] = {}  # by machine that has ever polled
    heard: Mapping[str, Time] = {}  # by machine that an event waits for, or that is not back: when
    # it has polled since
    not_back: Mapping[str, Mapping[str, Time]] = {}  # by cause of an event: the machines that are
    # not back after it, and since when
    defined_above: int = 0  # incarnations of groups that are defined now are above this one: the
    # state was restored once, and they may have been there before

    @property
    def served(self) -> Duration:
        """The instant on a clock that stops while the endpoint is not serving."""
        return self.at - self.lost

    @property
    def grace_ends(self) -> Time | None:
        if self.steady_since is None:
            return None
        return self.grace_after(self.steady_since)

    @property
    def latest_interruption(self) -> Time:
        """When the last interruption ended for whichever guests; 0 if the grace after it is over,
        or there was none."""
        joined = (at for at in self.unreachable.values() if at is not None)
        return max((self.steady_since or 0, *joined, *self.left_unreachable.values()))

    def after_notice(self, notice: Duration) -> Time:
        """Return the NotBefore of an event that is announced now with this notice."""
        return ceil_second(self.at + self.rules.from_commit(notice))

    def unreachable_until(self, host: str) -> Time | None:
        """Return when the grace ends after the node of a host has joined again; None if it has not,
        or was not cut off."""
        joined = self.unreachable.get(host)
        return None if joined is None else self.grace_after(joined)

    def grace_after(self, at: Time) -> Time:
        """Return until when guests that can poll again since `at` have time to."""
        return at + self.rules.paced(self.rules.start_grace)

    @property
    def clock_problem(self) -> str:
        """Why the wall clock is not trusted and what to do about it; empty if it is trusted."""
        if self.untrusted is None:
            return ""
        reached, wall = utc(self.untrusted.since), utc(self.untrusted.wall)
        return (
            f"the service had reached {reached} when the wall clock showed {wall}:"
            " either the clock is wrong now, or it was wrong before. Nothing starts until the two"
            " agree again, or an admin accepts the wall clock as right"
        )
