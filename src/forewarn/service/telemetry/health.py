"""The health of the service, checked once a second, so that every request is answered at once.

*Healthy* means that the service works at all: if not, restarting it helps. *Ready* means that it
can do its work: if not, the reason lies elsewhere (such as a full disk), and a restart would only
take away from guests what they still get. Reasons are public, so they name no files; the log does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from forewarn.core.time import Time
from forewarn.service.engine.scheduler import Scheduler
from forewarn.service.engine.writer import Writer
from forewarn.store.port import Store
from forewarn.support import guard
from forewarn.support.logs import logger

CHECK_EVERY = 1.0  # seconds of guard time between two checks
LOOP_PATIENCE = 10.0  # seconds since the last check after which the loop counts as blocked
OVERDUE_PATIENCE = 30.0  # seconds that a deadline may be overdue
STORE_PATIENCE = 30.0  # seconds that the store may take to answer

log = logger("forewarn")


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with a part of the service; an empty text stands for nothing."""

    text: str = ""
    code: str = ""  # the same while the text only says for how much longer it has lasted

    def same_as(self, other: Problem) -> bool:
        return (self.code or self.text) == (other.code or other.text)


OK = Problem()


class ServiceHealth:
    def __init__(
        self,
        store: Store,
        scheduler: Scheduler,
        writer: Writer,
        guests: Callable[[], str],
        driver: Callable[[], str],
        hosts: Callable[[], Mapping[str, str]],
    ) -> None:
        """`guests` and `driver` return what is wrong with the guests' endpoint and with the driver,
        or an empty string; `hosts` returns warnings about hosts, by subject."""
        self._store = store
        self._scheduler = scheduler
        self._writer = writer
        self._guests = guests
        self._driver = driver
        self._hosts = hosts
        self._checked_at = guard.monotonic()
        self._late: tuple[Time, float] | None = None  # which deadline, and when it was noticed
        self._store_asked_at: float | None = None  # while it has not answered
        self._logged: dict[str, Problem] = {}  # by part
        self._logged_warnings: Mapping[str, str] = {}  # by subject
        self.started = False
        self.deciding = False  # what the process has to continue with is read and continued
        self.stopping = False

    async def keep_checking(self, tasks: guard.Tasks) -> None:
        while True:
            self.check(guard.monotonic())
            if self._store_asked_at is None:
                self._store_asked_at = guard.monotonic()
                tasks.start(self._ask_store(), "asking the store")
            self._log_changes()
            await guard.pause(CHECK_EVERY)

    def check(self, now: float) -> None:
        """Note that the loop runs, and which deadline is overdue."""
        self._checked_at = now
        due = self._scheduler.oldest_due()
        if due is None or due > self._writer.now().at:
            self._late = None
        elif self._late is None or self._late[0] != due:
            self._late = due, now

    def healthy(self) -> dict[str, str]:
        """Return what is wrong, by part; an empty string if nothing is."""
        return {part: problem.text for part, problem in self._health_problems().items()}

    def ready(self) -> dict[str, str]:
        return {part: problem.text for part, problem in self._readiness_problems().items()}

    def warnings(self) -> dict[str, str]:
        """Return what somebody should look at although the service is ready, by subject."""
        leadership = self._store.leadership
        warnings = {} if leadership is None else leadership.warnings()
        warnings = {**warnings, **self._hosts()}
        return {subject: text for subject, text in warnings.items() if text}

    def leading(self) -> dict[str, str]:
        """Return why this control node does not decide."""
        leadership = self._store.leadership
        leads = leadership is None or (leadership.held() and self.deciding)
        return {"leadership": "" if leads else "another control node decides, or none"}

    def taking_over(self) -> bool:
        """Return whether this control node has got the lease, and does not decide yet."""
        leadership = self._store.leadership
        return leadership is not None and leadership.term > 0 and not self.deciding

    def _follows(self) -> bool:
        return self._store.leadership is not None and not self.deciding

    def failing(self, which: str) -> bool:
        """Is any part not `healthy`, or not `ready`?"""
        return any((self.ready() if which == "ready" else self.healthy()).values())

    def _health_problems(self) -> dict[str, Problem]:
        now = guard.monotonic()
        return {
            "loop": self._loop_problem(now),
            "scheduler": self._scheduler_problem(now),
            "store": self._store_problem(now),
        }

    def _readiness_problems(self) -> dict[str, Problem]:
        unwritable = "the last write of the state has failed"
        leadership = self._store.leadership
        return {
            "service": Problem(self._phase()),
            **self._health_problems(),
            "state": Problem(unwritable if self._store.problem() else ""),
            **({} if leadership is None else {"leadership": Problem(leadership.problem())}),
            "guests": Problem("" if self._follows() else self._guests()),
            "driver": Problem(self._driver()),
            "clock": Problem(self._writer.now().clock_problem),
        }

    def _phase(self) -> str:
        if self.stopping:
            return "the service is stopping"
        return "" if self.started else "the service is starting"

    def _loop_problem(self, now: float) -> Problem:
        blocked = now - self._checked_at
        if blocked <= LOOP_PATIENCE:
            return OK
        return Problem(f"the event loop has been blocked for {blocked:.0f} s", "blocked")

    def _scheduler_problem(self, now: float) -> Problem:
        if not self._scheduler.running:
            runs = self.started and not self._follows()
            return Problem("the scheduler is not running") if runs else OK
        if self._late is None or self._store.problem() or self._store.busy():
            return OK  # it cannot be processed without the store
        late = now - self._late[1]
        if late <= OVERDUE_PATIENCE:
            return OK
        return Problem(f"a deadline has been overdue for {late:.0f} s", "overdue")

    def _store_problem(self, now: float) -> Problem:
        waited = 0.0 if self._store_asked_at is None else now - self._store_asked_at
        if waited <= STORE_PATIENCE or self._store.busy():
            return OK
        return Problem(f"the store has not answered for {waited:.0f} s", "silent")

    async def _ask_store(self) -> None:
        """Check the store in the thread that writes, which also checks that its files are there."""
        try:
            await self._store.keyed_request("", "")
            await self._store.check()
        except Exception as error:
            log.debug("the store could not be checked", why=str(error))
        finally:
            self._store_asked_at = None

    def _log_changes(self) -> None:
        if not self.started or self.stopping:
            return
        problems = self._readiness_problems()
        del problems["service"]
        for part, problem in problems.items():
            if problem.same_as(self._logged.get(part, OK)):
                continue
            if problem.text:
                log.error("a part of the service is failing", part=part, why=problem.text)
            else:
                log.info("a part of the service has recovered", part=part)
        self._logged = problems
        self._log_warnings()

    def _log_warnings(self) -> None:
        warnings, logged = self.warnings(), self._logged_warnings
        for subject, text in warnings.items():
            if text != logged.get(subject):
                log.warning("something needs attention", about=subject, why=text)
        for subject in logged.keys() - warnings.keys():
            log.info("something no longer needs attention", about=subject)
        self._logged_warnings = warnings


def with_ok(problems: Mapping[str, str]) -> dict[str, str]:
    """Return the reasons by part, with "ok" for a part that has none."""
    return {part: reason or "ok" for part, reason in problems.items()}
