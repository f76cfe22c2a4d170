"""Follows the feed for one table [[notify]]: selects, sends, tries again, and remembers how far it
has come.

It reads commits from the store at its own pace, and nothing waits for it. Its position is stored
after each message, so that after a crash a message may be sent again, with the same id, and none is
lost. What a combined message contains depends on where it ends; that is stored before it is sent.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import datetime

import msgspec

from forewarn.control.schema.feed import FeedCommit
from forewarn.core import Time
from forewarn.core.changes import EventMoved
from forewarn.notify import notification as n
from forewarn.notify.config import EventGrid, Notify
from forewarn.notify.targets.port import DeliveryFailed, Sender, send
from forewarn.notify.targets.senders import sender_for
from forewarn.service.engine.feed import Feed, FeedEntry, Lost
from forewarn.store.port import NotifyPosition, Store, StoreFailed
from forewarn.support import guard
from forewarn.support.instants import from_datetime, to_datetime
from forewarn.support.log_throttle import LogThrottle
from forewarn.support.logs import logger
from forewarn.support.text import SECOND

FIRST_PAUSE = 1.0  # seconds after a failure; doubled after each further one
LONGEST_PAUSE = 300.0  # seconds
FIRST_PAUSE_REFUSED = 60.0  # likewise if the target refuses the message
LONGEST_PAUSE_REFUSED = 3600.0
JITTER = 0.1  # of a pause, so that tables with the same target do not meet again
WAIT = 600.0  # seconds of guard time for which the feed is waited for at a time
SAVE_AFTER = 1_000  # commits without a notification after which the position is stored
THREAD_FROM = 500  # changes in a commit above which it is examined in a thread
LOG_EVERY = 600.0  # seconds of guard time between two lines about the same failing target

_replace = msgspec.structs.replace

log = logger("forewarn")


class Pending(msgspec.Struct, frozen=True):
    """A notification that is to be delivered, and the position after it."""

    notification: n.Notification
    seq: int  # of its commit
    after: int
    part: int

    @property
    def at(self) -> Time:
        return from_datetime(self.notification.at)


def new_origin() -> str:
    return uuid.uuid4().hex[:16]


class Counts:
    """What has become of the notifications of a table since the process started."""

    def __init__(self) -> None:
        self.messages = 0  # that were delivered
        self.failures = 0  # of attempts to deliver a message
        self.skipped = 0  # notifications that were not sent


class Follower:
    def __init__(
        self,
        table: Notify,
        store: Store,
        feed: Feed,
        now: Callable[[], Time],
        view: Callable[[FeedEntry], FeedCommit],
        position: NotifyPosition | None,
        counts: Counts,
    ) -> None:
        self.table = table
        self.counts = counts
        self.position = position or NotifyPosition(
            name=table.name, origin=new_origin(), after=feed.seq
        )
        self._unsaved = position is None
        self._stored_after = self.position.after
        self._scanned = self.position.after
        self._store = store
        self._feed = feed
        self._now = now
        self._view = view
        self._selection = n.Selection(table)
        self._sender = sender_for(table)
        self._log = LogThrottle(LOG_EVERY)
        self._store_log = LogThrottle()
        self._again = asyncio.Event()  # set: do not wait any longer
        self.error = ""  # of the last attempt; empty if it has succeeded
        self.refused = False  # whether the target has refused the message, or was away
        self.sending_since: Time | None = None  # the time of the change that is being delivered

    @property
    def sender(self) -> Sender:
        return self._sender

    def try_again(self) -> None:
        """Try again at once what has failed, because something may have been corrected."""
        self._again.set()

    async def run(self) -> None:
        """Follow the feed until it ends."""
        try:
            while not self._feed.ended:
                try:
                    if self._unsaved:
                        await self._save()
                    await self._feed.wait(self.position.after, WAIT)
                    if self.table.target.for_people:
                        await self._deliver_combined()
                    else:
                        await self._deliver_each()
                    self._store_log.reset()
                except StoreFailed as error:
                    if self._store_log.record():
                        log.warning(
                            "notifications wait because the state cannot be read or written",
                            notify=self.table.name,
                            why=str(error),
                        )
                    await guard.pause(FIRST_PAUSE)
        finally:
            await self._sender.close()

    async def _deliver_each(self) -> None:
        async for pending in self._pending():
            if self._too_old(pending.at):
                self._skip(1, pending.at, pending.at, after=pending.after, part=pending.part)
                continue
            await self._report_skipped()
            message = n.single(self.position.origin, pending.notification)
            if await self._deliver(message, pending.at):
                await self._delivered(after=pending.after, part=pending.part)
            else:
                self._skip(1, pending.at, pending.at, after=pending.after, part=pending.part)
        await self._report_skipped()
        await self._pass_over()

    async def _deliver_combined(self) -> None:
        """Deliver everything that there is now in one message."""
        notifications: list[n.Notification] = []
        more: Counter[str] = Counter()
        sending, last, newest = self.position.sending, 0, 0
        async for pending in self._pending(sending):
            if sending is None and not notifications and self._too_old(pending.at):
                self._skip(1, pending.at, pending.at, after=pending.after, part=pending.part)
                continue
            if len(notifications) < n.MAX_COMBINED:
                notifications.append(pending.notification)
            else:
                more[pending.notification.what] += 1
            last, newest = pending.seq, pending.at
        if not notifications:
            self.position = _replace(self.position, sending=None)
            await self._report_skipped()
            await self._pass_over()
            return
        self.position = _replace(self.position, sending=last)
        await self._save()
        skipped = self._skipped()
        message = n.combined(self.position.origin, notifications, more, skipped, last)
        if await self._deliver(message, newest):
            await self._delivered(after=last, reported=skipped is not None)
            await self._pause(self.table.pause / SECOND)
        else:
            oldest = from_datetime(notifications[0].at)
            self._skip(message.count, oldest, newest, after=last, part=0)

    async def _pending(self, until: int | None = None) -> AsyncIterator[Pending]:
        """Yield the notifications after the position, up to commit `until` or the last one."""
        after, part = self.position.after, self.position.part
        while True:
            entries = await self._feed.read(after)
            if isinstance(entries, Lost):
                after, part = entries.first - 1, 0
                self.position = _replace(
                    self.position, after=after, part=0, sending=None, lost=True
                )
                continue
            if not entries:
                return
            for entry in entries:
                if until is not None and entry.seq > until:
                    return
                notifications = await self._notifications(entry)
                for number, notification in enumerate(notifications, 1):
                    if number > part:
                        whole = number == len(notifications)
                        yield Pending(
                            notification,
                            entry.seq,
                            entry.seq if whole else entry.seq - 1,
                            0 if whole else number,
                        )
                after, part = entry.seq, 0
                self._scanned = entry.seq

    async def _notifications(self, entry: FeedEntry) -> list[n.Notification]:
        if entry.size > THREAD_FROM:
            return await asyncio.to_thread(self._select, entry)
        return self._select(entry)

    def _select(self, entry: FeedEntry) -> list[n.Notification]:
        view, groups = self._view(entry), self._store.groups
        if isinstance(self.table.target, EventGrid):
            moved = [item for e in entry.commit.entries for item in e.items]
            events = {i.event.id: i.event for i in moved if isinstance(i, EventMoved)}
            return self._selection.published(view, events.values(), groups)
        return self._selection.notifications(view, groups, self._store.registry.hosts)

    async def _deliver(self, message: n.Message, newest: Time | None) -> bool:
        """Send a message until it is delivered. Returns False if it became too old instead."""
        self.sending_since = from_datetime(message.at)
        failures = 0
        try:
            while True:
                try:
                    await send(self._sender, message, self.table.target.timeout)
                except DeliveryFailed as error:
                    failure = error
                except Exception as error:  # of a library: its text may contain a secret
                    failure = DeliveryFailed(f"{self._sender.where}: {type(error).__name__}")
                else:
                    self._succeeded()
                    return True
                failures += 1
                pause = _pause_after(failures, failure)
                self._failed(failure, pause)
                await self._pause(pause)
                if newest is not None and self._too_old(newest):
                    return False
        finally:
            self.sending_since = None

    def _succeeded(self) -> None:
        self.counts.messages += 1
        self.refused = False
        if self._log.reset():
            log.info("notifications are delivered again", notify=self.table.name)
        self.error = ""

    def _failed(self, failure: DeliveryFailed, pause: float) -> None:
        self.counts.failures += 1
        self.error, self.refused = str(failure), failure.refused
        if self._log.record():
            log.warning(
                "a notification could not be delivered; it is tried again",
                notify=self.table.name,
                why=str(failure),
                again_in=f"{pause:.0f} s",
            )

    async def _delivered(self, *, after: int, part: int = 0, reported: bool = False) -> None:
        position = _without_skipped(self.position) if reported else self.position
        self.position = _replace(
            position, after=after, part=part, sending=None, delivered_at=self._now()
        )
        await self._save()

    def _too_old(self, at: Time) -> bool:
        return self.table.oldest is not None and self._now() - at > self.table.oldest

    def _skip(self, count: int, since: Time, until: Time, *, after: int, part: int) -> None:
        """Leave notifications out. It is stored with the next position, and found again if not."""
        self.counts.skipped += count
        position = self.position
        earlier = position.skipped_since
        self.position = _replace(
            position,
            after=after,
            part=part,
            sending=None,
            skipped=position.skipped + count,
            skipped_since=since if earlier is None else earlier,
            skipped_until=until,
        )

    def _skipped(self) -> n.Skipped | None:
        position = self.position
        if not position.skipped and not position.lost:
            return None
        return n.Skipped(
            count=position.skipped,
            unknown=position.lost,
            since=_time(position.skipped_since),
            until=_time(position.skipped_until),
        )

    async def _report_skipped(self) -> None:
        """Tell that notifications were left out, if any were."""
        skipped = self._skipped()
        if skipped is None:
            return
        position = self.position
        at = to_datetime(self._now())
        await self._deliver(n.about_skipped(position.origin, skipped, position.after, at), None)
        await self._delivered(after=position.after, part=position.part, reported=True)

    async def _pass_over(self) -> None:
        """Move beyond commits that contain nothing to deliver. This is stored now and then only:
        after a crash they are examined again."""
        position = self.position
        if self._scanned > position.after:
            self.position = _replace(position, after=self._scanned, part=0)
        if self.position.after - self._stored_after >= SAVE_AFTER:
            await self._save()

    async def _save(self) -> None:
        self._unsaved = True
        await self._store.save_notify_position(self.position)
        self._unsaved, self._stored_after = False, self.position.after

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._again.wait()
        except TimeoutError:
            return
        self._again.clear()


def _pause_after(failures: int, failure: DeliveryFailed) -> float:
    """Return the seconds to wait after so many failures in a row."""
    first, longest = FIRST_PAUSE, LONGEST_PAUSE
    if failure.refused:
        first, longest = FIRST_PAUSE_REFUSED, LONGEST_PAUSE_REFUSED
    pause = longest if failure.gone else min(longest, first * 2.0 ** min(failures - 1, 20))
    return max(failure.wait, pause * random.uniform(1 - JITTER, 1 + JITTER))


def _without_skipped(position: NotifyPosition) -> NotifyPosition:
    return _replace(position, skipped=0, skipped_since=None, skipped_until=None, lost=False)


def _time(at: Time | None) -> datetime | None:
    return None if at is None else to_datetime(at)
