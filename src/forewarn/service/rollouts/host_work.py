"""Work on the empty hosts of a rollout that the driver does: each attempt is stored before the
driver is asked, and its answer after, as for events. Which hosts are worked on, and when, is
decided in `core/rollouts/next_step.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from forewarn.core import Refused
from forewarn.core.commands import Again, Answer, Done, Failed, Outcome, Unclear
from forewarn.core.deciding.attempts import answered
from forewarn.core.events import Attempt, Source
from forewarn.core.fleet import Host
from forewarn.core.refusal import conflict
from forewarn.core.registry import HostPut, Put, RolloutPut
from forewarn.core.rollouts.model import BY_ITSELF, Action, Rollout, Work
from forewarn.drivers.port import Task
from forewarn.service.engine.executor import RETRY_AFTER, Executor
from forewarn.service.engine.ledger import Ledger
from forewarn.service.engine.open_attempts import Interim
from forewarn.service.engine.writer import CommitPlan, Writer
from forewarn.store.port import States, Store, StoreFailed
from forewarn.support import guard
from forewarn.support.logs import logger
from forewarn.support.text import listing

log = logger("forewarn")


class HostWork:
    def __init__(
        self, store: Store, writer: Writer, executor: Executor, ledger: Ledger, tasks: guard.Tasks
    ) -> None:
        self._store = store
        self._writer = writer
        self._executor = executor
        self._ledger = ledger
        self._tasks = tasks

    @property
    def possible(self) -> bool:
        """Can the driver work on hosts?"""
        return self._executor.driver.works

    def interim(self, work: Work) -> Interim | None:
        """Return what the driver has said of an open attempt so far."""
        return self._executor.interim(work.id)

    async def veto(self, rollout: Rollout, work: Work) -> Refused | None:
        """Ask the driver whether it would do the work on a host that is to be emptied."""
        why = await self._executor.veto_task(
            self._task(rollout, work), rollout=rollout.id, host=work.host
        )
        return (
            None
            if why is None
            else conflict(f"the driver would not work on host '{work.host}': {why}")
        )

    def resume(self, rollout: Rollout) -> None:
        """Find out about every stored attempt that has no answer."""
        for work in rollout.work:
            if work.attempt is not None and work.attempt.open:
                self._start(rollout.id, work)

    async def attempt(self, rollout: Rollout, hosts: Sequence[str]) -> None:
        """Store that the driver begins to work on these hosts, and have it done."""
        begun: list[Work] = []

        def plan(states: States) -> CommitPlan:
            begun.clear()
            at = self._writer.now().at

            def begin(work: Work) -> Work:
                if work.host not in hosts or work.returned_at is not None:
                    return work
                number = work.attempt.number + 1 if work.attempt else 1
                begun.append(
                    msgspec.structs.replace(
                        work,
                        started_at=work.started_at or at,
                        attempt=Attempt(number=number, at=at),
                    )
                )
                return begun[-1]

            changed = _with_work(states, rollout.id, begin)
            names = listing([f"host/{work.host}" for work in begun])
            return CommitPlan(puts=_put(changed, f"working {names}") if begun else [])

        _, commit = await self._writer.commit_numbered(plan)
        for work in begun:
            self._start(rollout.id, work, commit)

    def retry(self, rollout: Rollout) -> tuple[Work, ...]:
        """Return the work of a rollout, with what is not known to be done to be done again."""
        at = self._writer.now().at

        def again(work: Work) -> Work:
            if work.attempt is None or not work.attempt.stuck:
                return work
            self._executor.was_not_done(work.id)
            attempt = msgspec.structs.replace(work.attempt, stuck=False, next_at=at)
            return msgspec.structs.replace(work, attempt=attempt)

        return tuple(again(work) for work in rollout.work)

    def _start(self, rollout: str, work: Work, commit: int | None = None) -> None:
        """Begin the attempt that this commit has put on record, or continue an earlier one."""
        what = f"driver call for work on host {work.host}"
        self._ledger.take(what)
        self._tasks.start(self._run(rollout, work, commit, what), what)

    async def _run(self, id: str, work: Work, commit: int | None, what: str) -> None:
        try:
            outcome = await self._executor.attempt(
                work.id,
                lambda fence: self._task_if_open(id, work, fence),
                commit,
                what,
                doubtful=self._executor.older_than_restore(work.id, work.begun_at),
                rollout=id,
                host=work.host,
            )
            if outcome is None:
                return
            if isinstance(outcome, Unclear):
                log.warning(
                    "it is unknown whether the work on a host was done; it is held until an"
                    " operator decides",
                    rollout=id,
                    host=work.host,
                    why=outcome.why,
                )
            await self._store_outcome(id, work, outcome)
        finally:
            self._ledger.release(what)

    async def _store_outcome(self, id: str, work: Work, outcome: Outcome) -> None:
        """Store an answer; the host of work that is done is put back into service with it."""

        def plan(states: States) -> CommitPlan:
            now = self._writer.now()
            host = states.registry.hosts.get(work.host)
            puts: list[Put] = []

            def with_answer(current: Work) -> Work:
                attempt = current.attempt
                if current.id != work.id or attempt is None or not attempt.open:
                    return current
                if current.returned_at is not None:
                    return current  # somebody has put the host back meanwhile
                if not isinstance(outcome, Done):
                    answer = Answer(id=work.id, attempt=attempt.number, outcome=outcome)
                    after = answered(attempt, answer, now)
                    return msgspec.structs.replace(current, attempt=after)
                if host is not None and host.cordoned:
                    puts.append(HostPut(_in_service(host), f"rollout {id}"))
                attempt = msgspec.structs.replace(attempt, open=False)
                return msgspec.structs.replace(current, returned_at=now.at, attempt=attempt)

            changed = _with_work(states, id, with_answer)
            return CommitPlan(puts=[*puts, *_put(changed, _what(work.host, outcome))])

        while True:
            try:
                await self._writer.commit(plan)
                return
            except StoreFailed:
                await guard.pause(RETRY_AFTER)

    def _task_if_open(self, id: str, work: Work, fence: int) -> Task | None:
        """Return the task of work; None if its attempt is not open any more."""
        rollout = self._store.registry.rollouts.get(id)
        if rollout is None:
            return None
        current = next((current for current in rollout.work if current.id == work.id), work)
        if current.attempt is None or not current.attempt.open or current.returned_at is not None:
            return None
        return self._task(rollout, current, fence)

    def _task(self, rollout: Rollout, work: Work, fence: int = 0) -> Task:
        host = self._store.registry.hosts.get(work.host)
        notes = (host.note, host.cordon_note) if host is not None else ()
        steps = (step for step in rollout.steps if step.host == work.host)
        cause = next(step.cause for step in steps if step.action is Action.WORK)
        return Task(
            event=work.id,
            group="",
            type=rollout.type,
            source=Source.PLATFORM,
            machines=(),
            work=True,
            host=work.host,
            host_labels={host.name: host.labels} if host is not None and host.labels else {},
            description=rollout.description,
            note="; ".join(note for note in notes if note),
            ticket=rollout.ticket,
            rollout=rollout.id,
            step=cause.removeprefix(rollout.prefix),
            attempt=work.attempt.number if work.attempt else 0,
            fence=fence,
            started_at=work.started_at,
            now=self._writer.now().at,
        )


def _with_work(states: States, id: str, change: Callable[[Work], Work]) -> Rollout | None:
    """Return a rollout with other work; None if nothing has changed, or it is gone."""
    rollout = states.registry.rollouts.get(id)
    if rollout is None:
        return None
    work = tuple(map(change, rollout.work))
    return None if work == rollout.work else msgspec.structs.replace(rollout, work=work)


def _put(rollout: Rollout | None, what: str) -> list[Put]:
    return [] if rollout is None else [RolloutPut(rollout, what, BY_ITSELF)]


def _in_service(host: Host) -> Host:
    return msgspec.structs.replace(host, cordoned=False, cordon_note="")


def _what(host: str, outcome: Outcome) -> str:
    """Return what the history says of an answer."""
    lines = outcome.output.split("\n")
    match outcome:
        case Done():
            what, why = "returned", lines[-1]
        case Again():
            what, why = "not done yet", lines[-1]
        case Failed(why=why):
            what = "failed"
        case Unclear(why=why):
            what = "unknown"
    return f"{what} host/{host}" + (f": {why}" if why else "")
