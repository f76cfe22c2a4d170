"""All tables [[notify]]: starts and stops their followers, and reports about them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from forewarn.control.schema.feed import FeedCommit
from forewarn.control.schema.notify import NotifyState, NotifyTest
from forewarn.control.views import feed as views
from forewarn.core import Refused, Time
from forewarn.core.refusal import unknown_name
from forewarn.notify import notification as n
from forewarn.notify.config import Notify
from forewarn.notify.follower import Counts, Follower, new_origin
from forewarn.notify.targets.port import DeliveryFailed, send
from forewarn.notify.targets.senders import sender_for
from forewarn.service.engine.feed import Feed, FeedEntry
from forewarn.service.telemetry.samples import Sample, counter, gauge
from forewarn.store.port import NotifyPosition, Store
from forewarn.support import guard
from forewarn.support.instants import to_datetime

METRICS: tuple[tuple[Any, str, str, Callable[[Follower, Time], float]], ...] = (
    (
        *(counter, "messages", "Messages that were delivered to the target of a [[notify]] table."),
        lambda follower, _: follower.counts.messages,
    ),
    (
        *(counter, "failures", "Attempts to deliver a message of a [[notify]] table that failed."),
        lambda follower, _: follower.counts.failures,
    ),
    (
        *(counter, "skipped"),
        "Notifications of a [[notify]] table that were not sent because they were too old.",
        lambda follower, _: follower.counts.skipped,
    ),
    (
        *(gauge, "delay_seconds"),
        "Age of the change that a [[notify]] table is trying to deliver; 0 if there is none.",
        lambda follower, now: max(0, now - (follower.sending_since or now)) / 1e6,
    ),
    (
        *(gauge, "refused", "Whether the target of a [[notify]] table refuses its messages."),
        lambda follower, _: int(follower.refused),
    ),
)


class Notifications:
    def __init__(
        self, store: Store, feed: Feed, now: Callable[[], Time], tasks: guard.Tasks
    ) -> None:
        self._started = tasks
        self._store = store
        self._feed = feed
        self._now = now
        self._followers: dict[str, Follower] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._counts: dict[str, Counts] = {}
        self._views: WeakKeyDictionary[FeedEntry, FeedCommit] = WeakKeyDictionary()
        self._changing = asyncio.Lock()

    async def configure(self, tables: Sequence[Notify]) -> None:
        """Start, change and stop followers so that there is one for each table, and for each that
        the API was asked for. The position of a table that is gone is deleted; that of a table that
        has changed is kept."""
        async with self._changing:
            wanted = {table.name: table for table in tables}
            positions = dict(await self._store.notify_positions())
            wanted |= {name: t for name, each in positions.items() if (t := _asked(each))}
            for name in positions.keys() - wanted.keys():
                if positions[name].asked is None:
                    await self._stop(name)
                    await self._store.delete_notify_position(name)
            for name in self._followers.keys() - wanted.keys():
                await self._stop(name)
            for name, table in wanted.items():
                running = self._followers.get(name)
                if running is not None and running.table == table:
                    running.try_again()
                    continue
                position = positions.get(name)
                if running is not None:
                    await self._stop(name)
                    position = running.position
                self._start(table, position)

    async def subscribe(self, name: str, asked: dict[str, Any]) -> str:
        """Keep what the API was asked for under a name, and follow its table if it has one. Returns
        what is wrong with that; empty if nothing is."""
        position = NotifyPosition(name=name, origin=new_origin(), after=self._feed.seq, asked=asked)
        table = _asked(position)
        if table and (problem := await self._attempt(table, n.test_message("", self._time()))):
            return problem
        async with self._changing:
            if (running := self._followers.get(name)) is not None:
                await self._stop(name)
                position = msgspec.structs.replace(running.position, asked=asked)
            await self._store.save_notify_position(position)
            if table:
                self._start(table, position)
        return ""

    async def unsubscribe(self, name: str) -> None:
        async with self._changing:
            await self._stop(name)
            await self._store.delete_notify_position(name)

    def _start(self, table: Notify, position: NotifyPosition | None) -> None:
        counts = self._counts.setdefault(table.name, Counts())
        follower = Follower(
            *(table, self._store, self._feed, self._now, self._view, position, counts)
        )
        self._followers[table.name] = follower
        self._tasks[table.name] = self._started.start(follower.run(), f"notify {table.name}")

    async def _stop(self, name: str) -> None:
        self._followers.pop(name, None)
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _view(self, entry: FeedEntry) -> FeedCommit:
        """Return the commit as the feed shows it, converted once for all tables."""
        view = self._views.get(entry)
        if view is None:
            view = self._views[entry] = views.commit(entry.commit)
        return view

    def states(self) -> list[NotifyState]:
        return [self._state(follower) for follower in self._followers.values()]

    def _state(self, follower: Follower) -> NotifyState:
        table, position = follower.table, follower.position
        since = follower.sending_since
        return NotifyState(
            name=table.name,
            target=table.target_kind,
            where=follower.sender.where,
            state="refused" if follower.refused else "failing" if self._failing(follower) else "ok",
            position=position.after,
            behind=max(0, self._feed.seq - position.after),
            waiting_since=None if since is None else to_datetime(since),
            last_delivery=None
            if position.delivered_at is None
            else to_datetime(position.delivered_at),
            last_error=follower.error,
            messages=follower.counts.messages,
            failures=follower.counts.failures,
            skipped=follower.counts.skipped,
        )

    def _failing(self, follower: Follower) -> bool:
        return bool(follower.error) and follower.sending_since is not None

    async def test(self, name: str) -> NotifyTest | Refused:
        """Send a message that says that it is a test, once."""
        follower = self._followers.get(name)
        if follower is None:
            return unknown_name("notification", name, list(self._followers))
        message = n.test_message(follower.position.origin, self._time())
        where, error = follower.sender.where, await self._attempt(follower.table, message)
        return NotifyTest(name=name, id=message.id, where=where, delivered=not error, error=error)

    def _time(self) -> datetime:
        return to_datetime(self._now())

    async def _attempt(self, table: Notify, message: n.Message) -> str:
        """Send a message once. Returns why it was not delivered; empty if it was."""
        sender = sender_for(table)
        try:
            await send(sender, message, table.target.timeout)
        except DeliveryFailed as failure:
            return str(failure)
        finally:
            await sender.close()
        return ""

    def readings(self) -> Iterator[Sample]:
        now = self._now()
        for kind, name, help, value in METRICS:
            values = {(table,): value(f, now) for table, f in self._followers.items()}
            yield kind(f"forewarn_notify_{name}", help, values, "notify")


def _asked(position: NotifyPosition) -> Notify | None:
    """Return the table that the API was asked for, if any."""
    table = (position.asked or {}).get("table")
    return None if table is None else msgspec.convert({"name": position.name, **table}, Notify)


def problems(tables: Iterable[Notify]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the files and packages of each table, without sending anything."""
    for table in tables:
        for problem in sender_for(table).check():
            yield table.name, problem
