"""The state of `forewarn watch`: its client, and which machine this is."""

from __future__ import annotations

from collections.abc import Iterator

from forewarn.cli.commands.watch_text import ChangeLine
from forewarn.cli.output import say
from forewarn.client import Client, ClientError, Identity, Snapshot
from forewarn.support import guard

IDENTIFY_TIMEOUT = 5.0  # seconds for a request for this machine's identity
IDENTIFY_AGAIN = 60.0  # seconds after which a failed request is repeated


class WatchState:
    """The snapshots of a client, with the changes that are about this machine marked."""

    def __init__(self, client: Client, *, mine_only: bool = False) -> None:
        self.client = client
        self.identity: Identity | None = None
        self._mine_only = mine_only
        self._identify_at = 0.0

    def snapshots(self) -> Iterator[tuple[Snapshot, list[ChangeLine]]]:
        for snapshot in self.client.snapshots():
            yield snapshot, self.change_lines(snapshot)

    def change_lines(self, snapshot: Snapshot) -> list[ChangeLine]:
        self._identify()
        name = self.identity.name if self.identity else ""
        return [
            ChangeLine(change, self.is_mine(change.event.resources), name)
            for change in snapshot.changes
            if self.is_wanted(change.event.resources)
        ]

    def is_mine(self, resources: tuple[str, ...]) -> bool:
        return self.identity is not None and any(map(self.identity.matches, resources))

    def is_wanted(self, resources: tuple[str, ...]) -> bool:
        """Return whether an event is to be shown. While this machine is not known, all are."""
        return not self._mine_only or self.identity is None or self.is_mine(resources)

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
