"""Looking after the state: what is lossy is saved now and then, what is old is taken out, and the
log says when nothing can be written, why, and when that is over.

Each saving is also a try whether there is room again, so that a service on which nobody decides
anything knows how it stands.
"""

from __future__ import annotations

from forewarn.service.engine.writer import Writer
from forewarn.service.indexes.polls import SAVE_EVERY, PollIndex
from forewarn.service.upkeep.history import PRUNE_EVERY, History
from forewarn.store.port import Store
from forewarn.support import guard
from forewarn.support.logs import logger

REMIND_EVERY = 60.0  # seconds of guard time between two lines about the same trouble

log = logger("forewarn")


class Saver:
    def __init__(
        self, store: Store, poll_index: PollIndex, writer: Writer, history: History
    ) -> None:
        self._store = store
        self._poll_index = poll_index
        self._writer = writer
        self._history = history
        self._told: float | None = None  # when the trouble there is was last told

    async def keep_saving(self) -> None:
        while True:
            await guard.pause(SAVE_EVERY)
            await self.save()

    async def keep_pruning(self) -> None:
        """Prune at once and then periodically, so that frequent restarts do not prevent it."""
        while True:
            try:
                await self._history.prune()
            except Exception as error:
                log.warning("the history could not be pruned", why=str(error))
            await guard.pause(PRUNE_EVERY)

    async def save(self) -> None:
        try:
            await self._poll_index.save(self._writer.now())
        except Exception as error:
            if not self._store.healthy():  # else that is what is told
                log.warning("last-seen times could not be saved", why=str(error))
        self._tell()

    def _tell(self) -> None:
        why, now = self._store.healthy(), guard.monotonic()
        if why and (self._told is None or now - self._told >= REMIND_EVERY):
            self._told = now
            log.error(
                "the state cannot be written: polls are answered from memory, approvals with 500,"
                " and control calls with 503, until it can",
                why=why,
            )
        elif not why and self._told is not None:
            self._told = None
            log.warning("the state can be written again")
