"""Is the service well? Looked at once a second, so that whoever asks is answered at once.

*Healthy* means that it works at all: if not, starting it anew is the remedy. *Ready* means that it
can do what it is there for: if not, the reason lies elsewhere (a full disk, a worker that is away),
and starting it anew would only take from guests what they still get. Reasons are for everybody to
read, so they name no files; the log does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from forewarn.core.time import Time
from forewarn.service.engine.scheduler import Scheduler
from forewarn.service.engine.writer import Writer
from forewarn.store.port import Store
from forewarn.support import guard
from forewarn.support.logs import logger

LOOK_EVERY = 1.0  # seconds of guard time between two looks
LOOP_PATIENCE = 10.0  # seconds since the last look after which the loop is said to stand still
OVERDUE_PATIENCE = 30.0  # seconds that a deadline may be overdue
STORE_PATIENCE = 30.0  # seconds that the store may take to answer a question

_LASTED = re.compile(r" for \d+ s$")

log = logger("forewarn")


class ServiceHealth:
    def __init__(
        self,
        store: Store,
        scheduler: Scheduler,
        writer: Writer,
        guests: Callable[[], str],
        driver: Callable[[], str],
    ) -> None:
        """`guests` and `driver` say what is wrong with the guests' endpoint and with whatever
        carries events out; nothing, if all is well."""
        self._store = store
        self._scheduler = scheduler
        self._writer = writer
        self._guests = guests
        self._driver = driver
        self._looked = guard.monotonic()
        self._late: tuple[Time, float] | None = None  # which deadline, and since when we know
        self._asked: float | None = None  # the store, that has not answered yet
        self._said: dict[str, str] = {}
        self.started = False
        self.stopping = False

    async def keep_looking(self, tasks: guard.Tasks) -> None:
        while True:
            self.look(guard.monotonic())
            if self._asked is None:
                self._asked = guard.monotonic()
                tasks.start(self._ask(), "asking the store")
            self._tell()
            await guard.pause(LOOK_EVERY)

    def look(self, now: float) -> None:
        self._looked = now
        due = self._scheduler.oldest_due()
        if due is None or due > self._writer.now().at:
            self._late = None
        elif self._late is None or self._late[0] != due:
            self._late = due, now

    def healthy(self) -> dict[str, str]:
        """What is wrong, by part; nothing, if all is well with it."""
        now = guard.monotonic()
        return {
            "loop": self._loop(now),
            "scheduler": self._deadlines(now),
            "store": self._answers(now),
        }

    def ready(self) -> dict[str, str]:
        return {
            "service": self._here(),
            **self.healthy(),
            "state": "the last write of the state has failed" if self._store.healthy() else "",
            "guests": self._guests(),
            "driver": self._driver(),
            "clock": self._writer.now().clock_problem,
        }

    def unwell(self, which: str) -> bool:
        """Is it, as a whole: healthy, or ready?"""
        return any((self.ready() if which == "ready" else self.healthy()).values())

    def _here(self) -> str:
        if self.stopping:
            return "it is being stopped"
        return "" if self.started else "it is being started"

    def _loop(self, now: float) -> str:
        stood = now - self._looked
        return f"it has stood still for {stood:.0f} s" if stood > LOOP_PATIENCE else ""

    def _deadlines(self, now: float) -> str:
        if not self._scheduler.running:
            return "it does not run" if self.started else ""
        if self._late is None or self._store.healthy():  # what cannot be stored cannot be done
            return ""
        late = now - self._late[1]
        return f"a deadline is overdue for {late:.0f} s" if late > OVERDUE_PATIENCE else ""

    def _answers(self, now: float) -> str:
        waited = 0.0 if self._asked is None else now - self._asked
        return f"no answer for {waited:.0f} s" if waited > STORE_PATIENCE else ""

    async def _ask(self) -> None:
        """Check the store in the thread that writes, which also checks that its files are there."""
        try:
            await self._store.keyed("", "")
            await self._store.check()
        except Exception as error:
            log.debug("the store could not be asked", why=str(error))
        finally:
            self._asked = None

    def _tell(self) -> None:
        """In the log, whenever it changes while it should be well."""
        if not self.started or self.stopping:
            return
        found = {part: says for part, says in self.ready().items() if part != "service"}
        for part, says in found.items():
            known = self._said.get(part, "")
            if _reason(says) == _reason(known):
                continue
            if says:
                log.error("the service is not well", part=part, why=says)
            else:
                log.info("the service is well again", part=part)
        self._said = found


def _reason(says: str) -> str:
    """Without how long it has lasted, which changes all the time."""
    return _LASTED.sub("", says)


def parts(said: Mapping[str, str]) -> dict[str, str]:
    """For whoever reads it: what is well says so."""
    return {part: says or "ok" for part, says in said.items()}
