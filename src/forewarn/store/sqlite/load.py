"""From rows to the state as it was last committed: what a service that starts has in memory."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from forewarn.core import Event, Group, Machine
from forewarn.core.access import Token
from forewarn.core.fleet import Host
from forewarn.core.registry import Registry
from forewarn.core.rollouts.model import Rollout
from forewarn.store.sqlite import schema as s

_group = msgspec.json.Decoder(Group)
_machine = msgspec.json.Decoder(Machine)
_event = msgspec.json.Decoder(Event)
_host = msgspec.json.Decoder(Host)
_rollout = msgspec.json.Decoder(Rollout)
_token = msgspec.json.Decoder(Token)


def groups(connection: sa.Connection) -> dict[str, Group]:
    """With their machines, and the events that are not over."""
    machines: dict[str, list[Machine]] = {}
    for row in connection.execute(sa.select(s.machines).order_by(s.machines.c.ordinal)):
        machines.setdefault(row.group_name, []).append(_machine.decode(row.body))
    events: dict[str, list[Event]] = {}
    active = sa.select(s.events).where(~s.events.c.over).order_by(s.events.c.ordinal)
    for row in connection.execute(active):
        events.setdefault(row.group_name, []).append(_event.decode(row.body))
    return {
        row.name: msgspec.structs.replace(
            _group.decode(row.body),
            machines=tuple(machines.get(row.name, ())),
            events=tuple(events.get(row.name, ())),
        )
        for row in connection.execute(sa.select(s.groups))
    }


def registry(connection: sa.Connection) -> Registry:
    hosts = map(_host.decode, connection.scalars(sa.select(s.hosts.c.body)))
    rollouts = map(_rollout.decode, connection.scalars(sa.select(s.rollouts.c.body)))
    tokens = map(_token.decode, connection.scalars(sa.select(s.tokens.c.body)))
    return Registry(
        {host.name: host for host in hosts},
        {rollout.id: rollout for rollout in rollouts},
        {token.id: token for token in tokens},
    )


def newest(connection: sa.Connection) -> int:
    """The number of the last commit; 0 if there is none."""
    return connection.scalar(sa.select(sa.func.max(s.commits.c.seq))) or 0
