"""The state of `forewarn watch`: its client, and which machine this is."""

from __future__ import annotations

from collections.abc import Iterator

from forewarn.cli.commands.watch_text import ChangeLine
from forewarn.cli.output import say
from forewarn.client import Client, ClientError, Event, Identity, Snapshot
from forewarn.client.events import is_short_freeze
from forewarn.support import guard

IDENTIFY_TIMEOUT = 5.0  # seconds for a request for this machine's identity
IDENTIFY_AGAIN = 60.0  # seconds after which a failed request is repeated


class WatchState:
    """The snapshots of a client, with the changes that are about this machine marked."""

    def __init__(self, client: Client, *, mine_only: bool = False, min_freeze: float = 0.0) -> None:
        self.client = client
        self.identity: Identity | None = None
        self._mine_only = mine_only
        self._min_freeze = min_freeze  # seconds
        self._identify_at = 0.0

    def snapshots(self) -> Iterator[tuple[Snapshot, list[ChangeLine]]]:
        for snapshot in self.client.snapshots():
            yield snapshot, self.change_lines(snapshot)

    def change_lines(self, snapshot: Snapshot) -> list[ChangeLine]:
        self._identify()
        name = self.identity.name if self.identity else ""
        return [
            ChangeLine(change, self.is_mine(change.event), name)
            for change in snapshot.changes
            if self.is_wanted(change.event)
        ]

    def is_mine(self, event: Event) -> bool:
        return self.identity is not None and event.affects(self.identity)

    def is_wanted(self, event: Event) -> bool:
        """Return whether an event is to be shown. While this machine is not known, those of all
        machines are."""
        if is_short_freeze(event, self._min_freeze):
            return False
        return not self._mine_only or self.identity is None or self.is_mine(event)

    def _identify(self) -> None:
        if self.identity is not None or guard.monotonic() < self._identify_at:
            return
        try:
            self.identity = self.client.identity(timeout=IDENTIFY_TIMEOUT)
        except ClientError as error:
            if not self._identify_at:
                also = "; all events are shown" if self._mine_only else ""
                say(f"note: this machine's name is not known ({error}){also}", err=True)
            self._identify_at = guard.monotonic() + IDENTIFY_AGAIN
