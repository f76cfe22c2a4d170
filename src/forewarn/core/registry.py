"""The registry: hosts, rollouts, halts, tokens and maintenance configurations, which belong to no
group, and their changes.

Of these, decisions about a group depend on halts and configurations alone (`World`). One commit can
change both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import TypeAlias

import msgspec

from forewarn.core.access import Token
from forewarn.core.fleet import Host
from forewarn.core.group import Group
from forewarn.core.halts import Halt
from forewarn.core.rollouts.model import Rollout
from forewarn.core.time import Time
from forewarn.core.windows.model import MaintenanceConfiguration, Window


class HostPut(msgspec.Struct, frozen=True, omit_defaults=True, tag="host"):
    host: Host
    by: str = ""
    note: str = ""  # about the token or the certificate of its node


class HostRemoved(msgspec.Struct, frozen=True, tag="host-removed"):
    name: str
    by: str = ""


class RolloutPut(msgspec.Struct, frozen=True, tag="rollout"):
    rollout: Rollout
    what: str = ""  # what was done to it: started, paused, resumed, skipped, aborted, ended
    by: str = ""
    note: str = ""


class RolloutRemoved(msgspec.Struct, frozen=True, tag="rollout-removed"):
    id: str


PLACED = "placed"


class HaltPut(msgspec.Struct, frozen=True, tag="halt"):
    halt: Halt
    what: str = ""  # PLACED, unless only its time was corrected
    by: str = ""


class HaltReleased(msgspec.Struct, frozen=True, tag="halt-released"):
    id: str
    scope: str  # what it has covered, in words
    note: str = ""
    by: str = ""


class TokenPut(msgspec.Struct, frozen=True, tag="token"):
    token: Token
    what: str = ""  # what was done to it: created, revoked
    by: str = ""


class TokenRemoved(msgspec.Struct, frozen=True, tag="token-removed"):
    id: str


class GroupForgotten(msgspec.Struct, frozen=True, tag="group-forgotten"):
    """A group that has had no machines for longer than the history is kept is forgotten, with the
    numbers of its documents. It is not in the registry, but no decision changes it either."""

    name: str


class ConfigurationPut(msgspec.Struct, frozen=True, tag="configuration"):
    configuration: MaintenanceConfiguration
    by: str = ""


class ConfigurationRemoved(msgspec.Struct, frozen=True, tag="configuration-removed"):
    name: str
    by: str = ""


class StateRestored(msgspec.Struct, frozen=True, tag="state-restored"):
    """A backup was restored. What was done after it was made is not known, and the numbers between
    its last commit and this one may have been used for something else."""

    commit: int  # the last one in the backup
    copied_at: Time | None = None


class ClockAccepted(msgspec.Struct, frozen=True, tag="clock-accepted"):
    """An operator has accepted the wall clock, which gives the time of this commit. If the time of
    the service was ahead of it, everything stored with a later time was dated by a wrong clock."""

    before: Time  # the service's time until then
    by: str = ""


Put: TypeAlias = (
    HostPut
    | HostRemoved
    | RolloutPut
    | RolloutRemoved
    | HaltPut
    | HaltReleased
    | TokenPut
    | TokenRemoved
    | GroupForgotten
    | ConfigurationPut
    | ConfigurationRemoved
    | StateRestored
    | ClockAccepted
)


def stored_windows(
    groups: Iterable[Group],
    rollouts: Iterable[Rollout],
    configurations: Iterable[MaintenanceConfiguration],
) -> Iterator[tuple[str, Window]]:
    """Yield every window that may still apply, preceded by whose it is."""
    for group in groups:
        yield from ((f"group '{group.name}'", window) for window in group.policy.windows)
    for configuration in configurations:
        name = f"maintenance configuration '{configuration.name}'"
        yield from ((name, window) for window in configuration.windows)
    for rollout in rollouts:
        if rollout.ended_at is None:
            yield from ((f"rollout {rollout.id}", window) for window in rollout.windows)


class Registry(msgspec.Struct, frozen=True):
    hosts: MutableMapping[str, Host]
    rollouts: MutableMapping[str, Rollout]
    tokens: MutableMapping[str, Token]
    halts: MutableMapping[str, Halt]  # those that stand
    configurations: MutableMapping[str, MaintenanceConfiguration] = msgspec.field(
        default_factory=dict
    )

    def put(self, put: Put) -> None:
        """Apply a change."""
        match put:
            case HostPut(host=host):
                self.hosts[host.name] = host
            case HostRemoved(name=name):
                self.hosts.pop(name, None)
            case RolloutPut(rollout=rollout):
                self.rollouts[rollout.id] = rollout
            case RolloutRemoved(id=id):
                self.rollouts.pop(id, None)
            case HaltPut(halt=halt):
                self.halts[halt.id] = halt
            case HaltReleased(id=id):
                self.halts.pop(id, None)
            case TokenPut(token=token):
                self.tokens[token.id] = token
            case TokenRemoved(id=id):
                self.tokens.pop(id, None)
            case ConfigurationPut(configuration=configuration):
                self.configurations[configuration.name] = configuration
            case ConfigurationRemoved(name=name):
                self.configurations.pop(name, None)

    def copy(self) -> Registry:
        return Registry(
            dict(self.hosts),
            dict(self.rollouts),
            dict(self.tokens),
            dict(self.halts),
            dict(self.configurations),
        )
