"""`watch`: lanes that hear a service in a test, from now on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from forewarn.testing.kit.errors import RefusedByService
from forewarn.testing.timeline.lanes import Lanes

if TYPE_CHECKING:
    from forewarn.testing.kit.service import Service


def watch(service: Service, tell: Callable[[float, str], None] | None = None) -> Lanes:
    """`tell`, if given, is called with the time and the words of each change."""
    node = service.node
    trace = node.trace
    if trace is None:
        raise RefusedByService("polls that take the short way are not observed: front=False")
    lanes = Lanes(tell)

    def begin() -> None:  # in the service's loop, where nothing comes in between
        trace.tell(lanes.hear)
        trace.fleet(node.store, node.writer.now().at)

    service.call(begin)
    return lanes
