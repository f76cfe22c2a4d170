"""A fleet, and a history that leaves something of everything in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from forewarn.core import EventType, Refused
from forewarn.core.time import MINUTE
from forewarn.node import Node

START = 1_800_000_000 * 1_000_000  # Fri, 15 Jan 2027 08:00:00 GMT
FLEET = """
groups:
  - name: web
    kind: scale-set
    machines:
      - {name: web_0, update_domain: 0}
      - {name: web_1, update_domain: 1}
      - {name: web_2, update_domain: 0, spot: true}
  - name: shop
    kind: cloud-service
    machines: [{name: FrontEnd_IN_0}]
  - name: quiet
    kind: standalone
    machines: [{name: quiet}]
  - name: asleep
    kind: standalone
    machines: [{name: asleep}]
"""
GONE = "web_2"
NOBODY = "127.0.9.9"  # an address of no machine
AWAKE = ("quiet", "web_0", "FrontEnd_IN_0", GONE, NOBODY)  # whom a case may be said as


async def busy(node: Node) -> None:
    """A group with an event that has started and one that is approved but waits, one with an
    event that nobody has approved, one without any, and a machine that is gone."""
    for group in ("web", "shop", "quiet"):
        await node.guests.enable(group)
    await schedule(node, EventType.PREEMPT, GONE)
    await node.advance(START + 30 * MINUTE)
    for machine, type in (("web_1", EventType.FREEZE), ("web_0", EventType.REBOOT)):
        await approve(node, await schedule(node, type, machine))
    await schedule(node, EventType.REDEPLOY, "FrontEnd_IN_0", description="für alle ☂")


async def schedule(node: Node, type: EventType, machine: str, **details: Any) -> str:
    done = await node.platform.schedule(type=type, machines=(machine,), by="test", **details)
    assert not isinstance(done, Refused), done.message
    return done.event.id


async def approve(node: Node, event: str) -> None:
    done = await node.platform.approve(event, "test")
    assert not isinstance(done, Refused), done.message


def event_id(number: int) -> str:
    """Of the event that was raised so many after the first."""
    return f"{number + 1:08X}-0000-4000-8000-000000000000"


def ids() -> Callable[[], str]:
    """The same for every node that is told the same."""
    numbers = itertools.count()
    return lambda: event_id(next(numbers))
