"""The agent's loop: reads the document, derives the next steps from the state, and takes them.

Everything that lasts is in the store; what is in memory here can be lost at any moment. What takes
time (a command, a request to the endpoint) is done in other tasks and processes, so that nothing
delays the next document.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from forewarn.agent import ports
from forewarn.agent.approval.approve import Approver
from forewarn.agent.config.model import Config, Hook
from forewarn.agent.open_cases import OpenCases
from forewarn.agent.planning import steps
from forewarn.agent.planning.attempts import summarize
from forewarn.agent.planning.planner import Planner
from forewarn.agent.planning.steps import CaseProgress, World
from forewarn.agent.state.cases import Case
from forewarn.agent.state.runs import Run, RunState
from forewarn.agent.telemetry.log import Log, OngoingProblems
from forewarn.agent.telemetry.status import AgentStatus
from forewarn.client.events import Snapshot
from forewarn.client.identity import Identity
from forewarn.support.guard import Tasks, monotonic, pause

POLL_WITHIN = 5.0  # seconds between two documents while an event is being handled
ENDPOINT_PATIENCE = 10.0  # seconds that the endpoint may be silent before that is logged
IDENTITY_EVERY = 600.0  # seconds between two requests for the identity: name and labels may change
IDENTITY_PAUSE = 5.0  # seconds between two attempts to get the identity at first
STATE_PAUSE = 2.0  # seconds until a state that cannot be written is tried again
START_AGAIN = 1.0  # seconds until a runner that cannot be started is tried again
SWEEP_EVERY = 30.0  # seconds between two checks of all cases that are being handled
LONGEST_REST = 3_600.0  # seconds without anything to do
LEAST_REST = 0.01
MAX_ROUNDS = 100  # of planning at once; each closes, cancels or begins something
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # these affect the whole disk

MakeRunners = Callable[[Callable[[str], None], Tasks], ports.Runners]


class Agent:
    def __init__(
        self,
        config: Config,
        client: ports.Client,
        store: ports.Store,
        make_runners: MakeRunners,
        log: Log,
        *,
        dry_run: bool = False,
    ) -> None:
        """`make_runners` is given a function to call with the ID of a case whose runner has ended,
        and the agent's tasks."""
        self.config = config
        self.client = client
        self.dry_run = dry_run
        self.identity: Identity | None = None
        self.snapshot: Snapshot | None = None
        self._log = log
        self._tasks = Tasks(self._on_task_error)
        self._wake = asyncio.Event()
        self._wake.set()  # cases whose event is over need not wait for the first document
        self._planner = Planner()
        self._to_refresh: dict[str, None] = {}  # cases, in this order
        self._refresh_at: dict[str, float] = {}  # by case, in guard time
        self._swept = monotonic()
        self._store = store
        self._runners = make_runners(self._mark, self._tasks)
        self._cases = OpenCases(config, store, log, self._mark)
        self._to_refresh.update(dict.fromkeys(case.id for case in self._cases.open))
        self._problems = OngoingProblems(log)
        self._approver = Approver(
            client,
            self._cases,
            config.shared,
            log,
            self._problems,
            tasks=self._tasks,
            on_done=self._mark,
            dry_run=dry_run,
        )
        self._ended: dict[str, set[str]] = {}  # by case: runs that are known to have ended
        self._started: dict[str, set[str]] = {}  # by case: runs that this process has started
        self._overdue: set[tuple[str, str]] = set()  # case and run of those that were reported
        self._wake_at: datetime | None = None
        self._retry_at: float | None = None
        self._fatal: BaseException | None = None

    @property
    def cases(self) -> tuple[Case, ...]:
        """All cases: those that are being handled, and closed ones that are still kept."""
        return tuple(self._cases)

    def status(self) -> AgentStatus:
        return AgentStatus(
            now=self.client.now(),
            machine="" if self.identity is None else self.identity.name,
            dry_run=self.dry_run,
            endpoint=self.client.status,
            guard=monotonic(),
            events=() if self.snapshot is None else self.snapshot.document.events,
            cases=tuple(self._cases.progress(case) for case in self._cases),
        )

    # The loop

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Run until cancelled. Commands that are running then go on by themselves. `on_ready` is
        called after the first document."""
        try:
            self._tasks.start(self._follow(on_ready), "document")
            self._tasks.start(self._watch_endpoint(), "endpoint")
            self._tasks.start(self._refresh_identity(), "identity")
            while self._fatal is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._seconds_to_next()):
                        await self._wake.wait()
                self._wake.clear()
                self.reconcile()
            raise self._fatal
        finally:
            await self._tasks.end()

    async def _follow(self, on_ready: Callable[[], None]) -> None:
        """Update the cases from every document."""
        identity = await self._first_identity()
        async for snapshot in self.client.snapshots(max_wait=self._max_wait):
            with self._report_errors("cases"):
                self._cases.update(snapshot, self.identity or identity)
            first, self.snapshot = self.snapshot is None, snapshot
            self._wake.set()
            if first:
                on_ready()

    async def _watch_endpoint(self) -> None:
        """Log when the endpoint fails for long. The client itself retries for ever."""
        while True:
            await pause(ENDPOINT_PATIENCE / 2)
            status = self.client.status
            lasts = (self.client.now() - status.since).total_seconds()
            if not status.problem:
                self._problems.end("endpoint")
            elif lasts >= ENDPOINT_PATIENCE:
                self._problems.begin("endpoint", f"{status.endpoint or 'none'}: {status.problem}")

    async def _first_identity(self) -> Identity:
        """Request the identity until it is known."""
        while self.identity is None:
            try:
                self.identity = await self.client.identity()
            except Exception as error:
                self._problems.begin("identity", str(error))
                await pause(IDENTITY_PAUSE)
        self._problems.end("identity")
        self._log_identity(self.identity)
        return self.identity

    async def _refresh_identity(self) -> None:
        """Request the identity again every `IDENTITY_EVERY`; on failure keep the old one."""
        while True:
            await pause(IDENTITY_EVERY)
            if self.identity is not None:
                with contextlib.suppress(Exception):
                    identity = await self.client.identity()
                    if identity != self.identity:
                        self.identity = identity
                        self._log_identity(identity)

    def _log_identity(self, identity: Identity) -> None:
        self._log("identity", name=identity.name, tags=dict(identity.tags))

    def _max_wait(self) -> float:
        """Return the seconds within which the next document is needed."""
        seconds = POLL_WITHIN if self._cases.any_event_pending else LONGEST_REST
        if self._problems.is_ongoing("cases"):
            seconds = STATE_PAUSE
        if self._wake_at is not None:
            left = (self._wake_at - self.client.now()).total_seconds()
            seconds = min(seconds, max(0.0, left))
        return seconds

    def _seconds_to_next(self) -> float:
        """Return the seconds until there is something to do."""
        rests = [LONGEST_REST]
        times = [self._retry_at, self._approver.next_retry(), *self._refresh_at.values()]
        if self._cases.open:
            times.append(self._swept + SWEEP_EVERY)
        rests += [at - monotonic() for at in times if at is not None]
        if self._wake_at is not None:
            rests.append((self._wake_at - self.client.now()).total_seconds())
        return max(LEAST_REST, min(rests))

    @contextlib.contextmanager
    def _report_errors(self, about: str, case: str | None = None) -> Iterator[None]:
        """Report an error of the state instead of raising it, and try again after a while."""
        try:
            yield
        except OSError as error:
            self._problems.begin(about, str(error))
            if case is not None:
                self._refresh_at[case] = monotonic() + STATE_PAUSE
                if error.errno not in FULL:  # then other cases would fare no better
                    self._planner.release(case)
        else:
            self._problems.end(about)

    def _on_task_error(self, name: str, error: BaseException) -> None:
        """Report an unexpected error. Other tasks are started again, but without documents there is
        no agent."""
        self._problems.begin(name, f"{type(error).__name__}: {error}")
        if name == "document":
            self._fatal = error
        self._wake.set()

    # Planning

    def _mark(self, case: str) -> None:
        """Mark a case to be refreshed."""
        self._to_refresh[case] = None
        self._wake.set()

    def reconcile(self) -> None:
        """Take the steps that are due."""
        for _ in range(MAX_ROUNDS):
            self._mark_due()
            marked, self._to_refresh = self._to_refresh, {}
            for id in marked:
                with self._report_errors(f"runs of case {id}", id):
                    self._refresh(id)
            now = World(self.client.now(), monotonic())
            plan = self._planner.plan(now, self._approver.all_ready, blind=self.snapshot is None)
            self._wake_at, self._retry_at = plan.wake_at, plan.retry_at
            for step in plan.steps:
                with self._report_errors(f"case {step.case}", step.case):
                    self._take(step)
            if not self._to_refresh:
                return
        self._wake.set()  # go on after other tasks have had their turn

    def _mark_due(self) -> None:
        """Mark the cases whose time has come, and all cases every `SWEEP_EVERY`, in case a change
        of one was missed."""
        now = monotonic()
        self._to_refresh.update(dict.fromkeys(sorted(self._approver.due())))
        for id in [id for id, at in self._refresh_at.items() if at <= now]:
            del self._refresh_at[id]
            self._to_refresh[id] = None
        if now - self._swept >= SWEEP_EVERY:
            self._swept = now
            self._to_refresh.update(dict.fromkeys(case.id for case in self._cases.open))

    def _refresh(self, id: str) -> None:
        if (case := self._cases.get(id)) is None:
            self._planner.remove(id)
            return
        progress = self._cases.progress(case)
        self._observe_runs(progress)
        self._planner.update(progress)

    # Steps

    def _take(self, step: steps.Step) -> None:
        case = self._cases[step.case]
        match step:
            case steps.Order(hook=hook, stage=stage, attempt=attempt, left=left):
                run = self._runners.order(case, hook, stage, attempt, left)
                self._mark(case.id)
                self._start(case, hook, run, left)
            case steps.Start(run=run, left=left):
                self._start(case, _hook_of(case, run), run, left)
            case steps.Cancel(run=run):
                if self._store.cancel(case.id, run):
                    self._mark(case.id)
                else:
                    self._runners.watch(case.id, run)
            case steps.Stop(run=run):
                self._store.request_stop(case.id, run)
            case steps.ReportOverdue(run=run):
                self._log_overdue(case, run)
            case steps.Approve() | steps.ReportReady() | steps.CheckReadiness():
                self._approver.take(step)
            case steps.Close():
                self._close(case)

    def _start(self, case: Case, hook: Hook, run: Run, left: float | None) -> None:
        try:
            result = self._runners.start(case, hook, run, left)
        except OSError as error:
            self._problems.begin("start", f"no command can be started: {error}")
            self._refresh_at[case.id] = monotonic() + START_AGAIN
            return
        if result.check_at is not None:
            self._refresh_at[case.id] = result.check_at
        if result.started:
            self._log_started(case, hook, run, left)

    def _log_started(self, case: Case, hook: Hook, run: Run, left: float | None) -> None:
        started = self._started.setdefault(case.id, set())
        if run.id in started:
            reason = f"the runner of {run.id} ends before it begins; is the disk full?"
            self._problems.begin("start", reason)
            return
        self._problems.end("start")
        started.add(run.id)
        limit = hook.timeout if left is None else round(min(hook.timeout, left), 3)
        self._log("hook started", **_facts(case, run), limit=limit)

    def _observe_runs(self, progress: CaseProgress) -> None:
        """Log runs that have ended, each once, and watch those that have not."""
        case_id = progress.case.id
        ended = self._ended.setdefault(case_id, set())
        for run in progress.runs:
            if run.state == RunState.RUNNING:
                self._runners.watch(case_id, run)
            elif not run.active and run.id not in ended:
                ended.add(run.id)
                self._overdue.discard((case_id, run.id))
                if not self._store.is_logged(case_id, run):
                    self._log_ended(progress, run)
                    self._store.mark_logged(case_id, run)

    def _log_ended(self, progress: CaseProgress, run: Run) -> None:
        case, result = progress.case, run.result
        message = "" if result is None else result.message
        self._log(
            "hook ended",
            **_facts(case, run),
            outcome="lost" if result is None else result.outcome,
            ok=run.succeeded,
            code=None if result is None else result.code,
            seconds=None if result is None else result.seconds,
            output=message or self._store.output(case.id, run),
        )
        runs = progress.runs_of(run.hook, run.stage)
        if run is runs[-1] and summarize(runs, _hook_of(case, run), run.stage).given_up:
            why = None
            if run.stage == "undo":
                directory = self._store.hook_directory(case.id, run.hook)
                why = (
                    f"failed {run.attempt} times, so what {run.hook} prepared is still in place;"
                    f" undo it by hand. What the hook saved for its undo is in {directory}"
                )
            self._log("hook given up", **_facts(case, run), why=why)

    def _log_overdue(self, case: Case, run: Run) -> None:
        if (case.id, run.id) in self._overdue:
            return
        self._overdue.add((case.id, run.id))
        process = self._store.runner_pid(case.id, run)
        self._log(
            "hook overdue",
            **_facts(case, run),
            process=process,
            why=f"process {process}, which enforces the command's time limit and writes its result,"
            f" is stopped or cannot write: resume it (kill -CONT {process}), free space if the disk"
            f" is full, or kill it (kill -KILL {process}) to have the command ended and run again",
        )

    def _close(self, case: Case) -> None:
        self._approver.forget(case)
        self._runners.forget(case.id)
        self._cases.close(case, self.client.now())
        self._ended.pop(case.id, None)
        self._started.pop(case.id, None)


def _hook_of(case: Case, run: Run) -> Hook:
    return next(hook for hook in case.hooks if hook.name == run.hook)


def _facts(case: Case, run: Run) -> dict[str, Any]:
    return {
        "event": case.event.id,
        "type": case.event.type,
        "rule": case.rule.name,
        "hook": run.hook,
        "stage": run.stage,
        "attempt": run.attempt,
    }
