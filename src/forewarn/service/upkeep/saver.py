"""The loops that save last-seen times and prune the history, and log when nothing can be written.

Each save also tests whether the store can be written again, so that a service that nobody uses
notices as well.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from forewarn.service.engine.writer import Writer
from forewarn.service.indexes.polls import SAVE_EVERY, PollIndex
from forewarn.service.upkeep.history import PRUNE_EVERY, History
from forewarn.store.port import Store
from forewarn.support import guard
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger

log = logger("forewarn")


class Saver:
    def __init__(
        self, store: Store, poll_index: PollIndex, writer: Writer, history: History
    ) -> None:
        self._store = store
        self._poll_index = poll_index
        self._writer = writer
        self._history = history
        self._unwritable = LogThrottle()

    async def keep_saving(self) -> None:
        next_turn = guard.monotonic()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SAVE_EVERY):
                    await self._poll_index.first_unsaved.wait()
            now = self._writer.now()
            if guard.monotonic() < next_turn:
                await self._try(self._poll_index.save_first_sightings(now))
            else:
                next_turn = guard.monotonic() + SAVE_EVERY
                await self._try(self._poll_index.save(now))

    async def keep_pruning(self) -> None:
        """Prune at once and then periodically, so that frequent restarts do not prevent it."""
        while True:
            try:
                await self._history.prune()
            except Exception as error:
                log.warning("the history could not be pruned", why=str(error))
            await guard.pause(PRUNE_EVERY)

    async def save_all(self) -> None:
        """Save everything, at the end of the service."""
        await self._try(self._poll_index.save(self._writer.now(), all_machines=True))

    async def _try(self, save: Coroutine[Any, Any, None]) -> None:
        try:
            await save
        except Exception as error:
            if not self._store.problem():  # otherwise that is what is logged
                log.warning("last-seen times could not be saved", why=str(error))
        self._log_problem()

    def _log_problem(self) -> None:
        if problem := self._store.problem():
            if self._unwritable.record():
                log.error(
                    "the state cannot be written: polls are answered from memory, approvals with"
                    " 500, and control calls with 503, until it can",
                    why=problem,
                )
        elif self._unwritable.reset():
            log.warning("the state can be written again")
